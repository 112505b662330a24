"""A conversation with the two-tier engine, unit by unit: a real policy, scripted content."""

import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from parley.core.speech_reports import TranscriptWords
from parley.core.units import Vote
from parley.models.omni import Preparation, UnitResult
from parley.models.omni.two_tier.content import ContentMaker
from parley.models.omni.two_tier.engine import UNIT_MS, TwoTierEngine, TwoTierHost
from tests.fakes.scripted_llm import HANG, ScriptedLanguageModel
from tests.fakes.vad import EnergyVad
from tests.unit.models.omni.test_content import CountingTts, until

RATE_HZ = 16_000
LONG = "One two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen."


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


class Talk:
    """A caller, a recogniser that is always right, and the engine."""

    def __init__(self, executor: ThreadPoolExecutor, *scripts: list[object], **settings: object) -> None:
        self.llm = ScriptedLanguageModel(*scripts)
        self.tts = CountingTts()
        self.host = TwoTierHost(
            vad=EnergyVad(),
            turn=None,
            maker=ContentMaker(self.llm, self.tts, executor=executor),
            executor=executor,
        )
        self.engine: TwoTierEngine = self.host.open_engine()
        self.engine.prepare(Preparation("Be kind.", settings=dict(settings)))
        self.results: list[UnitResult] = []

    def unit(self, *, voice: bool = False, force_listen: bool = False) -> UnitResult:
        samples = UNIT_MS * RATE_HZ // 1000
        at = len(self.results) * samples + np.arange(samples)
        audio = 0.3 * np.sin(2 * np.pi * 440 * at / RATE_HZ) if voice else np.zeros(samples)
        self.engine.prefill(audio.astype(np.float32))
        self.results.append(self.engine.generate(force_listen=force_listen))
        self.engine.finalize()
        return self.results[-1]

    def silence(self, units: int) -> list[UnitResult]:
        return [self.unit() for _ in range(units)]

    def say(self, text: str, *, units: int = 12, confidence: float = 0.9) -> list[UnitResult]:
        """Send a voice, and its words after it."""
        results = [self.unit(voice=True) for _ in range(units)] + self.silence(2)
        if text:
            self.engine.on_words(TranscriptWords(text, True, (confidence,) * len(text.split())))
        return results

    def until(self, met: Callable[[], bool], *, most: int = 200) -> None:
        """Send silence until the condition holds; content is made in threads, so a unit takes a moment."""
        for _ in range(most):
            if met():
                return
            self.unit()
            time.sleep(0.002)
        raise AssertionError("it did not come about")

    @property
    def said(self) -> str:
        return "".join(result.text for result in self.results).strip()

    def close(self) -> None:
        self.engine.cleanup()
        self.host.close()


@pytest.fixture
def talk(executor: ThreadPoolExecutor, request: pytest.FixtureRequest) -> Iterator[Talk]:
    made = Talk(executor, *getattr(request, "param", (["We are open from nine to five."],)))
    yield made
    made.close()


def test_a_question_is_answered_once_its_turn_is_over(talk: Talk) -> None:
    talk.say("when are you open")
    talk.until(lambda: bool(talk.results[-1].end_of_turn))
    assert talk.said == "We are open from nine to five."
    votes = [result.vote for result in talk.results]
    first = votes.index(Vote.SPEAK)
    assert set(votes[:first]) == {Vote.LISTEN}
    assert [message.text for message in talk.llm.asked[0]] == ["Be kind.", "when are you open"]
    # The spoken words are in the dialogue of the next question.
    talk.say("and on sunday")
    talk.until(lambda: len(talk.llm.asked) > 1)
    assert [message.role for message in talk.llm.asked[-1]] == ["system", "user", "assistant", "user"]


def test_silence_is_voted_on_every_unit_and_has_no_audio(talk: Talk) -> None:
    results = talk.silence(50)
    assert {result.vote for result in results} == {Vote.LISTEN}
    assert not any(len(result.audio) for result in results) and talk.llm.asked == []


def test_an_answer_is_made_before_the_turn_is_over(talk: Talk) -> None:
    talk.say("when are you open")
    talk.unit()
    until(lambda: len(talk.llm.asked) == 1)
    assert not any(len(result.audio) for result in talk.results)
    talk.until(lambda: bool(talk.results[-1].end_of_turn))
    assert len(talk.llm.asked) == 1


@pytest.mark.parametrize("talk", [([LONG], ["On saturday we are closed."])], indirect=True)
def test_an_interruption_is_yielded_to_and_answered(talk: Talk) -> None:
    talk.say("count please")
    talk.until(lambda: len(talk.said.split()) >= 5)
    before = len(talk.results)
    talk.say("and what about saturday", units=14)
    talk.until(lambda: "saturday" in talk.said and bool(talk.results[-1].end_of_turn))
    votes = [result.vote for result in talk.results[before:]]
    yielded = votes.index(Vote.YIELD)
    # Lower as soon as there is a voice, silent as soon as it is an interruption.
    assert yielded * UNIT_MS <= 1_000
    assert Vote.SPEAK not in votes[yielded : votes.index(Vote.SPEAK, yielded)]
    heard = talk.llm.asked[-1]
    assert heard[-2].role == "assistant" and len(heard[-2].text.split()) < 16
    assert heard[-1].text == "and what about saturday"


