"""Merge the segments of a recorded call into a stereo WAV: the caller left, the bot right.

Input: the folder of the recording of a call that is over, also of one that was killed. Output:
``merged_replay.wav``, written to a temporary name first, and ``peaks.json``, from which a page draws the call
without reading its audio: the highest sample of every ``PEAK_MS`` of each side, in percent. One segment of
each side is in memory at a time. A missing segment is silence; one that cannot be read is silence too, and is
named in the result.

    python -m recording.merge data/sessions/SESSION/CALL

Blocks: on a server it runs in a thread of its own.
"""

import argparse
import json
import shutil
import sys
import time
import wave
from collections.abc import Iterator
from contextlib import suppress
from io import BytesIO
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
from loguru import logger

from parley.audio.resample import Resampler
from parley.core.errors import ConfigError, MediaError
from parley.core.media import float_to_pcm16, ms_to_samples
from parley.recording.at_rest import AlteredFileError, RecordingKeyError
from parley.recording.call_files import partial_name
from parley.recording.folder import (
    BOT_AUDIO,
    CALLER_AUDIO,
    MERGED,
    PEAKS,
    TIMELINE,
    VIDEO,
    CallRecording,
    is_call,
    read_recording,
    session_folders,
)
from parley.recording.retention import GB, IN_USE_S, mark_used
from parley.recording.video import film_call

# A WAV's length has 32 bits.
MOST_BYTES = 4_000_000_000
_FRAME_BYTES = 4
# An hour has 36,000 of them, which a page reads at once.
PEAK_MS = 100
_PERCENT = 100
# Failures of one segment; a key that is missing is one of all.
UNREADABLE = (soundfile.SoundFileError, OSError, AlteredFileError)


