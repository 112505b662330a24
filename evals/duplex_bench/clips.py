"""Clips of Full-Duplex-Bench: folders in, audio and labelled events out.

Each task has a folder, with a folder for each clip in it:

    DIR/<task>/<clip>/input.wav         the caller's speech (or .flac, .opus, .ogg): any rate, any channels
                     /<annotation>.json its place, [start, end] in seconds
                     /clean_input.wav   optional: the same without the speech over the bot
                     /events.json       optional: all events of the clip, as in the shipped ones

The name of the folder determines the task, so that ``candor_turn_taking`` and ``synthetic_turn_taking`` are
both turn-taking. The annotation is ``pause.json``, ``turn_taking.json`` or ``interrupt.json`` where v1 has
them, and otherwise the first other JSON file of the clip with a ``timestamp`` or ``timestamps``. For
backchannels, ``gt_distribution.json`` or ``icc_gt_distribution.json`` in the task's folder or in DIR has a
list of shares, in bins of 0.2 s, by the name of the clip.

Unreadable files are refused by name: a figure over the clips that happened to be readable is meaningless.
"""

import json
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import Enum
from pathlib import Path
from typing import Any

import numpy as np
import soundfile
import soxr

from parley.core.errors import ConfigError, MediaError

SHIPPED = Path(__file__).parent / "data"
AUDIO = ("input.wav", "input.flac", "input.opus", "input.ogg")
CLEAN = tuple(f"clean_{name}" for name in AUDIO)
SHARES = ("gt_distribution.json", "icc_gt_distribution.json")
# Prefixes of files that a system under test or its judge writes: no annotations.
NO_ANNOTATION = ("transcription", "input", "output", "clean", "rating", "events", "content", "tag")
# Tolerance of a label after the end of the audio: annotations are rounded.
SLACK_MS = 100


class Part(Enum):
    """Tested abilities."""

    PAUSE = "pause"
    TURN = "turn"
    BACKCHANNEL = "backchannel"
    INTERRUPTION = "interruption"
    USER_BACKCHANNEL = "user_backchannel"
    TALKING_TO_OTHERS = "talking_to_others"
    BACKGROUND = "background"
    TICS = "tics"


class Kind(Enum):
    """Kinds of events, by the caller or by other people."""

    TURN = "turn"
    PAUSE = "pause"
    INTERRUPTION = "interruption"
    BACKCHANNEL = "backchannel"
    TIC = "tic"
    TALKING_TO_OTHER = "talking_to_other"
    BACKGROUND = "background"

    @property
    def wants_answer(self) -> bool:
        """True for a finished utterance that is meant for the bot."""
        return self in (Kind.TURN, Kind.INTERRUPTION)

    @property
    def is_non_directed(self) -> bool:
        """True for talk that is not meant for the bot."""
        return self in (Kind.TALKING_TO_OTHER, Kind.BACKGROUND)


# Parts of a folder's name; the first that fits counts.
_NAMES = (
    ("pause", Part.PAUSE),
    ("turn_taking", Part.TURN),
    ("interruption", Part.INTERRUPTION),
    ("user_backchannel", Part.USER_BACKCHANNEL),
    ("backchannel", Part.BACKCHANNEL),
    ("talking", Part.TALKING_TO_OTHERS),
    ("background", Part.BACKGROUND),
    ("tic", Part.TICS),
)
_EVENT = {
    Part.PAUSE: Kind.PAUSE,
    Part.TURN: Kind.TURN,
    Part.INTERRUPTION: Kind.INTERRUPTION,
    Part.USER_BACKCHANNEL: Kind.BACKCHANNEL,
    Part.TALKING_TO_OTHERS: Kind.TALKING_TO_OTHER,
    Part.BACKGROUND: Kind.BACKGROUND,
    Part.TICS: Kind.TIC,
}
_ANNOTATION = {
    Part.PAUSE: "pause.json",
    Part.TURN: "turn_taking.json",
    Part.INTERRUPTION: "interrupt.json",
}


@dataclass(frozen=True, slots=True)
class Event:
    """An event in a clip.

    Attributes:
        kind: of the event.
        began_ms: from the beginning of the clip.
        ended_ms: from the beginning of the clip. The end of the caller's speech for a turn.
        text: its words, if they are known.
    """

    kind: Kind
    began_ms: int
    ended_ms: int
    text: str = ""


