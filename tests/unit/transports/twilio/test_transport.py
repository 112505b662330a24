"""A phone call in a pipeline: a slow one loses no time, and keys are pressed without a wait."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import numpy as np
import pytest
from pipecat.audio.dtmf.types import KeypadEntry
from pipecat.frames.frames import (
    AggregatedTextFrame,
    CancelFrame,
    Frame,
    InputAudioRawFrame,
    InputDTMFFrame,
    InterruptionFrame,
    OutputDTMFFrame,
    OutputDTMFUrgentFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.utils.text.base_text_aggregator import TextType
from pipecat.workers.runner import WorkerRunner

from parley.audio.g711 import Law, decode
from parley.models.omni.two_tier.engine import UNIT_MS
from parley.processors.turns.backchannel import PIECE_MS
from parley.runtime.event_stream import CallEvents
from parley.transports.twilio.stream import PhoneStream
from parley.transports.twilio.transport import CHUNK_MS, PhoneTransport, phone_params
from tests import virtual_time
from tests.unit.transports.twilio.twilio_side import TwilioSide, audio


class Middle(FrameProcessor):
    """Processor that keeps the frames that pass; it blocks on request of the test."""

    def __init__(self) -> None:
        super().__init__(enable_direct_mode=True)
        self.passed: list[tuple[float, Frame]] = []
        self.stands_s = 0.0

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        self.passed.append((asyncio.get_running_loop().time(), frame))
        if isinstance(frame, InputAudioRawFrame) and self.stands_s:
            stands_s, self.stands_s = self.stands_s, 0.0
            await asyncio.sleep(stands_s)
        await self.push_frame(frame, direction)

    def audio(self) -> list[bytes]:
        return [frame.audio for _, frame in self.passed if isinstance(frame, InputAudioRawFrame)]


@asynccontextmanager
async def call(side: TwilioSide) -> AsyncIterator[tuple[PipelineWorker, Middle, PhoneTransport, bytearray]]:
    stream, received = PhoneStream(side), bytearray()
    side.begin()
    await stream.open()
    transport = PhoneTransport(
        stream, phone_params(8_000), input_rate_hz=8_000, on_packet=received.extend, events=CallEvents()
    )
    middle = Middle()
    worker = PipelineWorker(
        Pipeline([transport.input(), middle, transport.output()]),
        params=PipelineParams(audio_in_sample_rate=8_000, audio_out_sample_rate=8_000),
        cancel_on_idle_timeout=False,
        enable_rtvi=False,
    )
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    try:
        await asyncio.sleep(0.1)
        yield worker, middle, transport, received
    finally:
        await worker.queue_frame(CancelFrame())
        await asyncio.wait({running}, timeout=10)
        await stream.close()


def test_a_pipeline_that_stood_still_hears_the_last_three_seconds_and_silence_for_the_rest():
    async def scenario() -> None:
        side = TwilioSide(audio_s=0)
        async with call(side) as (_, middle, transport, _told):
            at_ms = 0
            for number in range(300):
                if number == 50:
                    middle.stands_s = 4.0
                if number == 100:
                    side.send_event("dtmf", dtmf={"track": "inbound_track", "digit": "7"})
                loud = bytes([0x10]) * 160
                side.number += 1
                side.incoming.put_nowait(audio(side.number, at_ms, loud))
                at_ms += 20
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.1)
            pcm = np.frombuffer(b"".join(middle.audio()), "<i2")
            # Samples are time; lost ones are silent.
            assert len(pcm) == 300 * 160
            silent_ms = int((pcm == 0).sum()) // 8
            assert 900 <= silent_ms <= 1_100
            assert transport.input().dropped_ms == silent_ms
            assert [frame.button for _, frame in middle.passed if isinstance(frame, InputDTMFFrame)] == [
                KeypadEntry.SEVEN
            ]

    virtual_time.run(scenario())


def test_a_call_that_takes_long_to_begin_loses_nothing_of_its_caller():
    async def scenario() -> None:
        side = TwilioSide(audio_s=0)
        async with call(side) as (_, middle, transport, _told):
            middle.stands_s = 1.5
            for number in range(152):
                side.number += 1
                side.incoming.put_nowait(audio(side.number, number * 20, bytes([0x10]) * 160))
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.1)
            pcm = np.frombuffer(b"".join(middle.audio()), "<i2")
            assert len(pcm) == 152 * 160 and (pcm != 0).all() and transport.input().dropped_ms == 0

    virtual_time.run(scenario())


def test_a_process_that_its_host_stops_for_two_seconds_hears_all_that_was_said_meanwhile():
    async def scenario() -> None:
        side = TwilioSide(audio_s=0)
        async with call(side) as (_, middle, transport, _told):
            for number in range(150):
                side.number += 1
                side.incoming.put_nowait(audio(side.number, number * 20, bytes([0x10]) * 160))
                # All of the last two seconds arrives at once.
                if number < 50:
                    await asyncio.sleep(0.02)
            await asyncio.sleep(0.1)
            pcm = np.frombuffer(b"".join(middle.audio()), "<i2")
            assert len(pcm) == 150 * 160 and (pcm != 0).all() and transport.input().dropped_ms == 0

    virtual_time.run(scenario())


def test_what_fills_a_hole_is_not_what_a_slow_pipeline_has_left_waiting():
    async def scenario() -> None:
        side = TwilioSide(audio_s=0)
        async with call(side) as (_, middle, transport, _told):
            loud = bytes([0x10]) * 160
            # 900 ms are missing, and the audio after them comes at once.
            for at_ms in (0, 20, 40, 960, 980, 1_000, 1_020):
                side.number += 1
                side.incoming.put_nowait(audio(side.number, at_ms, loud))
            await asyncio.sleep(0.1)
            pcm = np.frombuffer(b"".join(middle.audio()), "<i2")
            assert len(pcm) == 1_040 * 8 and transport.input().dropped_ms == 0
            assert (pcm[960 * 8 :] != 0).all()

    virtual_time.run(scenario())


def test_a_piece_of_a_few_samples_is_heard_like_any():
    async def scenario() -> None:
        side = TwilioSide(audio_s=0)
        async with call(side) as (_, middle, _transport, _told):
            for at_ms, samples in ((0, 4), (20, 8_000), (1_020, 160)):
                side.number += 1
                side.incoming.put_nowait(audio(side.number, at_ms, bytes([0x10]) * samples))
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.1)
            assert sum(len(pcm) for pcm in middle.audio()) >= 2 * 8_160

    virtual_time.run(scenario())


def test_sounds_that_nothing_follows_are_of_whole_pieces_of_the_output():
    # Pipecat keeps less than a piece until more comes, which would be the next reply.
    assert PIECE_MS % CHUNK_MS == UNIT_MS % CHUNK_MS == 0
    assert phone_params(8_000).audio_out_10ms_chunks == CHUNK_MS // 10


def test_what_waited_for_a_busy_pipeline_is_heard_in_few_pieces():
    async def scenario() -> None:
        side = TwilioSide(audio_s=0)
        async with call(side) as (_, middle, transport, _told):
            for number in range(40):
                if number == 10:
                    middle.stands_s = 0.4
                side.number += 1
                side.incoming.put_nowait(audio(side.number, number * 20, bytes([number]) * 160))
                await asyncio.sleep(0.02)
            await asyncio.sleep(0.1)
            lengths_ms = [len(pcm) // 16 for pcm in middle.audio()]
            assert sum(lengths_ms) == 800 and transport.input().dropped_ms == 0
            # One took 400 ms; the audio of that time follows in pieces of 100 ms.
            assert lengths_ms[:7] == [40, 40, 20, 40, 20, 40, 40]
            assert lengths_ms[7:10] == [100] * 3 and max(lengths_ms[-5:]) == 40
            firsts = np.frombuffer(b"".join(middle.audio()), "<i2")[::160]
            assert firsts.tolist() == [int(decode(bytes([number]), Law.MU)[0]) for number in range(40)]

    virtual_time.run(scenario())


def test_pieces_are_longer_on_a_busy_server_and_short_again_after_that():
    async def scenario() -> None:
        side = TwilioSide(audio_s=0)
        async with call(side) as (_, middle, transport, _told):

            async def speak(packets: int, busy_s: float) -> list[int]:
                before = len(middle.audio())
                for _ in range(packets):
                    middle.stands_s = busy_s
                    side.number += 1
                    side.incoming.put_nowait(audio(side.number, 20 * side.number, bytes([1]) * 160))
                    await asyncio.sleep(0.02)
                return [len(pcm) // 16 for pcm in middle.audio()[before:]]

            # Windows of 32 ms end in these packets of 20 ms.
            windows_ms = [40, 40, 20, 40, 20]
            assert await speak(48, 0.001) == windows_ms * 6
            busy = await speak(192, 0.009)
            assert busy[-20:] == [60] * 20 and transport.input().pieces.packets == 3
            assert sorted((await speak(304, 0.001))[-30:]) == sorted(windows_ms * 6)
            assert sum(len(pcm) for pcm in middle.audio()) == 544 * 320 and not transport.input().dropped_ms

    virtual_time.run(scenario())


def test_a_caller_who_hangs_up_is_told_once():
    async def scenario() -> None:
        side, gone = TwilioSide(), []
        async with call(side) as (_, _middle, transport, _told):

            @transport.event_handler("on_client_disconnected")
            async def on_gone(_transport: object, stream: object) -> None:
                gone.append(stream)

            side.send_event("stop", stop={})
            await asyncio.sleep(1.0)
            assert gone == [transport.stream]

    virtual_time.run(scenario())


def test_a_mark_stands_after_the_sound_of_each_clause():
    async def scenario() -> None:
        side = TwilioSide()
        async with call(side) as (worker, _middle, _transport, _told):
            loud = np.full(8_000, 8_000, "<i2").tobytes()
            await worker.queue_frame(TTSStartedFrame(context_id="c"))
            for clause_ms in (300, 200, 400):
                await worker.queue_frame(AggregatedTextFrame("Some words", TextType.SENTENCE))
                await worker.queue_frame(TTSAudioRawFrame(loud[: clause_ms * 16], 8_000, 1, context_id="c"))
            await worker.queue_frame(TTSStoppedFrame(context_id="c"))
            await asyncio.sleep(2.0)
            sent_ms, marks_ms = 0, []
            for _, each in side.got:
                if each["event"] == "media":
                    sent_ms += 20
                elif each["event"] == "mark":
                    marks_ms.append(sent_ms)
            # The first mark measures the path. Less than a chunk of a clause goes with the next one.
            assert marks_ms[0] == 0
            assert marks_ms[1:] == pytest.approx([300, 500, 900], abs=40)

    virtual_time.run(scenario())


def test_keys_are_tones_that_no_one_has_said_and_an_interruption_neither_waits_for_them_nor_ends_them():
    async def scenario() -> None:
        side = TwilioSide()
        async with call(side) as (worker, middle, transport, received):
            now_s = asyncio.get_running_loop().time
            await worker.queue_frame(OutputDTMFUrgentFrame(buttons=[KeypadEntry(key) for key in "123456789"]))
            last = OutputDTMFFrame(buttons=[KeypadEntry.POUND])
            last.interruptible = False
            await worker.queue_frame(last)
            # The speech after them waits longer than Pipecat lets a write take.
            await worker.queue_frame(TTSAudioRawFrame(bytes(8_000), 8_000, 1))
            await asyncio.sleep(0.3)
            began_s = now_s()
            await worker.queue_frame(InterruptionFrame())
            while not any(isinstance(frame, InterruptionFrame) for _, frame in middle.passed):
                await asyncio.sleep(0.01)
                assert now_s() - began_s < 0.1
            await asyncio.sleep(12.0)
            assert 20 * len(side.played) >= 10 * 500 and side.cleared_at_s == [] and not received
            assert transport.stream.marks.out == 0
            # The bot is not mute after many keys.
            await worker.queue_frame(OutputDTMFFrame(buttons=[KeypadEntry.ONE] * 24))
            await worker.queue_frame(TTSAudioRawFrame(bytes(3_200), 8_000, 1))
            await asyncio.sleep(14.0)
            assert len(received) == 3_200

    virtual_time.run(scenario())
