"""Golden questions that are spoken by voices and recognised."""

import asyncio
from collections import Counter

import pytest

from parley.core.errors import ConfigError
from parley.evals.answers.asking import Examiner, HeardTurn, Tally, load_models
from parley.evals.answers.scoring import Golden, Kind
from parley.evals.answers.spoken import Row, measure, say, table
from parley.evals.human.conditions import CLEAN, CONDITIONS
from parley.evals.human.generators import VOICE_GENERATORS
from parley.evals.human.split import Split
from parley.turn_taking.clarification import AskBackTuning
from tests.human_speech import moonshine_tiny

QUESTION = Golden("bank", Kind.FACT, ("When do you close on Saturdays?",), facts=("10 until 2",))
NOISE = Golden("bank", Kind.NOISE, ("open the account of the moon",), facts=("catch|understand|again",))


@pytest.fixture(scope="module")
def examiner() -> Examiner:
    return Examiner(load_models(), AskBackTuning(below=0.6, lost_below=0.5))


@pytest.mark.slow
def test_questions_are_said_heard_and_judged_by_each_voice_in_each_condition() -> None:
    moonshine_tiny()
    rows = list(
        measure(
            Split.TUNING,
            engine="moonshine_tiny",
            conditions=[CLEAN, CONDITIONS["phone"]],
            voices=["espeak"],
            questions=2,
        )
    )
    voices = [f"espeak {voice}" for voice in VOICE_GENERATORS["espeak"].voices]
    assert [(row.voice, row.condition) for row in rows] == [
        (voice, condition) for voice in voices for condition in ("clean", "phone")
    ]
    assert all(row.tally.asked.total() == 2 and row.noise.asked.total() == 2 for row in rows)
    assert {row.words for row in rows} == {rows[0].words}
    assert 0 < sum(row.errors for row in rows) < sum(row.words for row in rows)
    assert sum(row.tally.right.total() for row in rows) > 0
    assert sum(row.tally.reversed for row in rows) == 0
    # The transcript of a synthetic voice on a telephone differs between processors ("answered her" for
    # noise).
    assert sum(row.noise.facts_for_noise for row in rows if row.condition == "clean") == 0


def test_a_voice_of_the_other_side_says_no_question() -> None:
    with pytest.raises(ConfigError, match="report side"):
        list(measure(Split.REPORT, engine="moonshine_tiny", conditions=[CLEAN], voices=["flite"]))


def test_a_voice_says_what_it_can() -> None:
    said = say(VOICE_GENERATORS["flite"], "rms", ["hello there", "¿dónde está?", "x" * 200])
    assert list(said) == ["hello there"]
    assert said["hello there"].text == "hello there"


@pytest.mark.parametrize(("confidence", "right", "asked_back"), [(0.9, 1, 0), (0.55, 0, 1), (0.3, 0, 1)])
def test_a_question_that_is_asked_back_is_not_right(
    examiner: Examiner, confidence: float, right: int, asked_back: int
) -> None:
    tally = asyncio.run(
        examiner.run([QUESTION], lambda text: HeardTurn(text, (confidence,) * len(text.split())))
    )
    assert (tally.right.total(), tally.asked_back) == (right, asked_back)


def test_noise_that_sounds_like_a_question_is_a_fact_unless_it_is_asked_back(examiner: Examiner) -> None:
    def heard(confidence: float) -> Tally:
        words = "what does a replacement card cost"
        turn = HeardTurn(words, (confidence,) * len(words.split()))
        return asyncio.run(examiner.run([NOISE], lambda _: turn, written=()))

    assert heard(0.9).facts_for_noise == 1
    assert heard(0.4).facts_for_noise == 0


def test_the_table_marks_the_bots_own_voice_and_counts_all_noise() -> None:
    tally = Tally(asked=Counter(fact=4), right=Counter(fact=3), first_token_ms=[1.0])
    noise = Tally(asked=Counter(noise=2), facts_for_noise=1, first_token_ms=[1.0])
    written = table(
        [
            Row("hibari heart", "clean", tally, noise, words=40, errors=2),
            Row("pico en-US", "phone", tally, noise, words=40, errors=4),
            Row("people, no question", "clean", noise),
        ]
    ).splitlines()
    assert written[2] == "| hibari heart (the bot's own) | clean | 5.0 % | 3 of 4 | 0 | 0 | 1 of 2 |"
    assert written[3] == "| pico en-US | phone | 10.0 % | 3 of 4 | 0 | 0 | 1 of 2 |"
    assert written[4] == "| people, no question | clean | - | - | 0 | 0 | 1 of 2 |"
