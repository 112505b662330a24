"""Typed turn whose answer is written piece by piece as it is made."""

import unicodedata
from collections.abc import Callable, Sequence
from contextlib import aclosing

from parley.core.client_rules import OPERATOR, ClientRules
from parley.core.errors import CapacityError, EngineError, StoreUnavailableError
from parley.core.pictures import Picture
from parley.pipelines.engines.llm_runtime import LlmRuntime
from parley.pipelines.text.typed_turns import AnswerCommitted, AnswerPiece, ask
from parley.session_store.conversation import Conversation


def printable(text: str) -> str:
    """Return text without the control characters, which a terminal could obey; lines and tabs remain."""
    return "".join(each for each in text if each in "\n\t" or unicodedata.category(each) != "Cc")


async def print_answer(
    conversation: Conversation,
    answering: LlmRuntime,
    line: str,
    write: Callable[[str], None],
    *,
    answer_timeout_s: float,
    pictures: Sequence[Picture] = (),
    cites: bool = False,
) -> None:
    """Ask a question, and show pictures with it; write its answer, or one line that says why there is none.

    The answer comes from a model, so that its control characters are left out. With ``cites`` a line follows
    that names the passages that it rests on.
    """
    in_line = False
    sources = ""
    try:
        asked = ask(
            conversation,
            answering,
            line,
            answer_timeout_s=answer_timeout_s,
            rules=ClientRules(OPERATOR),
            pictures=pictures,
        )
        async with aclosing(asked) as events:
            async for event in events:
                if isinstance(event, AnswerPiece):
                    in_line = True
                    write(printable(event.text))
                elif isinstance(event, AnswerCommitted) and cites:
                    sources = "; ".join(dict.fromkeys(passage.label for passage in event.passages))
    except (EngineError, CapacityError, StoreUnavailableError) as error:
        said = printable(str(error))
        write(("\n" if in_line else "") + f"{said[:1].upper()}{said[1:]}.")
        in_line = True
    if in_line:
        write("\n")
    if sources:
        write(f"  (from {printable(sources)})\n")
