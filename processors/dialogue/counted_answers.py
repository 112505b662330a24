"""Tokens of an answer outside of a pipeline, which Pipecat's services drop (``LLMService.run_inference``)."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from parley.core.usage import Usage
from parley.processors.pipecat_internals import seeing_answers


@dataclass(frozen=True, slots=True)
class CountedText:
    """Answer outside of a pipeline.

    Attributes:
        text: of the model.
        model: name of the model; empty where its tokens are not known.
        usage: tokens; None where the provider reports none.
    """

    text: str
    model: str = ""
    usage: Usage | None = None


@dataclass(slots=True)
class AnswerCount:
    """Tokens of an answer that is requested now.

    Attributes:
        model: name of the model that was requested, as a stream reports it in the pipeline.
        usage: tokens; None until the answer has come, and where the provider reports none.
    """

    model: str = ""
    usage: Usage | None = None

    def take(self, model: str, usage: Usage) -> None:
        """Take the tokens of the answer."""
        self.model, self.usage = model, usage


@contextmanager
def counting(resource: Any, usage_of: Callable[[Any], Usage]) -> Iterator[AnswerCount]:
    """Read the tokens of the answers of an SDK's resource, from which Pipecat takes the text, in the block.

    Args:
        resource: ``chat.completions`` or ``beta.messages`` of the client of one service.
        usage_of: returns the amounts of what the provider reports.
    """
    count = AnswerCount()

    def see(fields: Mapping[str, Any], answer: object) -> None:
        if (reported := getattr(answer, "usage", None)) is not None:
            count.take(str(fields.get("model", "")), usage_of(reported))

    with seeing_answers(resource, see):
        yield count
