"""Content that is synthesized ahead, without blocking the loop."""

import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from parley.core.errors import EngineError
from parley.core.media import WordTime
from parley.models.llm import Message
from parley.models.omni.two_tier.content import Content, ContentMaker, ContentSettings
from parley.models.tts import SpeechPiece
from tests.fakes.scripted_llm import HANG, ScriptedLanguageModel

RATE_HZ = 1_000
WORD_MS = 100


class CountingTts:
    """Voice whose words last 100 ms; each sample is the word's place in the clause over 1,000."""

    rate_hz = RATE_HZ

    def __init__(self, error: Exception | None = None) -> None:
        self.clauses: list[str] = []
        self.stopped = 0
        self._error = error

    def synthesize(self, text: str, sink: Callable[[SpeechPiece], bool]) -> bool:
        self.clauses.append(text)
        if self._error is not None:
            raise self._error
        for place, word in enumerate(text.split()):
            samples = np.full(RATE_HZ * WORD_MS // 1000, place + 1, dtype="<i2")
            at = WordTime(word, place * WORD_MS, (place + 1) * WORD_MS, 1.0)
            if not sink(SpeechPiece(samples.tobytes(), (at,))):
                self.stopped += 1
                return False
        return True


@pytest.fixture
def executor() -> Iterator[ThreadPoolExecutor]:
    with ThreadPoolExecutor(2) as threads:
        yield threads


def until(met: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + 10
    while not met():
        assert time.monotonic() < deadline_s, "it did not come about"
        time.sleep(0.002)


def taken(content: Content, samples: int = 80) -> tuple[int, str]:
    """Return all of the content, a unit at a time: (samples, words)."""
    total, words = 0, ""
    while not content.is_over:
        audio, text = content.take(samples)
        total, words = total + len(audio), words + text
        if not len(audio):
            time.sleep(0.002)
    return total, words


def test_an_answer_is_taken_as_it_is_made(executor: ThreadPoolExecutor) -> None:
    llm, tts = (
        ScriptedLanguageModel(["We are open, ", "from nine to five. ", 0.05, "Come by!"]),
        CountingTts(),
    )
    maker = ContentMaker(llm, tts, executor=executor)
    content = maker.answer([Message("user", "when are you open")])
    assert taken(content) == (900, " We are open, from nine to five. Come by!")
    assert content.text == "We are open, from nine to five. Come by!" and content.error is None
    # The first clause did not wait for the rest.
    assert tts.clauses[0].strip() == "We are open,"
    maker.close()


def test_nothing_is_waited_for_by_who_takes(executor: ThreadPoolExecutor) -> None:
    maker = ContentMaker(ScriptedLanguageModel([HANG]), CountingTts(), executor=executor)
    content = maker.answer([Message("user", "hello")])
    audio, words = content.take(80)
    assert not len(audio) and not words and not content.is_over and not content.is_ready
    content.cancel()
    assert content.is_over
    maker.close()


def test_who_cancels_stops_the_model_and_the_voice(executor: ThreadPoolExecutor) -> None:
    llm = ScriptedLanguageModel(["One two three. ", HANG])
    maker = ContentMaker(llm, CountingTts(), executor=executor)
    content = maker.answer([Message("user", "hello")])
    until(lambda: content.is_ready)
    content.cancel()
    until(lambda: llm.closed == 1)
    assert not content.take(80)[0].size and content.error is None
    maker.close()


def test_no_more_is_made_than_the_lead_until_it_is_taken(executor: ThreadPoolExecutor) -> None:
    sentence = "One two three four five six seven eight nine ten. "
    tts = CountingTts()
    settings = ContentSettings(lead_ms=1_500)
    maker = ContentMaker(ScriptedLanguageModel([sentence * 10]), tts, executor=executor, settings=settings)
    content = maker.answer([Message("user", "count")])
    until(lambda: content.held_samples >= 1_500)
    time.sleep(0.1)
    assert content.held_samples <= 2_500
    # Waiting content holds no thread of the voice.
    assert executor.submit(threading.get_ident).result(1) and executor.submit(threading.get_ident).result(1)
    assert taken(content)[0] == 10_000
    maker.close()


def test_an_early_signal_does_not_end_the_content(executor: ThreadPoolExecutor) -> None:
    settings = ContentSettings(lead_ms=1_500)
    llm = ScriptedLanguageModel(["One two three four five six seven eight nine ten. " * 10])
    maker = ContentMaker(llm, CountingTts(), executor=executor, settings=settings)
    content = maker.answer([Message("user", "count")])
    until(lambda: content.held_samples >= 1_500)
    time.sleep(0.1)
    # A take between the maker's look at what is held and its wait signals, and is not seen again.
    content.take(0)
    time.sleep(0.1)
    assert taken(content)[0] == 10_000
    maker.close()


def test_what_no_one_takes_is_given_up(executor: ThreadPoolExecutor) -> None:
    llm = ScriptedLanguageModel(["One two three four five six. " * 20])
    settings = ContentSettings(lead_ms=500, unwanted_s=1.0)
    maker = ContentMaker(llm, CountingTts(), executor=executor, settings=settings)
    maker.answer([Message("user", "count")])
    until(lambda: llm.closed == 1)
    maker.close()


@pytest.mark.parametrize(
    ("steps", "voice_error", "words"),
    [
        (["We are open. ", EngineError("no", engine="llm")], None, " We are open."),
        (["We are open. "], EngineError("no", engine="tts"), ""),
        ([RuntimeError("what")], None, ""),
    ],
    ids=["the model", "the voice", "somebody else's error"],
)
def test_what_breaks_off_says_why_after_what_was_made(
    executor: ThreadPoolExecutor, steps: list[object], voice_error: Exception | None, words: str
) -> None:
    maker = ContentMaker(ScriptedLanguageModel(steps), CountingTts(voice_error), executor=executor)
    content = maker.answer([Message("user", "hello")])
    assert taken(content)[1] == words
    assert isinstance(content.error, EngineError)
    maker.close()


def test_a_text_is_said(executor: ThreadPoolExecutor) -> None:
    maker = ContentMaker(ScriptedLanguageModel([]), CountingTts(), executor=executor)
    assert taken(maker.say("Mhm.")) == (100, " Mhm.")
    maker.close()


def test_contents_do_not_wait_for_each_other(executor: ThreadPoolExecutor) -> None:
    llm = ScriptedLanguageModel([HANG], ["Yes."])
    maker = ContentMaker(llm, CountingTts(), executor=executor)
    maker.answer([Message("user", "one")])
    until(lambda: len(llm.asked) == 1)
    assert taken(maker.answer([Message("user", "two")])) == (100, " Yes.")
    maker.close()
    maker.close()
