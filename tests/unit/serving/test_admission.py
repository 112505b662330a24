"""The bound of a server's calls: the policy with figures, the gate on a loop."""

import asyncio

import pytest
from loguru import logger
from pipecat.runner.types import RunnerArguments

from parley.core.errors import CapacityError
from parley.runtime.event_stream import CallEvents
from parley.serving.gateway.admission import AdmissionGate, RecogniserLoad, allowed_ticks, processor_ticks
from parley.serving.gateway.calls import CallTasks
from parley.serving.scheduler.admission import (
    BUSY_LATE_MS,
    DEVIATIONS,
    FALL_MS,
    FIRST_SHARE,
    HEARD_SHARE,
    LAGS,
    LATE_MS,
    LEAST_ALONE,
    LEAST_ANSWERS,
    LEAST_CALLS,
    RETURN_FREE_MS,
    RETURN_MS,
    TRY_MS,
    TRY_SILENT_MS,
    Admission,
)


def tried(most: int) -> Admission:
    """Return the policy of a server that has held that many calls before."""
    return Admission(most, first_share=1e12)


def learnt_alone(most: int = 32, alone_ms: int = 400, policy: Admission | None = None) -> Admission:
    policy = policy or Admission(most)
    for _ in range(LEAST_ALONE):
        policy.on_answer(0, alone_ms, calls=1)
    policy.on_processors(0.95)
    return policy


def answers(
    policy: Admission, at_ms: int, latency_ms: int, *, calls: int, count: int = LEAST_ANSWERS
) -> None:
    for _ in range(count):
        policy.on_answer(at_ms, latency_ms, calls=calls)
    policy.look(at_ms, calls=calls)


def test_a_server_of_which_nothing_is_known_admits_what_the_deployment_says():
    assert Admission(7).admitted.calls == 7


@pytest.mark.parametrize(
    ("processes", "factor", "calls"),
    [(1, 0.1, 8), (1, 0.2, 4), (2, 0.2, 8), (1, 0.5, 2), (1, 3.0, 2), (1, 0.001, 32)],
)
def test_as_many_are_admitted_as_may_speak_at_the_same_moment(processes: int, factor: float, calls: int):
    policy = tried(32)
    policy.on_hearing(processes=processes, real_time_factor=factor)
    assert policy.admitted.calls == calls


def test_callers_who_listen_most_of_the_time_leave_room_for_others_once_that_was_seen():
    policy = tried(32)
    policy.on_hearing(processes=1, real_time_factor=0.16)
    found = [policy.admitted.calls]
    # Four calls, each of which speaks a third of the time, for ten minutes.
    for second in range(600):
        policy.on_speaking((0, 1, 3)[second % 3], calls=4, seconds=1.0)
        if second in (30, 599):
            found.append(policy.admitted.calls)
    assert found == [5, 5, 7]


def test_a_crowd_that_only_listens_is_not_taken_for_one_that_never_speaks():
    policy = tried(1_000)
    policy.on_hearing(processes=1, real_time_factor=0.08)
    for _ in range(10_000):
        policy.on_speaking(0, calls=20, seconds=1.0)
    # One in five speaks: 28 callers are 10 speakers nearly always.
    assert policy.admitted.calls == 28


def test_few_are_admitted_until_the_recogniser_has_shown_its_pace():
    policy = tried(32)
    policy.on_hearing(processes=1, real_time_factor=None)
    found = [policy.admitted.calls]
    policy.on_hearing(processes=1, real_time_factor=0.1)
    assert [*found, policy.admitted.calls] == [3, 8]


def at_the_bound(policy: Admission, from_s: int, seconds: int, *, latency_ms: int | None) -> list[int]:
    """Hold as many calls as are admitted, one answer a second; return the bound after each second."""
    found = []
    for second in range(from_s, from_s + seconds):
        calls = policy.admitted.calls
        policy.on_speaking(calls, calls=calls, seconds=1.0)
        if latency_ms is not None:
            policy.on_answer(second * 1_000, latency_ms, calls=calls)
        policy.look(second * 1_000, calls=calls)
        found.append(policy.admitted.calls)
    return found


