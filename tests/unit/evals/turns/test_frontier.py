"""Scripted callers, the simulator that runs policies through them, and the figures made of it."""

import json
import math
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from parley.evals.turns.__main__ import main
from parley.evals.turns.calibration import Sample, fit, logistic, samples, score_curve, score_only
from parley.evals.turns.callers import CallSpec, ScriptedCall, ScriptedTurn, Silence, generate
from parley.evals.turns.endpointing import (
    Priced,
    StaticPolicy,
    best_statics,
    bound,
    cheapest,
    columns,
    play,
    prices_for,
    simple,
)
from parley.evals.turns.evidence import EvidenceSettings, calibrated, score_log_odds, words_log_odds
from parley.evals.turns.simulator import run
from parley.evals.turns.texts import sentences
from parley.language.cue_words import QuestionKind
from parley.language.english.cue_words import FILLERS, words_of
from parley.turn_taking.endpointing.endpointer import EndpointTuning
from parley.turn_taking.endpointing.pauses import HOLD_SHARE
from parley.turn_taking.endpointing.policies import SilenceTimer

SPEC = CallSpec(callers=12, turns=12)


@pytest.fixture(scope="module")
def calls() -> list[ScriptedCall]:
    return list(generate(SPEC, 1))


def silences(calls: list[ScriptedCall]) -> Iterator[Silence]:
    return (silence for call in calls for turn in call.turns for silence in turn.silences)


def test_the_same_seed_gives_the_same_talk():
    assert list(generate(SPEC, 7)) == list(generate(SPEC, 7))
    assert list(generate(SPEC, 7)) != list(generate(SPEC, 8))


def test_nothing_is_reported_on_the_sentences_that_something_was_fitted_on():
    assert not set(sentences(held_out=True)) & set(sentences(held_out=False))


@pytest.mark.parametrize("overlap", [0.0, 0.5])
def test_pauses_have_the_share_of_holds_and_the_score_its_sensitivity(overlap: float):
    spec = CallSpec(callers=300, turns=10, overlap=overlap)
    seen = columns(list(generate(spec, 1)), spec)
    holds = np.isfinite(seen.last_ms)
    assert holds.mean() == pytest.approx(HOLD_SHARE, abs=0.03)
    last, first = seen.looks[:, -1], seen.looks[:, 0]
    separation = (last[~holds].mean() - last[holds].mean()) / last[holds].std()
    assert separation == pytest.approx(2.0, abs=0.15)
    # The first look has less of the evidence.
    assert (first[~holds].mean() - first[holds].mean()) / first[holds].std() < separation


def test_the_recogniser_loses_fillers_and_mistakes_words():
    spec = CallSpec(callers=40, turns=20, fillers_heard=0.5, last_word_wrong=0.2)
    said = [(silence.said, silence.heard) for silence in silences(list(generate(spec, 3)))]
    fillers = [heard for text, heard in said if text.split()[-1] in FILLERS]
    kept = np.mean([heard.split()[-1] in FILLERS for heard in fillers])
    assert kept == pytest.approx(0.5, abs=0.12)
    assert np.mean([text != heard for text, heard in said]) > 0.2


def one(length_ms: int | None, *, log_odds: float = 0.0, said: str = "so it is") -> Silence:
    return Silence(length_ms, (log_odds, log_odds), said, said)


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


def test_evidence_that_shortens_a_wait_that_has_passed_ends_the_turn_when_it_comes(
    calls: list[ScriptedCall],
):
    silence = Silence(None, (-6.0, 6.0), "so it is", "so it is")
    call = ScriptedCall(1.0, HOLD_SHARE, (ScriptedTurn("", (silence,)),))
    priced = Priced("boundary", False, EvidenceSettings(words_weight=0.0))
    assert [outcome.wait_ms for outcome in run(priced.build(6_000)(), call, SPEC)] == [SPEC.looks_ms[1]]


def test_the_trivial_rows_are_trivial(calls: list[ScriptedCall]):
    rows = {judged.name: judged for judged in simple(calls, SPEC)}
    assert rows["always-talk"].cut_in_rate > 0.95
    assert rows["always-silent"].cut_in_rate == 0
    assert not rows["always-silent"].waits_ms
    assert set(rows["timer-600"].waits_ms) == {600}
    assert rows["timer-1000"].cut_in_rate < rows["timer-300"].cut_in_rate


