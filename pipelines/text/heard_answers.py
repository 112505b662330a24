"""Correction of an answer that was committed as it was sent, to the part that its hearer has heard.

A client that speaks the answers itself reports an interruption after the answer was complete here. What was
heard is what is remembered.
"""

from parley.session_store.conversation import Conversation
from parley.session_store.events import Event, Kind
from parley.session_store.memory import current_events, text_in


async def note_heard(conversation: Conversation, heard: str, *, transport: str) -> None:
    """Commit that only a part of the newest answer was heard.

    Args:
        conversation: the session.
        heard: words of the answer until the interruption, as the client reports them.
        transport: of the client; answers that came over another one are left alone.

    Raises:
        StoreError: another process holds the session, or its store is unreachable.
    """
    # The turn has ended, and its answer is committed as far as it was sent.
    async with conversation.turn:
        await conversation.in_time(conversation.flushed())
        answer = _newest_answer(conversation, transport)
        if answer is None:
            return
        text = " ".join((text_in(answer.payload, "text"), text_in(answer.payload, "unheard"))).strip()
        said, rest = split_heard(text, heard)
        if heard.strip() and not said:
            # Of a phrase that is no answer, such as the first words after a loss of the connection.
            return
        if not rest and not answer.payload.get("truncated"):
            return
        facts = {"text": said, "unheard": rest, "truncated": True, "supersedes": [answer.key]}
        key = f"{answer.key}.heard"
        await conversation.in_time(
            conversation.append(
                conversation.draft(Kind.BOT_TURN, "bot", {**answer.payload, **facts}, key=key)
            )
        )


def split_heard(text: str, heard: str) -> tuple[str, str]:
    """Return the part of an answer up to the words that were heard, and the rest.

    The words are compared without case and punctuation: a recogniser or a voice writes numbers and signs its
    own way. Where they differ, the part that agrees counts.

    Args:
        text: of the answer.
        heard: of its beginning, or of its last utterances.
    """
    words, wanted = text.split(), [_plain(word) for word in heard.split() if _plain(word)]
    plain = [_plain(word) for word in words]
    best_end = best_length = 0
    for start in range(len(plain)):
        at, length = start, 0
        while at < len(plain) and length < len(wanted):
            if plain[at] == wanted[length]:
                length += 1
            elif plain[at]:
                break
            at += 1
        if length > best_length:
            best_end, best_length = at, length
    return " ".join(words[:best_end]), " ".join(words[best_end:])


def _plain(word: str) -> str:
    return "".join(each for each in word.lower() if each.isalnum())


def _newest_answer(conversation: Conversation, transport: str) -> Event | None:
    answers = [
        event
        for event in current_events(conversation.events)
        if event.kind is Kind.BOT_TURN and event.payload.get("transport") == transport
    ]
    return max(answers, key=lambda event: event.seq, default=None)
