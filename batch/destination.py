"""Place of a job's outputs: what the job and its workers require of it.

The job holds it, plans with it and records results in it; only one run at a time does. A worker writes the
outputs of a source (``OutputWriter``). A folder (``folder_destination``) and a bucket (``s3.destination``)
are such places.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from parley.batch.sources import BatchSource
from parley.batch.transcript import Transcription
from parley.core.errors import MediaError

PARKED_FILE = "parked.json"


@dataclass(frozen=True, slots=True)
class ParkedItem:
    """Source that is not transcribed.

    Attributes:
        name: of the source.
        reason: why.
        tries: number of times that it was tried.
    """

    name: str
    reason: str
    tries: int


class UnusableNameError(MediaError):
    """The outputs of one source cannot have their names; those of others may."""


class OutputError(MediaError):
    """Nothing can be written: every later source would fail alike."""


class Destination(Protocol):
    """Place of the outputs, held by this process. For one thread.

    Attributes:
        location: from which a worker makes its writer (``places.writer_at``).
        descriptors: open files that hold it; workers inherit them.
    """

    location: str
    descriptors: tuple[int, ...]

    def belong_to(self, root: str) -> None:
        """Record the place of the sources; raises ConfigError where the outputs are those of another."""
        ...

    def plan(
        self, items: Sequence[tuple[BatchSource, str]], *, retry_parked: bool = False
    ) -> list[BatchSource]:
        """Record the sources of a run with their keys; return those that are still to do."""
        ...

    def replaced(self, name: str) -> Mapping[str, str]:
        """Return the tags of the outputs that a source has already, by their suffix, for its writer."""
        ...

    def check_held(self) -> None:
        """Raise OutputError when another run has taken the place over."""
        ...

    def finish(self, name: str, *, audio_ms: int, cpu_ms: int) -> None:
        """Record that the outputs of a source are written."""
        ...

    def fail(self, name: str, reason: str, *, most_tries: int) -> bool:
        """Record a failed try; park the source after the last one and return True then."""
        ...

    def parked(self) -> list[ParkedItem]:
        """Return the parked sources in the order of their names."""
        ...

    def done(self) -> int:
        """Return the number of sources that are done."""
        ...

    def write_parked(self, content: bytes) -> None:
        """Write ``parked.json``."""
        ...


class OutputWriter(Protocol):
    """Writer of the outputs of one source after the other, in a worker."""

    def write(self, found: Transcription, replaced: Mapping[str, str], session: bytes | None = None) -> None:
        """Write the outputs of a source, the JSON last.

        Args:
            found: content.
            session: content of its session, where one is requested.
            replaced: tags of the outputs that are there (``Destination.replaced``).

        Raises:
            UnusableNameError: this source's outputs cannot have their names.
            OutputError: no outputs can be written.
        """
        ...
