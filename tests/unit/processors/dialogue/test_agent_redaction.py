"""The stage that redacts the model's words, in a pipeline of Pipecat."""

import pytest
from pipecat.frames.frames import LLMFullResponseEndFrame, LLMFullResponseStartFrame, LLMTextFrame
from pipecat.tests.utils import run_test

from parley.core.privacy import PrivacySettings
from parley.language import find_language
from parley.language.personal_data import Redactor
from parley.processors.dialogue.agent_redaction import AgentRedaction

SETTINGS = PrivacySettings(redact=("payment_card",), redact_agent=("payment_card", "email"))


async def said(*pieces: str) -> list[str]:
    """Return the pieces of a response as they leave the stage."""
    stage = AgentRedaction(Redactor(SETTINGS, find_language("en").personal))
    frames = [LLMFullResponseStartFrame(), *map(LLMTextFrame, pieces), LLMFullResponseEndFrame()]
    down, _ = await run_test(stage, frames_to_send=frames)
    assert isinstance(down[-1], LLMFullResponseEndFrame)
    return [each.text for each in down if isinstance(each, LLMTextFrame)]


@pytest.mark.parametrize("size", [1, 2, 3, 5, 8, 13, 100])
async def test_a_card_is_hidden_however_its_text_is_cut(size):
    text = "Your card 4242 4242 4242 4242 is charged. Write to help@example.com, or wait 15 minutes."
    pieces = [text[start : start + size] for start in range(0, len(text), size)]
    assert "".join(await said(*pieces)) == (
        "Your card [card] is charged. Write to [e-mail], or wait 15 minutes."
    )


async def test_no_piece_shows_the_beginning_of_a_card():
    pieces = await said("It is ", *(f"{each} " for each in "4242 4242 4242 4242".split()), "thanks.")
    assert pieces[0] == "It is "
    assert not any(each.isdigit() for piece in pieces for each in piece)


async def test_words_without_personal_data_are_passed_on_as_they_come():
    pieces = ["Good ", "morning, ", "how ", "are ", "you?"]
    assert await said(*pieces) == pieces
