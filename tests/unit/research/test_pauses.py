"""The replay of the end of turn on the callers of the latency evaluation."""

import asyncio
from pathlib import Path

import numpy as np

from parley.evals.harness.questions import Utterance
from parley.evals.harness.speech import Speakers
from parley.models.turn import TurnEstimate
from parley.turn_taking.endpointing.endpointer import EndpointTuning
from research.turn_taking.pauses import Heard, endings, figures, hear
from tests.fakes.stt import ScriptedStt
from tests.fakes.turn import ScriptedTurn
from tests.fakes.vad import EnergyVad

SETTINGS = EndpointTuning()
PAUSED = Utterance(("how long does it take, um,", "until it arrives"), 500, "flite", "rms", 300)
# A voice of 1 s, a pause of 500 ms and another second; the end is reported 128 ms late, as in a call.
FIRST_MS, SECOND_MS = 1_128, 2_628


def heard(in_pause: TurnEstimate, *, at_end: TurnEstimate | None = None, words: str = "one two") -> Heard:
    return Heard(
        PAUSED,
        starts=[(128, 32), (1_628, 1_532)],
        stops=[FIRST_MS, SECOND_MS],
        pauses=[FIRST_MS - 32, SECOND_MS - 32],
        looks={
            **{ms: in_pause for ms in (FIRST_MS, FIRST_MS - 32)},
            **{ms: at_end or TurnEstimate(0.95, -5.0) for ms in (SECOND_MS, SECOND_MS - 32)},
        },
        words={FIRST_MS: (words, 0.9), SECOND_MS: ("three four", 0.9)},
    )


def ends(question: Heard, settings: EndpointTuning = SETTINGS) -> list[tuple[int, int]]:
    return list(endings(question, settings, model_ms=60, words_ms=40))


def test_what_sounds_complete_is_cut_into_and_a_filler_is_not() -> None:
    assert [silence for _, silence in ends(heard(TurnEstimate(0.95, -5.0)))] == [190, 190]
    assert [silence for _, silence in ends(heard(TurnEstimate(0.95, 3.0)))] == [190]
    assert len(ends(heard(TurnEstimate(0.95, 3.0)), EndpointTuning(filler_log_odds=None))) == 2


def test_a_pause_without_words_ends_nothing() -> None:
    assert [silence for _, silence in ends(heard(TurnEstimate(0.95, -5.0), words=""))] == [190]


def test_figures_count_cut_ins_and_the_waits_of_the_others() -> None:
    questions = [heard(TurnEstimate(0.95, -5.0)), heard(TurnEstimate(0.95, 3.0)), Heard(PAUSED)]
    found = figures(questions, SETTINGS, model_ms=60, words_ms=40)
    assert (found["cut_in_pauses"], found["with_pause"], found["cut_in_others"]) == (1, 3, 0)
    assert found["wait_ms"] == {"p50": 190, "p95": 190}


def test_a_question_is_heard_as_it_is_spoken(tmp_path: Path) -> None:
    stream = ScriptedStt().open_stream()
    question = asyncio.run(hear(PAUSED, Speakers(tmp_path), EnergyVad(), ScriptedTurn(), stream))
    # Both parts, and any gaps of the synthetic voice.
    assert len(question.stops) == len(question.starts) >= 2
    gaps = [start - stop for stop, (start, _) in zip(question.stops, question.starts[1:], strict=False)]
    assert min(abs(gap - PAUSED.pause_ms) for gap in gaps) <= 80
    assert set(question.looks) == {*question.stops, *question.pauses}
    assert all(text for text, _ in question.words.values())
    assert np.all(np.diff(question.stops) > 0)
