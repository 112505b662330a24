"""The simulator that runs policies through calls, and the frontier of wait against cut-ins."""

import numpy as np
import pytest

from parley.evals.turns import frontier
from parley.evals.turns.callers import CallSpec, ScriptedCall, ScriptedTurn, Silence, replayed
from parley.evals.turns.signs import looks
from parley.evals.turns.simulator import run
from parley.evals.turns.static_waits import StaticPolicy, best_waits
from parley.evals.turns.texts import sentences
from parley.turn_taking.endpointing.endpointer import EndpointTuning
from parley.turn_taking.endpointing.pauses import HOLD_SHARE, PauseLaw
from parley.turn_taking.endpointing.policies import SilenceTimer

SPEC = CallSpec(callers=10, turns=10)
D_PRIME = 2.0


def drawn(length_ms: int | None, rng: np.random.Generator) -> Silence:
    """Return a silence with a Gaussian score; the first look has less of the evidence than the second."""
    evidence = rng.normal(D_PRIME if length_ms is None else 0.0)
    odds = D_PRIME * evidence - D_PRIME**2 / 2
    said = "what are your" if length_ms is not None else "what are your hours"
    return Silence(length_ms, (0.8 * odds, odds), said, said)


@pytest.fixture(scope="module")
def calls() -> list[ScriptedCall]:
    rng, law = np.random.default_rng(5), PauseLaw()

    def turn() -> ScriptedTurn:
        holds = [drawn(round(law.sample(rng)), rng) for _ in range(int(rng.geometric(1 - HOLD_SHARE)) - 1)]
        return ScriptedTurn("Hello.", (*holds, drawn(None, rng)))

    return [
        ScriptedCall(1.0, HOLD_SHARE, tuple(turn() for _ in range(SPEC.turns))) for _ in range(SPEC.callers)
    ]


def one(length_ms: int | None) -> Silence:
    return Silence(length_ms, (0.0, 0.0), "so it is", "so it is")


def outcomes(wait_ms: int, *turns: tuple[Silence, ...]) -> list[tuple[bool, int | None]]:
    policy = SilenceTimer(EndpointTuning(timer_ms=wait_ms))
    call = ScriptedCall(1.0, HOLD_SHARE, tuple(ScriptedTurn("Hello.", turn) for turn in turns))
    return [(outcome.end, outcome.wait_ms) for outcome in run(policy, call, SPEC)]


def test_a_timer_cuts_the_holds_that_are_longer():
    turn = (one(400), one(900), one(None))
    assert outcomes(600, turn, turn) == [(False, None), (False, 600), (True, 600)] * 2


def test_a_hold_is_saved_by_the_first_window_of_the_voice_that_goes_on():
    assert outcomes(600, (one(568), one(None)))[0] == (False, None)
    assert outcomes(600, (one(569), one(None)))[0] == (False, 600)


def test_nothing_is_decided_before_the_words_are_there():
    assert outcomes(100, (one(None),)) == [(True, SPEC.words_ms)]


def test_nothing_is_reported_on_the_sentences_that_something_was_fitted_on():
    assert not set(sentences(held_out=True)) & set(sentences(held_out=False))


def test_the_static_policy_that_was_searched_for_runs_as_it_was_searched(calls: list[ScriptedCall]):
    rule = best_waits(frontier.columns(calls, predicted=False), SPEC.looks_ms[-1], [0.10])[0.10]
    played = frontier.play("static", lambda: StaticPolicy(rule), calls, SPEC)
    assert 0.08 < played.cut <= 0.10
    assert set(played.waits_ms) <= {rule.delay_ms, max(rule.delay_ms, SPEC.looks_ms[-1]), rule.timeout_ms}
    assert np.mean(played.waits_ms) == pytest.approx(rule.mean_ms)


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


def test_a_timer_of_the_frontier_cuts_the_holds_that_are_longer(calls: list[ScriptedCall]):
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


def test_every_look_at_every_pause_is_evidence_and_replays_keep_the_pauses(calls: list[ScriptedCall]):
    pauses = sum(len(turn.silences) for call in calls for turn in call.turns)
    assert len(list(looks(calls))) == pauses * len(SPEC.looks_ms)
    again = replayed(calls, SPEC, seed=1, times=2)
    assert len(again) == 2 * len(calls)


def test_the_share_of_ends_that_is_decided_early_counts_the_waits():
    played = frontier.Played("any", 0.0, 0.0, (200, frontier.EARLY_MS, frontier.EARLY_MS + 1, 900))
    assert played.figures()["early"] == 0.5


def test_pauses_are_ends_as_often_as_a_true_score_predicts(calls: list[ScriptedCall]):
    bins = frontier.reliability(calls)
    assert len(bins) == frontier.RELIABILITY_BINS
    assert [each["predicted"] for each in bins] == sorted(each["predicted"] for each in bins)
    pauses = sum(len(turn.silences) for call in calls for turn in call.turns)
    ends = sum(len(call.turns) for call in calls)
    assert np.mean([each["ends"] for each in bins]) == pytest.approx(ends / pauses, abs=0.02)
    assert bins[0]["ends"] < 0.3 and bins[-1]["ends"] > 0.9
