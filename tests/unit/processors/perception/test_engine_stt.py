"""The service on virtual time, with an in-place engine whose failures are scripted."""

import asyncio
from collections.abc import Callable, Iterator, Sequence

import pytest
from loguru import logger
from pipecat.frames.frames import (
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    InterimTranscriptionFrame,
    STTMetadataFrame,
    STTMuteFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.frame_processor import FrameDirection
from pipecat.tests.utils import SleepFrame, run_test

from parley.core.call_events import EnginesGivenUp
from parley.core.errors import EngineError
from parley.core.usage import Stage
from parley.models.stt import Transcript
from parley.processors.perception.engine_stt import (
    MAX_FAILURES,
    EngineSttService,
    EngineSttSettings,
    transcript_from_fields,
)
from parley.processors.perception.owed_words import WordsOwedFrame
from parley.runtime.event_stream import CallEvents
from tests import virtual_time
from tests.fakes.crowded_stt import CrowdedStt, CrowdedSttSettings
from tests.fakes.stt import ScriptedStt, ScriptedSttSettings
from tests.in_place_engine import InPlaceEngine, InPlaceStream
from tests.voices import silence, tone

FRAME_BYTES = 640
FRAME_S = 0.02


def accept(result: object) -> Transcript:
    assert isinstance(result, Transcript)
    return result


class RecordingEngine(InPlaceEngine[Transcript]):
    """The scripted in-place engine; keeps its streams and the audio of each.

    Args:
        settings: settings of the scripted engine, one per stream in turn; the last one stays.
        refuse: number of openings that fail.
    """

    def __init__(self, *settings: ScriptedSttSettings, refuse: int = 0) -> None:
        super().__init__(ScriptedStt(), accept)
        self._scripts = list(settings or (ScriptedSttSettings(),))
        self._refuse = refuse
        self.opened = 0

    async def open_stream(
        self, on_partial: Callable[[Transcript], None], on_failure: Callable[[EngineError], None]
    ) -> InPlaceStream[Transcript]:
        if self._refuse:
            self._refuse -= 1
            raise EngineError("not yet", engine="scripted")
        self.opened += 1
        script = self._scripts.pop(0) if len(self._scripts) > 1 else self._scripts[0]
        return InPlaceStream(ScriptedStt(script), accept, on_partial, on_failure)


class LateEngine(RecordingEngine):
    """Engine whose finals come ``late_s`` after the request."""

    def __init__(self, late_s: float) -> None:
        super().__init__()
        self._late_s = late_s

    async def open_stream(self, on_partial, on_failure):  # type: ignore[no-untyped-def]
        stream = await super().open_stream(on_partial, on_failure)
        return _LateStream(stream, self._late_s)


class _LateStream:
    def __init__(self, stream: InPlaceStream[Transcript], late_s: float) -> None:
        self._stream = stream
        self._late_s = late_s

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def finish(self) -> "asyncio.Future[Transcript]":
        ready = self._stream.finish()
        loop = asyncio.get_running_loop()
        late: asyncio.Future[Transcript] = loop.create_future()

        def arrive() -> None:
            if not late.done():
                late.set_result(ready.result())

        loop.call_later(self._late_s, arrive)
        return late


class FullEngine(InPlaceEngine[Transcript]):
    """Engine without capacity until ``roomy_at_s`` after the first stream was opened."""

    def __init__(self, roomy_at_s: float) -> None:
        self.crowd = CrowdedStt(CrowdedSttSettings(seats=0))
        self._roomy_at_s = roomy_at_s
        super().__init__(self.crowd, accept)

    async def open_stream(self, on_partial, on_failure):  # type: ignore[no-untyped-def]
        if self._roomy_at_s:
            asyncio.get_running_loop().call_later(self._roomy_at_s, setattr, self.crowd, "seats", 1)
            self._roomy_at_s = 0
        return await super().open_stream(on_partial, on_failure)


class LossyEngine(RecordingEngine):
    """Engine that drops the first 80 ms of every utterance."""

    async def open_stream(self, on_partial, on_failure):  # type: ignore[no-untyped-def]
        return _LossyStream(await super().open_stream(on_partial, on_failure))


class _LossyStream:
    def __init__(self, stream: InPlaceStream[Transcript]) -> None:
        self._stream = stream
        self._left_bytes = 0
        self.dropped_ms = 0

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def start(self) -> None:
        self._left_bytes = 4 * FRAME_BYTES
        self._stream.start()

    def feed(self, pcm: bytes) -> None:
        lost, kept = pcm[: self._left_bytes], pcm[self._left_bytes :]
        self._left_bytes -= len(lost)
        self.dropped_ms += len(lost) * 1000 // 32_000
        if kept:
            self._stream.feed(kept)


@pytest.fixture
def logged() -> Iterator[list[str]]:
    """Collect log messages at level WARNING and above."""
    lines: list[str] = []
    sink = logger.add(lambda line: lines.append(line.record["message"]), level="WARNING")
    yield lines
    logger.remove(sink)


def audio(pcm: bytes, rate_hz: int = 16_000) -> list[Frame]:
    frames: list[Frame] = []
    for at in range(0, len(pcm), FRAME_BYTES):
        frames += [InputAudioRawFrame(pcm[at : at + FRAME_BYTES], rate_hz, 1), SleepFrame(FRAME_S)]
    return frames


def utterance(duration_ms: int = 600) -> list[Frame]:
    """Return the frames of an utterance, reported 128 ms after the onset and 200 ms after the end."""
    pcm = tone(duration_ms)
    onset = 4 * FRAME_BYTES * 2
    return [
        *audio(pcm[:onset]),
        VADUserStartedSpeakingFrame(start_secs=0.128),
        *audio(pcm[onset:]),
        *audio(silence(200)),
        VADUserStoppedSpeakingFrame(stop_secs=0.2),
    ]


def call(
    frames: Sequence[Frame],
    engine: InPlaceEngine[Transcript] | None = None,
    settings: EngineSttSettings | None = None,
    direction: FrameDirection = FrameDirection.DOWNSTREAM,
    events: CallEvents | None = None,
) -> tuple[list[Frame], list[Frame]]:
    async def scenario() -> tuple[Sequence[Frame], Sequence[Frame]]:
        service = EngineSttService(engine or RecordingEngine(), settings, events=events)
        return await run_test(service, frames_to_send=frames, frames_to_send_direction=direction)

    down, up = virtual_time.run(scenario())
    return list(down), list(up)


def finals(frames: Sequence[Frame]) -> list[str]:
    return [frame.text for frame in frames if isinstance(frame, TranscriptionFrame)]


def errors(frames: Sequence[Frame]) -> list[Frame]:
    return [frame for frame in frames if isinstance(frame, ErrorFrame)]


def test_an_utterance_becomes_partials_and_one_final_transcript() -> None:
    down, up = call([*audio(silence(400)), *utterance(), SleepFrame(0.5)])
    transcripts = [f for f in down if isinstance(f, TranscriptionFrame | InterimTranscriptionFrame)]
    *partials, final = transcripts
    assert [type(frame) for frame in partials] == [InterimTranscriptionFrame] * 3
    assert [frame.text for frame in partials] == ["one", "one two", "one two three"]
    assert isinstance(final, TranscriptionFrame)
    assert final.text == "one two three"
    assert final.finalized
    assert isinstance(final.result, Transcript) and final.result.final
    assert errors(up) == []


def test_the_voice_before_its_detection_is_heard() -> None:
    # 160 ms of the 600 had passed when the voice was reported: without them only two words fit.
    down, _ = call([*audio(silence(400)), *utterance(600)])
    assert finals(down) == ["one two three"]


def test_older_audio_is_not_part_of_the_utterance() -> None:
    settings = EngineSttSettings(pre_speech_ms=100)
    # A loud noise that voice activity did not take for a voice, 400 ms earlier.
    down, _ = call([*audio(tone(300)), *audio(silence(400)), *utterance(600)], settings=settings)
    assert finals(down) == ["one two three"]


def test_voice_activity_from_after_is_heard_too() -> None:
    started, stopped = (
        VADUserStartedSpeakingFrame(start_secs=0.128),
        VADUserStoppedSpeakingFrame(stop_secs=0.2),
    )

    async def scenario() -> list[str]:
        service = EngineSttService(RecordingEngine())
        pushed: list[str] = []

        @service.event_handler("on_before_push_frame")
        async def on_push(_service: object, frame: Frame) -> None:
            if isinstance(frame, TranscriptionFrame):
                pushed.append(frame.text)

        async def speak() -> None:
            await asyncio.sleep(0.1)
            for frame in audio(tone(600)):
                if isinstance(frame, SleepFrame):
                    await asyncio.sleep(frame.sleep)
                else:
                    await service.queue_frame(frame, FrameDirection.DOWNSTREAM)
            await service.queue_frame(stopped, FrameDirection.UPSTREAM)

        async def detect() -> None:
            await asyncio.sleep(0.25)
            await service.queue_frame(started, FrameDirection.UPSTREAM)

        await asyncio.gather(run_test(service, frames_to_send=[SleepFrame(1.5)]), speak(), detect())
        return pushed

    assert virtual_time.run(scenario()) == ["one two three"]


def test_voice_activity_reported_twice_makes_one_utterance() -> None:
    frames = []
    for frame in utterance():
        frames.append(frame)
        if isinstance(frame, VADUserStartedSpeakingFrame):
            frames.append(VADUserStartedSpeakingFrame(start_secs=0.128))
        if isinstance(frame, VADUserStoppedSpeakingFrame):
            frames.append(VADUserStoppedSpeakingFrame(stop_secs=0.2))
    down, _ = call(frames)
    assert finals(down) == ["one two three"]


def test_two_utterances_do_not_mix() -> None:
    down, _ = call([*utterance(600), *audio(silence(300)), *utterance(400), SleepFrame(0.2)])
    assert finals(down) == ["one two three", "one two"]


def test_nothing_understood_pushes_no_transcript() -> None:
    started, stopped = VADUserStartedSpeakingFrame(start_secs=0.1), VADUserStoppedSpeakingFrame(stop_secs=0.2)
    down, up = call([*audio(silence(300)), started, *audio(silence(400)), stopped, SleepFrame(0.2)])
    assert finals(down) == []
    assert errors(up) == []


def test_partials_keep_their_pace_and_the_final_does_not_wait_for_it() -> None:
    settings = EngineSttSettings(partial_interval_ms=1_500)
    down, _ = call([*utterance(1_000), SleepFrame(0.01)], settings=settings)
    assert sum(isinstance(frame, InterimTranscriptionFrame) for frame in down) == 1
    assert finals(down) == ["one two three four five"]


def test_a_late_final_comes_before_the_partials_of_the_next_utterance() -> None:
    frames = [*utterance(400), *utterance(400), SleepFrame(2)]
    down, _ = call(frames, LateEngine(0.5))
    heard = [f.text for f in down if isinstance(f, TranscriptionFrame | InterimTranscriptionFrame)]
    assert heard[:2] == ["one", "one two"]
    assert finals(down) == ["one two", "one two"]


def owed(frames: Sequence[Frame]) -> list[str | bool]:
    """Return the reports of owed words among the final words and the ends of voices."""
    shown: list[str | bool] = []
    for frame in frames:
        if isinstance(frame, WordsOwedFrame):
            shown.append(frame.is_owed)
        elif isinstance(frame, TranscriptionFrame):
            shown.append(frame.text)
        elif isinstance(frame, VADUserStoppedSpeakingFrame):
            shown.append("silent")
    return shown


def test_words_are_reported_as_owed_before_the_end_of_the_voice_and_until_they_have_come() -> None:
    down, _ = call([*utterance(400), SleepFrame(2)], LateEngine(0.5))
    assert owed(down) == [True, "silent", "one two", False]


def test_of_two_utterances_words_are_owed_until_the_second_has_its_own() -> None:
    down, _ = call([*utterance(400), *utterance(600), SleepFrame(4)], LateEngine(1.5))
    assert owed(down) == [True, "silent", "silent", "one two", "one two three", False]


def test_words_that_are_given_up_are_owed_no_more() -> None:
    down, _ = call(
        [*utterance(400), SleepFrame(30)],
        RecordingEngine(ScriptedSttSettings(raise_after_ms=300)),
    )
    assert owed(down) == [True, "silent", False]


def test_words_of_an_engine_that_opens_no_stream_are_owed_for_a_while_only() -> None:
    down, up = call([*utterance(400), SleepFrame(11)], RecordingEngine(refuse=1_000))
    assert owed(down) == [True, "silent", False]
    assert ["opened no stream" in str(error.error) for error in errors(up)].count(True) == 1


def test_an_engine_that_loses_the_callers_words_is_given_up_once() -> None:
    events = CallEvents()
    given_up: list[EnginesGivenUp] = []
    events.subscribe(EnginesGivenUp, given_up.append)
    frames = [*utterance(400), SleepFrame(11), *utterance(400), SleepFrame(11)]
    call(frames, RecordingEngine(refuse=1_000), events=events)
    assert [each.stage for each in given_up] == [Stage.STT]


def test_a_failed_stream_is_replaced_and_its_utterance_heard_again() -> None:
    engine = RecordingEngine(ScriptedSttSettings(raise_after_ms=300), ScriptedSttSettings())
    down, up = call([*utterance(600), SleepFrame(0.5), *utterance(400), SleepFrame(0.5)], engine)
    assert finals(down) == ["one two three", "one two"]
    assert len(errors(up)) == 1
    assert engine.opened == 2


def test_an_utterance_that_always_fails_is_given_up_and_the_call_goes_on() -> None:
    engine = RecordingEngine(ScriptedSttSettings(raise_after_ms=700))
    down, up = call([*utterance(800), SleepFrame(1), *utterance(200), SleepFrame(1)], engine)
    assert finals(down) == ["one"]
    assert errors(up)


def test_the_words_of_a_caller_whom_a_full_engine_refused_come_late(logged: list[str]) -> None:
    # The voice ends 0.8 s after the beginning; capacity is available 2.2 s later.
    engine = FullEngine(roomy_at_s=3)
    down, up = call([*utterance(600), SleepFrame(4), *utterance(400), SleepFrame(0.5)], engine)
    assert finals(down) == ["one two three", "one two"]
    # More refusals than the failures that an utterance may survive, and no error for the caller.
    assert engine.crowd.refusals > MAX_FAILURES
    assert errors(up) == []
    assert len(logged) == 1
    assert "every seat is taken" in logged[0]


def test_a_refused_caller_who_still_speaks_is_heard_as_soon_as_there_is_room() -> None:
    down, _ = call([*utterance(2_000), SleepFrame(0.5)], FullEngine(roomy_at_s=0.5))
    transcripts = [f for f in down if isinstance(f, TranscriptionFrame | InterimTranscriptionFrame)]
    assert isinstance(transcripts[0], InterimTranscriptionFrame)
    assert len(finals(down)[0].split()) == 10


def test_pauses_between_questions_to_a_full_engine_grow() -> None:
    settings = EngineSttSettings(
        busy_retry_min_ms=100, busy_retry_max_ms=400, busy_wait_ms=60_000, drain_ms=0
    )
    engine = FullEngine(roomy_at_s=60)
    call([*utterance(600), SleepFrame(4.5)], engine, settings)
    # After 0.1, 0.2 and 0.4 s, then every 0.4 s of the 5.2 s from the voice's onset.
    assert 14 <= engine.crowd.refusals <= 16


def test_an_engine_that_stays_full_loses_the_utterance_and_not_the_call(logged: list[str]) -> None:
    settings = EngineSttSettings(busy_wait_ms=1_000)
    engine = FullEngine(roomy_at_s=4)
    down, up = call([*utterance(600), SleepFrame(4), *utterance(400), SleepFrame(1)], engine, settings)
    assert finals(down) == ["one two"]
    # Its loss is reported, once.
    assert [str(error.error).partition(": ")[2] for error in errors(up)] == [
        "the engine was full for 1000 ms"
    ]
    assert [line for line in logged if "given up: the engine was full for 1000 ms" in line] == logged[1:]


def test_audio_that_the_engine_dropped_is_logged_once_for_each_utterance(logged: list[str]) -> None:
    down, _ = call([*utterance(600), SleepFrame(0.2), *utterance(400), SleepFrame(0.2)], LossyEngine())
    assert finals(down) == ["one two", "one"]
    assert len(logged) == 2
    assert all("too slow; 80 ms of an utterance were lost" in line for line in logged)


def test_without_audio_from_before_the_voice_nothing_older_is_heard() -> None:
    started, stopped = VADUserStartedSpeakingFrame(start_secs=0), VADUserStoppedSpeakingFrame(stop_secs=0.2)
    settings = EngineSttSettings(pre_speech_ms=0)
    down, _ = call([*audio(tone(400)), started, *audio(tone(200)), stopped, SleepFrame(0.2)], None, settings)
    assert finals(down) == ["one"]


def test_speech_before_the_engine_is_ready_is_not_lost() -> None:
    engine = RecordingEngine(refuse=3)
    down, up = call([*utterance(600), SleepFrame(2)], engine)
    assert finals(down) == ["one two three"]
    assert len(errors(up)) == 1


def test_too_many_utterances_without_a_result_lose_the_oldest() -> None:
    settings = EngineSttSettings(max_waiting=2, drain_ms=10_000)
    frames: list[Frame] = []
    for duration_ms in (200, 400, 600, 800):
        frames += utterance(duration_ms)
    down, _ = call([*frames, SleepFrame(6)], RecordingEngine(refuse=8), settings)
    assert finals(down) == ["one two three", "one two three four"]


def recorded(duration_ms: int) -> list[Frame]:
    """Return the frames of an utterance in few pieces, which come faster than speech."""
    pcm, onset = tone(duration_ms), 4 * FRAME_BYTES * 2
    pieces = [InputAudioRawFrame(part, 16_000, 1) for part in (pcm[:onset], pcm[onset:] + silence(200))]
    started, stopped = (
        VADUserStartedSpeakingFrame(start_secs=0.128),
        VADUserStoppedSpeakingFrame(stop_secs=0.2),
    )
    return [pieces[0], started, pieces[1], stopped]


@pytest.mark.parametrize("at_once", [True, False])
def test_a_recording_loses_nothing_to_an_engine_that_is_slower_than_it_comes(at_once: bool) -> None:
    """In real time such an engine would fall behind for good, and the oldest words are given up."""
    settings = EngineSttSettings(max_waiting=2, drain_ms=10_000)
    # The stream is open before the first words.
    frames: list[Frame] = [SleepFrame(0.2)]
    for duration_ms in (200, 400, 600, 800):
        frames += recorded(duration_ms) if at_once else utterance(duration_ms)
    down, _ = call([*frames, SleepFrame(8)], LateEngine(5.0), settings)
    heard = ["one", "one two", "one two three", "one two three four"]
    assert finals(down) == (heard if at_once else heard[2:])


def test_a_recording_is_kept_up_to_the_length_of_one_utterance() -> None:
    settings = EngineSttSettings(max_waiting=2, max_utterance_ms=2_000, drain_ms=10_000)
    frames: list[Frame] = [SleepFrame(0.2)]
    for duration_ms in (400, 400, 400, 800):
        frames += recorded(duration_ms)
    down, up = call([*frames, SleepFrame(8)], LateEngine(5.0), settings)
    assert finals(down) == ["one two", "one two", "one two three four"]
    assert len(errors(up)) == 1


def test_a_muted_caller_is_not_heard() -> None:
    muted = [STTMuteFrame(mute=True), *utterance(600), STTMuteFrame(mute=False)]
    down, _ = call([*muted, *audio(silence(100)), *utterance(400), SleepFrame(0.2)])
    assert finals(down) == ["one two"]


def test_the_last_words_before_the_end_are_delivered() -> None:
    down, _ = call(utterance(600), LateEngine(0.4))
    assert finals(down) == ["one two three"]


def test_an_end_does_not_wait_for_words_for_ever() -> None:
    down, _ = call(utterance(600), LateEngine(60))
    assert finals(down) == []


def test_audio_of_another_rate_is_reported_once() -> None:
    down, up = call(audio(silence(100), rate_hz=8_000))
    assert len(errors(up)) == 1


def test_audio_and_voice_activity_pass_through() -> None:
    frames = utterance(200)
    down, _ = call(frames)
    kinds = (InputAudioRawFrame, VADUserStartedSpeakingFrame, VADUserStoppedSpeakingFrame)
    assert [f.id for f in down if isinstance(f, kinds)] == [f.id for f in frames if isinstance(f, kinds)]


def test_turn_policies_learn_the_measured_latency() -> None:
    down, _ = call([SleepFrame(0.1)], settings=EngineSttSettings(ttfs_p99_ms=420))
    assert [f.ttfs_p99_latency for f in down if isinstance(f, STTMetadataFrame)] == [0.42]


def test_fields_that_are_no_transcript_are_refused() -> None:
    with pytest.raises(TypeError):
        transcript_from_fields({"text": "a", "words": "b", "confidence": 1, "final": True})
    with pytest.raises(KeyError):
        transcript_from_fields({"text": "a"})
