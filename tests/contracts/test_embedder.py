"""Contract of all sentence embedders, the fake included."""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from parley.models.retrieval import Embedder
from parley.models.retrieval.minilm import MiniLm
from tests.fakes.embedder import WordCountEmbedder

EMBEDDERS: dict[str, Callable[[], Embedder]] = {"minilm": MiniLm, "word count": WordCountEmbedder}
TEXTS = [
    "where is my card",
    "the branch is closed on sundays and on public holidays",
    "",
    "what",
    "\u00e9\u00df\u4e2d",
]


@pytest.fixture(scope="module", params=list(EMBEDDERS))
def embedder(request: pytest.FixtureRequest) -> Embedder:
    return EMBEDDERS[request.param]()


def test_any_texts_become_unit_vectors(embedder: Embedder) -> None:
    vectors = embedder.embed(TEXTS)
    assert vectors.shape == (len(TEXTS), embedder.dimensions)
    assert vectors.dtype == np.float32
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-5)


def test_no_text_is_no_vector(embedder: Embedder) -> None:
    assert embedder.embed([]).shape == (0, embedder.dimensions)


def test_neighbours_in_a_batch_do_not_change_a_vector(embedder: Embedder) -> None:
    together = embedder.embed(TEXTS)
    alone = np.concatenate([embedder.embed([text]) for text in TEXTS])
    assert np.allclose(together, alone, atol=1e-5)


def test_threads_may_embed_at_once(embedder: Embedder) -> None:
    expected = embedder.embed(TEXTS)
    with ThreadPoolExecutor(4) as threads:
        results = list(threads.map(lambda _: embedder.embed(TEXTS), range(8)))
    assert all(np.allclose(result, expected, atol=1e-5) for result in results)


def test_the_identity_is_stable(embedder: Embedder) -> None:
    assert embedder.identity
    assert embedder.identity == type(embedder)().identity


def test_near_meanings_are_nearer_than_far_ones(embedder: Embedder) -> None:
    question, near, far = embedder.embed(
        ["my card is lost", "what to do when your card is lost", "the office opens at nine"]
    )
    assert question @ near > question @ far + 0.2


def test_known_words_are_words_in_lower_case(embedder: Embedder) -> None:
    assert all(word.isalpha() and word == word.lower() for word in embedder.known_words)


def test_the_shipped_embedder_knows_the_words_of_the_language() -> None:
    known = MiniLm().known_words
    assert {"branch", "holiday", "pump"} <= known
    assert not {"fnarg", "qwzrt", "##s"} & known
