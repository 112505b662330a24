"""The frontier of wait against cut-ins, and the fit of the predictor, on scripted callers."""

import math

import pytest

from parley.evals.turns import frontier, heard
from parley.evals.turns.callers import CallSpec, ScriptedCall, generate
from parley.evals.turns.predictor import area, fit, rows
from parley.turn_taking.endpointing.end_predictor import EndPredictor

SPEC = CallSpec(callers=10, turns=10, looks_ms=heard.LOOKS_MS)


@pytest.fixture(scope="module")
def calls() -> list[ScriptedCall]:
    return list(generate(SPEC, 5))


def test_the_frontier_has_every_way_to_decide_and_patience_orders_its_rows(calls: list[ScriptedCall]):
    played = frontier.rows_of(calls, SPEC)
    names = [row.name for row in played]
    assert "adaptive" in names and "smart-turn's own rule (stock Pipecat)" in names
    patient = [row for row in played if row.name.startswith("predictive")]
    assert len(patient) == len(frontier.PATIENCES)
    assert patient[0].cut > patient[-1].cut
    means = [row.figures()["mean_ms"] for row in patient]
    assert means[0] < means[-1]
    text = frontier.table([row.figures() for row in played])
    assert text.count("\n") == len(played) + 1


def test_a_timer_cuts_the_holds_that_are_longer(calls: list[ScriptedCall]):
    timer = next(row for row in frontier.rows_of(calls, SPEC) if row.name == "timer 1000 ms")
    lengths = [s.length_ms for call in calls for turn in call.turns for s in turn.silences if s.length_ms]
    # The front end reports a voice that goes on 32 ms after it began.
    assert timer.cut == sum(length + 32 > 1_000 for length in lengths) / len(lengths)
    short = [length for length in lengths if length <= 1_200]
    assert timer.short_cut == sum(length + 32 > 1_000 for length in short) / len(short)


def test_the_stock_rule_looks_once_and_waits_three_seconds_after_a_no(calls: list[ScriptedCall]):
    stock = next(row for row in frontier.rows_of(calls, SPEC) if row.name.startswith("smart-turn"))
    assert set(stock.waits_ms) == {200, 3_000}


def test_the_rate_is_kept_by_the_price_that_is_chosen_for_it(calls: list[ScriptedCall]):
    at_ten, at_five = (frontier.at_rate(calls, SPEC, rate) for rate in (0.10, 0.05))
    assert at_ten is not None and at_five is not None
    assert at_five.cut <= 0.05 and at_ten.cut <= 0.10
    assert sum(at_five.waits_ms) > sum(at_ten.waits_ms)


def test_static_waits_are_found_on_both_scores(calls: list[ScriptedCall]):
    for figures in frontier.bench(calls, SPEC).values():
        assert figures["static_on_smart_turn_ms"] > 0 and figures["static_on_predictor_ms"] > 0
        assert figures["below_static_on_predictor"] == pytest.approx(
            1 - figures["predictor_ms"] / figures["static_on_predictor_ms"], abs=0.01
        )


def test_the_fit_hears_more_than_the_score_alone(calls: list[ScriptedCall]):
    seen = list(rows(calls))
    assert len(seen) == sum(len(turn.silences) for call in calls for turn in call.turns) * len(heard.LOOKS_MS)
    fitted = fit(seen)
    assert all(math.isfinite(weight) for weight in fitted.weights.values())
    assert fitted.weights["score"] > 0 and fitted.weights["late_score"] > 0
    assert fitted.weights["cue_hanging"] < 0
    held_out = list(rows(generate(SPEC, 6)))
    score = EndPredictor({"score": 1.0, "late_score": 1.0})
    assert area(fitted, held_out, 0) > area(score, held_out, 0)
    assert not any(name.startswith("cue_") for name in fit(seen, without=("cue_",)).weights)


def test_callers_without_words_keep_their_pauses(calls: list[ScriptedCall]):
    silent = heard.without_words(calls[0])
    assert {silence.confidence for turn in silent.turns for silence in turn.silences} == {0.0}
    assert [s.length_ms for t in silent.turns for s in t.silences] == [
        s.length_ms for t in calls[0].turns for s in t.silences
    ]
    again = heard.replayed(calls, SPEC, seed=1, times=2)
    assert len(again) == 2 * len(calls)
