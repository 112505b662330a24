"""Answers from a technical manual with tables, lists and negations, found by the shipped embedder."""

import pytest

from parley.models.llm import Message
from parley.models.llm.documents import DocumentLlm, DocumentLlmSettings
from tests.processor_deadline import processor_deadline

MANUAL = """\
---
title: The valve manual
revision: 3
---

## Models

| Model | Flow | Weight | Frost proof | Price |
|---|---|---|---|---|
| V10 | 20 litres | 1.5 kg | no | 90 euros |
| V20 | 45 litres | 2.7 kg | yes | 150 euros |
| V30 | 80 litres | 6 kg | yes | 310 euros |

## Alarms

| Code | Meaning | Remedy |
|---|---|---|
| A01 | Leak | Close the main tap |
| A07 | Battery empty | Replace the battery |

## Guarantee

The guarantee lasts two years. Registration adds one year.

## What the guarantee does not cover

- Damage by lime
- Lost keys

## Sending back

A valve can be sent back within 30 days. The following can't be sent back:

- used seals
- cut hoses

## Fuses

- up to 50 metres: a fuse of 6 amperes
- above 50 metres: a fuse of 10 amperes

## Opening times

The desk is open from eight until four. On Fridays it is not open.
Orders can be cancelled until noon. Express orders cannot be cancelled.
"""


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> DocumentLlm:
    folder = tmp_path_factory.mktemp("manual")
    (folder / "valves.md").write_text(MANUAL, encoding="utf-8")
    return DocumentLlm(DocumentLlmSettings(folder=folder, cache_folder=None))


async def talk(model: DocumentLlm, *turns: str) -> str:
    """Return the answer to the last of the caller's turns, after the answers to those before it."""
    messages: list[Message] = []
    for turn in turns:
        messages.append(Message("user", turn))
        messages.append(Message("assistant", "".join([piece async for piece in model.reply(messages)])))
    return messages[-1].text


@pytest.mark.parametrize(
    ("question", "answer"),
    [
        ("How heavy is the V20?", "V20, weight: 2.7 kg."),
        ("how heavy is the v twenty", "V20, weight: 2.7 kg."),
        ("What is the price of the V10 and the V30?", "V10, price: 90 euros. V30, price: 310 euros."),
        ("What does A seven mean?", "A07, meaning: Battery empty; remedy: Replace the battery."),
    ],
)
async def test_a_cell_is_found_by_its_row_and_column(model: DocumentLlm, question: str, answer: str) -> None:
    assert await talk(model, question) == answer


@pytest.mark.parametrize(
    ("question", "models"),
    [("Which models are frost proof?", {"V20", "V30"}), ("Which model is not frost proof?", {"V10"})],
)
async def test_a_denial_lists_the_other_rows(model: DocumentLlm, question: str, models: set[str]) -> None:
    text = await talk(model, question)
    assert {name for name in ("V10", "V20", "V30") if name in text} == models


@pytest.mark.parametrize("question", ["Is the V10 frost proof?", "Isn't the V10 frost proof?"])
async def test_a_question_and_its_denial_have_one_answer(model: DocumentLlm, question: str) -> None:
    assert await talk(model, question) == "V10, frost proof: no."


@pytest.mark.parametrize(
    ("turns", "answer"),
    [
        (("What does the V10 weigh?", "And the V30?"), "V30, weight: 6 kg."),
        (("What does the V10 weigh?", "and what about the price"), "V10, price: 90 euros."),
        (
            ("What does A01 mean?", "And A07?"),
            "A07, meaning: Battery empty; remedy: Replace the battery.",
        ),
    ],
)
async def test_a_follow_up_asks_for_another_cell(
    model: DocumentLlm, turns: tuple[str, ...], answer: str
) -> None:
    assert await talk(model, *turns) == answer


async def test_a_comparison_says_both_sides_the_better_one_first(model: DocumentLlm) -> None:
    text = await talk(model, "What is the price of the V10 and the V30?", "Which one is cheaper?")
    assert text == "V10, price: 90 euros. V30, price: 310 euros."
    text = await talk(model, "What is the weight of the V10 and the V30?", "Which one is heavier?")
    assert text == "V30, weight: 6 kg. V10, weight: 1.5 kg."


