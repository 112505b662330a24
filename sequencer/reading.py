"""Read a rendered turn: who said which words, and what was perceived meanwhile.

The inverse of ``sequencer.rendering``, for an engine that chooses its answer by rules. Pure.
"""

import re
from dataclasses import dataclass

from parley.sequencer.rendering import AT

# A turn is bounded by its caller; a line of brackets alone has no more parts than this.
_MOST_PARTS = 200
_SPEAKER = re.compile(r"\[([^\[\]\n]+)\] ")
_REMARK = re.compile(r"\[([^\[\]]*)\]")
_GESTURE = re.compile(r"(?P<gesture>\S+) (?P<ref>.+)", re.S)


@dataclass(frozen=True, slots=True)
class RenderedPart:
    """Words with the same annotations.

    Attributes:
        speaker: name of the speaker; None in a turn of one speaker.
        words: the words as they were said.
        labels: salient annotations, the voice first.
    """

    speaker: str | None
    words: str
    labels: tuple[str, ...] = ()

    @property
    def referent(self) -> str | None:
        """Object that was pointed at or shown meanwhile; None without one."""
        return next((ref for label in self.labels if (ref := referent_of(label)) is not None), None)


def read_turn(text: str) -> list[RenderedPart]:
    """Return the parts of a rendered turn in order. A turn without annotations has one part."""
    lines = text.split("\n")
    named = [_SPEAKER.match(line) for line in lines]
    if len(lines) < 2 or not all(named) or len({found[1] for found in named if found is not None}) < 2:
        return _parts(None, text)
    return [
        part
        for found, line in zip(named, lines, strict=True)
        if found is not None
        for part in _parts(found[1], line[found.end() :])
    ]


def referent_of(label: str) -> str | None:
    """Return what a label of sight refers to ("pointing at the fee"); None for any other label."""
    found = _GESTURE.fullmatch(label)
    if found is None:
        return None
    gesture, ref = found["gesture"].lower(), found["ref"]
    before = AT.get(gesture)
    if before is None:
        return ref if gesture.endswith("ing") else None
    return ref[len(before) :] if ref.startswith(before) and len(ref) > len(before) else None


def _parts(speaker: str | None, line: str) -> list[RenderedPart]:
    parts: list[RenderedPart] = []
    at = 0
    for remark in _REMARK.finditer(line):
        if len(parts) >= _MOST_PARTS:
            break
        words = line[at : remark.start()].strip()
        at = remark.end()
        if words:
            labels = tuple(label for each in remark[1].split(";") if (label := each.strip()))
            parts.append(RenderedPart(speaker, words, labels))
    rest = line[at:].strip()
    if rest or not parts:
        parts.append(RenderedPart(speaker, rest))
    return parts
