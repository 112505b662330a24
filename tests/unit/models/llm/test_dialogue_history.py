from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from parley.core.prompt_notes import PromptNotes, write_notes
from parley.language import find_language
from parley.language.conversation import Recalled
from parley.language.english.small_talk import spoken_words
from parley.models.llm import Message
from parley.models.llm.dialogue_history import DialogueHistory, read_conversation
from parley.models.llm.documents import DocumentLlm, DocumentLlmSettings
from parley.session_store.prompt import prompt_view
from tests.fakes.embedder import WordCountEmbedder
from tests.fakes.timeline import Timeline

GUIDE = """\
# The fee guide

## Wire fee
A wire costs twenty dollars. It leaves on the same day. Wires abroad cost forty dollars.

## Branch hours
Branches are open until five. On Saturdays branches are open until two. All branches are closed on Sundays.

## Account number
Your account number is on every statement. The app shows your account number too.

## Lost card
Call the hotline when your card is lost. The hotline never sleeps. You can also block the card in the app.
"""


def read(*turns: str, notes: PromptNotes | None = None) -> DialogueHistory:
    """Return a dialogue of alternating turns, the caller first."""
    roles = ("user", "assistant")
    messages = [Message(roles[at % 2], text) for at, text in enumerate(turns)]  # type: ignore[arg-type]
    if notes is not None:
        first = messages[0]
        messages[0] = Message("user", f"{write_notes(notes)}\n\n{first.text}")
    return read_conversation(messages)


def recalled(conversation: DialogueHistory, *, topics: Sequence[str] = ()) -> Recalled | None:
    return conversation.recall(spoken_words(conversation.messages[-1].text), topics)


def answer(*turns: str, notes: PromptNotes | None = None, topics: Sequence[str] = ()) -> str:
    found = recalled(read(*turns, notes=notes), topics=topics)
    assert found is not None
    assert found.sure
    return found.text


@pytest.mark.parametrize(
    "question",
    [
        "What is my name?",
        "what's my name again please",
        "do you know my name",
        "Do you remember what my name is?",
        "can you tell me what my name is",
        "tell me my name",
        "who am i",
        "what am i called",
        "what did i say my name was",
        "did i tell you my name",
        "which name did i give you",
        "my name",
    ],
)
def test_a_name_is_remembered(question: str) -> None:
    assert answer("hello my name is ada", "Hello.", question) == "Your name is Ada."


@pytest.mark.parametrize(
    ("received", "question", "reply"),
    [
        (
            "my account number is four one seven two",
            "what did I say my account number was?",
            "Your account number is 4172.",
        ),
        (
            "my account number is 4172",
            "which number did i give you",
            "Your account number is 4172.",
        ),
        ("I live in Berlin", "where do i live", "You live in Berlin."),
        ("I live at 12 Main Street", "what is my address", "You live at 12 Main Street."),
        ("my address is 12 Main Street", "where do i live", "Your address is 12 Main Street."),
        ("i am from spain", "where am i from", "You are from Spain."),
        ("i work for acme", "where do i work", "You work for acme."),
        ("i am forty two years old", "how old am i", "You are 42 years old."),
        (
            "My favourite colour is blue.",
            "Do you remember my favorite color?",
            "Your favourite colour is blue.",
        ),
        ("call me back at five", "when will you call me back", "You want to be called back at five."),
        ("remember that my locker is by my desk", "what is my locker", "Your locker is by your desk."),
        (
            "remember that I am allergic to nuts",
            "what did i ask you to remember",
            "You asked me to remember that you are allergic to nuts.",
        ),
        ("remember to buy milk", "what should you remember", "You asked me to remember to buy milk."),
        (
            "I'm calling about my lost card",
            "why am i calling",
            "You told me that you are calling about your lost card.",
        ),
        ("I want to close my account", "what do i want", "You told me that you want to close your account."),
        (
            "my name is Ada and I live in Berlin",
            "what do you know about me",
            "You told me that your name is Ada and you live in Berlin.",
        ),
    ],
)
def test_what_was_told_is_remembered(received: str, question: str, reply: str) -> None:
    assert answer(received, "Thank you.", question) == reply


