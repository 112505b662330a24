"""The circuit breaker, at moments that the tests choose."""

from parley.core.failover import DOUBT_MS, TRANSITIONS, CircuitBreaker, CircuitState, CircuitStep


def test_the_circuit_opens_after_consecutive_failures_only():
    circuit = CircuitBreaker(max_failures=2, cool_down_ms=100)
    circuit.on_failure(0)
    circuit.on_success(5)
    circuit.on_failure(10)
    assert circuit.allows(10)
    circuit.on_failure(20)
    assert not circuit.allows(119)
    assert circuit.allows(120)
    circuit.on_failure(130)
    assert not circuit.allows(229)
    assert circuit.allows(230)
    circuit.on_success(230)
    assert circuit.allows(231)


def opened(*, cool_down_ms: int = 100, longest_cool_down_ms: int = 350) -> CircuitBreaker:
    """Return a breaker that has opened at 0."""
    breaker = CircuitBreaker(
        max_failures=1, cool_down_ms=cool_down_ms, longest_cool_down_ms=longest_cool_down_ms
    )
    breaker.on_failure(0)
    return breaker


def test_one_probe_at_a_time_is_due_after_the_cool_down():
    breaker = opened()
    assert not breaker.take_probe(99)
    assert breaker.take_probe(100)
    assert not breaker.take_probe(101)
    assert not breaker.is_closed
    breaker.on_success(100)
    assert breaker.is_closed and not breaker.take_probe(500)


def test_the_cool_down_doubles_with_each_failed_probe_up_to_its_bound_and_begins_anew_after_a_success():
    breaker, at_ms, waits = opened(), 0, []
    for _ in range(4):
        due_ms = next(ms for ms in range(at_ms, at_ms + 1_000) if breaker.allows(ms))
        waits.append(due_ms - at_ms)
        assert breaker.take_probe(due_ms)
        at_ms = due_ms
        breaker.on_failure(at_ms)
    assert waits == [100, 200, 350, 350]
    breaker.on_success(at_ms)
    breaker.on_failure(at_ms)
    assert breaker.allows(at_ms + 100)


def test_the_second_doubt_within_a_minute_opens_it_whatever_worked_in_between():
    breaker = CircuitBreaker(max_failures=1, cool_down_ms=100)
    breaker.on_doubt(0)
    assert breaker.is_closed
    breaker.on_doubt(DOUBT_MS)
    assert breaker.is_closed
    breaker.on_success(DOUBT_MS + 1)
    breaker.on_doubt(2 * DOUBT_MS - 1)
    assert not breaker.is_closed


def test_a_doubt_about_a_probe_is_a_failure():
    breaker = opened()
    assert breaker.take_probe(100)
    breaker.on_doubt(150)
    assert not breaker.take_probe(349) and breaker.take_probe(350)


def test_uses_that_began_before_it_opened_do_not_prolong_the_cool_down():
    breaker = opened()
    breaker.on_failure(50)
    breaker.on_failure(60)
    assert not breaker.take_probe(99) and breaker.take_probe(100)
    breaker.on_failure(100)
    assert not breaker.take_probe(299) and breaker.take_probe(300)


def test_a_use_that_began_before_it_opened_does_not_close_it():
    breaker = CircuitBreaker(max_failures=1, cool_down_ms=100)
    breaker.on_failure(20)
    breaker.on_success(10)
    assert not breaker.is_closed
    assert breaker.take_probe(120)
    breaker.on_success(10)
    assert not breaker.is_closed
    breaker.on_success(120)
    assert breaker.is_closed


def test_a_use_that_began_after_it_opened_closes_it():
    # Where no engine works, the one that failed first is tried before its cool-down is over.
    breaker = opened()
    breaker.on_success(30)
    assert breaker.is_closed


def test_a_probe_that_ends_with_its_call_is_due_again_at_once():
    breaker = opened()
    assert breaker.take_probe(100)
    breaker.on_abandoned()
    assert breaker.take_probe(100)
    breaker.on_success(100)
    breaker.on_abandoned()
    assert breaker.is_closed


def test_every_pair_of_state_and_event_is_decided():
    # A probe needs an open breaker, and only a probe can be abandoned.
    impossible = {
        (CircuitState.CLOSED, CircuitStep.PROBED),
        (CircuitState.CLOSED, CircuitStep.ABANDONED),
        (CircuitState.PROBING, CircuitStep.PROBED),
        (CircuitState.OPEN, CircuitStep.ABANDONED),
    }
    pairs = {(state, step) for state in CircuitState for step in CircuitStep}
    assert pairs - set(TRANSITIONS) == impossible
