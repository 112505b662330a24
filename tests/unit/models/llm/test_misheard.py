"""Questions that a recogniser misheard, and the documents' answers to them."""

import pytest

from parley.models.llm import Message
from parley.models.llm.documents import DocumentLlm, DocumentLlmSettings
from parley.models.llm.misheard import Misheard
from parley.models.retrieval.minilm import MiniLm

HANDBOOK = """\
# The parcel handbook

## Express delivery
Express delivery costs nineteen dollars. Express delivery is not possible on islands.

## Insurance
Insurance covers up to five hundred dollars. Fragile porcelain is never insured.

## Collection point
A collection point keeps a parcel for nine days.

## Return label
The return label lies in the box.
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> DocumentLlm:
    folder = tmp_path_factory.mktemp("handbook")
    (folder / "handbook.md").write_text(HANDBOOK, encoding="utf-8")
    return DocumentLlm(DocumentLlmSettings(folder=folder, cache_folder=None))


@pytest.fixture(scope="module")
def misheard(model: DocumentLlm) -> Misheard:
    return Misheard(model.index, MiniLm().known_words)


async def answer(model: DocumentLlm, text: str) -> str:
    return "".join([piece async for piece in model.reply([Message("user", text)])])


def readings(misheard: Misheard, text: str) -> list[str]:
    return [" ".join(reading.words) for reading in misheard.readings(text.split())]


def test_unknown_words_may_be_words_of_the_documents_that_sound_alike(misheard: Misheard) -> None:
    assert "what does express delivery cost" in readings(misheard, "what does restily vary cost")
    assert "what does insurance cover" in readings(misheard, "what does inshurants cover")


def test_the_nearest_sound_comes_first(misheard: Misheard) -> None:
    distances = [each.distance for each in misheard.readings("what does restily vary cost".split())]
    assert distances == sorted(distances)
    assert len(distances) >= 1


def test_what_the_documents_know_stays(misheard: Misheard) -> None:
    assert readings(misheard, "what does insurance cover") == []
    assert all("parcel" in read.split() for read in readings(misheard, "is a parcel inshurants"))


def test_a_word_of_the_language_may_be_meant(misheard: Misheard) -> None:
    assert readings(misheard, "how do i build endurance") == []
    # Other words of the question in the documents support "insurance".
    assert "what does insurance cover" in readings(misheard, "what does endurance cover")


def test_a_denial_inside_a_word_is_kept(misheard: Misheard) -> None:
    assert "is my parcel insured" not in readings(misheard, "is my parcel uninsured")


@pytest.mark.parametrize("kept", ["not", "never", "without", "three", "what", "k200"])
def test_denials_numbers_and_words_that_ask_stay_as_they_were_heard(misheard: Misheard, kept: str) -> None:
    found = readings(misheard, f"is restily vary {kept} spress delavery")
    assert found
    assert all(kept in read.split() for read in found)


def test_no_denial_and_no_number_is_proposed(misheard: Misheard) -> None:
    added = {word for read in readings(misheard, "is porslin knot nefer nyne dais") for word in read.split()}
    assert not added & {"not", "never", "nine", "possible"}


async def test_a_misheard_question_is_answered_by_what_was_meant(model: DocumentLlm) -> None:
    assert "nineteen dollars" in await answer(model, "how much does it restily vary cost")


@pytest.mark.parametrize(
    "question",
    ["who won the football match yesterday", "what is the weather in the mountains", "sing a song"],
)
async def test_a_question_about_something_else_stays_one(model: DocumentLlm, question: str) -> None:
    said = await answer(model, question)
    assert not any(sentence.strip() in said for sentence in HANDBOOK.split("\n") if sentence.endswith("."))
