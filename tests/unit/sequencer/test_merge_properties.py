"""The sequencer against a brute-force model, and invariants of every run."""

from hypothesis import event, given, settings
from hypothesis import strategies as st

from parley.sequencer.merge import Committed, Sequencer, SequencerSettings
from parley.sequencer.operations import (
    Advance,
    Heartbeat,
    Join,
    Journal,
    Learn,
    Operation,
    Report,
    from_json,
    to_json,
)
from parley.sequencer.watermark import UnknownStreamError
from tests.unit.sequencer.model import Model
from tests.unit.sequencer.scripts import SETTINGS, UNTIMED, runs


def possible(run: list[Operation[str]], chosen: SequencerSettings) -> list[Operation[str]]:
    """Return the run without calls for streams that the model does not know; those are refused."""
    model = Model(chosen)
    sequencer: Sequencer[str] = Sequencer(chosen)
    kept: list[Operation[str]] = []
    for operation in run:
        if isinstance(operation, Report | Heartbeat | Learn) and operation.stream not in model.streams:
            try:
                sequencer.apply(operation)
            except UnknownStreamError as refused:
                assert refused.stream == operation.stream
                continue
            raise AssertionError(f"{operation} was not refused")
        model.apply(operation)
        sequencer.apply(operation)
        kept.append(operation)
    return kept


def play(run: list[Operation[str]], sequencer: Sequencer[str]) -> list[Committed[str]]:
    return [committed for operation in run for committed in sequencer.apply(operation)]


@settings(UNTIMED, max_examples=400)
@given(runs(), SETTINGS)
def test_every_step_commits_what_the_brute_force_model_commits(
    run: list[Operation[str]], chosen: SequencerSettings
) -> None:
    model = Model(chosen)
    sequencer: Sequencer[str] = Sequencer(chosen)
    for operation in possible(run, chosen):
        expected = model.apply(operation)
        assert [committed._asdict() for committed in sequencer.apply(operation)] == expected
        assert sequencer.waiting == len(model.waiting)
    counts = sequencer.counts
    assert {name: getattr(counts, name) for name in model.dropped} == model.dropped
    assert counts.late == sum(bool(committed["late"]) for committed in model.committed)
    for name in ("late", "overdue", "crowded", "superseded", "duplicates", "outdated", "after_final"):
        if getattr(counts, name):
            event(name)


@UNTIMED
@given(runs(), SETTINGS)
def test_nothing_is_lost_and_nothing_comes_twice(
    run: list[Operation[str]], chosen: SequencerSettings
) -> None:
    run = possible(run, chosen)
    sequencer: Sequencer[str] = Sequencer(chosen)
    payloads = [committed.payload for committed in play(run, sequencer)]
    reported = [operation.payload for operation in run if isinstance(operation, Report)]
    counts = sequencer.counts
    assert len(payloads) == len(set(payloads)) == counts.committed
    assert set(payloads) <= set(reported)
    dropped = counts.superseded + counts.duplicates + counts.outdated + counts.after_final
    assert counts.committed + dropped + sequencer.waiting == len(reported)
    assert sequencer.waiting == 0
    unnamed = {
        operation.payload for operation in run if isinstance(operation, Report) and not operation.identity
    }
    assert unnamed <= set(payloads)


@UNTIMED
@given(runs(), SETTINGS)
def test_what_is_in_order_stays_in_order_and_late_is_marked(
    run: list[Operation[str]], chosen: SequencerSettings
) -> None:
    moment_us = None
    for seq, committed in enumerate(play(possible(run, chosen), Sequencer(chosen))):
        assert committed.seq == seq
        if committed.late:
            assert moment_us is not None and committed.event_us <= moment_us
        else:
            assert moment_us is None or committed.event_us >= moment_us
            moment_us = committed.event_us


@UNTIMED
@given(runs(), SETTINGS)
def test_no_report_waits_past_its_deadline(run: list[Operation[str]], chosen: SequencerSettings) -> None:
    sequencer: Sequencer[str] = Sequencer(chosen)
    # Arrival and event of what waits. A revision that happened later waits anew.
    waiting: dict[tuple[str, str], tuple[int, int]] = {}
    for operation in possible(run, chosen):
        before, superseded = sequencer.waiting, sequencer.counts.superseded
        fresh = sequencer.apply(operation)
        if isinstance(operation, Report):
            key = operation.stream, operation.identity or operation.payload
            usual_us = operation.arrival_us - sequencer.latency_us(operation.stream)
            event_us = usual_us if operation.event_us is None else operation.event_us
            event_us = min(event_us, operation.arrival_us)
            if sequencer.waiting > before:
                waiting[key] = operation.arrival_us, event_us
            elif sequencer.counts.superseded > superseded:
                if event_us > waiting[key][1]:
                    waiting[key] = operation.arrival_us, event_us
        for committed in fresh:
            waiting.pop((committed.stream, committed.identity or committed.payload), None)
        if isinstance(operation, Advance):
            assert all(
                arrival_us + chosen.deadline_us > operation.now_us for arrival_us, _ in waiting.values()
            )
            assert sequencer.waiting <= chosen.max_waiting


@UNTIMED
@given(runs(), SETTINGS)
def test_a_stored_run_played_back_commits_the_same(
    run: list[Operation[str]], chosen: SequencerSettings
) -> None:
    lines: list[str] = []
    journal: Journal[str] = Journal()
    live: Sequencer[str] = Sequencer(chosen)
    committed = []
    for operation in possible(run, chosen):
        fresh = live.apply(operation)
        committed += fresh
        lines += [to_json(kept, str) for kept in journal.record(operation, yielded=bool(fresh))]
    stored = [from_json(line, str) for line in lines]
    assert play(stored, Sequencer(chosen)) == committed
    assert all(operation in stored for operation in run if isinstance(operation, Join))


STREAMS = {"text": 0, "stt": 80, "vision": 200, "prosody": 120, "diar": 200}


@UNTIMED
@given(
    st.lists(st.tuples(st.sampled_from(sorted(STREAMS)), st.integers(0, 600)), max_size=80),
    st.integers(1, 60),
)
def test_healthy_streams_come_out_sorted_within_the_slowest_latency_and_a_tick(
    happenings: list[tuple[str, int]], tick_us: int
) -> None:
    sequencer: Sequencer[int] = Sequencer()
    for name, latency_us in STREAMS.items():
        sequencer.join(name, latency_us=latency_us, at_us=0)
    arrivals = sorted(
        (event_us + STREAMS[name], number, name) for number, (name, event_us) in enumerate(happenings)
    )
    committed: list[Committed[int]] = []
    for now_us in range(tick_us, 900 + tick_us, tick_us):
        while arrivals and arrivals[0][0] <= now_us:
            arrival_us, number, name = arrivals.pop(0)
            sequencer.report(name, arrival_us, number)
        for name in STREAMS:
            sequencer.heartbeat(name, now_us)
        fresh = sequencer.advance(now_us)
        assert all(now_us - one.event_us <= max(STREAMS.values()) + tick_us for one in fresh)
        committed += fresh
    assert not any(one.late for one in committed)
    ranks = list(STREAMS)
    expected = sorted(
        range(len(happenings)),
        key=lambda number: (happenings[number][1], ranks.index(happenings[number][0]), number),
    )
    assert [one.payload for one in committed] == expected
