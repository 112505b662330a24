"""The crossing from synthesis threads to the loop, with real threads."""

import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor

from pipecat.frames.frames import (
    InterruptionFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    TTSAudioRawFrame,
    TTSTextFrame,
)
from pipecat.tests.utils import SleepFrame, run_test

from parley.models.tts import SpeechPiece
from parley.models.tts.flite import FliteSettings, FliteTts
from parley.processors.speech.crossing import Crossing, Ended
from parley.processors.speech.engine_tts import EngineTtsService, EngineTtsSettings
from tests.fakes.tts import ToneTts

ONE_SECOND = 32_000


async def test_a_reply_crosses_from_a_pool_whole_and_in_order():
    with ThreadPoolExecutor(2) as pool:
        down, _ = await run_test(
            EngineTtsService(ToneTts(word_ms=20), executor=pool),
            frames_to_send=[
                LLMFullResponseStartFrame(),
                LLMTextFrame("One two three, four five.\n"),
                LLMTextFrame("Six."),
                LLMFullResponseEndFrame(),
            ],
        )
    assert [f.text for f in down if isinstance(f, TTSTextFrame)] == "One two three, four five. Six.".split()
    assert sum(len(f.audio) for f in down if isinstance(f, TTSAudioRawFrame)) == 6 * 20 * 32


async def test_the_words_of_an_awkward_text_are_reported_as_they_are_written():
    text = '– "Your balance" is $1,250.50 at 3 p.m. & rising 🙂, e.g. see https://www.example.com/help !'
    with ThreadPoolExecutor(1) as pool:
        down, _ = await run_test(
            EngineTtsService(FliteTts(FliteSettings(voice="kal16")), executor=pool),
            frames_to_send=[LLMFullResponseStartFrame(), LLMTextFrame(text), LLMFullResponseEndFrame()],
        )
    words = [f for f in down if isinstance(f, TTSTextFrame)]
    assert " ".join(word.text for word in words) == text
    assert all(a.pts < b.pts for a, b in zip(words, words[1:], strict=False))


async def test_an_interruption_stops_the_engine_at_its_next_piece():
    reached, interrupted = threading.Event(), threading.Event()
    count = 0

    def before_piece() -> None:
        nonlocal count
        count += 1
        if count == 4:
            reached.set()
            assert interrupted.wait(5)

    class Watched(EngineTtsService):
        async def process_frame(self, frame, direction):  # type: ignore[no-untyped-def]
            await super().process_frame(frame, direction)
            if isinstance(frame, InterruptionFrame):
                interrupted.set()

    engine = ToneTts(before_piece=before_piece)
    with ThreadPoolExecutor(1) as pool:
        await run_test(
            Watched(engine, executor=pool),
            frames_to_send=[
                LLMFullResponseStartFrame(),
                LLMTextFrame("One two three four five six.\n"),
                SleepFrame(0.05),
                InterruptionFrame(),
            ],
        )
    assert reached.is_set()
    assert engine.stopped_at_ms == [60]


async def test_a_full_buffer_blocks_the_thread_and_ends_the_clause_at_the_deadline():
    with ThreadPoolExecutor(1) as pool:
        engine = ToneTts()
        crossing = Crossing(engine, limit_bytes=ONE_SECOND // 10, stall_s=0.02)
        crossing.start(pool, "one two three four five")
        await asyncio.get_running_loop().run_in_executor(pool, lambda: None)
        items = []
        while not items or isinstance(items[-1], SpeechPiece):
            items.append(await crossing.take(1))
    assert isinstance(items[-1], Ended) and "did not take the audio" in str(items[-1].error)
    assert engine.stopped_at_ms == [100]


async def test_taking_audio_makes_room_for_more():
    with ThreadPoolExecutor(1) as pool:
        crossing = Crossing(ToneTts(), limit_bytes=ONE_SECOND // 50, stall_s=5)
        crossing.start(pool, "one two three four five")
        taken = 0
        while isinstance(item := await crossing.take(5), SpeechPiece):
            taken += len(item.pcm)
    assert item.error is None
    assert taken == ONE_SECOND // 2


async def test_stopping_wakes_a_thread_that_waits_for_room():
    with ThreadPoolExecutor(1) as pool:
        engine = ToneTts()
        crossing = Crossing(engine, limit_bytes=1, stall_s=60)
        crossing.start(pool, "one two three")
        await crossing.take(5)
        crossing.stop()
    assert engine.stopped_at_ms


async def test_a_pool_that_was_shut_down_ends_the_clause_with_its_error():
    pool = ThreadPoolExecutor(1)
    pool.shutdown()
    crossing = Crossing(ToneTts(), limit_bytes=1, stall_s=1)
    crossing.start(pool, "one")
    ended = await crossing.take(1)
    assert isinstance(ended, Ended) and isinstance(ended.error, RuntimeError)


def test_the_defaults_need_no_settings():
    assert EngineTtsSettings().frame_ms == 40
