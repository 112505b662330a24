"""Make a film of a recorded call with a camera: its pictures, both sides in stereo, and captions.

Input: the folder of a recording whose stereo WAV was made. Output: ``merged_replay.mp4`` (H.264, AAC, and
captions as a text track), written to a temporary name first. A picture stays until the next one; before the
first one it is black. Encoding is PyAV's; one second of audio and one picture are in memory at a time.

Blocks: on a server it runs in the thread that makes the stereo WAV.
"""

import wave
from collections.abc import Iterator
from fractions import Fraction
from pathlib import Path
from typing import Any, BinaryIO

import av
import numpy as np
from av.subtitles.subtitle import SubtitleSet
from PIL import Image, ImageOps, UnidentifiedImageError

from parley.core.errors import MediaError
from parley.recording.call_files import CallFiles
from parley.recording.captions import captions_of
from parley.recording.folder import MERGED, VIDEO, CallRecording
from parley.recording.timeline import timeline_of

# Of H.264's quantiser: hardly visible.
QUALITY = "26"
# The same picture again: a player that seeks finds one near.
MOST_GAP_MS = 1_000
# FFmpeg's encoder of text tracks takes lines of ASS, which begin with their styles.
_STYLES = (
    b"[Script Info]\nScriptType: v4.00+\n\n[V4+ Styles]\n"
    b"Format: Name, Fontname, Fontsize, PrimaryColour\nStyle: Default,Arial,20,&H00FFFFFF\n\n"
    b"[Events]\nFormat: Layer, Start, End, Style, Name, MarginL, MarginR, MarginV, Effect, Text\n"
)
_MS, _US = Fraction(1, 1_000), Fraction(1, 1_000_000)
_US_PER_MS = 1_000
_STEREO = 2


def film_call(recording: CallRecording) -> Path | None:
    """Write the film of a recorded call and return its path; None for a call without pictures.

    Raises:
        MediaError: the stereo WAV is missing, a file cannot be read, or the film cannot be written.
    """
    files, pictures = recording.files, recording.pictures()
    if not pictures:
        return None
    path, sound = recording.path / VIDEO, recording.path / MERGED
    if not files.has(sound):
        raise MediaError(f"{recording.path}: no {MERGED}, from which the film has its sound")
    try:
        with (
            files.open(sound) as stored,
            wave.open(stored, "rb") as audio,
            files.replacing(path) as film,
        ):
            _write(film, audio, _Pictures(files, pictures), timeline_of(recording).events)
    except (OSError, wave.Error, EOFError, av.error.FFmpegError, UnidentifiedImageError) as error:
        raise MediaError(f"cannot make {path}: {error}") from error
    return path


class _Pictures:
    """Pictures of the camera, read one at a time.

    Args:
        files: of the call.
        places: times in milliseconds, and files, in order.
    """

    def __init__(self, files: CallFiles, places: list[tuple[int, Path]]) -> None:
        self._files, self._places = files, places

    def even_size(self) -> tuple[int, int]:
        """Return the size of the first one; chroma has half of it."""
        with self._files.open(self._places[0][1]) as stored, Image.open(stored) as opened:
            width, height = opened.size
        return max(2, width // 2 * 2), max(2, height // 2 * 2)

    def shown(self, size: tuple[int, int], length_ms: int) -> Iterator[tuple[int, Image.Image]]:
        """Yield what is seen from when on, at least every ``MOST_GAP_MS``, up to the end of the sound."""
        picture, places = Image.new("RGB", size), iter([*self._places, (length_ms, None)])
        at_ms = 0
        for next_ms, path in places:
            while at_ms < min(next_ms, length_ms):
                yield at_ms, picture
                at_ms = min(at_ms + MOST_GAP_MS, next_ms)
            if path is None or next_ms >= length_ms:
                return
            with self._files.open(path) as stored, Image.open(stored) as opened:
                # A camera that was turned has another shape: bars, not a stretched picture.
                picture = ImageOps.pad(opened.convert("RGB"), size)
            at_ms = next_ms


def _write(file: BinaryIO, audio: wave.Wave_read, pictures: _Pictures, events: list[dict[str, Any]]) -> None:
    rate_hz = audio.getframerate()
    length_ms = audio.getnframes() * 1_000 // rate_hz
    size = pictures.even_size()
    with av.open(file, "w", format="mp4") as film:
        video: Any = film.add_stream(
            "libx264", rate=1_000 // MOST_GAP_MS, options={"crf": QUALITY, "preset": "veryfast"}
        )
        video.width, video.height = size
        video.pix_fmt = "yuv420p"
        video.codec_context.time_base = _MS
        # Calls need the other cores.
        video.codec_context.thread_count = 1
        sound: Any = film.add_stream("aac", rate=rate_hz, layout="stereo")
        titles: Any = film.add_stream("mov_text")
        titles.codec_context.subtitle_header = _STYLES
        for at_ms, picture in pictures.shown(size, length_ms):
            frame = av.VideoFrame.from_ndarray(np.asarray(picture), format="rgb24")
            frame.pts, frame.time_base = at_ms, _MS
            film.mux(video.encode(frame))
        film.mux(video.encode())
        for start, samples in _seconds(audio):
            piece = av.AudioFrame.from_ndarray(samples.reshape(1, -1), format="s16", layout="stereo")
            piece.sample_rate, piece.pts, piece.time_base = rate_hz, start, Fraction(1, rate_hz)
            film.mux(sound.encode(piece))
        film.mux(sound.encode())
        for caption in captions_of(events):
            name = "Caller" if caption.is_caller else "Agent"
            text = f"0,0,Default,,0,0,0,,{name}: {_plain(caption.text)}".encode()
            shown_us = (caption.end_ms - caption.start_ms) * _US_PER_MS
            title = titles.codec_context.encode_subtitle(SubtitleSet.create(text, 0, shown_us))
            title.stream, title.time_base = titles, _US
            title.pts = title.dts = caption.start_ms * _US_PER_MS
            title.duration = shown_us
            film.mux(title)


def _seconds(audio: wave.Wave_read) -> Iterator[tuple[int, np.ndarray]]:
    start, rate_hz = 0, audio.getframerate()
    while data := audio.readframes(rate_hz):
        samples = np.frombuffer(data, "<i2")
        yield start, samples
        start += len(samples) // _STEREO


def _plain(text: str) -> str:
    """Return a caption without the marks of its format."""
    return text.replace("{", "(").replace("}", ")").replace("\n", " ").replace("\\", "/")
