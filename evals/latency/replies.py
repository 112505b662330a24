"""Comparison of a reply under load with the same reply unloaded. Pure.

A reply is a list of audible stretches. Silence that load inserts leaves the audible material unchanged, so
the material before a gap identifies it in the unloaded reply. The pause there is the voice's own; the excess
in the loaded reply was inserted. Edges move by a hop from one coding to the next, so an excess within
``NOISE_US`` is ignored. Many small insertions add up in the length of the whole reply, which has no such
threshold. Shorter insertions count as material, so each pause is searched for relative to the last pause that
was found.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from parley.audio.audible import AudibleSpan

NOISE_US = 30_000
AUDIBLE_GAP_US = 40_000
# Two gaps are the same pause when the material before them differs by less than this.
ALIGN_US = 60_000
# A reply with the same words and this much less material was cut off, and is not comparable.
SAME_ANSWER_SHARE = 0.25


@dataclass(frozen=True, slots=True)
class Gap:
    """A silence inside a reply.

    Attributes:
        after_us: audible material before it.
        length_us: its length.
    """

    after_us: int
    length_us: int


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply as played.

    Attributes:
        text: identifies the answer.
        start_us: client time of its first audible sample.
        length_us: first to last audible sample.
        audible_us: the audible part of it.
        gaps: the silences inside, in order.
    """

    text: str
    start_us: int
    length_us: int
    audible_us: int
    gaps: tuple[Gap, ...]


@dataclass(frozen=True, slots=True)
class Stretch:
    """Effect of load on a reply.

    Attributes:
        inserted_us: silence that the unloaded reply does not have.
        audible_gaps: number of inserted silences longer than ``AUDIBLE_GAP_US``.
    """

    inserted_us: int
    audible_gaps: int


def reply(text: str, spans: Sequence[AudibleSpan], rate_hz: int, origin_us: int) -> Reply:
    """Describe a reply by its audible stretches (at least one)."""
    audible = 0
    gaps: list[Gap] = []
    for index, span in enumerate(spans):
        if index:
            silence = span.first - spans[index - 1].last
            gaps.append(Gap(audible * 1_000_000 // rate_hz, silence * 1_000_000 // rate_hz))
        audible += span.last - span.first
    return Reply(
        text=text,
        start_us=origin_us + spans[0].first * 1_000_000 // rate_hz,
        length_us=(spans[-1].last - spans[0].first) * 1_000_000 // rate_hz,
        audible_us=audible * 1_000_000 // rate_hz,
        gaps=tuple(gaps),
    )


def same_answer(one: Reply, other: Reply) -> bool:
    """Return whether two replies are the same, by text and by material."""
    difference = abs(one.audible_us - other.audible_us)
    return one.text == other.text and difference <= SAME_ANSWER_SHARE * max(one.audible_us, other.audible_us)


def stretch(loaded: Reply, unloaded: Reply) -> Stretch:
    """Compare a reply with the unloaded one of the same answer."""
    inserted_us = 0
    audible_gaps = 0
    shift_us = 0
    for gap in loaded.gaps:
        here_us = gap.after_us - shift_us
        own = [other for other in unloaded.gaps if abs(other.after_us - here_us) <= ALIGN_US]
        excess_us = gap.length_us - max((other.length_us for other in own), default=0)
        if own:
            shift_us = gap.after_us - min(own, key=lambda other: abs(other.after_us - here_us)).after_us
        if excess_us > NOISE_US:
            inserted_us += excess_us
            audible_gaps += excess_us > AUDIBLE_GAP_US
    return Stretch(max(inserted_us, loaded.length_us - unloaded.length_us, 0), audible_gaps)


def least_stretch(loaded: Reply, unloaded: Sequence[Reply]) -> Stretch | None:
    """Compare with every unloaded reply of the same answer; return the smallest stretch, None without any.

    Unloaded replies themselves differ by up to some 30 ms in length: a voice is not the same to the sample.
    """
    found = [stretch(loaded, reference) for reference in unloaded if same_answer(loaded, reference)]
    return min(found, key=lambda result: result.inserted_us, default=None)
