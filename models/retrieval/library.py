"""The deployment's documents, which an operator may change while calls go on.

Owns the files of a folder and the index of their passages. ``put``, ``remove`` and ``read_again`` make a new
index, and everything that follows the library (the embedded answerer, the search before questions) goes over
to it at once; until then the old one answers. Vectors of unchanged texts are used again. A change that fails
leaves files and index as they were.

All methods but ``index`` block, for about 8 ms for each new statement, and are called in a thread. One change
runs at a time; another one meanwhile is refused, because it could not know what it changes.
"""

import os
import shutil
import tempfile
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from parley.core.errors import ConfigError
from parley.language import Language
from parley.models.retrieval import Embedder, Passage
from parley.models.retrieval.files import FORMATS, load_documents, read_passages
from parley.models.retrieval.index import PassageIndex
from parley.models.retrieval.nearest import VectorSearch

_NAME_CHARS = 200


@dataclass(frozen=True, slots=True)
class StoredDocument:
    """A file of the library.

    Attributes:
        name: path below the folder, with slashes.
        size_bytes: of the file.
        passages: number of its passages.
    """

    name: str
    size_bytes: int
    passages: int


class LibraryBusyError(Exception):
    """Another change of the documents is under way."""


class DocumentLibrary:
    """Documents of a folder with their index. Thread-safe. The constructor reads and embeds them.

    Args:
        folder: the documents.
        embedder: converts text to unit vectors.
        phrases: see ``PassageIndex``.
        cache_folder: see ``PassageIndex``.
        language: that of the documents; None for the default.
        vector_search: see ``PassageIndex``.

    Raises:
        ConfigError: there is no passage, or a document cannot be read.
        EngineError: the vectors cannot be held for their search.
    """

    def __init__(
        self,
        folder: Path,
        embedder: Embedder,
        *,
        phrases: Sequence[str] = (),
        cache_folder: Path | None = None,
        language: Language | None = None,
        vector_search: VectorSearch | None = None,
    ) -> None:
        self.folder = folder
        self._vector_search = vector_search
        self._embedder = embedder
        self._phrases = phrases
        self._cache_folder = cache_folder
        self._language = language
        self._followers: list[Callable[[PassageIndex], None]] = []
        self._changes = threading.Lock()
        documents = load_documents(folder)
        self._counts = _counts(documents, folder)
        self._index = self._build(documents, None)

    @property
    def index(self) -> PassageIndex:
        """The present index."""
        return self._index

    def follow(self, use: Callable[[PassageIndex], None]) -> None:
        """Have ``use`` called with the present index and with each later one, in the thread of the change."""
        use(self._index)
        self._followers.append(use)

    def documents(self) -> list[StoredDocument]:
        """Return the documents in the index whose files exist, in the order of their names."""
        found: list[StoredDocument] = []
        for name, passages in self._counts.items():
            path = self.folder / name
            if path.is_file():
                found.append(StoredDocument(name, path.stat().st_size, passages))
        return found

    def read_again(self) -> None:
        """Read all files again.

        Raises:
            ConfigError: as the constructor.
            LibraryBusyError: a change is under way.
        """
        with self._one_change():
            self._renew()

    def put(self, name: str, content: bytes) -> None:
        """Add a document, or replace that of the same name.

        Raises:
            ConfigError: the name is not allowed, or the document cannot be read or has no passage.
            LibraryBusyError: a change is under way.
            OSError: the folder cannot be written.
        """
        path = self._path(name)
        with self._one_change():
            path.parent.mkdir(parents=True, exist_ok=True)
            # Hidden, so that no reader of the folder takes it for a document.
            descriptor, written = tempfile.mkstemp(dir=path.parent, prefix=".new-", suffix=path.suffix)
            new, old = Path(written), None
            try:
                with os.fdopen(descriptor, "wb") as file:
                    file.write(content)
                self._check(new, name)
                if path.exists():
                    # A copy: at no moment is the document without a file, should the server be killed.
                    old = _hidden(path)
                    shutil.copy2(path, old)
                os.replace(new, path)
                self._renew()
            except BaseException:
                new.unlink(missing_ok=True)
                if old is not None:
                    os.replace(old, path)
                else:
                    path.unlink(missing_ok=True)
                raise
            if old is not None:
                old.unlink()

    def remove(self, name: str) -> None:
        """Delete a document.

        Raises:
            FileNotFoundError: there is none of this name.
            ConfigError: the name is not allowed, or no passage would remain.
            LibraryBusyError: a change is under way.
            OSError: the folder cannot be written.
        """
        path = self._path(name)
        with self._one_change():
            old = _hidden(path)
            os.replace(path, old)
            try:
                self._renew()
            except BaseException:
                os.replace(old, path)
                raise
            old.unlink()

    def _path(self, name: str) -> Path:
        """Return the file of a name.

        Raises:
            ConfigError: it leads out of the folder, is hidden or too long, or has another format.
        """
        parts = PurePosixPath(name).parts
        if not parts or len(name) > _NAME_CHARS or not name.isprintable() or "\\" in name:
            raise ConfigError("a document needs a name of at most 200 printable characters")
        if PurePosixPath(name).is_absolute() or any(part.startswith(".") for part in parts):
            raise ConfigError(f"{name}: no part of a document's name begins with a dot or leads elsewhere")
        path = self.folder.joinpath(*parts)
        if path.suffix.lower() not in FORMATS:
            raise ConfigError(f"{name}: documents have the formats {', '.join(FORMATS)}")
        if not path.resolve().is_relative_to(self.folder.resolve()):
            raise ConfigError(f"{name}: the name leads out of the folder of documents")
        return path

    @staticmethod
    def _check(new: Path, name: str) -> None:
        """Check a document before it takes its place; the error names it and not the temporary file.

        Raises:
            ConfigError: it cannot be read or has no passage.
        """
        try:
            passages = read_passages(new)
        except ConfigError as error:
            raise ConfigError(str(error).replace(str(new), name)) from error
        if not passages:
            raise ConfigError(f"the document {name} contains no passage")

    @contextmanager
    def _one_change(self) -> Iterator[None]:
        if not self._changes.acquire(blocking=False):
            raise LibraryBusyError
        try:
            yield
        finally:
            self._changes.release()

    def _renew(self) -> None:
        documents = load_documents(self.folder)
        index = self._build(documents, self._index)
        for use in self._followers:
            use(index)
        self._index, self._counts = index, _counts(documents, self.folder)

    def _build(self, documents: dict[Path, list[Passage]], previous: PassageIndex | None) -> PassageIndex:
        return PassageIndex(
            [passage for passages in documents.values() for passage in passages],
            self._embedder,
            phrases=self._phrases,
            cache_folder=self._cache_folder,
            language=self._language,
            previous=previous,
            vector_search=self._vector_search,
        )


def _hidden(path: Path) -> Path:
    return path.with_name(f".old-{path.name}")


def _counts(documents: dict[Path, list[Passage]], folder: Path) -> dict[str, int]:
    return {path.relative_to(folder).as_posix(): len(passages) for path, passages in documents.items()}
