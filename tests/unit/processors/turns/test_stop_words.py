"""The command spotter of one call: the voices that it listens to, and a call without it."""

import asyncio
import gc
import weakref

import numpy as np
import pytest

from parley.core.call_events import UtteranceRead
from parley.core.errors import EngineError
from parley.core.media import float_to_pcm16
from parley.models.stt import Transcript
from parley.processors.perception.recorded_words import HeardLength, kept_utterances
from parley.processors.turns.stop_words import KEPT_MS, LONGEST_MS, StopWords
from parley.runtime.event_stream import CallEvents
from tests import virtual_time
from tests.fakes.stt import ScriptedStream, ScriptedStt, ScriptedSttSettings
from tests.in_place_engine import InPlaceEngine


def accept(result: object) -> Transcript:
    assert isinstance(result, Transcript)
    return result


def engine(**settings: object) -> InPlaceEngine[Transcript]:
    chosen = ScriptedSttSettings.model_validate({"words": ("stop",), "word_ms": 200, **settings})
    return InPlaceEngine(ScriptedStt(chosen), accept)


def loud(ms: int) -> bytes:
    return float_to_pcm16(np.full(16 * ms, 0.3, np.float32))


def quiet(ms: int) -> bytes:
    return bytes(32 * ms)


async def spotted(chosen: InPlaceEngine[Transcript], *, voiced_ms: int = 300, twice: bool = False) -> int:
    """Return the number of stop words in a voice of that length, all of which came before it was noticed."""
    found: list[None] = []
    stop_words = StopWords(chosen)
    await stop_words.open()
    for _ in range(1 + twice):
        stop_words.hear(loud(voiced_ms))
        stop_words.on_voice_started(voiced_ms)
        stop_words.hear(quiet(100))
        stop_words.on_voice_stopped(lambda heard: found.append(None) if heard.text else None)
        await asyncio.sleep(0)
    stop_words.close()
    return len(found)


def test_what_was_said_before_the_voice_was_noticed_is_heard():
    assert virtual_time.run(spotted(engine())) == 1


def test_a_replay_spots_what_the_recorded_call_has_spotted_as_late_as_then():
    async def scenario() -> tuple[list[str], float]:
        events, found, heard = CallEvents(), list[str](), HeardLength()
        # After the first voice of 300 ms and 100 ms of silence: another engine would have spotted nothing.
        then = UtteranceRead(
            700,
            recogniser="spotter 1",
            since_ms=240,
            audio_ms=400,
            took_ms=240,
            partials=(),
            text="wait",
            words=(),
            confidence=1.0,
            floor_log_odds=2.0,
            heard_ms=400,
        )
        kept = kept_utterances(engine(words=("other",)), events, "spotter 1", heard, recorded=[then])
        stop_words = StopWords(kept, heard)
        await stop_words.open()
        stop_words.hear(loud(300))
        stop_words.on_voice_started(300)
        stop_words.hear(quiet(100))
        loop = asyncio.get_running_loop()
        spotted_s, came = loop.time(), asyncio.Event()

        def on_spotted(result: Transcript) -> None:
            found.append(result.text)
            came.set()

        stop_words.on_voice_stopped(on_spotted)
        await came.wait()
        stop_words.close()
        return found, loop.time() - spotted_s

    found, took_s = virtual_time.run(scenario())
    assert found == ["wait"] and took_s == pytest.approx(0.24, abs=0.001)


def test_a_voice_that_is_no_command_says_nothing():
    assert virtual_time.run(spotted(engine(), voiced_ms=100)) == 0


def test_a_voice_that_no_one_announced_is_not_listened_to():
    async def scenario() -> list[None]:
        found: list[None] = []
        stop_words = StopWords(engine())
        await stop_words.open()
        stop_words.hear(loud(400))
        stop_words.on_voice_stopped(lambda heard: found.append(None) if heard.text else None)
        await asyncio.sleep(0)
        stop_words.close()
        return found

    assert virtual_time.run(scenario()) == []


def test_an_engine_that_fails_leaves_a_call_without_stop_words():
    assert virtual_time.run(spotted(engine(raise_after_ms=100), twice=True)) == 0


