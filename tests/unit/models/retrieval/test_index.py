from pathlib import Path

import numpy as np
import pytest

from parley.core.errors import ConfigError
from parley.models.retrieval import Passage
from parley.models.retrieval.index import PassageIndex
from tests.fakes.embedder import WordCountEmbedder

PASSAGES = [
    Passage("Branches open at nine. They close at five.", "Opening hours", "the branch guide"),
    Passage("A wire costs twenty dollars.", "Wire fee", "the fee guide"),
    Passage(
        "Call us when your card is lost. The line is free. It never sleeps.", "Lost card", "the card guide"
    ),
]


def test_the_passage_that_speaks_about_the_question_comes_first() -> None:
    hits = PassageIndex(PASSAGES, WordCountEmbedder()).search("my card is lost", count=2)
    assert [hit.passage.title for hit in hits][0] == "Lost card"
    assert len(hits) == 2
    assert 1.0 >= hits[0].score >= hits[1].score >= -1.0


def test_sentences_know_their_passage() -> None:
    index = PassageIndex(PASSAGES, WordCountEmbedder())
    assert [list(index.sentence_numbers(n)) for n in range(3)] == [[0, 1], [2], [3, 4, 5]]
    assert [index.passage_of(n) for n in range(6)] == [0, 0, 1, 2, 2, 2]


def test_a_ranking_scores_everything_for_each_question() -> None:
    index = PassageIndex(PASSAGES, WordCountEmbedder(), phrases=["thank you"])
    wire, thanks = index.rank(["what costs a wire", "thank you"])
    assert wire.passages.shape == (3,) and wire.sentences.shape == (6,) and wire.phrases.shape == (1,)
    assert int(np.argmax(wire.sentences)) == 2
    assert thanks.phrases[0] > 0.9 > wire.phrases[0]


def test_related_passages_leave_the_passage_itself_out() -> None:
    index = PassageIndex(PASSAGES, WordCountEmbedder())
    assert sorted(index.related(0, count=5)) == [1, 2]


def test_no_passage_is_a_mistake() -> None:
    with pytest.raises(ConfigError):
        PassageIndex([], WordCountEmbedder())


def test_stored_vectors_are_used_again(tmp_path: Path) -> None:
    first = PassageIndex(PASSAGES, WordCountEmbedder(), cache_folder=tmp_path)
    embedder = WordCountEmbedder()
    second = PassageIndex(PASSAGES, embedder, cache_folder=tmp_path)
    assert embedder.embedded == []
    assert second.search("lost card") == first.search("lost card")


@pytest.mark.parametrize("damage", [b"", b"rubbish", None])
def test_a_damaged_cache_is_built_again(tmp_path: Path, damage: bytes | None) -> None:
    PassageIndex(PASSAGES, WordCountEmbedder(), cache_folder=tmp_path)
    [stored] = tmp_path.iterdir()
    good = stored.read_bytes()
    stored.write_bytes(damage if damage is not None else good[:128] + bytes(len(good) - 128))
    embedder = WordCountEmbedder()
    PassageIndex(PASSAGES, embedder, cache_folder=tmp_path)
    assert embedder.embedded
    assert stored.read_bytes() == good


def test_other_texts_or_another_model_do_not_use_stored_vectors(tmp_path: Path) -> None:
    PassageIndex(PASSAGES, WordCountEmbedder(), cache_folder=tmp_path)
    for passages, embedder in (
        (PASSAGES[:2], WordCountEmbedder()),
        (PASSAGES, WordCountEmbedder(identity="another")),
    ):
        PassageIndex(passages, embedder, cache_folder=tmp_path)
        assert embedder.embedded


def test_a_folder_that_refuses_costs_time_and_nothing_else(tmp_path: Path) -> None:
    blocked = tmp_path / "file"
    blocked.write_text("in the way")
    index = PassageIndex(PASSAGES, WordCountEmbedder(), cache_folder=blocked / "cache")
    assert index.search("lost card")


def test_old_cache_files_are_dropped(tmp_path: Path) -> None:
    for number in range(20):
        PassageIndex(PASSAGES, WordCountEmbedder(identity=str(number)), cache_folder=tmp_path)
    assert len(list(tmp_path.iterdir())) == 16
