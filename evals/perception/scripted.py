"""Scripted turns: words with times, and what a camera and specialists of the voice see and hear meanwhile.

A turn is written as text: ``how do I cancel {gym:this one}`` points at a thing during two words, ``{!:this is
fine}`` is said tensely, and ``a: ... / b: ...`` are turns of two people. ``perform`` gives it times, drawn
by a seed. A hand arrives at a thing between 150 ms before its word and 50 ms after the word's start, and
leaves 50 to 250 ms after the word's end; in a moving turn it comes from one thing and goes on to another.

``reports`` are what specialists would report about such a turn: a camera with 5 pictures a second, prosody
and speakers at the end of each stretch. Each comes after its latency and a drawn jitter. Pure.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from random import Random

from parley.core.media import WordTime
from parley.core.timeline import DiarPayload, ProsodyPayload, Source, VisionPayload

# Of the camera: a picture stands for half of the interval on both sides.
PICTURE_MS = 200
# From what happened to its report, the mean; words come at once.
VISION_MS, VOICE_MS = 200, 80
# Range of the jitter, from the shortest to the longest.
VISION_JITTER_MS, VOICE_JITTER_MS = (-50, 100), (-20, 50)
BEFORE_MS, AFTER_MS = 600, 600
_MARK = re.compile(r"\{(?P<mark>[^:{}]+):(?P<words>[^{}]+)\}")
_WORD = re.compile(r"\S+")


@dataclass(frozen=True, slots=True)
class Stretch:
    """Something that lasts, in ms from the beginning of the turn.

    Attributes:
        start_ms, end_ms: when it begins and ends.
        what: the thing that is pointed at, or the speaker; empty for a tense voice.
    """

    start_ms: int
    end_ms: int
    what: str = ""


@dataclass(frozen=True, slots=True)
class Performance:
    """A turn with its times, in ms from its beginning.

    Attributes:
        text: the words.
        words: with their times.
        pointing: what the hand points at, without overlaps.
        tense: stretches of a tense voice.
        voices: stretches of the speakers.
    """

    text: str
    words: tuple[WordTime, ...]
    pointing: tuple[Stretch, ...]
    tense: tuple[Stretch, ...]
    voices: tuple[Stretch, ...]

    @property
    def end_ms(self) -> int:
        """End of the last word."""
        return self.words[-1].end_ms


@dataclass(frozen=True, slots=True)
class SpecialistReport:
    """Report of a specialist about a turn, in ms from the beginning of the turn.

    Attributes:
        arrival_ms: when it comes.
        event_ms: when it happened.
        payload: its content; the times in it are in microseconds from the beginning of the turn.
        speaker: person it is about, where that is known.
    """

    arrival_ms: int
    event_ms: int
    payload: VisionPayload | ProsodyPayload | DiarPayload
    speaker: str | None = None

    @property
    def stream(self) -> Source:
        """The specialist that reports."""
        if isinstance(self.payload, ProsodyPayload):
            return Source.PROSODY
        return Source.DIAR if isinstance(self.payload, DiarPayload) else Source.VISION

    def as_arrived(self) -> "SpecialistReport":
        """Return the same report, as if it had happened when it arrived."""
        late_us = (self.arrival_ms - self.event_ms) * 1000
        moved = replace(
            self.payload, start_us=self.payload.start_us + late_us, end_us=self.payload.end_us + late_us
        )
        return replace(self, event_ms=self.arrival_ms, payload=moved)


@dataclass(frozen=True, slots=True)
class _Marked:
    """A mark in the text, by the numbers of its first word and of the one after its last."""

    mark: str
    first: int
    after: int


def perform(
    text: str,
    things: Mapping[str, str],
    seed: int,
    *,
    comes_from: str | None = None,
    goes_to: str | None = None,
) -> Performance:
    """Return a turn with times.

    Args:
        text: as the module says.
        things: what each mark points at, in words.
        seed: of the drawn times.
        comes_from: mark of what the hand pointed at before; None: at nothing.
        goes_to: mark of what it points at afterwards; None: it stays.
    """
    drawn = Random(seed)
    words: list[WordTime] = []
    marks: list[_Marked] = []
    voices: list[Stretch] = []
    at_ms = BEFORE_MS
    for speaker, said in _speakers(text):
        first = len(words)
        plain, found = _unmarked(said, first)
        marks.extend(found)
        for word in plain:
            lasts_ms = min(520, 90 + 45 * len(word)) + drawn.randint(-30, 30)
            words.append(WordTime(word, at_ms, at_ms + lasts_ms))
            at_ms += lasts_ms + drawn.randint(10, 50)
        if speaker:
            voices.append(Stretch(words[first].start_ms, words[-1].end_ms, speaker))
        at_ms += drawn.randint(150, 400)
    tense = tuple(
        Stretch(words[each.first].start_ms, words[each.after - 1].end_ms)
        for each in marks
        if each.mark == "!"
    )
    return Performance(
        " ".join(word.text for word in words),
        tuple(words),
        _pointing([each for each in marks if each.mark != "!"], words, things, drawn, comes_from, goes_to),
        tense,
        tuple(voices),
    )


def reports(performance: Performance, seed: int) -> list[SpecialistReport]:
    """Return what the specialists report about a turn, in the order in which the reports arrive."""
    drawn = Random(seed)
    found: list[SpecialistReport] = []
    half_ms = PICTURE_MS // 2
    for at_ms in range(drawn.randrange(PICTURE_MS), performance.end_ms + AFTER_MS, PICTURE_MS):
        seen = next((each for each in performance.pointing if each.start_ms <= at_ms < each.end_ms), None)
        ref, gesture = (None, None) if seen is None else (seen.what, "pointing")
        payload = VisionPayload((at_ms - half_ms) * 1000, (at_ms + half_ms) * 1000, ref, gesture)
        found.append(SpecialistReport(at_ms + VISION_MS + drawn.randint(*VISION_JITTER_MS), at_ms, payload))
    for each in _voice_stretches(performance):
        came_ms = each.end_ms + VOICE_MS + drawn.randint(*VOICE_JITTER_MS)
        tense = any(one.start_ms <= each.start_ms < one.end_ms for one in performance.tense)
        how = ProsodyPayload(each.start_ms * 1000, each.end_ms * 1000, stress=0.9 if tense else 0.1)
        found.append(SpecialistReport(came_ms, each.end_ms, how))
        if each.what:
            who = DiarPayload(each.start_ms * 1000, each.end_ms * 1000, each.what)
            found.append(SpecialistReport(came_ms, each.end_ms, who, each.what))
    return sorted(found, key=lambda report: report.arrival_ms)


def _voice_stretches(performance: Performance) -> Iterable[Stretch]:
    """Return stretches of voice, of one speaker and one manner each."""
    edges = {
        edge
        for stretch in (*performance.tense, *performance.voices)
        for edge in (stretch.start_ms, stretch.end_ms)
    }
    words: list[WordTime] = []
    for word in performance.words:
        if words and word.start_ms in edges or words and words[-1].end_ms in edges:
            yield _stretch(words, performance.voices)
            words = []
        words.append(word)
    yield _stretch(words, performance.voices)


def _stretch(words: Sequence[WordTime], voices: Sequence[Stretch]) -> Stretch:
    start_ms = words[0].start_ms
    who = next((each.what for each in voices if each.start_ms <= start_ms < each.end_ms), "")
    return Stretch(start_ms, words[-1].end_ms, who)


def _speakers(text: str) -> list[tuple[str, str]]:
    """Return the turns of the speakers; one without a name when the text names none."""
    parts = [part.strip().partition(": ") for part in text.split(" / ")]
    if all(name and rest and name.isalpha() and len(name) == 1 for name, _, rest in parts):
        return [(f"speaker {name}", rest) for name, _, rest in parts]
    return [("", text)]


def _unmarked(said: str, first: int) -> tuple[list[str], list[_Marked]]:
    """Return the words without marks, and the marks."""
    words: list[str] = []
    marks: list[_Marked] = []
    at = 0
    for found in _MARK.finditer(said):
        words.extend(_WORD.findall(said[at : found.start()]))
        inside = _WORD.findall(found["words"])
        marks.append(_Marked(found["mark"], first + len(words), first + len(words) + len(inside)))
        words.extend(inside)
        at = found.end()
    words.extend(_WORD.findall(said[at:]))
    return words, marks


def _pointing(
    marks: Sequence[_Marked],
    words: Sequence[WordTime],
    things: Mapping[str, str],
    drawn: Random,
    comes_from: str | None,
    goes_to: str | None,
) -> tuple[Stretch, ...]:
    """Return where the hand points: from one thing to the next, and what comes before and after."""
    if not marks:
        return ()
    stays = comes_from is None and goes_to is None
    holds = [
        Stretch(
            words[each.first].start_ms + (-600 if stays else drawn.randint(-150, 50)),
            words[each.after - 1].end_ms + (600 if stays else drawn.randint(50, 250)),
            things[each.mark],
        )
        for each in marks
    ]
    # The next thing is arrived at by its own word, even where the one before is still held.
    for number, after in enumerate(holds[1:]):
        holds[number] = replace(holds[number], end_ms=min(holds[number].end_ms, after.start_ms))
    before = [] if comes_from is None else [Stretch(0, holds[0].start_ms, things[comes_from])]
    after_all = words[-1].end_ms + AFTER_MS
    rest = [] if goes_to is None else [Stretch(holds[-1].end_ms, after_all, things[goes_to])]
    return (*before, *holds, *rest)
