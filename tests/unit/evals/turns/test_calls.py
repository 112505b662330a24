"""Outcomes of judged calls, and the deployment to compare with."""

from collections import Counter
from pathlib import Path

from parley.configs.load import load_deployment
from parley.evals.turns.calls import Hum, Interruption, Judged, LeftOut, figures, plain, table


def interruption(after_ms: float | None) -> Interruption:
    stopped = after_ms is not None
    return Interruption(
        stopped=stopped,
        voice_to_silence=None if after_ms is None else 900 + after_ms,
        decision_to_silence=after_ms,
        voice_to_decision=900.0 if stopped else None,
        reason="duration" if stopped else None,
        recording="call-00.wav",
        at_ms=1_000,
    )


def test_an_interruption_that_the_bot_talked_over_is_missed_and_in_no_time():
    judged = Judged(
        [interruption(100.0), interruption(120.0), interruption(None)],
        [
            Hum("yeah", False, None, 400.0, "call-00.wav", 500),
            Hum("hm", True, "duration", None, "call-00.wav", 900),
        ],
        Counter({LeftOut.OVER: 2}),
    )
    result = figures(judged)
    assert result["barge_in_recall"] == 0.6667
    assert result["decision_to_silence_ms"] == {"p50": 100.0, "p95": 120.0}
    assert result["false_yield_rate"] == 0.5
    assert result["reasons"] == {"duration": 2}
    shown = table({**result, "settings": {"config": "embedded.yaml", "seed": 1}})
    assert "3 interruptions, 66.7 % stopped the bot; 2 backchannels, 50.0 % did." in shown
    assert "the answer was over" in shown


def test_nothing_that_was_judged_is_no_figure():
    result = figures(Judged())
    assert (result["barge_in_recall"], result["false_yield_rate"]) == (None, None)
    assert result["barge_in_stop_ms"] == {"p50": None, "p95": None}


def test_the_deployment_to_compare_with_differs_in_nothing_else(tmp_path: Path):
    config = Path("configs/embedded.yaml")
    compared = load_deployment(plain(config, tmp_path))
    assert compared.hearing.barge_in is None
    own = load_deployment(config)
    assert own.hearing.barge_in is not None
    assert compared.hearing == own.hearing.model_copy(update={"barge_in": None})
    assert (compared.thinking, compared.speaking) == (own.thinking, own.speaking)
