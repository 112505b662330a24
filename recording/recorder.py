"""Record one call: two tracks, pictures of the camera, and a timeline of its events.

Input: pieces of audio and pictures from the call's taps, and the events of its stream, all on the event loop.
Output: files in the folder of the call (``folder``), written by the thread of a ``RecordingDisk``, and the
events ``RecordingStarted``, ``RecordingDegraded`` and ``RecordingEnded``.

A piece costs an addition to a buffer. Every five seconds a segment of each side is handed to the disk, which
encodes it. The recorder owns one task, ``run``, which closes the segments of a silent side and renews
``recording.json``. Nothing here waits for the disk except ``close``, which has a deadline.

Slow or dead disk: at most ``MOST_WAITING`` jobs of a call wait; what comes then is lost. Full disk, or one
that fails: a segment is lost. Lost audio is counted for each side, kept in ``recording.json``, and published
at the first loss and then once a minute at most. Recording goes on with the next segment. Audio that has no
place in its track (``track.DroppedAudio``) is lost too.

Where words are redacted, a segment of the caller is held in memory until it is decided which of its words
are (``held_segments``): no audio of redacted words reaches the disk. In a private pause neither audio nor
pictures nor events are taken.
"""

import asyncio
import base64
import json
import shutil
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from io import BytesIO
from itertools import islice
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from loguru import logger
from PIL import Image

from parley.core.call_events import (
    CallEvent,
    PicturesTaken,
    PrivatePauseBegan,
    PrivatePauseEnded,
    RecordingDegraded,
    RecordingEnded,
    RecordingStarted,
    ReplyFinished,
    SpeechHeld,
    SpeechSettled,
    TurnEndDecided,
    TurnEnded,
    TurnStarted,
    TurnTranscribed,
    UnplayedReported,
    UtteranceRead,
    VoiceEnded,
    VoiceStarted,
)
from parley.core.errors import AgentError, MediaError
from parley.core.media import samples_to_ms
from parley.core.pictures import Picture
from parley.core.tuning import tuned
from parley.recording.at_rest import check_encryption
from parley.recording.call_files import CallFiles
from parley.recording.disk import RecordingDisk
from parley.recording.event_facts import IN_TIMELINE, facts_of
from parley.recording.folder import (
    BOT_AUDIO,
    CALLER_AUDIO,
    FRAMES,
    IMAGES,
    META,
    TIMELINE,
    VERSION,
    call_folder,
    image_name,
    read_recording,
    segment_name,
)
from parley.recording.held_segments import HeldSegments, RecordedRedaction
from parley.recording.merge import check_space, merge_call, unmerged_calls
from parley.recording.retention import RemovedSessions, discard_call, only_one
from parley.recording.settings import RecordingSettings, RecordingTuning
from parley.recording.track import SEGMENT_MS, AudioSegment, SideTrack
from parley.recording.video import film_call
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock

# Jobs of one call that may wait: more than half a minute of both sides.
MOST_WAITING = 16
# Pictures among them: a camera must not take the place of the voices.
MOST_PICTURES = 4
LOOK_S = 1.0
RENEW_S = 30.0
# Longest wait for the disk at the end of a call, and once more for the last timeline.
CLOSE_S, LAST_S = 2.0, 1.0
# Least interval between two events about losses.
DEGRADED_S = 60.0
# Calls of earlier processes for which a start makes the stereo WAV; the next one goes on.
MOST_UNMERGED = 200
# Longer than the silence that ends a turn.
EARLY_VOICE_MS = 5_000
# Events of a call that are kept: a long call has a thousand an hour. The oldest are dropped.
MOST_EVENTS = 20_000
LONGEST_PX, JPEG_QUALITY = 1_280, 80
_GB = 1_000_000_000
_US_PER_S, _US_PER_MS = 1_000_000, 1_000


@dataclass(frozen=True, slots=True)
class RecordingSource:
    """Identity of a call that is recorded.

    Attributes:
        session_id: its session.
        call_id: its id.
        transport: name of its transport in the session's records.
        deployment: name of the deployment.
        is_live: the caller's audio comes in real time; see ``track``.
        began_loop_us: zero of the recording on the loop's clock.
        began_us: the same moment on the session clock.
        redaction: of the words of the call; None for none.
        mode: in which it is held (``pipelines.modes``); empty where that is not known.
        echo_control: name and settings of its echo control; None without one.
    """

    session_id: str
    call_id: str
    transport: str
    deployment: str
    is_live: bool
    began_loop_us: int
    began_us: int
    redaction: RecordedRedaction | None = None
    mode: str = ""
    echo_control: Mapping[str, Any] | None = None


