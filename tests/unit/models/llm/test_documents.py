import asyncio
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from parley.core.errors import ConfigError, EngineError
from parley.core.pictures import UNSEEN
from parley.models.llm import Message
from parley.models.llm.documents import DocumentLlm, DocumentLlmSettings
from tests.fakes.embedder import WordCountEmbedder

GUIDE = """\
# The fee guide

## Wire fee
A wire costs twenty dollars. It leaves on the same day. Wires abroad cost forty dollars.

## Branch hours
Branches are open until five. On Saturdays branches are open until two. All branches are closed on Sundays.

## Lost card
Call the hotline when your card is lost. The hotline never sleeps. You can also block the card in the app.
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "fees.md").write_text(GUIDE, encoding="utf-8")
    return tmp_path


@pytest.fixture
def model(folder: Path) -> DocumentLlm:
    return DocumentLlm(settings(folder), embedder=WordCountEmbedder())


def settings(folder: Path, **values: object) -> DocumentLlmSettings:
    return DocumentLlmSettings.model_validate({"folder": folder, "cache_folder": None, **values})


async def talk(model: DocumentLlm, *turns: str) -> str:
    """Return the answer to the last of ``turns``, which alternate, the user first."""
    roles = ("user", "assistant")
    messages = [Message(roles[at % 2], text) for at, text in enumerate(turns)]  # type: ignore[arg-type]
    return "".join([piece async for piece in model.reply(messages)])


async def test_an_answer_is_the_sentence_that_was_asked_for(model: DocumentLlm) -> None:
    assert await talk(model, "What does a wire cost?") == "A wire costs twenty dollars."


async def test_a_question_for_the_topic_is_answered_from_the_beginning(model: DocumentLlm) -> None:
    whole = "Branches are open until five. On Saturdays branches are open until two."
    assert whole in await talk(model, "What are your branch hours?")


async def test_a_sentence_that_leans_on_another_brings_it_along(model: DocumentLlm) -> None:
    text = await talk(model, "on which day leaves a wire on the same day")
    assert "A wire costs twenty dollars. It leaves on the same day." in text


async def test_an_addition_comes_after_the_main_point(model: DocumentLlm) -> None:
    text = await talk(model, "how do i block the card in the app")
    assert text.index("Call the hotline") < text.index("You can also block")


async def test_the_source_is_named_when_it_is_asked_for(model: DocumentLlm) -> None:
    answer = await talk(model, "what does a wire cost")
    assert "guide" not in answer
    assert await talk(model, "what does a wire cost", answer, "how do you know that") == (
        "That is from the fee guide."
    )


async def test_more_is_what_was_not_said_yet(model: DocumentLlm) -> None:
    first = "A wire costs twenty dollars."
    assert await talk(model, "wire fee", first, "tell me more") == (
        "It leaves on the same day. Wires abroad cost forty dollars."
    )


async def test_when_all_was_said_other_topics_are_offered(model: DocumentLlm) -> None:
    said = "A wire costs twenty dollars. It leaves on the same day. Wires abroad cost forty dollars."
    text = await talk(model, "wire fee", said, "what else")
    assert text.startswith("That is all I have about wire fee.")
    assert "branch hours" in text and "lost card" in text


async def test_going_on_after_an_interruption_begins_with_the_broken_sentence(model: DocumentLlm) -> None:
    text = await talk(model, "wire fee", "A wire costs twenty dollars. It leaves on the [cut off]", "go on")
    assert text.startswith("It leaves on the same day.")


async def test_repeat_says_the_last_answer_again(model: DocumentLlm) -> None:
    assert await talk(model, "thanks", "You are welcome.", "say that again") == "You are welcome."


async def test_repeat_completes_a_sentence_that_was_cut_off(model: DocumentLlm) -> None:
    text = await talk(model, "wire fee", "A wire costs twen\u2014", "repeat that")
    assert text == "A wire costs twenty dollars."


async def test_repeat_without_an_answer_is_no_error(model: DocumentLlm) -> None:
    assert "not said anything" in await talk(model, "repeat that")


@pytest.mark.parametrize("said", ["", "   ", "um", "the", "?!"])
async def test_what_was_not_understood_is_asked_for_again(model: DocumentLlm, said: str) -> None:
    assert "again" in await talk(model, said)


async def test_a_question_out_of_scope_is_admitted_and_topics_are_named(model: DocumentLlm) -> None:
    text = await talk(model, "who won the football game last night")
    assert text.startswith("I don't know")
    assert "wire fee" in text


async def test_small_talk_knows_the_name(folder: Path) -> None:
    model = DocumentLlm(settings(folder, name="Ada"), embedder=WordCountEmbedder())
    assert "I am Ada" in await talk(model, "Who are you?")
    assert await talk(model, "thank you ada") == "You are welcome."


async def test_the_first_word_is_the_agents_when_no_one_has_spoken(folder: Path) -> None:
    model = DocumentLlm(settings(folder), embedder=WordCountEmbedder())
    assert (await talk(model)).startswith("Hello, I am Parley.")
    greeted = DocumentLlm(settings(folder, greeting="Welcome to Northwind."), embedder=WordCountEmbedder())
    assert await talk(greeted) == "Welcome to Northwind."


async def test_answers_keep_to_the_longest_allowed(folder: Path) -> None:
    model = DocumentLlm(settings(folder, max_words=6, max_sentences=1), embedder=WordCountEmbedder())
    text = await talk(model, "when are branches open and closed on saturdays and sundays")
    assert text.count(".") == 1


async def test_the_loop_runs_while_documents_are_searched(folder: Path) -> None:
    searching, go_on = threading.Event(), threading.Event()

    def wait(texts: list[str]) -> None:
        if len(texts) == 1:
            searching.set()
            assert go_on.wait(10)

    model = DocumentLlm(settings(folder), embedder=WordCountEmbedder(wait))
    task = asyncio.create_task(talk(model, "what does a wire cost"))
    # If the search ran on the loop, this thread could not get here before it ends.
    assert await asyncio.to_thread(searching.wait, 10)
    assert not task.done()
    go_on.set()
    assert "twenty dollars" in await task


async def test_the_given_executor_is_used(folder: Path) -> None:
    names: list[str] = []
    embedder = WordCountEmbedder(lambda texts: names.append(threading.current_thread().name))
    with ThreadPoolExecutor(1, thread_name_prefix="lookup") as executor:
        model = DocumentLlm(settings(folder), embedder=embedder, executor=executor)
        names.clear()
        await talk(model, "what does a wire cost")
    assert names and all(name.startswith("lookup") for name in names)


async def test_an_executor_that_stays_full_is_an_engine_error(folder: Path) -> None:
    release = threading.Event()
    with ThreadPoolExecutor(1) as executor:
        model = DocumentLlm(settings(folder, timeout_s=0.01), embedder=WordCountEmbedder(), executor=executor)
        executor.submit(release.wait, 10)
        with pytest.raises(EngineError) as failure:
            await talk(model, "what does a wire cost")
        release.set()
    assert failure.value.engine == "documents" and failure.value.retryable


async def test_a_cancelled_search_leaves_the_model_usable(folder: Path) -> None:
    searching, go_on = threading.Event(), threading.Event()

    def wait(texts: list[str]) -> None:
        if texts == ["what does a wire cost"] and not go_on.is_set():
            searching.set()
            assert go_on.wait(10)

    model = DocumentLlm(settings(folder), embedder=WordCountEmbedder(wait))
    task = asyncio.create_task(talk(model, "what does a wire cost"))
    assert await asyncio.to_thread(searching.wait, 10)
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task
    go_on.set()
    assert "twenty dollars" in await talk(model, "what does a wire cost")


def test_a_missing_folder_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="nowhere"):
        DocumentLlm(settings(tmp_path / "nowhere"), embedder=WordCountEmbedder())


async def test_what_was_shown_is_not_passed_over_in_silence(model: DocumentLlm) -> None:
    assert await talk(model, f"{UNSEEN} What does a wire cost?") == (
        "I cannot see pictures. A wire costs twenty dollars."
    )
    assert await talk(model, UNSEEN) == "I cannot see pictures."
    later = await talk(model, UNSEEN, "I cannot see pictures.", "What does a wire cost?")
    assert later == "A wire costs twenty dollars."


async def test_what_was_pointed_at_is_looked_up(model: DocumentLlm) -> None:
    plain = await talk(model, "what does this cost")
    assert "twenty" not in plain
    assert await talk(model, "what does this cost [pointing at a wire]") == "A wire costs twenty dollars."


async def test_only_the_last_gesture_before_the_words_counts(model: DocumentLlm) -> None:
    turn = "not this one [pointing at the lost card] what does this cost [pointing at a wire]"
    assert await talk(model, turn) == "A wire costs twenty dollars."


async def test_consent_in_a_tense_voice_is_questioned(model: DocumentLlm) -> None:
    said = "What does a wire cost?", "A wire costs twenty dollars."
    assert "wrong" in await talk(model, *said, "well this is fine [tense]")
    assert "wrong" in await talk(model, *said, "well this is fine [seems tense]")
    assert "wrong" not in await talk(model, *said, "well this is fine")
    assert "wrong" not in await talk(model, *said, "well this is fine [happy]")


async def test_two_people_who_disagree_are_asked(model: DocumentLlm) -> None:
    answer = await talk(model, "[speaker 1] please send the wire today\n[speaker 2] no don't send it")
    assert '"please send the wire today" and "no don\'t send it"' in answer
    alone = await talk(model, "please send the wire today no don't send it")
    assert "two people" not in alone