@dataclass(frozen=True, slots=True)
class Clip:
    """A call.

    Attributes:
        part: tested ability.
        name: folder of the task and of the clip.
        path: its audio.
        event: event by which it is scored. Of turns ``ended_ms`` alone counts. None for a backchannel clip,
            and for a pause clip without labelled pauses.
        events: all labelled events, in order.
        shares: distribution of a listener's backchannels, in bins of 0.2 s. None when it is not known.
        clean: its audio without the event. None when there is none.
    """

    part: Part
    name: str
    path: Path
    event: Event | None = None
    events: tuple[Event, ...] = ()
    shares: tuple[float, ...] | None = None
    clean: Path | None = None

    def audio(self, rate_hz: int) -> np.ndarray:
        """Return the clip's audio: float32, (samples,), in [-1, 1].

        Raises:
            MediaError: it cannot be read.
        """
        return read_audio(self.path, rate_hz)

    def clean_audio(self, rate_hz: int) -> np.ndarray:
        """Return the audio without the event: as recorded, or with silence in its place."""
        if self.clean is not None:
            return read_audio(self.clean, rate_hz)
        audio = self.audio(rate_hz).copy()
        if self.event is not None:
            first, last = (ms * rate_hz // 1000 for ms in (self.event.began_ms, self.event.ended_ms))
            audio[first:last] = 0.0
        return audio


def read_audio(path: Path, rate_hz: int) -> np.ndarray:
    """Read a file as float32, (samples,), one channel.

    Raises:
        MediaError: it cannot be read, or is empty.
    """
    try:
        samples, found_hz = soundfile.read(path, dtype="float32", always_2d=True)
    except (soundfile.SoundFileError, OSError) as error:
        raise MediaError(f"{path} is not a readable audio file") from error
    if not len(samples):
        raise MediaError(f"{path} is empty")
    mono = samples.mean(axis=1)
    return np.ascontiguousarray(soxr.resample(mono, found_hz, rate_hz), dtype=np.float32)


def load(folder: Path, parts: Sequence[Part] = tuple(Part), *, most: int | None = None) -> list[Clip]:
    """Return the clips of these parts, by task and name, at most ``most`` of each task.

    Raises:
        ConfigError: no such folder, nothing of these parts in it, or an annotation that cannot be read.
    """
    if not folder.is_dir():
        raise ConfigError(f"there is no folder {folder}")
    clips: list[Clip] = []
    for task in sorted(path for path in folder.iterdir() if path.is_dir()):
        part = part_of(task.name)
        if part is None or part not in parts:
            continue
        named = sorted((path for path in task.iterdir() if path.is_dir()), key=_by_number)
        found = [path for path in named if _audio_of(path, AUDIO) is not None]
        shares = _shares(task, folder) if part is Part.BACKCHANNEL else {}
        clips += [_clip(part, path, shares) for path in found[:most]]
    if not clips:
        wanted = ", ".join(part.value for part in parts)
        raise ConfigError(f"no clip of {wanted} in {folder}: expected <task>/<clip>/input.wav")
    return clips


def part_of(name: str) -> Part | None:
    """Return the ability that a task's folder tests, by its name; None for an unknown one."""
    return next((part for has, part in _NAMES if has in name.lower()), None)


def _by_number(path: Path) -> tuple[int, str]:
    return int(path.name) if path.name.isdecimal() else 0, path.name


def _audio_of(folder: Path, names: Sequence[str]) -> Path | None:
    return next((folder / name for name in names if (folder / name).is_file()), None)


def _clip(part: Part, folder: Path, shares: dict[str, tuple[float, ...]]) -> Clip:
    path = _audio_of(folder, AUDIO)
    assert path is not None
    try:
        info = soundfile.info(path)
    except (soundfile.SoundFileError, OSError) as error:
        raise ConfigError(f"{path} is not a readable audio file") from error
    length_ms = int(info.frames * 1000 / info.samplerate)
    spans = _annotated(part, folder, length_ms)
    event = Event(_EVENT[part], *spans[0]) if spans else None
    if part is Part.TURN and event is not None:
        # v1 labels the silence after the turn: the caller has finished at its beginning.
        event = Event(Kind.TURN, 0, event.began_ms)
    labelled = _labelled(folder, length_ms)
    events = labelled if labelled is not None else tuple(Event(_EVENT[part], *span) for span in spans)
    if labelled is None and part is Part.TURN and event is not None:
        events = (event,)
    return Clip(
        part,
        f"{folder.parent.name}/{folder.name}",
        path,
        event,
        tuple(sorted(events, key=lambda each: each.began_ms)),
        shares.get(folder.name),
        _audio_of(folder, CLEAN),
    )


def _annotated(part: Part, folder: Path, length_ms: int) -> list[tuple[int, int]]:
    """Return the spans by which a clip is scored."""
    usual = folder / _ANNOTATION[part] if part in _ANNOTATION else None
    if usual is not None and usual.is_file():
        paths = [usual]
    elif part in (Part.PAUSE, Part.BACKCHANNEL):
        # Scored over the whole clip.
        return []
    else:
        paths = sorted(path for path in folder.glob("*.json") if not path.stem.startswith(NO_ANNOTATION))
    for path in paths:
        spans = [_checked(pair, path, length_ms) for pair in _timestamps(_read(path))]
        if spans:
            return spans
    named = usual.name if usual is not None else "a JSON file with a timestamp"
    raise ConfigError(f"{folder} has no [start, end] in seconds: expected {named}")


def _labelled(folder: Path, length_ms: int) -> tuple[Event, ...] | None:
    path = folder / "events.json"
    if not path.is_file():
        return None
    value = _read(path)
    try:
        return tuple(
            Event(
                Kind(row["kind"]),
                *_checked(row["timestamp"], path, length_ms),
                text=str(row.get("text", "")),
            )
            for row in value["events"]
        )
    except (TypeError, KeyError, ValueError, AttributeError) as error:
        raise ConfigError(f"{path} is not a list of events with kind and timestamp") from error


def _shares(task: Path, folder: Path) -> dict[str, tuple[float, ...]]:
    paths = [place / name for place in (task, folder) for name in SHARES]
    path = next((path for path in paths if path.is_file()), None)
    if path is None:
        return {}
    value = _read(path)
    if not isinstance(value, dict):
        raise ConfigError(f"{path} is not a mapping of clips to shares")
    return {str(name): _share(row, path) for name, row in value.items()}


def _share(row: object, path: Path) -> tuple[float, ...]:
    numbers = row if isinstance(row, list) else None
    if not numbers or not all(
        isinstance(each, int | float) and math.isfinite(each) and each >= 0 for each in numbers
    ):
        raise ConfigError(f"{path} has a distribution that is not a list of shares")
    if not sum(numbers):
        raise ConfigError(f"{path} has an empty distribution")
    return tuple(float(each) for each in numbers)


def _read(path: Path) -> Any:
    try:
        return json.loads(path.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{path} is not readable JSON") from error


def _timestamps(value: object) -> Iterator[object]:
    """Yield the values of ``timestamp`` or ``timestamps`` at any depth; of several pairs, each."""
    if isinstance(value, list):
        for each in value:
            yield from _timestamps(each)
    elif isinstance(value, dict):
        for name, each in value.items():
            if name not in ("timestamp", "timestamps"):
                yield from _timestamps(each)
            elif isinstance(each, list) and each and all(isinstance(pair, list) for pair in each):
                yield from each
            else:
                yield each


def _checked(pair: object, path: Path, length_ms: int) -> tuple[int, int]:
    numbers = pair if isinstance(pair, list | tuple) else ()
    if len(numbers) != 2 or not all(
        isinstance(each, int | float) and math.isfinite(each) for each in numbers
    ):
        raise ConfigError(f"{path} has a timestamp that is not [start, end] in seconds")
    began_ms, ended_ms = (round(each * 1000) for each in numbers)
    if not 0 <= began_ms <= ended_ms or began_ms > length_ms + SLACK_MS:
        raise ConfigError(f"{path} has a timestamp that does not lie in its {length_ms / 1000:g} s of audio")
    return began_ms, min(ended_ms, length_ms)
