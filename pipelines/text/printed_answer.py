"""Typed turn whose answer is written piece by piece as it is made."""

from collections.abc import Callable
from contextlib import aclosing

from parley.core.client_rules import OPERATOR, ClientRules
from parley.core.errors import CapacityError, EngineError, StoreUnavailableError
from parley.pipelines.engines.llm_runtime import LlmRuntime
from parley.pipelines.text.typed_turns import AnswerPiece, ask
from parley.session_store.conversation import Conversation


async def print_answer(
    conversation: Conversation,
    answering: LlmRuntime,
    line: str,
    write: Callable[[str], None],
    *,
    answer_timeout_s: float,
) -> None:
    """Ask a question and write its answer, or one line that says why there is none."""
    in_line = False
    try:
        asked = ask(
            conversation, answering, line, answer_timeout_s=answer_timeout_s, rules=ClientRules(OPERATOR)
        )
        async with aclosing(asked) as events:
            async for event in events:
                if isinstance(event, AnswerPiece):
                    in_line = True
                    write(event.text)
    except (EngineError, CapacityError, StoreUnavailableError) as error:
        said = str(error)
        write(("\n" if in_line else "") + f"{said[:1].upper()}{said[1:]}.")
        in_line = True
    if in_line:
        write("\n")