def test_a_server_begins_with_a_share_of_those_who_can_be_heard_and_tries_more_when_these_went_well():
    policy = Admission(32)
    policy.on_hearing(processes=1, real_time_factor=0.044)
    first = int(FIRST_SHARE * HEARD_SHARE / 0.044)
    assert policy.admitted.calls == first == 8
    assert policy.admitted.why == "more than 8 calls are tried when these go well"
    found = at_the_bound(policy, 0, 3 * TRY_MS // 1_000 + 5, latency_ms=400)
    assert sorted(set(found)) == [8, 10, 12, 15]


def test_calls_that_end_before_others_begin_do_not_keep_more_from_being_tried():
    policy = Admission(32)
    policy.on_hearing(processes=1, real_time_factor=0.044)
    for second in range(40):
        calls = 8 - second % 2
        policy.on_speaking(4, calls=calls, seconds=1.0)
        policy.on_answer(second * 1_000, 400, calls=calls)
        policy.look(second * 1_000, calls=calls)
    assert policy.admitted.calls == 8
    at_the_bound(policy, 40, 3, latency_ms=400)
    assert policy.admitted.calls == 10


def test_no_more_are_tried_while_fewer_are_held():
    policy = Admission(32)
    policy.on_hearing(processes=1, real_time_factor=0.044)
    for second in range(300):
        policy.on_speaking(2, calls=7, seconds=1.0)
        policy.on_answer(second * 1_000, 400, calls=7)
        policy.look(second * 1_000, calls=7)
    assert policy.admitted.calls == 8


@pytest.mark.parametrize(("late_ms", "each"), [(900, 3), (650, 6)])
def test_no_more_are_tried_when_a_part_of_the_answers_is_late(late_ms: int, each: int):
    policy = learnt_alone(alone_ms=400)
    policy.on_processors(0.3)
    policy.on_hearing(processes=1, real_time_factor=0.044)
    for second in range(120):
        policy.on_speaking(4, calls=8, seconds=1.0)
        policy.on_answer(second * 1_000, late_ms if second % each == 0 else 420, calls=8)
        policy.look(second * 1_000, calls=8)
    assert policy.admitted.calls == 8


def test_answers_that_are_slow_in_a_call_alone_too_keep_no_more_from_being_tried():
    policy = Admission(32)
    policy.on_hearing(processes=1, real_time_factor=0.044)
    for number in range(LEAST_ALONE):
        policy.on_answer(0, 1_200 if number % 4 == 0 else 400, calls=1)
    for second in range(30):
        policy.on_speaking(4, calls=8, seconds=1.0)
        policy.on_answer(second * 1_000, 1_300 if second % 4 == 0 else 420, calls=8)
        policy.look(second * 1_000, calls=8)
    assert policy.admitted.calls == 10


def test_calls_whose_answers_cannot_be_compared_are_tried_more_slowly():
    policy = Admission(32)
    policy.on_hearing(processes=1, real_time_factor=0.044)
    found = []
    for second in range(0, 70, 10):
        found += at_the_bound(policy, second, 1, latency_ms=400)
        found += at_the_bound(policy, second + 1, 9, latency_ms=None)
    assert (found[TRY_SILENT_MS // 1_000 - 1], found[-1]) == (8, 10)


def test_calls_without_answers_that_are_measured_are_tried_too_and_more_slowly():
    policy = Admission(32)
    policy.on_hearing(processes=1, real_time_factor=0.044)
    found = at_the_bound(policy, 0, TRY_SILENT_MS // 1_000 + 2, latency_ms=None)
    assert (found[TRY_SILENT_MS // 1_000 - 1], found[-1]) == (8, 10)


def test_trouble_takes_back_what_was_tried():
    policy = learnt_alone(alone_ms=400)
    policy.on_hearing(processes=1, real_time_factor=0.044)
    at_the_bound(policy, 0, TRY_MS // 1_000 + 5, latency_ms=400)
    assert policy.admitted.calls == 10
    answers(policy, 60_000, 2_000, calls=10)
    assert policy.admitted.calls == 9
    # Calmer, and with fewer calls on: measured values return, the tried bound has to be tried again.
    for second in range(80, 400):
        policy.on_speaking(1, calls=3, seconds=1.0)
        policy.look(second * 1_000, calls=3)
    assert policy.admitted.calls == 9


def test_answers_are_compared_with_those_of_the_fewest_calls_where_none_was_alone():
    policy = Admission(32)
    policy.on_processors(0.95)
    for calls in (6, 4):
        for _ in range(LEAST_ALONE // 2 + 1):
            policy.on_answer(0, 100 * calls, calls=calls)
    answers(policy, 20_000, 900, calls=8)
    assert policy.admitted.calls == 7
    assert policy.admitted.why == "answers take 900 ms, and 400 ms with few calls"


def test_a_machine_that_becomes_slower_admits_fewer_and_one_that_becomes_faster_more():
    policy = tried(32)
    found = []
    for factor in (0.1, 0.4, 0.05):
        policy.on_hearing(processes=1, real_time_factor=factor)
        found.append(policy.admitted.calls)
    assert found == [8, 2, 16]


def test_answers_that_are_slower_than_in_a_call_alone_keep_the_next_caller_out():
    policy = learnt_alone()
    answers(policy, 1_000, 590, calls=6)
    assert policy.admitted.calls == 32
    answers(policy, 2_000, 900, calls=6)
    # The slower half decides, not one slow answer.
    assert policy.admitted.calls == 5
    assert policy.admitted.why == "answers take 745 ms, and 400 ms in a call alone"


def test_one_slow_answer_of_a_tool_keeps_no_one_out():
    policy = learnt_alone()
    answers(policy, 1_000, 420, calls=6)
    policy.on_answer(1_500, 9_000, calls=6)
    policy.look(2_000, calls=6)
    assert policy.admitted.calls == 32


def test_slow_answers_are_no_reason_while_it_is_not_known_how_long_one_takes_alone():
    policy = Admission(32)
    policy.on_processors(0.95)
    answers(policy, 1_000, 9_000, calls=6)
    assert policy.admitted.calls == 32


def test_a_late_loop_keeps_the_next_caller_out():
    policy = Admission(32)
    for at_ms in range(LAGS // 4):
        policy.on_lag(at_ms, 2 * LATE_MS if at_ms % 10 == 0 else 0)
    policy.look(1_000, calls=4)
    assert policy.admitted.calls == 3
    assert "event loop is 80 ms late" in policy.admitted.why


def test_the_bound_falls_step_by_step_and_never_below_two_calls():
    policy = learnt_alone()
    at_ms = 0
    found = []
    for calls in (4, 3, 2, 2):
        at_ms += FALL_MS
        answers(policy, at_ms, 2_000, calls=calls)
        found.append(policy.admitted.calls)
    assert found == [3, 2, 2, 2]


def test_the_bound_does_not_fall_again_before_no_more_calls_are_held_than_it_admits():
    policy = learnt_alone()
    for second in range(0, 60):
        answers(policy, second * 1_000, 1_500, calls=10)
    # One step below the calls that are held, however long they take to end.
    assert policy.admitted.calls == 9
    answers(policy, 60_000, 1_500, calls=9)
    assert policy.admitted.calls == 8


def test_the_bound_returns_sooner_while_it_keeps_no_caller_out():
    policy = learnt_alone()
    answers(policy, 0, 1_500, calls=10)
    for second in range(1, 61):
        policy.look(second * 1_000, calls=0)
    assert policy.admitted.calls == 9 + 60_000 // RETURN_FREE_MS
    full = learnt_alone()
    answers(full, 0, 1_500, calls=10)
    for second in range(16, 76):
        full.look(second * 1_000, calls=20)
    assert full.admitted.calls == 9 + 60_000 // RETURN_MS


def test_slow_answers_of_a_machine_that_is_not_busy_keep_no_caller_out():
    policy = learnt_alone()
    policy.on_processors(0.3)
    answers(policy, 1_000, 1_200, calls=2)
    assert policy.admitted.calls == 32
    for at_ms in range(LAGS):
        policy.on_lag(at_ms, BUSY_LATE_MS + 1)
    answers(policy, 2_000, 1_200, calls=2)
    assert policy.admitted.calls == 2


def test_slow_answers_count_when_nearly_as_many_are_heard_as_can_be():
    policy = learnt_alone(policy=tried(32))
    policy.on_processors(0.3)
    policy.on_hearing(processes=1, real_time_factor=0.1)
    policy.on_speaking(4, calls=4, seconds=1.0)
    answers(policy, 1_000, 1_200, calls=4)
    assert policy.admitted.calls == 8
    policy.on_speaking(7, calls=7, seconds=1.0)
    answers(policy, 2_000, 1_200, calls=7)
    assert policy.admitted.calls == 6


def test_two_cheap_answers_are_no_standard_for_others():
    policy = Admission(32)
    policy.on_processors(0.95)
    for _ in range(2):
        policy.on_answer(0, 350, calls=1)
    answers(policy, 1_000, 1_200, calls=2)
    assert policy.admitted.calls == 32


def test_the_bound_of_the_recogniser_is_found_without_going_through_every_number_of_calls():
    # A loop over them would take minutes.
    policy = tried(4_000_000_000)
    policy.on_hearing(processes=1_000, real_time_factor=1e-6)
    policy.on_speaking(0, calls=1_000, seconds=3_600.0)
    assert policy.admitted.calls == pytest.approx(4_000_000_000, rel=1e-3)


@pytest.mark.parametrize("heard", [1.0, 2.5, 5.0, 8.0, 50.0])
@pytest.mark.parametrize("share", [0.2, 0.35, 0.9])
def test_as_many_are_admitted_as_hardly_ever_speak_beyond_what_is_heard(heard: float, share: float):
    policy = tried(1_000)
    policy.on_hearing(processes=1, real_time_factor=HEARD_SHARE / heard)
    policy.on_speaking(round(share * 100), calls=100, seconds=3_600.0)

    def speak(calls: int) -> float:
        return calls * share + DEVIATIONS * (calls * share * (1 - share)) ** 0.5

    calls = policy.admitted.calls
    assert calls >= max(LEAST_CALLS, int(heard))
    assert speak(calls + 1) > heard
    assert speak(calls) <= heard + 1e-6 or calls == max(LEAST_CALLS, int(heard))


def test_a_call_that_is_alone_is_no_one_elses_trouble():
    policy = learnt_alone()
    for at_ms in range(LAGS):
        policy.on_lag(at_ms, 500)
    policy.look(LAGS, calls=1)
    assert policy.admitted.calls == 32


def test_the_bound_returns_call_by_call_when_the_trouble_is_over():
    policy = learnt_alone(most=6)
    answers(policy, 1_000, 2_000, calls=5)
    assert policy.admitted.calls == 4
    for steps in (1, 2, 3):
        policy.look(1_000 + steps * RETURN_MS, calls=2)
    assert policy.admitted.calls == 6


def test_what_was_seen_long_ago_does_not_count():
    policy = learnt_alone()
    for _ in range(LEAST_ANSWERS):
        policy.on_answer(1_000, 2_000, calls=6)
    policy.look(60_000, calls=6)
    assert policy.admitted.calls == 32


async def test_a_call_beyond_the_bound_is_refused_with_the_reason_and_those_that_are_held_go_on():
    factor = [0.088]
    over = asyncio.Event()

    async def hold(_arguments: RunnerArguments) -> None:
        await over.wait()

    async def hang_up() -> None:
        return None

    calls = CallTasks(hold, max_calls=32, drain_s=0, hang_up_s=0.1)
    gate = AdmissionGate(
        32,
        hearing=lambda: RecogniserLoad(1, factor[0], speaking=calls.active),
        active=lambda: calls.active,
        heard=lambda: calls.heard,
        answers=CallEvents(),
        full_s=0,
    )
    calls.admitted = gate.admits
    gate.start()
    try:
        async with asyncio.timeout(10):
            while gate.admitted.calls == 32:
                await asyncio.sleep(0.01)
        for number in range(4):
            calls.start(RunnerArguments(body={}), call_id=str(number), hang_up=hang_up)
        with pytest.raises(
            CapacityError, match="more than 4 calls are tried when these go well; try again later"
        ) as caught:
            calls.check_room()
        assert caught.value.limit == 4
        async with asyncio.timeout(10):
            while not gate.full():
                await asyncio.sleep(0.01)
        assert gate.full() == [f"full: {gate.admitted.why}"]
        # A line that was promised to a caller is taken.
        factor[0] = 0.044
        async with asyncio.timeout(10):
            while gate.admitted.calls != 8:
                await asyncio.sleep(0.01)
        calls.check_room(promised=3)
        with pytest.raises(CapacityError):
            calls.check_room(promised=4)
        # A bound below the number of held calls ends none of them.
        factor[0] = 1.0
        async with asyncio.timeout(10):
            while gate.admitted.calls != 2:
                await asyncio.sleep(0.01)
        assert calls.active == 4
        assert gate.describe() == {
            "calls": 4,
            "heard": 4,
            "admitted": 2,
            "why": gate.admitted.why,
            "alone_ms": None,
            "recogniser_ms_per_s": 1000,
        }
    finally:
        over.set()
        await gate.close()
        await calls.close(hang_up)


async def test_a_look_that_fails_is_logged_once_and_the_next_one_counts():
    figures: list[RecogniserLoad | Exception] = [RecogniserLoad(1, 0.088, speaking=0)]

    def hearing() -> RecogniserLoad:
        looks.append(len(looks))
        match figures[0]:
            case Exception() as error:
                raise error
            case figure:
                return figure

    looks: list[int] = []
    gate = AdmissionGate(32, hearing=hearing, active=lambda: 0, heard=lambda: 0, answers=CallEvents())
    gate.start()
    lines: list[str] = []
    sink = logger.add(lambda line: lines.append(line.record["message"]), level="ERROR")
    try:
        assert gate.admitted.calls == 4
        figures[0] = RuntimeError("no figures")
        seen = len(looks)
        async with asyncio.timeout(20):
            while len(looks) < seen + 2:
                await asyncio.sleep(0.01)
            figures[0] = RecogniserLoad(1, 0.044, speaking=0)
            while gate.admitted.calls != 8:
                await asyncio.sleep(0.01)
        assert len(lines) == 1
    finally:
        logger.remove(sink)
        await gate.close()


STAT = """\
cpu  400 0 100 3500 20 0 0 0 0 0
cpu0 100 0 50 840 10 0 0 0 0 0
cpu1 300 0 50 640 10 0 0 0 0 0
cpu10 0 0 0 2020 0 0 0 0 0 0
intr 12 0 0
"""


@pytest.mark.parametrize(
    ("allowed", "ticks"),
    [({0}, (1000, 850)), ({1}, (1000, 650)), ({0, 1}, (2000, 1500)), ({0, 1, 10}, (4020, 3520)), ({4}, None)],
)
def test_only_processors_that_the_server_may_use_count(allowed, ticks):
    assert allowed_ticks(STAT, allowed) == ticks


def test_the_ticks_of_this_machine_are_read():
    ticks = processor_ticks()
    assert ticks is not None
    assert 0 <= ticks[1] <= ticks[0]