class _Side:
    """Track of one side, with what became of its segments."""

    def __init__(self, name: str, *, is_live: bool) -> None:
        self.name = name
        self.track = SideTrack(is_live=is_live)
        # Place and length of what is on the disk and of what is lost, as (start_ms, length_ms).
        self.written: list[tuple[int, int]] = []
        self.lost: list[tuple[int, int]] = []

    def facts(self) -> dict[str, Any]:
        """Return the part of ``recording.json`` about this side."""
        names = [
            {"file": segment_name(start // SEGMENT_MS), "start_ms": start, "length_ms": length}
            for start, length in self.written
        ]
        lost = [{"start_ms": start, "length_ms": length} for start, length in self.lost]
        track = self.track
        first = {"first_sample": track.first_sample, "first_piece": track.first_piece, "seams": track.seams}
        return {"rate_hz": track.rate_hz, **first, "segments": names, "lost": lost}


class _EarlyVoice:
    """Voice and turn of the caller that began before the recording did, whose words are not recorded.

    A turn with words from before ends with all of them, so its end is left out. A voice that was no turn (a
    cough) is past when another one begins ``EARLY_VOICE_MS`` after its end.
    """

    def __init__(self) -> None:
        self._is_on = self._is_turn = False
        # A voice or a turn since the end of the last turn.
        self._is_spoken = False
        self._ended_ms = 0
        self._is_early = self._is_early_on = False

    def begin(self) -> None:
        """Begin the recording: what is spoken now is early."""
        self._is_early, self._is_early_on = self._is_spoken, self._is_on

    def leaves_out(self, event: CallEvent) -> bool:
        """Follow an event of the call; return whether it belongs to what is early."""
        was_early = self._is_early
        if isinstance(event, VoiceStarted):
            if not self._is_turn and event.at_ms - self._ended_ms >= EARLY_VOICE_MS:
                self._is_early = False
            self._is_on = self._is_spoken = True
        elif isinstance(event, VoiceEnded):
            was_early_on, self._is_early_on = self._is_early_on, False
            self._is_on, self._ended_ms = False, event.at_ms
            return was_early_on
        elif isinstance(event, TurnStarted):
            self._is_turn = self._is_spoken = True
            return was_early
        elif isinstance(event, TurnEnded):
            self._is_early, self._is_turn, self._is_spoken = False, False, self._is_on
            return was_early
        elif isinstance(event, (TurnEndDecided, TurnTranscribed, PicturesTaken)):
            return was_early
        return False


class CallRecorder:
    """Recorder of one call.

    Args:
        settings: of the deployment.
        call: the call.
        events: events of the call.
        disk: writes segments.
        merging: makes the stereo WAV after the call; None for none.
        removed: sessions for which nothing is written any more.

    Attributes:
        path: folder of the recording.
        is_started: the call is or was recorded.

    Raises:
        ConfigError: recordings are encrypted, and there is no key.
        MediaError: the id of the session or of the call is none.
    """

    def __init__(
        self,
        settings: RecordingSettings,
        call: RecordingSource,
        events: CallEvents,
        *,
        disk: RecordingDisk,
        merging: RecordingDisk | None,
        removed: RemovedSessions | None = None,
    ) -> None:
        self.path = call_folder(settings.folder, call.session_id, call.call_id)
        self._files = CallFiles(self.path, check_encryption() if settings.encrypted else None)
        self._settings, self._call, self._events = tuned(RecordingTuning, settings), call, events
        self._disk, self._merging = disk, merging
        self._removed = removed or RemovedSessions(settings.folder)
        self._clock = LoopClock()
        self._loop = asyncio.get_running_loop()
        self._caller = _Side(CALLER_AUDIO, is_live=call.is_live)
        # Its packets come by this process's own clock.
        self._bot = _Side(BOT_AUDIO, is_live=False)
        self._happened: deque[dict[str, Any]] = deque(maxlen=MOST_EVENTS)
        self._early = _EarlyVoice()
        self._held = None if call.redaction is None else HeldSegments(call.redaction.replaced_by)
        self._is_private = self._had_pause = False
        self._started_ms = 0
        self._meta: dict[str, Any] = {}
        self._pictures: list[int] = []
        self._images: list[str] = []
        self._waiting = self._waiting_pictures = 0
        self._lost_pictures = 0
        self._idle = asyncio.Event()
        self._idle.set()
        self._next_picture_us = self._unplayed_ms = 0
        self._degraded_us: int | None = None
        self._renewed_us = 0
        self._is_over = self.is_started = self._is_discarded = False
        for kind in IN_TIMELINE:
            events.subscribe(kind, self._on_event)
        if self._held is not None:
            events.subscribe(SpeechHeld, self._on_speech_held)
            events.subscribe(SpeechSettled, self._on_speech_settled)
        events.subscribe(PicturesTaken, self._on_pictures_taken)
        events.subscribe(UnplayedReported, self._on_unplayed_reported)
        events.subscribe(ReplyFinished, self._on_reply_finished)

    def start(self) -> None:
        """Begin: write the facts of the call and publish that it is recorded.

        What came before is dropped, and so are the words of a turn that began before.
        """
        call, self.is_started = self._call, True
        self._happened.clear()
        self._early.begin()
        self._started_ms = self._events.now_ms()
        self._meta = {
            "version": VERSION,
            "session_id": call.session_id,
            "call_id": call.call_id,
            "transport": call.transport,
            "deployment": call.deployment,
            "mode": call.mode,
            "echo_control": call.echo_control,
            "began_us": call.began_us,
            "began_at": datetime.fromtimestamp(time.time(), UTC).isoformat(timespec="milliseconds"),
            "segment_ms": SEGMENT_MS,
            **({} if call.redaction is None else {"redaction": call.redaction.facts()}),
        }
        self._put(partial(_ensure_meta, self._files, self.path, self._meta), self._on_failed)
        if self._had_pause:
            self._renew()
        self._events.publish(RecordingStarted(self._events.now_ms()))

    def hear(self, pcm: bytes, rate_hz: int) -> None:
        """Record audio of the caller that has just come."""
        if not self._is_over and not self._is_private:
            long_us = len(pcm) // 2 * _US_PER_S // rate_hz
            self._write(self._caller, self._caller.track.place(pcm, rate_hz, self._now_us() - long_us))

    def play(self, pcm: bytes, rate_hz: int, at_us: int | None = None) -> None:
        """Record audio of the bot that leaves now, or that a device took at a moment of the loop's clock."""
        if not self._is_over and not self._is_private and rate_hz:
            start_us = self._now_us() if at_us is None else at_us - self._call.began_loop_us
            self._write(self._bot, self._bot.track.place(pcm, rate_hz, start_us))

    def see(self, pixels: bytes, size: tuple[int, int]) -> None:
        """Record a picture of the caller's camera, raw RGB, when one is due."""
        now_us = self._now_us()
        if self._is_over or self._is_private or now_us < self._next_picture_us:
            return
        self._next_picture_us = now_us + self._settings.frame_ms * _US_PER_MS
        if self._waiting_pictures >= MOST_PICTURES:
            self._lost_pictures += 1
            return
        at_ms = now_us // _US_PER_MS
        path = self.path / FRAMES / f"{at_ms:09}.jpg"
        job = partial(_write_picture, self._files, path, pixels, size, self._settings.min_free_gb)
        if self._put(job, partial(self._on_picture, at_ms)):
            self._waiting_pictures += 1

    async def run(self) -> None:
        """Close the segments of a silent side and renew the timeline, until cancelled."""
        while True:
            await asyncio.sleep(LOOK_S)
            if not self.is_started or self._is_over:
                continue
            now_us = self._now_us()
            for side in (self._caller, self._bot):
                self._write(side, side.track.advance(now_us))
            if now_us - self._renewed_us >= RENEW_S * _US_PER_S:
                self._renewed_us = now_us
                self._renew()

    async def close(self) -> None:
        """Hand over the rest, wait for the disk (``CLOSE_S``), and have the stereo WAV made.

        What the disk has not written by then is written later, and files count that the timeline does not
        list.
        """
        if self._is_over or not self.is_started:
            return
        self._is_over = True
        for side in (self._caller, self._bot):
            self._write(side, side.track.finish(), is_last=True)
        with suppress(TimeoutError):
            async with asyncio.timeout(CLOSE_S):
                await self._idle.wait()
        self._renew(is_over=True)
        if self._merging is not None:
            # In the queue of the disk, after the last segment.
            job = partial(_queue_merge, self._merging, self.path, self._removed, self._settings.min_free_gb)
            if not self._disk.put(job, is_last=True):
                _warn_unmerged(self.path)
        with suppress(TimeoutError):
            async with asyncio.timeout(LAST_S):
                await self._idle.wait()
        lost_ms = self.lost_ms
        self._events.publish(RecordingEnded(self._events.now_ms(), self.duration_ms, lost_ms))

    def discard(self) -> None:
        """End without a recording: the caller refuses one. Its files are removed after those that wait."""
        if self._is_over or not self.is_started:
            return
        self._is_over = self._is_discarded = True
        if not self._disk.put(partial(discard_call, self.path), is_last=True):
            logger.warning(f"a recording that its caller refuses is left, remove {self.path}")
        self._events.publish(RecordingEnded(self._events.now_ms(), 0, 0))

    @property
    def duration_ms(self) -> int:
        """Length of the recording so far."""
        return max(self._caller.track.end_ms, self._bot.track.end_ms)

    @property
    def lost_ms(self) -> int:
        """Length of the segments that were lost, of both sides."""
        return sum(length for side in (self._caller, self._bot) for _, length in side.lost)

    def _now_us(self) -> int:
        return self._clock.now_us() - self._call.began_loop_us

    def _write(self, side: _Side, segments: list[AudioSegment], *, is_last: bool = False) -> None:
        if side is self._caller and self._held is not None:
            segments = self._held.pass_on(segments, self._now_us() // _US_PER_MS, is_last=is_last)
        for segment in segments:
            path = self.path / side.name / segment_name(segment.number)
            job = partial(_write_segment, self._files, path, segment, self._settings.min_free_gb, self._meta)
            if not self._put(job, partial(self._on_segment, side, segment)):
                self._lose(side, segment.start_ms, _length_ms(segment), "the disk is too slow")
        for each in side.track.dropped():
            self._lose(side, each.start_ms, each.length_ms, f"audio in {side.name} is dropped: {each.reason}")

    def _put(self, job: Callable[[], None], on_done: Callable[[str], None], *, is_last: bool = False) -> bool:
        """Hand a job to the disk; ``on_done`` is called on the loop with its failure, or with nothing.

        The last one has a place also when too many wait.
        """
        if self._is_discarded:
            return True
        guarded = partial(self._removed.guard, self._call.session_id, job)
        if self._waiting >= MOST_WAITING and not is_last:
            return False
        reported = partial(_report, guarded, self._loop, partial(self._on_job, on_done))
        if not self._disk.put(reported, is_last=is_last):
            return False
        self._waiting += 1
        self._idle.clear()
        return True

    def _on_job(self, on_done: Callable[[str], None], failure: str) -> None:
        self._waiting -= 1
        if not self._waiting:
            self._idle.set()
        on_done(failure)

    def _on_segment(self, side: _Side, segment: AudioSegment, failure: str) -> None:
        if failure:
            self._lose(side, segment.start_ms, _length_ms(segment), failure)
        else:
            side.written.append((segment.start_ms, _length_ms(segment)))

    def _on_picture(self, at_ms: int, failure: str) -> None:
        self._waiting_pictures -= 1
        if failure:
            self._lost_pictures += 1
        else:
            self._pictures.append(at_ms)

    def _on_pictures_taken(self, event: PicturesTaken) -> None:
        if not self.is_started or self._is_over or self._is_private or self._early.leaves_out(event):
            return
        for place, picture in enumerate(event.pictures):
            name = image_name(self._on_time_line(event.at_ms), place, picture.media_type)
            job = partial(
                _write_image, self._files, self.path / IMAGES / name, picture, self._settings.min_free_gb
            )
            if self._waiting_pictures >= MOST_PICTURES or not self._put(job, partial(self._on_image, name)):
                self._lost_pictures += 1
            else:
                self._waiting_pictures += 1

    def _on_image(self, name: str, failure: str) -> None:
        self._waiting_pictures -= 1
        if failure:
            self._lost_pictures += 1
        else:
            self._images.append(name)

    def _on_failed(self, failure: str) -> None:
        if failure:
            self._degrade(failure)

    def _lose(self, side: _Side, start_ms: int, length_ms: int, reason: str) -> None:
        if side.lost and side.lost[-1][0] // SEGMENT_MS == start_ms // SEGMENT_MS:
            # Pieces of one segment are one entry: there may be many.
            start_ms, before_ms = side.lost.pop()
            length_ms += before_ms
        side.lost.append((start_ms, length_ms))
        self._degrade(reason)

    def _degrade(self, reason: str) -> None:
        now_us = self._now_us()
        if self._degraded_us is not None and now_us - self._degraded_us < DEGRADED_S * _US_PER_S:
            return
        self._degraded_us = now_us
        logger.warning(f"the recording of a call is degraded: {reason}")
        self._events.publish(RecordingDegraded(self._events.now_ms(), reason, self.lost_ms))

    def _on_speech_held(self, event: SpeechHeld) -> None:
        if self._held is not None:
            self._held.hold(self._on_time_line(event.since_ms))

    def _on_speech_settled(self, event: SpeechSettled) -> None:
        if self._held is not None:
            redacted = [
                (self._on_time_line(start_ms), self._on_time_line(end_ms))
                for start_ms, end_ms in event.redacted
            ]
            self._held.settle(redacted)

    def _on_time_line(self, at_ms: int) -> int:
        """Return a moment of the loop's clock on the time line of the recording."""
        return at_ms - self._call.began_loop_us // _US_PER_MS

    def _on_unplayed_reported(self, event: UnplayedReported) -> None:
        self._unplayed_ms = event.unplayed_ms

    def _on_reply_finished(self, event: ReplyFinished) -> None:
        if event.heard.truncated and self._unplayed_ms:
            # The other side drops what it holds of a cut reply.
            self._bot.track.cut(self._now_us() - self._unplayed_ms * _US_PER_MS)

    def _on_event(self, event: CallEvent) -> None:
        if isinstance(event, PrivatePauseBegan | PrivatePauseEnded):
            self._is_private = isinstance(event, PrivatePauseBegan)
            self._had_pause |= self._is_private
        elif self._is_private:
            # Its words are left out, and the records of a turn make no sense without them.
            return
        if self._early.leaves_out(event) or self._is_over:
            return
        if isinstance(event, UtteranceRead):
            # Its first audio may be older than its beginning: a recogniser gets what came before the voice
            # was certain, and one that is opened anew gets all of it.
            first_ms = min(event.began_ms, event.at_ms - event.took_ms - event.audio_ms)
            if first_ms < self._started_ms:
                return
        at_ms = self._on_time_line(event.at_ms)
        self._happened.append({"at_ms": at_ms, "event": type(event).__name__, **facts_of(event)})
        if isinstance(event, PrivatePauseBegan) and self.is_started:
            # At once: a recording that the client uploads would have the pause, and is refused from now on.
            self._renew()

    def _renew(self, *, is_over: bool = False) -> None:
        found: dict[str, Any] = {
            "version": VERSION,
            "is_over": is_over,
            "had_pause": self._had_pause,
            **({} if self._call.redaction is None else {"redaction": self._call.redaction.facts()}),
            "began_us": self._call.began_us,
            "duration_ms": self.duration_ms,
            CALLER_AUDIO: {**self._caller.facts(), **({} if self._held is None else self._held.facts())},
            BOT_AUDIO: self._bot.facts(),
            FRAMES: list(self._pictures),
            IMAGES: list(self._images),
            "lost_pictures": self._lost_pictures,
            "events": list(self._happened),
        }
        job = partial(_write_timeline, self._files, self.path, found, self._meta)
        if not self._put(job, self._on_failed, is_last=is_over) and is_over:
            logger.warning(f"the timeline of a call is incomplete, the disk is too slow: {self.path}")


def _length_ms(segment: AudioSegment) -> int:
    return samples_to_ms(len(segment.pcm) // 2, segment.rate_hz)


# On the thread of the disk.


def _report(job: Callable[[], None], loop: asyncio.AbstractEventLoop, on_done: Callable[[str], None]) -> None:
    failure = ""
    try:
        job()
    except AgentError as error:
        failure = str(error)
    except OSError as error:
        failure = f"the disk: {error.strerror or type(error).__name__}"
    except Exception as error:  # the edge of a job: an encoder may raise any error
        failure = f"encoding failed: {type(error).__name__}"
    with suppress(RuntimeError):
        # The loop may have ended with its call.
        loop.call_soon_threadsafe(on_done, failure)


def _check_free(path: Path, min_free_gb: float) -> None:
    path.mkdir(parents=True, exist_ok=True)
    free = shutil.disk_usage(path).free
    if free < min_free_gb * _GB:
        raise MediaError(f"{free / _GB:.1f} GB are free, recording.min_free_gb is {min_free_gb:g}")


def _write_segment(
    files: CallFiles, path: Path, segment: AudioSegment, min_free_gb: float, meta: Mapping[str, Any]
) -> None:
    _check_free(path.parent, min_free_gb)
    encoded = BytesIO()
    with suppress(OSError):
        # Without it the segments cannot be read. Its failure is no reason to lose one.
        _ensure_meta(files, path.parent.parent, meta)
    samples = np.frombuffer(segment.pcm, "<i2")
    soundfile.write(encoded, samples, segment.rate_hz, format="FLAC", subtype="PCM_16")
    files.write(path, encoded.getvalue())


def _write_picture(
    files: CallFiles, path: Path, pixels: bytes, size: tuple[int, int], min_free_gb: float
) -> None:
    _check_free(path.parent, min_free_gb)
    image = Image.frombytes("RGB", size, pixels)
    image.thumbnail((LONGEST_PX, LONGEST_PX))
    encoded = BytesIO()
    image.save(encoded, "JPEG", quality=JPEG_QUALITY)
    files.write(path, encoded.getvalue())


def _write_image(files: CallFiles, path: Path, picture: Picture, min_free_gb: float) -> None:
    _check_free(path.parent, min_free_gb)
    files.write(path, base64.b64decode(picture.data))


def _ensure_meta(files: CallFiles, folder: Path, meta: Mapping[str, Any]) -> None:
    """Write the facts of a call, unless they are there; the disk may have been full when it began."""
    if not files.has(folder / META):
        _write_json(files, folder / META, meta)


def _write_timeline(
    files: CallFiles, folder: Path, timeline: Mapping[str, Any], meta: Mapping[str, Any]
) -> None:
    _ensure_meta(files, folder, meta)
    _write_json(files, folder / TIMELINE, timeline)


def _write_json(files: CallFiles, path: Path, facts: Mapping[str, Any]) -> None:
    """Write facts of a call, also below ``min_free_gb``: they are small, and say what was lost."""
    # A value that JSON does not have (an enum, a float that is none) is written as its text.
    files.write(path, json.dumps(facts, default=str, separators=(",", ":")).encode())


def _queue_merge(merging: RecordingDisk, path: Path, removed: RemovedSessions, min_free_gb: float) -> None:
    if not merging.put(partial(_merge, merging, path, removed, min_free_gb)):
        _warn_unmerged(path)


def _warn_unmerged(path: Path) -> None:
    logger.warning(f"no stereo WAV of a call, too many wait: run python -m recording.merge {path}")


def queue_unmerged(
    merging: RecordingDisk, folder: Path, removed: RemovedSessions, min_free_gb: float
) -> None:
    """Queue the calls of earlier processes that have no stereo WAV, ``MOST_UNMERGED`` at most."""
    for path in islice(unmerged_calls(folder), MOST_UNMERGED):
        _queue_merge(merging, path, removed, min_free_gb)


def _merge(merging: RecordingDisk, path: Path, removed: RemovedSessions, min_free_gb: float) -> None:
    try:
        removed.guard(path.parent.name, partial(_make_wav, path, min_free_gb))
    except MediaError as error:
        logger.warning(f"a call cannot be played as a whole: {error}")
        return
    # After the WAVs that wait: a film takes much longer than one.
    if (path / FRAMES).exists() and not merging.put(partial(_film, path, removed, min_free_gb)):
        logger.warning(f"no film of a call, too many wait: run python -m recording.merge {path}")


def _make_wav(path: Path, min_free_gb: float) -> None:
    with only_one(path):
        for name in merge_call(read_recording(path), min_free_gb=min_free_gb):
            logger.warning(f"{name} of a recording cannot be read: it is silence in {path}")


def _film(path: Path, removed: RemovedSessions, min_free_gb: float) -> None:
    try:
        removed.guard(path.parent.name, partial(_make_film, path, min_free_gb))
    except MediaError as error:
        logger.warning(f"a call has no film: {error}")


def _make_film(path: Path, min_free_gb: float) -> None:
    check_space(path, 0, min_free_gb)
    with only_one(path):
        film_call(read_recording(path))