@pytest.mark.parametrize(
    ("question", "reply"),
    [
        ("what is my name", "You have not told me your name."),
        ("what is my phone number", "You have not told me your phone number."),
        ("what did i say my shoe size was", "You have not told me your shoe size."),
        ("where do i live", "You have not told me where you live."),
        ("why did i call", "You have not told me why you are calling."),
        ("what do you know about me", "You have not told me anything about yourself."),
        ("what did i ask you to remember", "You have not asked me to remember anything."),
        ("what did i just say", "You have not said anything before that."),
        ("what were we talking about", "We have only just begun to talk."),
    ],
)
def test_what_was_not_told_is_said_plainly(question: str, reply: str) -> None:
    assert answer(question) == reply


@pytest.mark.parametrize(
    "question",
    ["what is your name", "what does a wire cost", "who are you", "my card is stolen", "name", "what"],
)
def test_other_questions_are_not_for_the_memory(question: str) -> None:
    assert recalled(read("my name is Ada", "Hello.", question)) is None


def test_what_the_documents_may_know_is_left_to_them_first() -> None:
    assert recalled(read("what is my daily limit")) == Recalled(
        "You have not told me your daily limit.", False
    )


def test_a_correction_is_what_is_remembered() -> None:
    assert answer("my number is 4172", "Thank you.", "no it's 4173", "Sorry.", "what is my number") == (
        "Your number is 4173."
    )


@pytest.mark.parametrize("question", ["what did i just say", "what did i say", "what was my last question"])
def test_what_the_person_said_is_said_again(question: str) -> None:
    assert answer("What does a wire cost?", "Twenty.", question) == 'You said: "What does a wire cost?"'


def test_the_first_question_is_found() -> None:
    assert answer("One?", "1", "Two?", "2", "what was my first question") == 'You said: "One?"'


@pytest.mark.parametrize(
    "question",
    ["what were we talking about", "What did we talk about?", "where were we", "what was this about"],
)
def test_the_topic_is_told(question: str) -> None:
    said = answer("One?", "1", question, topics=("wire fee", "branch hours"))
    assert said == "We talked about wire fee and branch hours."


def test_notes_are_read_and_taken_off() -> None:
    notes = PromptNotes(
        "The person asked about rain.", {"name": "Ada", "account number": "4172"}, "a lost card"
    )
    conversation = read("Hello.", "Hi.", "what is my account number", notes=notes)
    assert conversation.messages[0].text == "Hello."
    assert answer("Hello.", "Hi.", "what is my account number", notes=notes) == "Your account number is 4172."
    assert answer("why am i calling", notes=notes) == "You told me that you are calling about a lost card."
    assert "You asked about rain." in answer(
        "what were we talking about", notes=PromptNotes("The person asked about rain.")
    )


def test_notes_alone_are_no_turn_of_the_person() -> None:
    assert read("", notes=PromptNotes(opened=True)).messages == ()


def test_notes_of_the_system_count_too() -> None:
    system = Message("system", write_notes(PromptNotes(facts={"name": "Ada"})))
    assert read_conversation([system, Message("user", "x")]).facts == {"name": "Ada"}


def test_notes_are_newer_than_the_turns_but_for_the_last() -> None:
    notes = PromptNotes(facts={"name": "Ada"})
    assert read("my name is Eda", "Hi.", "what is my name", notes=notes).facts == {"name": "Ada"}
    assert read("Hi.", "Hi.", "my name is Eva", notes=notes).facts == {"name": "Eva"}


def test_notes_of_a_later_turn_replace_earlier_ones() -> None:
    first, second = (write_notes(PromptNotes(facts={"plan": plan})) for plan in ("gold", "silver"))
    conversation = read(f"{first}\n\nHello.", "Hi.", f"Yes.\n\n{second}\n\nWhich plan is it?")
    assert conversation.facts == {"plan": "silver"}
    assert [message.text for message in conversation.messages] == [
        "Hello.",
        "Hi.",
        "Yes.",
        "Which plan is it?",
    ]


def test_remarks_are_no_words_of_their_own() -> None:
    conversation = read(
        "this one [pointing at the fee]\n\nwhat is it [angry]",
        'First [cut off here; the rest] then [interrupted by the person here, who did not hear: "x"]',
    )
    assert [message.text for message in conversation.messages] == [
        "the fee",
        "what is it",
        'First then [interrupted by the person here, who did not hear: "x"]',
    ]


