"""A user's own recordings: WAV files and a table.

``utterances.tsv`` has a head line and the columns ``file``, ``text``, ``speaker`` and ``set`` (``tuning`` or
``report``). Optional columns are ``language`` (default: ``en``) and ``pauses`` (``1200-1850 4010-4400``,
milliseconds from the start of the file; measured when the column is empty). ``utterances.json`` is a list of
objects with the same names, its pauses a list of pairs. All recordings of a speaker are on one side.
"""

import csv
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from parley.core.errors import ConfigError, MediaError
from parley.core.media import ms_to_samples
from parley.evals.human.recordings import RecordedPause, RecordedUtterance, decode_wav, utterance
from parley.evals.human.split import OWN, ReportSet, Split, TuningSet

TABLES = ("utterances.tsv", "utterances.json")


def load_own(folder: Path) -> tuple[TuningSet, ReportSet]:
    """Load a folder.

    Raises:
        ConfigError: no table, a line of it cannot be understood, a speaker on both sides (``SplitError``).
        MediaError: a file is missing, outside the folder, no WAV, or silent.
    """
    rows = list(_rows(folder))
    sides: dict[str, Split] = {}
    for number, row in enumerate(rows, start=1):
        speaker, side = _field(row, "speaker", number), _side(row, number)
        if sides.setdefault(speaker, side) is not side:
            raise ConfigError(f"{folder}: {speaker!r} is in both sets (line {number})")
    loaded = [_utterance(folder, row, number) for number, row in enumerate(rows, start=1)]
    return (
        TuningSet((one for one in loaded if sides[one.speaker] is Split.TUNING), sides),
        ReportSet((one for one in loaded if sides[one.speaker] is Split.REPORT), sides),
    )


def _rows(folder: Path) -> Iterator[Mapping[str, Any]]:
    for name in TABLES:
        path = folder / name
        if not path.is_file():
            continue
        if path.suffix == ".tsv":
            with path.open(encoding="utf-8", newline="") as file:
                yield from csv.DictReader(file, delimiter="\t")
            return
        try:
            rows = json.loads(path.read_text(encoding="utf-8"))
        except json.JSONDecodeError as error:
            raise ConfigError(f"{path}: {error}") from error
        if not isinstance(rows, list) or not all(isinstance(row, dict) for row in rows):
            raise ConfigError(f"{path} is not a list of objects")
        yield from rows
        return
    raise ConfigError(f"{folder} has neither {' nor '.join(TABLES)}")


def _field(row: Mapping[str, Any], name: str, number: int) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise ConfigError(f"line {number} of the table has no {name!r}")
    return value.strip()


def _side(row: Mapping[str, Any], number: int) -> Split:
    try:
        return Split(_field(row, "set", number))
    except ValueError:
        raise ConfigError(
            f"line {number}: unknown set {row['set']!r}", known=tuple(split.value for split in Split)
        ) from None


def _utterance(folder: Path, row: Mapping[str, Any], number: int) -> RecordedUtterance:
    name = _field(row, "file", number)
    path = (folder / name).resolve()
    if not path.is_relative_to(folder.resolve()):
        raise MediaError(f"{name} is outside {folder}")
    if not path.is_file():
        raise MediaError(f"{path} does not exist")
    samples, rate_hz = decode_wav(path.read_bytes())
    return utterance(
        f"{OWN}/{name}",
        samples,
        rate_hz,
        text=str(row.get("text") or ""),
        speaker=_field(row, "speaker", number),
        source=OWN,
        language=str(row.get("language") or "en"),
        pauses=_pauses(row.get("pauses"), len(samples), rate_hz, number),
    )


def _pauses(written: Any, samples: int, rate_hz: int, number: int) -> tuple[RecordedPause, ...] | None:
    if not written:
        return None
    try:
        if isinstance(written, str):
            written = [[int(edge) for edge in span.split("-")] for span in written.split()]
        pairs = [
            (ms_to_samples(int(first), rate_hz), ms_to_samples(int(end), rate_hz)) for first, end in written
        ]
    except (TypeError, ValueError):
        raise ConfigError(f"line {number}: pauses are not pairs of milliseconds") from None
    edges = [edge for pair in pairs for edge in pair]
    if edges != sorted(set(edges)) or edges[-1] > samples:
        raise ConfigError(f"line {number}: pauses overlap, are out of order or lie after the end")
    return tuple(RecordedPause(first, end) for first, end in pairs)
