"""Prompt that each response of a service carries, in the order in which the service takes its frames."""

from pipecat.frames.frames import (
    Frame,
    LLMContextFrame,
    LLMFullResponseStartFrame,
    LLMTextFrame,
    LLMUpdateSettingsFrame,
)
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.settings import LLMSettings

from parley.core.frame_facts import PROMPT
from parley.processors.dialogue.reply_prompts import ReplyPrompts
from tests import virtual_time


def update(**settings: str) -> Frame:
    return LLMUpdateSettingsFrame(delta=LLMSettings(**settings))


def prompts(*frames: Frame) -> list[str | None]:
    """Return the prompt of each response; a question stands for the start of its response, too."""
    followed, found = ReplyPrompts("first"), list[str | None]()

    async def play() -> None:
        for frame in frames:
            if isinstance(frame, LLMFullResponseStartFrame):
                await followed.on_output(None, frame)
                found.append(PROMPT.of(frame))
            else:
                await followed.on_frame(None, frame)

    virtual_time.run(play())
    return found


def test_a_response_carries_the_prompt_before_its_question() -> None:
    def asked() -> tuple[Frame, Frame]:
        return LLMContextFrame(LLMContext()), LLMFullResponseStartFrame()

    found = prompts(
        *asked(),
        update(system_instruction="own"),
        *asked(),
        update(system_instruction="first"),
        # Another setting leaves the prompt.
        update(model="m"),
        *asked(),
    )
    assert found == ["first", "own", "first"]


def test_a_prompt_that_comes_after_the_question_is_not_that_of_its_response() -> None:
    question, start = LLMContextFrame(LLMContext()), LLMFullResponseStartFrame()
    assert prompts(question, update(system_instruction="later"), start) == ["first"]


def test_other_output_carries_no_prompt() -> None:
    text = LLMTextFrame("Ten euros.")
    virtual_time.run(ReplyPrompts("first").on_output(None, text))
    assert PROMPT.of(text) is None
