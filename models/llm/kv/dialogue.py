"""What of a dialogue a context has read already, and what comes behind it. Pure.

In: the dialogue as the context has it (each message beside what of the context it ends at, an answer with the
place of each of its characters), and the dialogue as it is wanted now. Out: how much of the context stays and
which messages are to be read. An answer that was interrupted is in the wanted dialogue as far as it was
heard: the context is cut at the last token that was heard to its end, and what follows in the text, such as
the mark of the interruption, is read behind it. A dialogue that was edited, regenerated or shortened is cut
where it first differs.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from models.llm import Message


@dataclass(frozen=True, slots=True)
class Read:
    """A message that a context has read, or written.

    Attributes:
        message: what it says.
        end_tokens: of the context, up to its end.
        char_ends: of an answer that the model wrote: for each of its tokens, how many characters of the text
            are whole behind it; empty of a message that was read.
        began_tokens: of the context, in front of it.
    """

    message: Message
    end_tokens: int
    char_ends: tuple[int, ...] = ()
    began_tokens: int = 0


@dataclass(frozen=True, slots=True)
class GoOn:
    """How a context goes on.

    Attributes:
        keep: so many messages of it stay as they are.
        keep_tokens: up to here.
        rest: of the answer behind them that was cut: what is to be read of it behind the cut; None where none
            was cut.
        append: the messages that are to be read then.
    """

    keep: int
    keep_tokens: int
    rest: str | None
    append: tuple[Message, ...]


def go_on(read: Sequence[Read], wanted: Sequence[Message]) -> GoOn:
    """How a context that has read one dialogue comes to another."""
    keep = 0
    while keep < min(len(read), len(wanted)) and read[keep].message == wanted[keep]:
        keep += 1
    keep_tokens = read[keep - 1].end_tokens if keep else 0
    if keep < min(len(read), len(wanted)):
        cut = _cut(read[keep], wanted[keep])
        if cut is not None:
            tokens, rest = cut
            return GoOn(keep, tokens, rest, tuple(wanted[keep + 1 :]))
    return GoOn(keep, keep_tokens, None, tuple(wanted[keep:]))


def _cut(answer: Read, wanted: Message) -> tuple[int, str] | None:
    """Where an answer that was heard in part is cut, and what is read behind; None: it is another one."""
    if not answer.char_ends or wanted.role != "assistant" or answer.message.role != "assistant":
        return None
    written, heard = answer.message.text, 0
    for mine, theirs in zip(written, wanted.text, strict=False):
        if mine != theirs:
            break
        heard += 1
    whole = sum(end <= heard for end in answer.char_ends)
    if not whole:
        return None
    return answer.began_tokens + whole, wanted.text[answer.char_ends[whole - 1] :]
