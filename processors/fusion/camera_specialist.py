"""Specialist of the camera in one call: frames of the caller go out, annotations come back.

Inputs: the frames of the caller's camera, by a direct call from the stage that receives them
(``processors.perception.camera_tap``), and the events of the voice. Output: ``AnnotationReported`` for what
lasts (``processors.fusion.seen_states``), with the time at which a frame was captured, and for each frame a
sign of life up to that time; ``SpecialistLeft`` when there is nothing to judge any more.

The newest frame waits for its turn, and a newer one replaces it. It is decoded and scaled to ``WATCHED_PX``
in a thread. One frame of a call is at work at a time: a specialist that is slow gets fewer. While the caller
speaks, and ``AFTER_VOICE_MS`` afterwards, a frame is due every ``VOICE_MS``, because words are compared with
what was seen with them; otherwise every ``QUIET_MS``.

A camera that sends nothing for ``GONE_MS``, or the same picture for ``FROZEN_MS`` (a live one has noise, see
``SAME_BELOW``), shows the caller no more: what was seen ends with its last picture, and no turn waits for it.
A frame that cannot be read, or has too many pixels, is left out. A specialist that fails or hangs is lost for
this call until its process is back. ``run`` is a task of the call and owns everything here.
"""

import asyncio
from dataclasses import dataclass, replace

import numpy as np
from loguru import logger
from pipecat.frames.frames import InputImageRawFrame

from parley.core.call_events import AnnotationReported, SpecialistLeft, VoiceEnded, VoiceStarted
from parley.core.clock import Clock
from parley.core.errors import EngineError, MediaError
from parley.core.frame_facts import CAPTURED_S
from parley.core.timeline import Annotation, Source
from parley.models.pictures import CHANNELS, decoded_file, decoded_pixels, scaled
from parley.models.specialists import Finding
from parley.models.specialists.hosting import ask_look, read_findings
from parley.processors.fusion.seen_states import SeenStatement, SeenStates
from parley.processors.fusion.voice_specialists import SpecialistProcess, SpecialistStream
from parley.processors.turns.reopened_stream import ReopenedStream
from parley.runtime.event_stream import CallEvents

# Interval of the frames in and out of the caller's voice, and how long after it they are still frequent.
VOICE_MS, QUIET_MS, AFTER_VOICE_MS = 200, 500, 1_000
WATCHED_PER_S = 1_000 / VOICE_MS
# A frame that is early by this much is due: transports send at about the interval.
EARLY_MS = 40
GONE_MS, FROZEN_MS = 1_000, 2_000
# Mean change of the most changed square of ``SQUARE`` samples, in levels of 255, below which a picture is the
# same as the one that was judged last. Behind aiortc's VP8 at its default rate, a frozen picture of 160 x 120
# changes by 0.9 at most once it is sharp; one with noise of 1 level mostly by more than 1.
SAME_BELOW, SAMPLED, SQUARE = 1.0, 2, 4
# A picture that has been the same for this long is still. Only the change with which a frozen camera is live
# again ends that: more than an encoder makes of a still picture with a new key frame or a new rate (5), less
# than a head that turns (40).
STILL_MS, THAWED_FROM = 800, 8.0
# The networks see squares of 128 to 224 pixels, of a hand a twentieth of the picture wide.
WATCHED_PX = 640
MOST_PIXELS = 25_000_000
# Decoding 25 megapixels takes half a second.
PREPARE_S = 2.0


@dataclass(frozen=True, slots=True)
class _Prepared:
    """Frame as the specialist gets it.

    Attributes:
        pixels: raw RGB.
        size: (width, height).
        sample: uint8, every ``SAMPLED``-th green value of each side.
        change: from the frame that was judged last, see ``SAME_BELOW``.
    """

    pixels: bytes
    size: tuple[int, int]
    sample: np.ndarray
    change: float