class _Side:
    """Reader of one side at the rate of the WAV, from its beginning."""

    def __init__(self, recording: CallRecording, name: str, unread: list[str]) -> None:
        self.segments = recording.segments(name)
        self._files = recording.files
        self._unread = unread
        self._segment_ms = recording.segment_ms
        self.rate_hz = self._rate()
        self._resampler: Resampler | None = None
        self._number = 0
        self._ahead = np.zeros(0, np.float32)

    def _rate(self) -> int:
        for path in self.segments.values():
            with suppress(*UNREADABLE):
                return int(self._info(path).samplerate)
        self._unread += [f"{path.parent.name}/{path.name}" for path in self.segments.values()]
        return 0

    def open(self, rate_hz: int) -> None:
        """Read at this rate from here on."""
        if self.rate_hz and self.rate_hz != rate_hz:
            self._resampler = Resampler(self.rate_hz, rate_hz)

    def end_ms(self) -> int:
        """Return the end of the last segment, rounded up."""
        if not self.segments:
            return 0
        last = max(self.segments)
        length_ms = self._segment_ms
        with suppress(*UNREADABLE):
            info = self._info(self.segments[last])
            length_ms = min(length_ms, -(-info.frames * 1_000 // info.samplerate))
        return last * self._segment_ms + length_ms

    def samples(self, count: int) -> np.ndarray:
        """Return the next samples, (count,); silence after the end."""
        while len(self._ahead) < count:
            # The resampler holds back some outputs until the input after them is there.
            self._ahead = np.concatenate([self._ahead, self._next_segment(count)])
        taken, self._ahead = self._ahead[:count], self._ahead[count:]
        return taken

    def _next_segment(self, count: int) -> np.ndarray:
        if not self.rate_hz:
            return np.zeros(count, np.float32)
        samples = np.zeros(ms_to_samples(self._segment_ms, self.rate_hz), np.float32)
        path = self.segments.get(self._number)
        self._number += 1
        if path is not None:
            try:
                content = BytesIO(self._files.read(path))
                found, rate_hz = soundfile.read(content, dtype="float32", frames=len(samples) + 1)
                if rate_hz != self.rate_hz or found.ndim != 1 or len(found) > len(samples):
                    raise soundfile.SoundFileRuntimeError("not a segment of this track")
                samples[: len(found)] = found
            except UNREADABLE:
                self._unread.append(f"{path.parent.name}/{path.name}")
        return samples if self._resampler is None else self._resampler.feed(samples)

    def _info(self, path: Path) -> Any:
        return soundfile.info(BytesIO(self._files.read(path)))


def merge_call(recording: CallRecording, *, min_free_gb: float = 0.0) -> list[str]:
    """Write the stereo WAV of a recorded call; return the segments that could not be read.

    Args:
        recording: the call.
        min_free_gb: free space that is left on the disk.

    Raises:
        MediaError: there is no audio, it is too long for a WAV, or the file cannot be written.
    """
    for name in (MERGED, VIDEO):
        # A run that was killed has left it.
        with suppress(OSError):
            partial_name(recording.path / name).unlink()
    unread: list[str] = []
    caller, bot = _Side(recording, CALLER_AUDIO, unread), _Side(recording, BOT_AUDIO, unread)
    rate_hz = max(caller.rate_hz, bot.rate_hz)
    if not rate_hz:
        raise MediaError(f"{recording.path}: no audio was recorded")
    left = ms_to_samples(max(caller.end_ms(), bot.end_ms()), rate_hz)
    if left * _FRAME_BYTES > MOST_BYTES:
        raise MediaError(f"{recording.path}: too long for one WAV; play the segments instead")
    check_space(recording.path, left * _FRAME_BYTES, min_free_gb)
    for side in (caller, bot):
        side.open(rate_hz)
    path = recording.path / MERGED
    peaks: list[list[int]] = [[], []]
    try:
        with recording.files.replacing(path) as raw, wave.open(raw, "wb") as file:
            file.setnchannels(2)
            file.setsampwidth(2)
            file.setframerate(rate_hz)
            # Known now, so that the header is written once.
            file.setnframes(left)
            while left:
                count = min(left, rate_hz)
                stereo = np.stack([side.samples(count) for side in (caller, bot)], axis=1)
                file.writeframesraw(float_to_pcm16(stereo.reshape(-1)))
                _add_peaks(peaks, stereo, ms_to_samples(PEAK_MS, rate_hz))
                left -= count
        facts = {"interval_ms": PEAK_MS, "caller": peaks[0], "bot": peaks[1]}
        recording.files.write(recording.path / PEAKS, json.dumps(facts, separators=(",", ":")).encode())
    except OSError as error:
        raise MediaError(f"cannot write {path}: {error.strerror or error}") from error
    return unread


def check_space(path: Path, needed_bytes: int, min_free_gb: float) -> None:
    """Check that a file of this size leaves enough space.

    Raises:
        MediaError: it does not.
    """
    free = shutil.disk_usage(path).free - needed_bytes
    if free < min_free_gb * GB:
        raise MediaError(
            f"{path}: {free / GB:.1f} GB would be free, recording.min_free_gb is {min_free_gb:g}"
        )


def unmerged_calls(folder: Path) -> Iterator[Path]:
    """Yield the folders of calls that are over and have audio, but no stereo WAV."""
    for session in session_folders(folder):
        for path in sorted(session.iterdir()):
            try:
                if is_call(path.name) and not (path / MERGED).exists() and is_over(read_recording(path)):
                    yield path
            except RecordingKeyError as error:
                logger.warning(f"no stereo WAV of {path}: {error}")
            except (MediaError, OSError):
                # Half written or foreign.
                continue


def is_over(recording: CallRecording) -> bool:
    """Return whether a call has audio and has ended, or was killed: nothing was written since long."""
    if not any(recording.segments(name) for name in (CALLER_AUDIO, BOT_AUDIO)):
        return False
    timeline = recording.path / TIMELINE
    last_s = (timeline if timeline.exists() else recording.path).stat().st_mtime
    return bool(recording.timeline().get("is_over")) or time.time() - last_s > IN_USE_S


def track_samples(recording: CallRecording, name: str, rate_hz: int) -> np.ndarray:
    """Return one side of a recorded call, float32 in [-1, 1], (samples,), at this rate.

    Raises:
        MediaError: nothing of this side was recorded, or a segment cannot be read.
    """
    unread: list[str] = []
    side = _Side(recording, name, unread)
    if not side.rate_hz:
        raise MediaError(f"{recording.path}: nothing was recorded of this side")
    side.open(rate_hz)
    samples = side.samples(ms_to_samples(side.end_ms(), rate_hz))
    if unread:
        raise MediaError(f"{recording.path}: {unread[0]} cannot be read")
    return samples


def side_blocks(recording: CallRecording, rate_hz: int, block_ms: int) -> Iterator[np.ndarray]:
    """Yield both sides of a recorded call, float32 in [-1, 1], (2, samples): the caller first.

    Raises:
        MediaError: nothing was recorded, or a segment cannot be read.
    """
    unread: list[str] = []
    sides = [_Side(recording, name, unread) for name in (CALLER_AUDIO, BOT_AUDIO)]
    if not any(side.rate_hz for side in sides):
        raise MediaError(f"{recording.path}: no audio was recorded")
    for side in sides:
        side.open(rate_hz)
    left = ms_to_samples(max(side.end_ms() for side in sides), rate_hz)
    while left:
        count = min(left, ms_to_samples(block_ms, rate_hz))
        block = np.stack([side.samples(count) for side in sides])
        if unread:
            raise MediaError(f"{recording.path}: {unread[0]} cannot be read")
        yield block
        left -= count


def _add_peaks(peaks: list[list[int]], stereo: np.ndarray, window: int) -> None:
    """Add the peaks of the next samples, (samples, 2); a second has a whole number of windows."""
    padded = np.pad(np.abs(stereo), ((0, -len(stereo) % window), (0, 0)))
    highest = padded.reshape(-1, window, 2).max(axis=1)
    for side, values in zip(peaks, highest.T, strict=True):
        side += np.minimum(np.ceil(values * _PERCENT), _PERCENT).astype(int).tolist()


def main(arguments: list[str] | None = None) -> int:
    """Merge the recordings of the given folders, and film those with pictures; return the exit status."""
    parser = argparse.ArgumentParser(
        description="Write the stereo WAV of recorded calls, and a film of those with a camera."
    )
    parser.add_argument("folder", type=Path, nargs="+", help="DATA/sessions/SESSION/CALL")
    status = 0
    for folder in parser.parse_args(arguments).folder:
        try:
            recording = read_recording(folder.absolute())
            unread = merge_call(recording)
            film = film_call(recording)
        except (MediaError, ConfigError) as error:
            print(error, file=sys.stderr)
            status = 1
            continue
        mark_used(recording.path)
        print(recording.path / MERGED)
        if film is not None:
            print(film)
        for name in unread:
            print(f"{name} cannot be read: it is silence", file=sys.stderr)
    return status


if __name__ == "__main__":
    sys.exit(main())
