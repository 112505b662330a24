"""Random runs of a sequencer: streams that join, leave, stall, come back, repeat and revise themselves.

Numbers are small on purpose: times collide, memories overflow and deadlines pass within a few steps.
"""

from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from parley.sequencer.calibration import CalibrationSettings
from parley.sequencer.merge import SequencerSettings
from parley.sequencer.operations import Advance, Heartbeat, Join, Learn, Operation, Report, StreamEnded

# A busy machine must not cause a failure: neither an example nor its generation is timed.
UNTIMED = settings(deadline=None, suppress_health_check=[HealthCheck.too_slow])

NAMES = ("stt", "prosody", "vision", "diar")

SETTINGS = st.builds(
    SequencerSettings,
    deadline_us=st.sampled_from((0, 30, 80, 1_000)),
    stall_us=st.sampled_from((1, 30, 150, 1_000)),
    max_waiting=st.sampled_from((1, 6, 1_000)),
    remembered=st.integers(1, 4),
    remembered_streams=st.integers(1, 3),
    calibration=st.builds(
        CalibrationSettings,
        window=st.integers(1, 4),
        max_step_us=st.integers(1, 20),
        max_latency_us=st.just(50),
    ),
)

_STREAM = st.sampled_from(NAMES)
_PRIOR = st.one_of(st.none(), st.integers(0, 40))
# Negative: another stream's result was on its way for longer.
_AGE = st.integers(-5, 30)
_STEPS = st.one_of(
    st.tuples(st.just("report"), _STREAM, _AGE),
    st.tuples(st.just("report"), _STREAM, _AGE),
    st.tuples(st.just("timed"), _STREAM, _AGE, st.integers(-10, 90)),
    st.tuples(st.just("named"), _STREAM, _AGE, st.sampled_from("abc"), st.integers(0, 3), st.booleans()),
    st.tuples(st.just("named"), _STREAM, _AGE, st.sampled_from("abcdef"), st.integers(0, 9), st.just(False)),
    st.tuples(st.just("named"), _STREAM, _AGE, st.just("a"), st.integers(0, 9), st.just(False)),
    st.tuples(st.just("heartbeat"), _STREAM, _AGE),
    st.tuples(st.just("heartbeat"), _STREAM, _AGE),
    st.tuples(st.just("passed"), _STREAM, _AGE, st.integers(0, 60)),
    st.tuples(st.just("learn"), _STREAM, st.integers(-10, 80)),
    st.tuples(st.just("join"), _STREAM, st.integers(0, 40)),
    st.tuples(st.just("leave"), _STREAM),
    st.tuples(st.just("advance"), st.integers(-10, 10)),
    st.tuples(st.just("advance"), st.just(0)),
)


@st.composite
def runs(draw: st.DrawFn) -> list[Operation[str]]:
    """Draw operations in the order of their calls; each report has a payload of its own."""
    now_us = 0
    operations: list[Operation[str]] = [
        Join(name, draw(st.integers(0, 40)), 0, draw(_PRIOR))
        for name in NAMES[: draw(st.sampled_from((4, 3, 1, 0)))]
    ]
    # Long runs, because failures need some twenty operations; short ones, because people read them.
    steps = st.tuples(st.sampled_from((0, 0, 1, 2, 5, 20, 120)), _STEPS)
    script = draw(st.one_of(st.lists(steps, min_size=50, max_size=90), st.lists(steps, max_size=20)))
    for number, (pause_us, step) in enumerate(script):
        now_us += pause_us
        payload = f"p{number}"
        match step:
            case ("report", name, age_us):
                operations.append(Report(name, now_us - age_us, payload))
            case ("timed", name, age_us, before_us):
                operations.append(Report(name, now_us - age_us, payload, now_us - before_us))
            case ("named", name, age_us, identity, revision, final):
                operations.append(
                    Report(name, now_us - age_us, payload, identity=identity, revision=revision, final=final)
                )
            case ("heartbeat", name, age_us):
                operations.append(Heartbeat(name, now_us - age_us))
            case ("passed", name, age_us, before_us):
                operations.append(Heartbeat(name, now_us - age_us, now_us - before_us))
            case ("learn", name, observed_us):
                operations.append(Learn(name, observed_us))
            case ("join", name, latency_us):
                operations.append(Join(name, latency_us, now_us))
            case ("leave", name):
                operations.append(StreamEnded(name))
            case ("advance", off_us):
                operations.append(Advance(now_us + off_us))
    return [*operations, Advance(now_us + 1_000)]
