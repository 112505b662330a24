"""The nearest vectors of documents in Chroma itself, in this process and on a server."""

import asyncio
import json
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import numpy as np
import pytest

from parley.core.errors import EngineError
from parley.models.retrieval.files import load_passages
from parley.models.retrieval.finder import PassageFinder
from parley.models.retrieval.index import PassageIndex
from parley.models.retrieval.library import DocumentLibrary
from parley.models.retrieval.minilm import MiniLm
from parley.models.retrieval.nearest import VECTOR_SEARCH, ExactSearch, NearestVectors
from tests.fakes.embedder import WordCountEmbedder

chroma = pytest.importorskip("parley.models.retrieval.chroma", reason="the extra 'chroma' is not installed")
ROOT = Path(__file__).parents[4]
QUESTIONS = json.loads((ROOT / "tests/golden/questions.json").read_text())
HOURS = "# Guide\n\n## Opening hours\n\nBranches open at nine.\n"
FEES = b"# Fees\n\n## Wire fee\n\nA wire costs twenty dollars.\n"


def search(folder: Path, **more: object):
    return chroma.ChromaSearch(chroma.ChromaSettings(folder=None if "url" in more else folder, **more))


def vectors(count: int, seed: int = 1) -> np.ndarray:
    drawn = np.random.default_rng(seed).normal(size=(count, 64)).astype(np.float32)
    return drawn / np.linalg.norm(drawn, axis=1, keepdims=True)


def test_the_nearest_vectors_are_those_of_a_full_comparison(tmp_path: Path):
    held = vectors(2_000)
    near = search(tmp_path).hold([f"k{row}" for row in range(len(held))], held)
    shares = []
    for vector in vectors(20, seed=2):
        truth = set(np.argsort(-(held @ vector))[:50])
        shares.append(len(truth & set(near.find(vector, 50))) / 50)
    assert np.mean(shares) >= 0.98


def test_vectors_are_kept_between_starts_and_those_that_are_gone_are_deleted(tmp_path: Path):
    held = vectors(30)
    keys = [f"k{row}" for row in range(30)]
    search(tmp_path).hold(keys, held)
    again = search(tmp_path)
    # Rows are numbered anew: the first ten are gone.
    near = again.hold(keys[10:], held[10:])
    assert near.find(held[25], 1).tolist() == [15]
    assert set(near.find(held[3], 30)) <= set(range(20))
    # An index of earlier documents that is still in use gets no row of the new ones.
    old = again.hold(keys[10:12], held[10:12])
    again.hold([*keys[10:12], "new"], held[[10, 11, 12]])
    assert set(old.find(held[12], 10)) <= {0, 1}


def test_the_questions_find_the_same_passages_as_without_it(tmp_path: Path):
    passages, embedder = load_passages(ROOT / "knowledge"), MiniLm()
    exact = PassageFinder(PassageIndex(passages, embedder))
    near = PassageFinder(PassageIndex(passages, embedder, vector_search=search(tmp_path)))
    asked = [question for _, question in QUESTIONS["tune"]]
    same = [
        [hit.passage for hit in exact.find(question)] == [hit.passage for hit in near.find(question)]
        for question in asked
    ]
    assert sum(same) >= 0.95 * len(same)


def test_a_follow_up_is_compared_with_what_is_near_both_questions(tmp_path: Path):
    passages, embedder = load_passages(ROOT / "knowledge"), MiniLm()
    exact = PassageFinder(PassageIndex(passages, embedder))
    # So few that what is near one question is not near the other.
    near = PassageFinder(PassageIndex(passages, embedder, vector_search=search(tmp_path), nearest=5))
    asked, before = "and how long does it take?", "I need a new card."
    best = exact.find(asked, before)[0].passage
    assert near.find(asked, before)[0].passage == best


def test_documents_change_while_chroma_holds_them(tmp_path: Path):
    (tmp_path / "documents").mkdir()
    (tmp_path / "documents/hours.md").write_text(HOURS)
    library = DocumentLibrary(
        tmp_path / "documents", WordCountEmbedder(), vector_search=search(tmp_path / "vectors")
    )
    finder = PassageFinder(library.index)
    library.follow(finder.use)
    library.put("fees.md", FEES)
    assert finder.find("what does a wire cost")[0].passage.source == "Fees"
    library.remove("fees.md")
    assert finder.find("what does a wire cost") == []


class Broken:
    """Search that fails."""

    def hold(self, keys: object, vectors: object) -> NearestVectors:
        return self

    def find(self, vector: np.ndarray, count: int) -> np.ndarray:
        raise EngineError("away", engine="chroma")


def test_a_search_that_fails_is_replaced_by_a_full_comparison(tmp_path: Path):
    (tmp_path / "hours.md").write_text(HOURS)
    library = DocumentLibrary(tmp_path, WordCountEmbedder(), vector_search=Broken())
    assert PassageFinder(library.index).find("branches open")[0].passage.title == "Opening hours"


def test_a_row_without_a_search_of_its_own_compares_with_all():
    assert VECTOR_SEARCH.own_names() == ("chroma", "exact")
    assert ExactSearch().hold(["a"], vectors(1)) is None


@pytest.fixture
def server(tmp_path: Path) -> Iterator[str]:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [str(Path(sys.executable).with_name("chroma")), "run", "--path", str(tmp_path / "served")]
    with subprocess.Popen(
        [*command, "--port", str(port)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    ) as child:
        url = f"http://127.0.0.1:{port}"
        try:
            deadline_s = time.monotonic() + 60
            while True:
                try:
                    httpx.get(f"{url}/api/v2/heartbeat").raise_for_status()
                    break
                except httpx.HTTPError:
                    assert time.monotonic() < deadline_s and child.poll() is None
            yield url
        finally:
            child.terminate()


def test_a_server_holds_the_vectors_and_one_that_is_away_costs_no_answer(server: str, tmp_path: Path):
    (tmp_path / "hours.md").write_text(HOURS)
    library = DocumentLibrary(tmp_path, WordCountEmbedder(), vector_search=search(tmp_path, url=server))
    finder = PassageFinder(library.index)
    assert finder.find("branches open")[0].passage.title == "Opening hours"


def test_a_server_that_is_not_there_is_an_error_that_names_it(tmp_path: Path):
    with pytest.raises(EngineError, match="Chroma cannot be used"):
        search(tmp_path, url="http://127.0.0.1:9")


@pytest.mark.parametrize("given", [{}, {"url": "ftp://nowhere"}, {"url": "http://a", "folder": "b"}])
def test_a_place_that_is_none_or_two_is_refused(given: dict):
    with pytest.raises(ValueError, match="folder|url"):
        chroma.ChromaSettings.model_validate(given)


async def test_a_search_of_chroma_runs_in_any_thread(tmp_path: Path):
    held = vectors(50)
    near = search(tmp_path).hold([f"k{row}" for row in range(50)], held)
    found = await asyncio.gather(*(asyncio.to_thread(near.find, held[row], 1) for row in range(20)))
    assert [int(rows[0]) for rows in found] == list(range(20))