async def test_advice_is_not_given_but_the_facts_are(model: DocumentLlm) -> None:
    text = await talk(model, "What is the price of the V10 and the V30?", "Which one should I take?")
    assert text.startswith("I cannot choose for you.")
    assert "90 euros" in text and "310 euros" in text


async def test_the_largest_is_found_without_a_topic(model: DocumentLlm) -> None:
    assert await talk(model, "Which model is the lightest?") == "V10, weight: 1.5 kg."


@pytest.mark.parametrize(
    "question",
    ["What does A09 mean?", "How heavy is the V50?", "What colour does the V20 come in?"],
)
async def test_what_is_not_in_the_documents_is_not_made_up_from_its_neighbour(
    model: DocumentLlm, question: str
) -> None:
    assert "know" in await talk(model, question)


@pytest.mark.parametrize("question", ["Can I send back a used seal?", "Are used seals not sent back?"])
async def test_an_item_keeps_the_denial_that_leads_to_it(model: DocumentLlm, question: str) -> None:
    assert "The following can't be sent back: used seals" in await talk(model, question)


async def test_a_list_that_is_asked_for_is_said_whole_and_its_lead_once(model: DocumentLlm) -> None:
    assert await talk(model, "What does the guarantee not cover?") == (
        "What the guarantee does not cover: Damage by lime; Lost keys."
    )


async def test_an_exception_is_said_with_the_rule(model: DocumentLlm) -> None:
    assert "Express orders cannot be cancelled." in await talk(model, "Until when can orders be cancelled?")


@pytest.mark.parametrize(("metres", "amperes"), [("thirty", "6"), ("80", "10")])
async def test_a_bound_in_a_list_is_respected(model: DocumentLlm, metres: str, amperes: str) -> None:
    text = await talk(model, f"Which fuse do I need for {metres} metres?")
    assert f"{amperes} amperes" in text and text.count("amperes") == 1


async def test_items_of_a_list_that_were_said_are_not_said_again(model: DocumentLlm) -> None:
    text = await talk(model, "What does the guarantee not cover?", "tell me more")
    assert text.startswith("That is all I have")


async def test_what_is_before_the_document_is_not_spoken(model: DocumentLlm) -> None:
    assert not any("revision" in sentence for sentence in model.index.sentences)


@pytest.mark.parametrize(
    ("said", "answer"),
    [
        ("I'd like to speak to a real person", "I cannot put you through to a person"),
        ("is there anybody I could talk to", "I cannot put you through to a person"),
        ("okay thanks, goodbye", "Goodbye"),
        ("hang up", "Goodbye"),
        ("stop talking", "All right."),
        ("hold on a second please", "Take your time."),
        ("could you repeat that", "I have not said anything yet"),
        ("blorp fnarg wibblequx zzzt", "I did not"),
        ("cuánto pesa la válvula", "I only understand English"),
    ],
)
async def test_what_is_no_question_is_not_looked_up(model: DocumentLlm, said: str, answer: str) -> None:
    text = await talk(model, said)
    assert answer in text or ("did not" in answer and "did not catch" in text)


@pytest.mark.parametrize(
    "text",
    [
        "how heavy is the V20 " * 380,
        "x" * 8_000,
        "v 20 " * 1_600,
        "which one is cheaper " * 380,
        "one hundred and " * 500,
        "thank you " * 800,
        "[" * 8_000,
        "My dog barks. " * 560,
    ],
)
async def test_a_turn_of_8000_characters_is_read_in_linear_time(model: DocumentLlm, text: str) -> None:
    # Measured 60 ms at most; a search whose time grows with the square of the length takes many seconds.
    with processor_deadline():
        assert await talk(model, text)


async def test_the_question_of_a_long_turn_is_answered(model: DocumentLlm) -> None:
    story = "I was at my sister's house and we looked at the garden for a long time. " * 6
    assert await talk(model, f"{story} How heavy is the V20?") == "V20, weight: 2.7 kg."