@pytest.mark.parametrize("talk", [([f"{LONG} ", LONG],)], indirect=True)
def test_a_listener_is_talked_on_to_at_a_lower_volume(talk: Talk) -> None:
    talk.say("count please")
    # A caller who speaks in the first second of an answer continues a turn.
    talk.until(lambda: len(talk.said.split()) >= 12)
    before = len(talk.results)
    talk.say("mhm", units=4)
    talk.until(lambda: bool(talk.results[-1].end_of_turn))
    assert talk.said == f"{LONG} {LONG}" and Vote.YIELD not in [result.vote for result in talk.results]
    # The samples of a word are a whole number, its place in its clause; 12 dB lower they are not.
    levels = [float(result.audio[-1]) * 32_768 for result in talk.results[before:] if len(result.audio)]
    assert any(level % 1 > 0.001 for level in levels) and levels[-1] % 1 < 0.001
    assert len(talk.llm.asked) == 1


@pytest.mark.parametrize("talk", [([LONG],)], indirect=True)
def test_a_cough_that_cut_has_the_rest_said_from_the_word_that_was_cut(talk: Talk) -> None:
    talk.say("count please")
    talk.until(lambda: len(talk.said.split()) >= 3)
    talk.say("", units=12)
    assert Vote.YIELD in [result.vote for result in talk.results]
    talk.until(lambda: talk.said.endswith("sixteen."))
    words, whole = talk.said.split(), LONG.split()
    # Repeated from the beginning of a word that may not have been heard: nothing is lost.
    again = next(place for place in range(1, len(words)) if words[place] != whole[place])
    assert 1 <= again - whole.index(words[again]) <= 3
    assert words[again:] == whole[whole.index(words[again]) :]


@pytest.mark.parametrize("talk", [(["We are open. ", RuntimeError("no")],)], indirect=True)
def test_an_answer_that_breaks_off_is_apologised_for(talk: Talk) -> None:
    talk.say("when are you open")
    talk.until(lambda: "again" in talk.said)
    assert talk.said.startswith("We are open. Sorry")


@pytest.mark.parametrize("talk", [([HANG],)], indirect=True)
def test_a_model_that_hangs_blocks_nothing(talk: Talk) -> None:
    talk.say("when are you open")
    talk.silence(50)
    talk.engine.cleanup()
    deadline_s = time.monotonic() + 5
    while not talk.llm.closed and time.monotonic() < deadline_s:
        time.sleep(0.01)
    assert talk.llm.closed == 1


@pytest.mark.parametrize("talk", [([LONG],)], indirect=True)
def test_who_must_listen_gives_up_what_is_being_said(talk: Talk) -> None:
    talk.say("count please")
    talk.until(lambda: len(talk.said.split()) >= 3)
    assert talk.unit(force_listen=True).vote is Vote.YIELD
    assert talk.unit(force_listen=True).vote is Vote.LISTEN
    assert not any(len(result.audio) for result in talk.silence(20))


def test_a_history_is_known_to_the_model(executor: ThreadPoolExecutor) -> None:
    talk = Talk(executor, ["Yes."])
    talk.engine.cleanup()
    talk.engine.prepare(Preparation("Be kind.", history=(("user", "hello"), ("assistant", "Hi."))))
    talk.say("are you there")
    talk.until(lambda: bool(talk.llm.asked))
    assert [message.text for message in talk.llm.asked[0]] == ["Be kind.", "hello", "Hi.", "are you there"]
    talk.close()


def test_a_greeting_is_said_first(executor: ThreadPoolExecutor) -> None:
    talk = Talk(executor, ["Yes."], greeting="Hello there.")
    talk.until(lambda: bool(talk.results and talk.results[-1].end_of_turn))
    assert talk.said == "Hello there." and talk.llm.asked == []
    talk.close()


@pytest.mark.parametrize("talk", [([f"{LONG} ", LONG],)], indirect=True)
def test_a_noise_that_cut_for_good_is_asked_about_once(talk: Talk) -> None:
    talk.say("count please")
    talk.until(lambda: len(talk.said.split()) >= 12)
    # Longer than a cough, and no word of it is recognised.
    talk.say("", units=40)
    talk.until(lambda: "catch that" in talk.said)
    assert Vote.YIELD in [result.vote for result in talk.results]
    talk.until(lambda: bool(talk.results[-1].end_of_turn))
    talk.say("", units=40)
    talk.silence(60)
    assert talk.said.count("catch that") == 1 and len(talk.llm.asked) == 1


@pytest.mark.parametrize("talk", [([HANG],)], indirect=True)
def test_an_answer_that_does_not_come_holds_no_floor(talk: Talk) -> None:
    talk.say("count please")
    talk.silence(20)
    talk.until(lambda: bool(talk.llm.asked))
    talk.engine.on_settled()
    talk.silence(60)
    talk.say("yes")
    talk.until(lambda: talk.llm.asked[-1][-1].text == "yes")