def test_a_call_listens_again_when_a_process_that_died_has_loaded_again():
    async def scenario() -> int:
        found: list[None] = []
        broken, whole = engine(raise_after_ms=100), engine()

        class Restarted(InPlaceEngine[Transcript]):
            """Engine whose first stream fails; then it takes a second until one can be opened."""

            opened = 0

            async def open_stream(self, on_partial, on_failure):  # type: ignore[no-untyped-def]
                self.opened += 1
                if self.opened == 1:
                    return await broken.open_stream(on_partial, on_failure)
                await asyncio.sleep(1)
                if self.opened == 2:
                    raise EngineError("the process is not there", engine="scripted")
                return await whole.open_stream(on_partial, on_failure)

        stop_words = StopWords(Restarted(ScriptedStt(), accept))
        await stop_words.open()
        for pause_s in (10, 0):
            stop_words.hear(loud(300))
            stop_words.on_voice_started(300)
            stop_words.hear(quiet(100))
            stop_words.on_voice_stopped(lambda heard: found.append(None) if heard.text else None)
            await asyncio.sleep(pause_s)
        stop_words.close()
        return len(found)

    assert virtual_time.run(scenario()) == 1


def test_no_more_is_kept_than_a_voice_needs():
    async def scenario() -> list[None]:
        found: list[None] = []
        stop_words = StopWords(engine())
        await stop_words.open()
        stop_words.hear(loud(400))
        stop_words.hear(quiet(KEPT_MS))
        stop_words.on_voice_started(5_000)
        stop_words.on_voice_stopped(lambda heard: found.append(None) if heard.text else None)
        await asyncio.sleep(0)
        stop_words.close()
        return found

    assert virtual_time.run(scenario()) == []


class Counted(InPlaceEngine[Transcript]):
    """Engine that counts its audio."""

    def __init__(self) -> None:
        self.pieces: list[int] = []
        super().__init__(_Counting(self.pieces), accept)


class _Counting(ScriptedStt):
    def __init__(self, pieces: list[int]) -> None:
        super().__init__(ScriptedSttSettings(words=("stop",)))
        self._pieces = pieces

    def open_stream(self) -> ScriptedStream:
        stream, pieces = super().open_stream(), self._pieces

        class Stream(ScriptedStream):
            def feed(self, pcm: bytes) -> Transcript | None:
                pieces.append(len(pcm))
                return stream.feed(pcm)

            def start(self) -> None:
                stream.start()

            def finish(self) -> Transcript:
                return stream.finish()

        return Stream(ScriptedSttSettings())


def given(voice_ms: int, *, matters: bool = True) -> list[int]:
    """Return the sizes of the pieces that a voice of that length gives the engine."""

    async def scenario() -> list[int]:
        engine = Counted()
        stop_words = StopWords(engine)
        await stop_words.open()
        stop_words.on_voice_started(0)
        for _ in range(voice_ms // 20):
            stop_words.hear(loud(20))
        stop_words.on_voice_stopped((lambda _heard: None) if matters else None)
        stop_words.close()
        return engine.pieces

    return virtual_time.run(scenario())


def test_the_engine_hears_of_a_voice_once_and_only_when_it_may_be_a_command():
    assert given(400) == [400 * 32]
    assert given(LONGEST_MS + 20) == []
    assert given(400, matters=False) == []


def test_a_voice_after_one_that_was_too_long_is_heard_again():
    async def scenario() -> list[str]:
        found: list[str] = []
        stop_words = StopWords(engine())
        await stop_words.open()
        for voice_ms in (LONGEST_MS + 400, 400):
            stop_words.on_voice_started(0)
            for _ in range(voice_ms // 20):
                stop_words.hear(loud(20))
            stop_words.on_voice_stopped(lambda heard: found.append(heard.text))
            await asyncio.sleep(0)
        stop_words.close()
        return found

    assert virtual_time.run(scenario()) == ["stop stop"]


def test_closed_stop_words_are_freed_without_a_collection():
    async def scenario() -> bool:
        stop_words = StopWords(engine())
        await stop_words.open()
        stop_words.hear(loud(300))
        stop_words.close()
        held = weakref.ref(stop_words)
        del stop_words
        return held() is None

    gc.disable()
    try:
        assert virtual_time.run(scenario())
    finally:
        gc.enable()
