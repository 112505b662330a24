"""Split of recordings, texts and voices into those to tune on and those to report.

A speaker belongs to one side, and so does a generator of synthetic voices. ``manifest.tsv`` lists every
recording of ``sources`` with its side and the digests of its audio, its text and its clauses. A ``TuningSet``
can hold nothing of the report side and a ``ReportSet`` nothing of the tuning side. The constructors check the
speaker, the audio and the words, so that neither a new name nor a new recording of a reported text passes.
Functions that choose a constant take a ``TuningSet``.
"""

import csv
import hashlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import ClassVar, Self

from parley.core.errors import ConfigError, MediaError
from parley.evals.human.archives import cache_folder
from parley.evals.human.recordings import RecordedUtterance, plain_words, text_digest
from parley.evals.human.sources import SOURCES

MANIFEST = Path(__file__).parent / "manifest.tsv"
OWN = "own"
# A clause of fewer words belongs to no set: "thank you", "please try again".
CLAUSE_WORDS = 4
CLAUSE_DIGITS = 12
_COLUMNS = ("set", "id", "speaker", "language", "seconds", "words", "audio_sha256", "text_sha256", "clauses")


class Split(Enum):
    """Side of a recording."""

    TUNING = "tuning"
    REPORT = "report"

    @property
    def other(self) -> "Split":
        """The opposite side."""
        return Split.REPORT if self is Split.TUNING else Split.TUNING


# Most transcribed English is of one speaker, so she is reported, in both of her languages. Tuning has read
# English, other languages, a meeting, amateur radio and the generators of its side.
SPEAKERS: Mapping[str, Split] = MappingProxyType(
    {
        "allison": Split.REPORT,
        "june": Split.REPORT,
        "cmu-commands": Split.REPORT,
        "moonshine-two_cities": Split.REPORT,
        "codec2-ve9qrp": Split.REPORT,
        "codec2-vk2tpm": Split.REPORT,
        "codec2-harvard": Split.REPORT,
        "codec2-hts2": Split.REPORT,
        "codec2-forig": Split.REPORT,
        "carlo": Split.TUNING,
        "ivrvoice-ru": Split.TUNING,
        "librivox-austen": Split.TUNING,
        "moonshine-beckett": Split.TUNING,
        "moonshine-clone-test": Split.TUNING,
        "meeting-chan3": Split.TUNING,
        "codec2-hts1": Split.TUNING,
        "codec2-mmt1": Split.TUNING,
        "codec2-morig": Split.TUNING,
        "codec2-cross": Split.TUNING,
        "codec2-david": Split.TUNING,
        "codec2-vk5qi": Split.TUNING,
        "exclaims-default": Split.REPORT,
        "exclaims-hillbilly": Split.REPORT,
        "exclaims-es": Split.REPORT,
        "exclaims-pl": Split.REPORT,
        "exclaims-ru": Split.REPORT,
        "exclaims-uk": Split.REPORT,
        "exclaims-accent-pl": Split.REPORT,
        "exclaims-british": Split.TUNING,
        "exclaims-mobster": Split.TUNING,
        "exclaims-pirate": Split.TUNING,
        "exclaims-accent": Split.TUNING,
        "exclaims-singer": Split.TUNING,
        "exclaims-surfer": Split.TUNING,
    }
)
# Constants of the turn rules were fitted on flite and espeak (``research.turn_taking.tuning``): both tune.
GENERATORS: Mapping[str, Split] = MappingProxyType(
    {
        "flite": Split.TUNING,
        "espeak": Split.TUNING,
        "festival": Split.REPORT,
        "pico": Split.REPORT,
        "piper": Split.REPORT,
        "hibari": Split.REPORT,
    }
)


class SplitError(ConfigError):
    """Material of one side was given to the other."""