def test_a_statement_is_acknowledged_and_a_question_is_not() -> None:
    assert read("my account number is 4172").acknowledge() == Recalled(
        "Thank you. I have noted that your account number is 4172.", True
    )
    assert read("remember that I drink tea").acknowledge() == Recalled(
        "All right, I will remember that you drink tea.", True
    )
    assert read("my name is Ada, what is yours?").acknowledge() is None
    assert read("what is my name").acknowledge() is None
    assert read("thank you").acknowledge() is None


# ---- with the documents


@pytest.fixture
def model(tmp_path: Path) -> DocumentLlm:
    (tmp_path / "fees.md").write_text(GUIDE, encoding="utf-8")
    settings = DocumentLlmSettings.model_validate({"folder": tmp_path, "cache_folder": None})
    return DocumentLlm(settings, embedder=WordCountEmbedder())


async def talk(model: DocumentLlm, *said: str) -> str:
    """Return the last answer after all turns."""
    messages: list[Message] = []
    text = ""
    for turn in said:
        messages.append(Message("user", turn))
        text = "".join([piece async for piece in model.reply(messages)])
        messages.append(Message("assistant", text))
    return text


async def test_the_memory_goes_before_the_documents(model: DocumentLlm) -> None:
    received = await talk(model, "my account number is 4172", "what is my account number")
    assert received == "Your account number is 4172."


async def test_a_statement_is_never_unknown(model: DocumentLlm) -> None:
    assert await talk(model, "My account number is 4172.") == (
        "Thank you. I have noted that your account number is 4172."
    )
    assert await talk(model, "my name is Ada") == "Nice to meet you, Ada. What can I do for you?"
    assert await talk(model, "my dog is sick") == "Thank you. I have noted that your dog is sick."
    assert await talk(model, "I'm calling about the football game") == (
        "All right, you are calling about the football game. What would you like to know?"
    )


async def test_a_statement_that_the_documents_answer_is_answered(model: DocumentLlm) -> None:
    assert "Call the hotline" in await talk(model, "I'm calling about a lost card")
    assert "Call the hotline" in await talk(model, "my name is Ada and my card is lost call hotline")


async def test_the_topic_is_named_by_the_headings_of_what_was_told(model: DocumentLlm) -> None:
    received = await talk(model, "wire fee", "what are your branch hours", "what were we talking about")
    assert received == "We talked about wire fee and branch hours."


async def test_unknown_questions_are_still_admitted(model: DocumentLlm) -> None:
    assert (await talk(model, "my name is Ada", "who won the football game last night")).startswith(
        "I don't know"
    )


def as_messages(line: Timeline, budget_tokens: int) -> list[Message]:
    facts = find_language("en").facts
    shown: Sequence[dict[str, Any]] = prompt_view(
        line.events, budget_tokens=budget_tokens, facts=facts
    ).messages
    return [Message(message["role"], message["content"]) for message in shown]


@pytest.mark.parametrize("budget_tokens", [5_000, 400])
async def test_what_a_session_knows_is_answered_although_the_turn_is_gone(
    model: DocumentLlm, budget_tokens: int
) -> None:
    line = Timeline()
    line.replied("Hello, I am Parley.")
    line.said("my account number is four one seven two", transport="twilio")
    line.replied("Thank you.")
    for _ in range(10):
        line.said("What does a wire cost? " + "Please. " * 10)
        line.replied("A wire costs twenty", unheard="dollars.")
    line.said("what is my account number")
    text = "".join([piece async for piece in model.reply(as_messages(line, budget_tokens))])
    assert text == "Your account number is 4172."


async def test_a_reply_that_was_cut_off_in_a_session_is_completed(model: DocumentLlm) -> None:
    line = Timeline()
    line.said("What does a wire cost?")
    line.replied("A wire costs", unheard="twenty dollars.")
    line.said("repeat that")
    text = "".join([piece async for piece in model.reply(as_messages(line, 5_000))])
    assert text == "A wire costs twenty dollars."


async def test_a_greeting_alone_is_no_turn_of_the_person(model: DocumentLlm) -> None:
    line = Timeline()
    line.replied("Hello.")
    text = "".join([piece async for piece in model.reply(as_messages(line, 5_000))])
    assert text.startswith("Hello, I am Parley.")