@pytest.mark.parametrize("words", [False, True])
def test_the_static_policy_that_was_searched_for_runs_as_it_was_searched(
    calls: list[ScriptedCall], words: bool
):
    evidence = fit(list(samples(calls))) if words else None
    rule = best_statics(calls, SPEC, [0.10], evidence=evidence)[0.10]
    judged = play(rule.name, lambda: StaticPolicy(rule), calls, SPEC)
    assert 0.09 < judged.cut_in_rate <= 0.10
    allowed = {rule.delay_ms, max(rule.delay_ms, SPEC.looks_ms[-1]), rule.timeout_ms}
    assert set(judged.waits_ms) <= allowed
    worse = play("", lambda: SilenceTimer(EndpointTuning(timer_ms=1_000)), calls, SPEC)
    assert judged.mean_ms < worse.mean_ms


def test_a_price_keeps_its_rate_on_the_calls_it_was_chosen_on(calls: list[ScriptedCall]):
    priced = Priced("boundary", False, score_only(list(samples(calls))))
    price = prices_for(priced, calls, SPEC, [0.10])[0.10]
    judged = play("boundary", priced.build(price), calls, SPEC)
    assert 0.05 < judged.cut_in_rate <= 0.10


def test_nothing_beats_the_bound_by_more_than_its_grid(calls: list[ScriptedCall]):
    deaf = score_only(list(samples(calls)))
    limit = bound("bound", calls, SPEC, most_cut=0.10)
    assert limit.cut_in_rate <= 0.10
    for learn in (False, True):
        priced = Priced("boundary", learn, deaf)
        price = prices_for(priced, calls, SPEC, [0.10])[0.10]
        judged = play("boundary", priced.build(price), calls, SPEC)
        assert limit.mean_ms <= judged.mean_ms + 10


def test_what_is_fitted_finds_the_signs_that_are_there():
    spec = CallSpec(callers=80, turns=20)
    settings = fit(list(samples(generate(spec, 5))))
    assert settings.words.filler < 0.3
    assert settings.words.hanging < 0.5
    assert settings.words.plain > 1.0
    assert 0.5 < settings.score_slope < 1.5
    assert 0.2 < settings.words_weight < 1.0


def test_what_is_fitted_needs_no_further_weight():
    rows = list(samples(generate(CallSpec(callers=80, turns=20), 5)))
    settings = fit(rows)
    words = [words_log_odds(row.heard, settings) for row in rows]
    scores = [score_log_odds(1 / (1 + np.exp(-row.score)), settings) for row in rows]
    table = np.stack([scores, words, np.ones(len(rows))], axis=1)
    weights = logistic(table, np.array([row.end for row in rows], dtype=float))
    # Probabilities nearer to 0 or 1 than the policy's bounds are clipped: a little steeper than 1.
    assert weights[:2] == pytest.approx([1, 1], abs=0.05)


def test_a_logistic_regression_finds_its_weights():
    rng = np.random.default_rng(4)
    table = np.stack([rng.normal(size=20_000), np.ones(20_000)], axis=1)
    target = (rng.random(20_000) < 1 / (1 + np.exp(-(1.5 * table[:, 0] - 0.5)))).astype(float)
    assert logistic(table, target) == pytest.approx([1.5, -0.5], abs=0.08)


def test_a_turn_says_what_was_asked_for(calls: list[ScriptedCall]):
    numbers = [turn for call in calls for turn in call.turns if turn.prompt == "What is your number?"]
    assert numbers
    assert all(len(words_of(turn.silences[0].said)) > 0 for turn in numbers)


