"""Figures of a run, and whether they satisfy the requirements. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from statistics import median
from typing import Any

from parley.evals.failover.calls import CallRecord
from parley.evals.failover.faults import Stage
from parley.evals.failover.judge import HeardTurn
from parley.evals.failover.replies import REPLY_WORDS
from parley.evals.harness.report import cell, markdown, spread

# Requirements: silence that nothing explains, and the time by which a first sound is later than a normal one.
MOST_SILENCE_MS, MOST_LATER_MS = 3_000, 1_500
FAILED_TURN = 1


def normal_ms(records: Sequence[CallRecord]) -> dict[str, float]:
    """Return the first sound of a normal turn for each kind of lane.

    It is the median of the first turns that were answered whole. Recognisers differ in their time.
    """
    first: dict[str, list[int]] = {}
    for each in records:
        for turn in each.turns[:1]:
            if turn.first_ms is not None and _is_whole(turn):
                first.setdefault(each.kind, []).append(turn.first_ms)
    return {kind: median(found) for kind, found in first.items()}


def _is_whole(turn: HeardTurn) -> bool:
    return turn.first_ms is not None and not turn.missing and len(turn.replies) == 1


def lost(record: CallRecord) -> list[str]:
    """Return the words that a call lost.

    A model that fails in the middle of a reply has not said the rest, which another answer replaces. The
    other model also answers while the circuit breaker of the first is open, for 30 s after failures. So does
    the cascade for a realtime service.
    """
    return [
        word
        for turn in record.turns
        if not (turn.says_other and (record.failure.stage is Stage.MODEL or not turn.replies))
        and not (record.failure.stage is Stage.REALTIME and len(turn.replies) > 1)
        for word in turn.missing
    ]


def figures(records: Sequence[CallRecord]) -> dict[str, Any]:
    """Return the figures of a run."""
    normal = normal_ms(records)
    held = [each for each in records if not each.error]
    after = [turn for each in held for turn in each.turns[FAILED_TURN:]]
    later = [
        turn.first_ms - normal[each.kind]
        for each in held
        for turn in each.turns[FAILED_TURN:]
        if turn.first_ms is not None and each.kind in normal
    ]
    silences = [turn.silence_ms for turn in after]
    return {
        "calls_held": len(held),
        "not_held": [each.error for each in records if each.error],
        "stages": dict(Counter(f"{each.failure.stage}: {each.failure.fault}" for each in records)),
        "with_a_failover": sum(bool(each.failovers) for each in held),
        "normal_first_by_kind_ms": normal,
        "normal_first_ms": spread([t.first_ms for e in held for t in e.turns[:1] if t.first_ms is not None]),
        "normal_silence_ms": spread([turn.silence_ms for each in held for turn in each.turns[:1]]),
        "first_later_than_normal_ms": spread(later, digits=0),
        "silence_ms": spread(silences, digits=0),
        "silences_by_stage_ms": {
            stage: spread(
                [t.silence_ms for e in held if e.failure.stage is stage for t in e.turns[FAILED_TURN:]],
                digits=0,
            )
            for stage in Stage
        },
        "silent_over_limit": sum(ms > MOST_SILENCE_MS for ms in silences),
        "without_a_sound": sum(turn.first_ms is None for turn in after),
        "late_over_limit": sum(ms > MOST_LATER_MS for ms in later),
        "words_heard": sum(REPLY_WORDS * len(turn.replies) - len(turn.missing) for turn in after),
        "words_repeated": sum(len(each.repeated) for each in held),
        "words_lost": sum(len(lost(each)) for each in held),
        "caller_words_repeated": sum(len(each.caller_repeated) for each in held),
    }


def passed(records: Sequence[CallRecord]) -> bool:
    """Return whether every call is within the limits."""
    found = figures(records)
    names = (
        "silent_over_limit",
        "without_a_sound",
        "late_over_limit",
        "words_repeated",
        "caller_words_repeated",
    )
    return bool(records) and not found["not_held"] and not any(found[name] for name in names)


def table(found: Mapping[str, Any]) -> str:
    """Return the figures as a table."""

    def ms(name: str) -> str:
        given = found[name]
        return " / ".join(cell(given.get(each)) for each in ("p50", "p95", "p99", "max"))

    rows = [
        ("calls held / not held", f"{found['calls_held']} / {len(found['not_held'])}"),
        ("failures", ", ".join(f"{name} {count}" for name, count in sorted(found["stages"].items()))),
        ("calls with a failover in their records", found["with_a_failover"]),
        ("first sound of normal turns ms, p50 / p95 / p99 / max", ms("normal_first_ms")),
        ("first sound later than normal ms", ms("first_later_than_normal_ms")),
        ("- over the limit of 1,500", found["late_over_limit"]),
        ("longest silence of normal turns ms", ms("normal_silence_ms")),
        ("longest silence ms", ms("silence_ms")),
        (
            "- over the limit of 3,000 / without a sound",
            f"{found['silent_over_limit']} / {found['without_a_sound']}",
        ),
        (
            "words heard / repeated / lost",
            f"{found['words_heard']} / {found['words_repeated']} / {found['words_lost']}",
        ),
        ("words of the caller that the session has again", found["caller_words_repeated"]),
    ]
    return markdown(("calls with a failure", ""), rows) + "\n"
