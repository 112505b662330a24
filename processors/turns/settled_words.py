"""User aggregator of Pipecat whose turns have the words that another part decides when they are over."""

from collections.abc import Callable
from typing import Any

from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMUserAggregator


class SettlingUserAggregator(LLMUserAggregator):
    """Aggregator that asks for the words of a turn as it puts them into the context.

    Args:
        context: of the pipeline.
        words_of_turn: returns the words of a turn that is over, from its transcripts.
        arguments: arguments of Pipecat's aggregator.
    """

    def __init__(self, context: LLMContext, *, words_of_turn: Callable[[str], str], **arguments: Any) -> None:
        super().__init__(context, **arguments)
        self._words_of_turn = words_of_turn

    def aggregation_string(self) -> str:
        """Return the words of the turn; see the base class, which asks once, when the turn is over."""
        return self._words_of_turn(super().aggregation_string())