class CameraSpecialist:
    """Specialist of the camera in one call.

    Args:
        process: its process, started by its owner.
        clock: session clock.
        events: events of the call.

    Attributes:
        judged: number of frames that were judged.
        refused: number of frames that could not be read.
    """

    def __init__(self, process: SpecialistProcess, *, clock: Clock, events: CallEvents) -> None:
        self._clock, self._events = clock, events
        self._kept_open = ReopenedStream[SpecialistStream](
            process, lost="the camera is not judged", on_lost=self._on_lost
        )
        self._states = SeenStates()
        self._waiting: tuple[InputImageRawFrame, int] | None = None
        self._has_frame = asyncio.Event()
        self._due_us = 0
        self._is_speaking, self._frequent_until_us = False, 0
        # Of the frame that was judged last, and when it was captured.
        self._sample: np.ndarray | None = None
        self._live_us = 0
        # When the last frame with the same picture was captured.
        self._same_us = 0
        self._findings: tuple[Finding, ...] = ()
        self._has_reported = self._is_frozen = False
        self.judged = self.refused = 0
        events.subscribe(VoiceStarted, self._on_voice_started)
        events.subscribe(VoiceEnded, self._on_voice_ended)

    def see(self, frame: InputImageRawFrame) -> None:
        """Take a frame of the camera, which waits here until its turn or until a newer one comes."""
        now_us = self._clock.now_us()
        captured_s = CAPTURED_S.of(frame)
        age_s = 0.0 if captured_s is None else asyncio.get_running_loop().time() - captured_s
        captured_us = now_us - max(0, round(age_s * 1_000_000))
        if captured_us < self._due_us - EARLY_MS * 1_000:
            return
        self._waiting = frame, captured_us
        self._has_frame.set()

    async def run(self) -> None:
        """Judge the frames, one at a time, until cancelled."""
        await self._kept_open.open()
        try:
            while True:
                frame, captured_us = await self._next_frame()
                stream = self._kept_open.stream
                if stream is not None and (prepared := await self._prepared(frame)) is not None:
                    await self._judge(stream, prepared, captured_us)
        finally:
            self._kept_open.close()

    async def _next_frame(self) -> tuple[InputImageRawFrame, int]:
        """Return the newest frame; note when the camera has sent none for ``GONE_MS``."""
        while self._waiting is None:
            self._has_frame.clear()
            try:
                async with asyncio.timeout(GONE_MS / 1000 if self._has_reported else None):
                    await self._has_frame.wait()
            except TimeoutError:
                # Nothing says that the picture was still meanwhile.
                self._same_us = self._live_us
                self._leave()
        (frame, captured_us), self._waiting = self._waiting, None
        is_frequent = self._is_speaking or captured_us < self._frequent_until_us
        interval_us = (VOICE_MS if is_frequent else QUIET_MS) * 1_000
        # On a grid: the interval of the transport's frames would be added to each of these otherwise.
        self._due_us = max(self._due_us + interval_us, captured_us + interval_us // 2)
        return frame, captured_us

    async def _prepared(self, frame: InputImageRawFrame) -> _Prepared | None:
        try:
            async with asyncio.timeout(PREPARE_S):
                return await asyncio.to_thread(_prepare, frame, self._sample)
        except (MediaError, TimeoutError) as error:
            self.refused += 1
            if self.refused == 1:
                reason = str(error) or "it could not be decoded in time"
                logger.warning(f"a frame of the camera is not judged: {reason}")
            return None

    async def _judge(self, stream: SpecialistStream, frame: _Prepared, captured_us: int) -> None:
        is_still = self._is_frozen or self._same_us - self._live_us >= STILL_MS * 1_000
        if frame.change < (THAWED_FROM if is_still else SAME_BELOW):
            self._stay(captured_us)
            return
        self._sample, self._is_frozen = frame.sample, False
        self._live_us = self._same_us = captured_us
        try:
            answer = await stream.ask(ask_look(frame.pixels, frame.size, captured_us))
            self._findings = read_findings(answer)
        except EngineError as error:
            # A failed stream has reported itself; one with an invalid answer is not used again.
            if self._kept_open.stream is stream:
                logger.warning(f"the camera is not judged in this call any more: {error}")
                self._kept_open.close()
                self._leave()
            return
        self.judged += 1
        self._take_findings(captured_us)

    def _take_findings(self, captured_us: int) -> None:
        """Report what the frame of this time gives rise to."""
        for finding in self._findings:
            if finding.visual is not None:
                seen = replace(finding.visual, start_us=captured_us, end_us=captured_us)
                self._report(self._states.take(seen, finding.confidence))
        self._sign(captured_us)

    def _stay(self, captured_us: int) -> None:
        """Take a frame that shows the same as the one that was judged last."""
        self._same_us = captured_us
        if captured_us - self._live_us < FROZEN_MS * 1_000:
            # What was found in it is in this one as well.
            self._take_findings(captured_us)
        elif not self._is_frozen:
            self._is_frozen = True
            logger.info(f"the camera has shown the same picture for {FROZEN_MS / 1000:g} s; it is not judged")
            self._leave(self._live_us)

    def _report(self, statements: list[SeenStatement]) -> None:
        for each in statements:
            annotation = Annotation(
                each.event_us,
                self._clock.now_us(),
                Source.VISION,
                each.payload,
                confidence=each.confidence,
                final=each.final,
            )
            self._has_reported = True
            self._events.publish(
                AnnotationReported(
                    self._events.now_ms(), Source.VISION, annotation, each.identity, each.revision
                )
            )

    def _sign(self, passed_us: int) -> None:
        self._has_reported = True
        self._events.publish(AnnotationReported(self._events.now_ms(), Source.VISION, passed_us=passed_us))

    def _leave(self, ended_us: int | None = None) -> None:
        """End what was seen, then or with the last frame, and report that nothing more is to come."""
        self._report(self._states.end(ended_us))
        if self._has_reported:
            self._has_reported = False
            self._events.publish(SpecialistLeft(self._events.now_ms(), Source.VISION))

    def _on_lost(self) -> None:
        self._sample, self._findings = None, ()
        self._leave()

    def _on_voice_started(self, _event: VoiceStarted) -> None:
        self._is_speaking = True
        # A frame is due at once, unless one was judged a moment ago.
        self._due_us = min(self._due_us, self._clock.now_us() + EARLY_MS * 1_000)

    def _on_voice_ended(self, _event: VoiceEnded) -> None:
        self._is_speaking = False
        self._frequent_until_us = self._clock.now_us() + AFTER_VOICE_MS * 1_000


def _prepare(frame: InputImageRawFrame, before: np.ndarray | None) -> _Prepared:
    """Return a frame in the form that the specialist gets, compared with a sample of another one. Blocks.

    Raises:
        MediaError: it is no picture, a truncated or too large one.
    """
    if frame.format == "RGB":
        image = decoded_pixels(frame.image, frame.size, most_pixels=MOST_PIXELS)
    else:
        image = decoded_file(frame.image, most_pixels=MOST_PIXELS, longest_px=WATCHED_PX)
    image = scaled(image, WATCHED_PX)
    pixels = image.tobytes()
    values = np.frombuffer(pixels, np.uint8).reshape(image.height, image.width, CHANNELS)
    sample = values[::SAMPLED, ::SAMPLED, 1].copy()
    return _Prepared(pixels, image.size, sample, _change(sample, before))


def _change(sample: np.ndarray, before: np.ndarray | None) -> float:
    """Return the mean change of the square that has changed most; infinite where nothing is comparable."""
    if before is None or sample.shape != before.shape:
        return float("inf")
    change = np.abs(sample.astype(np.int16) - before)
    height, width = (side // SQUARE for side in change.shape)
    if not height or not width:
        return float(change.max())
    squares = change[: height * SQUARE, : width * SQUARE].reshape(height, SQUARE, width, SQUARE)
    return float(squares.mean(axis=(1, 3)).max())
