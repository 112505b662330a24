"""Spans of a turn and the figures of a run."""

import pytest

from parley.evals.harness.report import percentile
from parley.evals.latency.figures import TurnFigures, mean_spans_ms, ratio, summary
from parley.evals.latency.spans import match_marks, turn_spans

MARKS = {
    "speech_end": 1_100_000,
    "endpoint": 1_350_000,
    "transcript": 1_360_000,
    "llm_first_token": 1_380_000,
    "first_clause": 1_385_000,
    "tts_first_audio": 1_400_000,
    "playout": 1_420_000,
}


def test_spans_of_ordered_marks_add_up_to_the_whole() -> None:
    spans = turn_spans(1_000_000, 1_510_000, MARKS)
    assert spans == {
        "network_in": 100_000,
        "endpoint_wait": 250_000,
        "stt_final": 10_000,
        "llm_first_token": 20_000,
        "first_clause": 5_000,
        "tts_first_audio": 15_000,
        "playout_queue": 20_000,
        "network_out": 90_000,
    }
    assert sum(spans.values()) == 510_000


def test_transcript_before_the_endpoint_is_named_by_the_clock() -> None:
    spans = turn_spans(1_000_000, 1_510_000, {**MARKS, "transcript": 1_150_000})
    assert spans["stt_final"] == 50_000
    assert spans["endpoint_wait"] == 200_000
    assert sum(spans.values()) == 510_000


def test_work_ahead_of_the_endpoint_costs_nothing() -> None:
    spans = turn_spans(1_000_000, 1_510_000, {**MARKS, "llm_first_token": 1_200_000})
    assert spans["llm_first_token"] == 0
    assert sum(spans.values()) == 510_000


def test_model_that_speaks_after_a_filler_does_not_lengthen_the_turn() -> None:
    spans = turn_spans(1_000_000, 1_510_000, {**MARKS, "llm_first_token": 1_900_000})
    assert sum(spans.values()) == 510_000


def test_missing_inner_mark_lends_its_time_to_the_next() -> None:
    marks = {name: at for name, at in MARKS.items() if name != "first_clause"}
    spans = turn_spans(1_000_000, 1_510_000, marks)
    assert "first_clause" not in spans
    assert spans["tts_first_audio"] == 20_000
    assert sum(spans.values()) == 510_000


@pytest.mark.parametrize(("missing", "lost_us"), [("speech_end", 350_000), ("playout", 110_000)])
def test_missing_outer_mark_leaves_time_unexplained(missing: str, lost_us: int) -> None:
    marks = {name: at for name, at in MARKS.items() if name != missing}
    assert sum(turn_spans(1_000_000, 1_510_000, marks).values()) == 510_000 - lost_us


def test_mark_that_cannot_be_true_shows_as_an_error() -> None:
    early = turn_spans(1_000_000, 1_510_000, {**MARKS, "speech_end": 940_000})
    assert sum(early.values()) == 510_000 + 60_000
    late = turn_spans(1_000_000, 1_510_000, {**MARKS, "playout": 1_530_000})
    assert sum(late.values()) == 510_000 + 20_000


def test_answer_belongs_to_the_turn_that_played_just_before_it() -> None:
    turns = [
        {"turn": 1, "marks_us": {"playout": 1_200_000}},
        {"turn": 2, "marks_us": {"playout": 1_480_000}},
        {"turn": 3, "marks_us": {"playout": 3_000_000}},
        {"turn": 4},
    ]
    found = match_marks(turns, 1_000_000, 1_500_000)
    assert found is not None
    assert found["turn"] == 2
    assert match_marks(turns, 4_000_000, 4_500_000) is None


@pytest.mark.parametrize(
    ("values", "percent", "expected"),
    [
        ([], 50, None),
        ([7], 99, 7),
        (list(range(1, 41)), 50, 20),
        (list(range(1, 41)), 95, 38),
        (list(range(1, 41)), 99, 40),
        ([3, 1, 2], 50, 2),
    ],
)
def test_percentile_is_nearest_rank(values: list[float], percent: int, expected: float | None) -> None:
    assert percentile(values, percent) == expected


def turn(
    v2v_ms: int | None, *, cut_in: bool = False, unanswered: bool = False, pause_ms: int = 0
) -> TurnFigures:
    spans = {} if v2v_ms is None else {"network_in": 100_000, "network_out": (v2v_ms - 103) * 1000}
    return TurnFigures(
        text="q",
        pause_ms=pause_ms,
        voice_to_voice_us=None if v2v_ms is None else v2v_ms * 1000,
        cut_in=cut_in,
        unanswered=unanswered,
        spans_us=spans,
    )


def test_summary_has_the_published_keys_and_counts() -> None:
    turns = [
        turn(400),
        turn(500),
        turn(600),
        turn(None, cut_in=True, pause_ms=300),
        turn(None, unanswered=True),
    ]
    result = summary(turns)
    assert result["turns"] == 5
    assert result["voice_to_voice_ms"] == {"p50": 500, "p95": 600, "p99": 600}
    assert result["false_cut_ins"] == 1
    assert result["unanswered"] == 1
    assert result["span_error_ms"] == {"p95": 3}
    assert result["false_cut_ins_in_pauses"] == result["turns_with_pause"] == 1


def test_mean_spans_and_the_unexplained_add_up_to_the_mean_of_the_middle_turns() -> None:
    spans = mean_spans_ms([turn(300), turn(500), turn(520), turn(9_000)])
    assert sum(spans.values()) == pytest.approx(510)
    assert spans["unexplained"] == 3.0


def test_system_without_marks_has_no_spans_and_no_error() -> None:
    bare = TurnFigures("q", 0, 500_000, cut_in=False, unanswered=False)
    assert summary([bare])["spans_ms"] == {}
    assert summary([bare])["span_error_ms"] == {"p95": None}


def test_ratio_needs_both_medians() -> None:
    ours, theirs = summary([turn(500)]), summary([turn(1_000)])
    assert ratio(ours, theirs) == 0.5
    assert ratio(ours, summary([turn(None, unanswered=True)])) is None


def test_a_last_packet_that_is_too_soft_for_the_server_is_no_error():
    spans = turn_spans(1_000_000, 1_510_000, {**MARKS, "speech_end": 985_000})
    assert (spans["network_in"], sum(spans.values())) == (0, 510_000)