def test_the_command_writes_policies_and_frontier(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "out.json"
    arguments = ["--callers", "4", "--turns", "6", "--overlaps", "6", "--json", str(out)]
    assert main(arguments) == 0
    written = json.loads(out.read_text())
    assert {"policies", "frontier", "seed", "kind"} <= set(written)
    assert written["kind"] == "simulator"
    names = {row["name"] for row in written["policies"]}
    assert {
        "always-talk",
        "always-silent",
        "timer-600",
        "adaptive",
        "boundary-words-learning",
        "bound",
    } <= names
    keys = {
        "name",
        "cut_in_rate",
        "endpoint_ms",
        "barge_in_recall",
        "barge_in_stop_ms",
        "false_yield_rate",
        "self_interruptions",
    }
    assert all(keys <= set(row) for row in written["policies"])
    assert {"policy", "cut_in_rate", "mean_ms"} == set(written["frontier"][0])
    assert "simulator" in capsys.readouterr().out


def saturating(pauses: int, seed: int) -> list[Sample]:
    """Return samples of a score that saturates: values below -4 mean more than they claim."""
    rng = np.random.default_rng(seed)
    rows = []
    for _ in range(pauses):
        end = bool(rng.random() < 0.4)
        truth = float(rng.normal(1.0 if end else -1.0, math.sqrt(2)))
        rows.append(
            Sample(end, max(-5.0, truth) + 0.2 * min(0.0, truth + 5.0), "so it is", QuestionKind.NOTHING)
        )
    return rows


def test_a_curve_says_what_a_score_means_where_a_line_cannot():
    rows = saturating(4_000, 1)
    curve = score_curve(rows)
    assert all(left < right and below <= above for (left, below), (right, above) in pairs(curve))
    # Two Gaussians a d' of sqrt(2) apart: the log ratio is the score itself.
    worth = EvidenceSettings(score_curve=curve)
    assert calibrated(0.0, worth) == pytest.approx(0.0, abs=0.25)
    assert calibrated(1.5, worth) == pytest.approx(1.5, abs=0.4)


def pairs(
    curve: tuple[tuple[float, float], ...],
) -> Iterator[tuple[tuple[float, float], tuple[float, float]]]:
    return zip(curve, curve[1:], strict=False)


def test_a_score_that_says_nothing_has_a_flat_curve():
    rng = np.random.default_rng(2)
    rows = [
        Sample(bool(rng.random() < 0.4), float(rng.normal()), "", QuestionKind.NOTHING) for _ in range(4_000)
    ]
    worths = [worth for _, worth in score_curve(rows)]
    assert max(worths) - min(worths) < 0.6


def test_a_price_can_be_chosen_on_the_calls_themselves_and_is_no_dearer_than_it_need_be(
    calls: list[ScriptedCall],
):
    priced = Priced("boundary", False, score_only(list(samples(calls))))
    swept = {price: play("", priced.build(price), calls, SPEC) for price in (600.0, 6_000.0, 40_000.0)}
    best = cheapest(priced, calls, SPEC, swept, most_cut=0.10)
    assert best is not None
    assert 0.085 < best.cut_in_rate <= 0.10
    assert best.mean_ms <= min(judged.mean_ms for judged in swept.values() if judged.cut_in_rate <= 0.10)


def test_where_every_price_cuts_too_often_there_is_none(calls: list[ScriptedCall]):
    priced = Priced("boundary", False, score_only(list(samples(calls))))
    swept = {600.0: play("", priced.build(600.0), calls, SPEC)}
    assert cheapest(priced, calls, SPEC, swept, most_cut=0.0) is None


def shuffled(calls: list[ScriptedCall], seed: int) -> list[ScriptedCall]:
    """Return the same calls with scores that are independent of them."""
    scores = [silence.log_odds for silence in silences(calls)]
    order = iter(np.random.default_rng(seed).permutation(len(scores)))
    return [
        replace(
            call,
            turns=tuple(
                replace(
                    turn,
                    silences=tuple(replace(s, log_odds=scores[next(order)]) for s in turn.silences),
                )
                for turn in call.turns
            ),
        )
        for call in calls
    ]


def test_a_worthless_score_costs_little_in_calls_that_learn_and_much_in_those_that_trust():
    spec = CallSpec(callers=30, turns=20)
    tuned = score_only(list(samples(generate(spec, 5))))
    told_nothing = shuffled(list(generate(spec, 11)), 3)
    static = best_statics(told_nothing, spec, [0.10])[0.10]
    static_ms = play("", lambda: StaticPolicy(static), told_nothing, spec).mean_ms

    def cost(*, learn: bool) -> float:
        priced = Priced("boundary", learn, tuned)
        prices = (1_500.0, 6_000.0, 24_000.0, 100_000.0)
        swept = {price: play("", priced.build(price), told_nothing, spec) for price in prices}
        best = cheapest(priced, told_nothing, spec, swept, most_cut=0.10)
        assert best is not None
        return best.mean_ms / static_ms

    # Learning takes a call's first turns; trusting the score costs all of them.
    assert cost(learn=True) < 1.25
    assert cost(learn=False) > 1.8
