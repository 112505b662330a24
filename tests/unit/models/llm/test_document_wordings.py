"""Questions that documents answer in other words, and answers without sentences on other subjects."""

import pytest

from parley.models.llm import Message
from parley.models.llm.documents import DocumentLlm, DocumentLlmSettings

MUSEUM = """\
# Harbour Tug Museum

The museum shows nine old tugs and the workshop in which they were built.

## Getting here

Tram 9 and bus 31 stop at Dock Gate. Cars park on the quay for two dollars an hour.

## Lost property

Lost things are kept at the cloakroom for a month.

## Rules on board

Never run on board. Children under six wear a life jacket on board. Dogs are not allowed on board.

## Audio guide

An audio guide costs three dollars. Ask for it at the desk in the hall.

## Annual card

An annual card can be given back within a week. It is sent by post. You need no annual card for a guided tour.
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> DocumentLlm:
    folder = tmp_path_factory.mktemp("museum")
    (folder / "museum.md").write_text(MUSEUM, encoding="utf-8")
    return DocumentLlm(DocumentLlmSettings(folder=folder, cache_folder=None))


async def answer(model: DocumentLlm, said: str) -> str:
    return "".join([piece async for piece in model.reply([Message("user", said)])])


@pytest.mark.parametrize(
    "said", ["Where are you?", "So, where are you located?", "What's your address?", "How do I get there?"]
)
async def test_a_question_for_the_place_is_one_for_the_way_there(model: DocumentLlm, said: str):
    assert (await answer(model, said)).startswith("Tram 9 and bus 31 stop at Dock Gate.")


@pytest.mark.parametrize(
    "said",
    [
        "What should I do if I lost my umbrella?",
        "I lost my umbrella, what should I do?",
        "I lost my umbrella. Where can I get it back?",
    ],
)
async def test_a_question_about_a_statement_is_looked_up_by_that(model: DocumentLlm, said: str):
    assert await answer(model, said) == "Lost things are kept at the cloakroom for a month."


@pytest.mark.parametrize(
    ("said", "expected"),
    [
        ("Do I need an annual card for a guided tour?", "You need no annual card for a guided tour."),
        ("Are dogs allowed on board?", "Dogs are not allowed on board."),
    ],
)
async def test_a_denial_on_another_subject_is_no_part_of_an_answer(
    model: DocumentLlm, said: str, expected: str
):
    assert await answer(model, said) == expected


async def test_a_statement_with_a_pronoun_comes_with_the_one_before_it(model: DocumentLlm):
    said = "Where is the desk in the hall?"
    assert (
        await answer(model, said) == "An audio guide costs three dollars. Ask for it at the desk in the hall."
    )


async def test_a_heading_that_is_a_name_keeps_its_capital(model: DocumentLlm):
    assert "about Harbour Tug Museum" in await answer(model, "What can you do?")
