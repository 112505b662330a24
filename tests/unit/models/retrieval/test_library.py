"""Documents that an operator changes while questions are asked."""

import threading
from pathlib import Path

import numpy as np
import pytest

from parley.core.errors import ConfigError
from parley.models.retrieval.finder import PassageFinder
from parley.models.retrieval.library import DocumentLibrary, LibraryBusyError
from tests.fakes.embedder import WordCountEmbedder

HOURS = "# Guide\n\n## Opening hours\n\nBranches open at nine.\n"
FEES = b"# Fees\n\n## Wire fee\n\nA wire costs twenty dollars.\n\nA wire abroad costs forty dollars.\n"


class CountingEmbedder(WordCountEmbedder):
    """Embedder that knows what it was given, and may be held."""

    def __init__(self) -> None:
        super().__init__()
        self.given: list[str] = []
        self.entered = threading.Event()
        self.released = threading.Event()
        self.released.set()

    def embed(self, texts: list[str]) -> np.ndarray:
        self.entered.set()
        self.released.wait(10)
        self.given.extend(texts)
        return super().embed(texts)


@pytest.fixture
def embedder() -> CountingEmbedder:
    return CountingEmbedder()


@pytest.fixture
def library(tmp_path: Path, embedder: CountingEmbedder) -> DocumentLibrary:
    (tmp_path / "hours.md").write_text(HOURS)
    return DocumentLibrary(tmp_path, embedder)


def titles(library: DocumentLibrary) -> list[str]:
    return [passage.title for passage in library.index.passages]


def files(library: DocumentLibrary) -> list[str]:
    return sorted(path.relative_to(library.folder).as_posix() for path in library.folder.rglob("*.*"))


def test_a_new_document_is_found_and_a_removed_one_is_not(library: DocumentLibrary):
    finder = PassageFinder(library.index)
    library.follow(finder.use)
    assert finder.find("what does a wire cost") == []
    library.put("fees/2026.md", FEES)
    assert [hit.passage.source for hit in finder.find("what does a wire cost")] == ["Fees", "Fees"]
    assert [(each.name, each.passages) for each in library.documents()] == [
        ("fees/2026.md", 2),
        ("hours.md", 1),
    ]
    library.remove("fees/2026.md")
    assert finder.find("what does a wire cost") == []
    assert files(library) == ["hours.md"]


def test_only_what_is_new_is_embedded(library: DocumentLibrary, embedder: CountingEmbedder):
    first = len(embedder.given)
    library.put("fees.md", FEES)
    assert first < len(embedder.given) and not set(embedder.given[:first]) & set(embedder.given[first:])
    everything = len(embedder.given)
    library.read_again()
    assert len(embedder.given) == everything


def test_a_file_that_was_copied_into_the_folder_is_read_again(library: DocumentLibrary):
    (library.folder / "fees.md").write_bytes(FEES)
    assert titles(library) == ["Opening hours"]
    library.read_again()
    assert "Wire fee" in titles(library)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("../out.md", FEES, "begins with a dot"),
        ("/etc/out.md", FEES, "begins with a dot or leads elsewhere"),
        (".hidden.md", FEES, "begins with a dot"),
        ("", FEES, "needs a name"),
        ("a" * 300 + ".md", FEES, "needs a name"),
        ("x\n.md", FEES, "needs a name"),
        ("..\\out.md", FEES, "needs a name"),
        ("program.exe", FEES, "documents have the formats"),
        ("empty.md", b"", r"the document empty\.md contains no passage"),
        ("broken.pdf", b"no pdf", r"cannot read the document broken\.pdf"),
        ("latin.txt", b"caf\xe9", r"cannot read the document latin\.txt"),
    ],
)
def test_a_refused_document_leaves_everything_as_it_was(
    library: DocumentLibrary, name: str, content: bytes, message: str
):
    index = library.index
    with pytest.raises(ConfigError, match=message):
        library.put(name, content)
    assert library.index is index and files(library) == ["hours.md"]


def test_a_link_that_leads_out_of_the_folder_is_not_written_through(
    library: DocumentLibrary, tmp_path_factory
):
    elsewhere = tmp_path_factory.mktemp("elsewhere")
    (library.folder / "link").symlink_to(elsewhere)
    with pytest.raises(ConfigError, match="leads out of the folder"):
        library.put("link/out.md", FEES)
    assert list(elsewhere.iterdir()) == []


def test_a_replacement_that_fails_leaves_the_old_document(
    library: DocumentLibrary, embedder: CountingEmbedder
):
    def fails(_index: object) -> None:
        raise MemoryError

    library.put("fees.md", FEES)
    library._followers.append(fails)
    for change in (lambda: library.put("fees.md", b"Nothing."), lambda: library.remove("fees.md")):
        with pytest.raises(MemoryError):
            change()
    assert (library.folder / "fees.md").read_bytes() == FEES and files(library) == ["fees.md", "hours.md"]
    assert "Wire fee" in titles(library)


def test_the_last_document_stays(library: DocumentLibrary):
    with pytest.raises(ConfigError, match="contains no passage"):
        library.remove("hours.md")
    assert files(library) == ["hours.md"] and titles(library) == ["Opening hours"]
    with pytest.raises(FileNotFoundError):
        library.remove("nowhere.md")


def test_questions_are_answered_while_the_index_is_rebuilt(
    library: DocumentLibrary, embedder: CountingEmbedder
):
    finder = PassageFinder(library.index)
    library.follow(finder.use)
    embedder.entered.clear()
    embedder.released.clear()
    change = threading.Thread(target=library.put, args=("fees.md", FEES))
    change.start()
    try:
        assert embedder.entered.wait(10)
        with pytest.raises(LibraryBusyError):
            library.read_again()
        assert titles(library) == ["Opening hours"]
    finally:
        embedder.released.set()
        change.join(10)
    assert finder.find("what does a wire cost")
