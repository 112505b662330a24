"""Second hearing of doubtful utterances, on virtual time."""

import asyncio
from collections.abc import Callable
from dataclasses import replace

import pytest

from parley.core.errors import ConfigError, EngineError
from parley.models.stt import Transcript
from parley.processors.perception.second_opinion import LONGEST_MS, MOST_WAITING, SecondOpinion, TwiceHeard
from parley.runtime.utterances import UtteranceEngine, UtteranceStream
from parley.turn_taking.clarification import AskBackSettings
from tests import virtual_time
from tests.fakes.late_engine import LateEngine
from tests.fakes.stt import ScriptedStt, ScriptedSttSettings
from tests.in_place_engine import InPlaceEngine, as_transcript
from tests.voices import tone

DOUBT = AskBackSettings(below=0.6)
FIRST, SECOND = "wad is a limit", "what is the limit"


def engine(said: str, confidence: float, *, late_ms: int = 0, raise_after_ms: int = 0) -> LateEngine:
    settings = ScriptedSttSettings(
        words=tuple(said.split()), confidence=confidence, raise_after_ms=raise_after_ms
    )
    return LateEngine(ScriptedStt(settings), as_transcript, late_ms)


async def opened(
    first: UtteranceEngine[Transcript], opinion: SecondOpinion
) -> tuple[UtteranceStream[Transcript], list[EngineError]]:
    failures: list[EngineError] = []
    return await TwiceHeard(first, opinion).open_stream(lambda partial: None, failures.append), failures


async def heard(stream: UtteranceStream[Transcript], length_ms: int = 800) -> tuple[str, float, float]:
    """Return the words of an utterance, their confidence, and the seconds after its end."""
    loop = asyncio.get_running_loop()
    stream.start()
    stream.feed(tone(length_ms))
    ended_s = loop.time()
    final = await asyncio.wait_for(stream.finish(), 10)
    return final.text, final.confidence, round(loop.time() - ended_s, 3)


def decided(first: LateEngine, second: LateEngine, *, sure_from: float = 0.0) -> tuple[str, float, float]:
    """Return what one utterance becomes."""

    async def scenario() -> tuple[str, float, float]:
        stream, failures = await opened(first, SecondOpinion(second, DOUBT, sure_from=sure_from))
        result = await heard(stream)
        stream.close()
        assert failures == []
        return result

    return virtual_time.run(scenario())


def test_doubtful_words_are_replaced_by_sure_ones() -> None:
    assert decided(engine(FIRST, 0.4), engine(SECOND, 0.9, late_ms=500)) == (SECOND, 0.9, 0.5)


@pytest.mark.parametrize("confidence", [0.6, 0.95])
def test_words_that_are_not_doubtful_are_heard_once_and_wait_for_nothing(confidence: float) -> None:
    assert decided(engine(FIRST, confidence), engine(SECOND, 0.9, late_ms=500)) == (FIRST, confidence, 0.0)


@pytest.mark.parametrize(("confidence", "sure_from"), [(0.59, 0.0), (0.7, 0.75)])
def test_words_of_which_the_second_engine_is_not_sure_change_nothing(
    confidence: float, sure_from: float
) -> None:
    second = engine(SECOND, confidence, late_ms=500)
    assert decided(engine(FIRST, 0.4), second, sure_from=sure_from) == (FIRST, 0.4, 0.5)


def test_a_second_engine_that_understands_no_word_changes_nothing() -> None:
    silent = ScriptedStt(ScriptedSttSettings(word_ms=60_000))
    assert decided(engine(FIRST, 0.4), LateEngine(silent, as_transcript, 500)) == (FIRST, 0.4, 0.5)


def test_so_few_words_that_the_bot_would_not_ask_are_heard_once() -> None:
    two_words = ScriptedSttSettings(words=("wad", "is"), confidence=0.4, word_ms=400)
    assert decided(LateEngine(ScriptedStt(two_words), as_transcript, 0), engine(SECOND, 0.9))[0] == "wad is"


def test_a_late_engine_means_the_first_words_after_the_longest_wait() -> None:
    assert decided(engine(FIRST, 0.4), engine(SECOND, 0.9, late_ms=5_000)) == (FIRST, 0.4, 1.5)


def test_a_failing_engine_means_the_first_words_at_once() -> None:
    assert decided(engine(FIRST, 0.4), engine(SECOND, 0.9, raise_after_ms=100)) == (FIRST, 0.4, 0.0)