@dataclass(frozen=True, slots=True)
class ManifestRow:
    """A row of the manifest.

    Attributes:
        split: its side.
        id: source and member.
        speaker: of the recording.
        language: ISO 639-1.
        seconds: length.
        words: number of words in its text, 0 without one.
        audio_sha256: of its samples as 16-bit PCM.
        text_sha256: of its plain words. Empty without a text.
        clauses: shortened digests of its clauses of at least ``CLAUSE_WORDS`` words.
    """

    split: Split
    id: str
    speaker: str
    language: str
    seconds: float
    words: int
    audio_sha256: str
    text_sha256: str
    clauses: tuple[str, ...]


@cache
def manifest() -> tuple[ManifestRow, ...]:
    """Read the committed manifest."""
    with MANIFEST.open(encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t"))
    return tuple(
        ManifestRow(
            Split(row["set"]),
            row["id"],
            row["speaker"],
            row["language"],
            float(row["seconds"]),
            int(row["words"]),
            row["audio_sha256"],
            row["text_sha256"],
            tuple(filter(None, row["clauses"].split(","))),
        )
        for row in rows
    )


def write_manifest(utterances: Iterable[RecordedUtterance], path: Path = MANIFEST) -> int:
    """Write the manifest of these recordings and return their number.

    Raises:
        SplitError: a speaker has no side, or one text or recording is on both.
    """
    rows = [_row(one) for one in sorted(utterances, key=lambda one: one.id)]
    check_disjoint(rows)
    with path.open("w", encoding="utf-8", newline="") as file:
        writer = csv.writer(file, delimiter="\t", lineterminator="\n")
        writer.writerow(_COLUMNS)
        for row in rows:
            writer.writerow(
                (
                    row.split.value,
                    row.id,
                    row.speaker,
                    row.language,
                    row.seconds,
                    row.words,
                    row.audio_sha256,
                    row.text_sha256,
                    ",".join(row.clauses),
                )
            )
    return len(rows)


def _row(one: RecordedUtterance) -> ManifestRow:
    if one.speaker not in SPEAKERS:
        raise SplitError(f"{one.speaker!r} belongs to neither set", known=tuple(SPEAKERS))
    words = plain_words(one.text)
    return ManifestRow(
        SPEAKERS[one.speaker],
        one.id,
        one.speaker,
        one.language,
        round(one.duration_s, 2),
        len(words),
        one.digest(),
        text_digest(one.text) if words else "",
        clause_digests(one.text),
    )


def check_disjoint(rows: Sequence[ManifestRow]) -> None:
    """Check that no speaker, recording or text is on both sides.

    Raises:
        SplitError: one is.
    """
    kinds = {
        "speaker": lambda row: row.speaker,
        "recording": lambda row: row.audio_sha256,
        "text": lambda row: row.text_sha256,
    }
    for kind, key in kinds.items():
        sides = ({key(row) for row in rows if row.split is split} - {""} for split in Split)
        tuning, report = sides
        if both := tuning & report:
            named = [row.id for row in rows if key(row) in both]
            raise SplitError(f"a {kind} is in both sets: {', '.join(named[:4])}")


def clauses(text: str) -> Iterator[str]:
    """Yield the clauses of a text as plain words, those of at least ``CLAUSE_WORDS`` words."""
    for clause in _split_clauses(text):
        words = plain_words(clause)
        if len(words) >= CLAUSE_WORDS:
            yield " ".join(words)


def clause_digests(text: str) -> tuple[str, ...]:
    """Return the shortened digests of the clauses of a text, each once, sorted."""
    found = {hashlib.sha256(clause.encode()).hexdigest()[:CLAUSE_DIGITS] for clause in clauses(text)}
    return tuple(sorted(found))


def _split_clauses(text: str) -> Iterator[str]:
    start = 0
    for at, character in enumerate(text):
        if character in ".!?;:,\n" and (at + 1 == len(text) or text[at + 1].isspace()):
            yield text[start:at]
            start = at + 1
    yield text[start:]


@cache
def _report_clauses() -> frozenset[str]:
    return frozenset(clause for row in manifest() if row.split is Split.REPORT for clause in row.clauses)


def reported_clauses(text: str) -> tuple[str, ...]:
    """Return the clauses of a text that a recording of the report set also has."""
    return tuple(clause for clause in clauses(text) if clause_digests(clause)[0] in _report_clauses())


class SpeechSet:
    """Recordings of one side.

    Args:
        utterances: its material.
        own: sides of the speakers of a user's folder, by their names.

    Raises:
        SplitError: an utterance belongs to the other side, or to none.
    """

    split: ClassVar[Split]

    def __init__(
        self, utterances: Iterable[RecordedUtterance], own: Mapping[str, Split] | None = None
    ) -> None:
        self._utterances, self._own = tuple(utterances), dict(own or {})
        for one in self._utterances:
            side = _side(one, self._own)
            if side is not self.split:
                raise SplitError(f"{one.id} belongs to the {side.value} set, not to {self.split.value}")

    def __iter__(self) -> Iterator[RecordedUtterance]:
        return iter(self._utterances)

    def __len__(self) -> int:
        return len(self._utterances)

    def where(
        self,
        *,
        language: str | None = None,
        with_text: bool = False,
        sources: Sequence[str] = (),
    ) -> Self:
        """Return a part of the set, of the same side."""
        return type(self)(
            (
                one
                for one in self._utterances
                if (language is None or one.language == language)
                and (one.text or not with_text)
                and (not sources or one.source in sources)
            ),
            self._own,
        )


class TuningSet(SpeechSet):
    """Recordings on which constants may be chosen."""

    split = Split.TUNING


class ReportSet(SpeechSet):
    """Recordings on which figures are reported. No constant is chosen on them."""

    split = Split.REPORT


def _side(one: RecordedUtterance, own: Mapping[str, Split]) -> Split:
    """Return the side of an utterance: that of its speaker or generator.

    Raises:
        SplitError: it has no side, or its audio or words are on the other side of the manifest.
    """
    if one.source == OWN and one.speaker in own:
        side = own[one.speaker]
    elif one.source in GENERATORS:
        side = GENERATORS[one.source]
    elif one.source in SOURCES and one.speaker in SPEAKERS:
        side = SPEAKERS[one.speaker]
    else:
        raise SplitError(f"{one.id}: speaker {one.speaker!r} of {one.source!r} belongs to neither set")
    sounds, texts = _digests(side.other)
    if one.digest() in sounds:
        raise SplitError(f"{one.id} is a recording of the {side.other.value} set")
    if one.text and text_digest(one.text) in texts:
        raise SplitError(f"{one.id} contains a text of the {side.other.value} set")
    return side


@cache
def _digests(split: Split) -> tuple[frozenset[str], frozenset[str]]:
    rows = [row for row in manifest() if row.split is split]
    return frozenset(row.audio_sha256 for row in rows), frozenset(row.text_sha256 for row in rows) - {""}


def load_tuning(sources: Sequence[str] = (), folder: Path | None = None) -> TuningSet:
    """Load the tuning side of the recordings; all sources by default.

    Raises:
        ConfigError: an unknown source, or an archive that was not fetched or is another one.
        MediaError: a recording is not the one of the manifest.
    """
    return TuningSet(_load(Split.TUNING, sources, folder))


def load_report(sources: Sequence[str] = (), folder: Path | None = None) -> ReportSet:
    """Load the report side of the recordings; as ``load_tuning``."""
    return ReportSet(_load(Split.REPORT, sources, folder))


def _load(split: Split, sources: Sequence[str], folder: Path | None) -> list[RecordedUtterance]:
    unknown = sorted(set(sources) - set(SOURCES))
    if unknown:
        raise ConfigError(f"unknown source {unknown[0]!r}", known=tuple(SOURCES))
    listed = {row.id: row for row in manifest() if row.split is split}
    found: list[RecordedUtterance] = []
    for name, source in SOURCES.items():
        if (sources and name not in sources) or not any(i.startswith(f"{name}/") for i in listed):
            continue
        for one in source.utterances(folder or cache_folder()):
            row = listed.get(one.id)
            if row is None:
                continue
            if one.digest() != row.audio_sha256:
                raise MediaError(f"{one.id} decodes to samples other than those of the manifest")
            found.append(one)
    return found