def test_an_engine_that_opens_no_stream_means_the_first_words() -> None:
    class Closed(InPlaceEngine[Transcript]):
        async def open_stream(
            self, on_partial: Callable[[Transcript], None], on_failure: Callable[[EngineError], None]
        ) -> UtteranceStream[Transcript]:
            raise EngineError("no process works", engine="scripted")

    async def scenario() -> str:
        closed = Closed(ScriptedStt(), as_transcript)
        stream, _ = await opened(engine(FIRST, 0.4), SecondOpinion(closed, DOUBT))
        return (await heard(stream))[0]

    assert virtual_time.run(scenario()) == FIRST


def test_a_failure_of_the_first_engine_is_the_result() -> None:
    async def scenario() -> None:
        opinion = SecondOpinion(engine(SECOND, 0.9), DOUBT)
        stream, failures = await opened(engine(FIRST, 0.4, raise_after_ms=100), opinion)
        with pytest.raises(EngineError):
            await heard(stream)
        assert len(failures) == 1 and stream.failure is not None

    virtual_time.run(scenario())


def test_an_utterance_that_is_too_long_is_heard_once() -> None:
    async def scenario() -> list[str]:
        opinion = SecondOpinion(engine(SECOND, 0.9), DOUBT)
        stream, _ = await opened(engine(FIRST, 0.4), opinion)
        texts = [(await heard(stream, length_ms))[0] for length_ms in (LONGEST_MS + 1_000, 800)]
        stream.close()
        return texts

    long, short = virtual_time.run(scenario())
    assert long.startswith(FIRST) and short == SECOND


def test_only_so_many_utterances_of_all_calls_wait_for_the_second_engine() -> None:
    async def scenario() -> list[tuple[str, float, float]]:
        opinion = SecondOpinion(engine(SECOND, 0.9, late_ms=500), DOUBT)
        streams = [(await opened(engine(FIRST, 0.4), opinion))[0] for _ in range(MOST_WAITING + 1)]
        results = await asyncio.gather(*(heard(stream) for stream in streams))
        assert opinion.is_free
        return list(results)

    results = virtual_time.run(scenario())
    assert sorted(results) == [(FIRST, 0.4, 0.0)] + [(SECOND, 0.9, 0.5)] * MOST_WAITING


def test_a_result_that_is_given_up_frees_its_place() -> None:
    async def scenario() -> None:
        opinion = SecondOpinion(engine(SECOND, 0.9, late_ms=500), DOUBT)
        stream, _ = await opened(engine(FIRST, 0.4), opinion)
        for _ in range(MOST_WAITING * 2):
            stream.start()
            stream.feed(tone(800))
            result = stream.finish()
            await asyncio.sleep(0.1)
            result.cancel()
            await asyncio.wait({result}, timeout=1)
            assert result.cancelled() and opinion.is_free
        stream.start()
        stream.feed(tone(800))
        result = stream.finish()
        await asyncio.sleep(0.1)
        stream.close()
        await asyncio.wait({result}, timeout=1)
        assert result.cancelled() and opinion.is_free

    virtual_time.run(scenario())


def test_discarded_audio_is_not_heard_again() -> None:
    async def scenario() -> str:
        opinion = SecondOpinion(engine(SECOND, 0.9), DOUBT)
        stream, _ = await opened(engine(FIRST, 0.4), opinion)
        stream.start()
        stream.feed(tone(2_000))
        stream.discard()
        return (await heard(stream))[0]

    assert virtual_time.run(scenario()) == SECOND


def test_engines_of_different_rates_are_refused() -> None:
    class Slow(ScriptedStt):
        rate_hz = 8_000

    second = InPlaceEngine(Slow(), as_transcript)
    with pytest.raises(ConfigError, match="8000 Hz"):
        TwiceHeard(engine(FIRST, 0.4), SecondOpinion(second, DOUBT))


def test_the_default_confidence_of_a_transcript_without_words_is_not_doubted() -> None:
    async def scenario() -> Transcript:
        opinion = SecondOpinion(engine(SECOND, 0.9), DOUBT)
        unknown = replace(Transcript(FIRST, confidence=0.3), final=True)
        return await opinion.settled(unknown, tone(800))

    assert virtual_time.run(scenario()).text == FIRST
