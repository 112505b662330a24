"""Replies of the measured calls, in the words of ``sounds``: no word is in two of them. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from parley.evals.failover.sounds import WORDS, plain

GREETING_WORDS, SENTENCE_WORDS, SENTENCES = 4, 2, 3
REPLY_WORDS = SENTENCE_WORDS * SENTENCES
REPLIES = (len(WORDS) - GREETING_WORDS) // REPLY_WORDS


def sentence(words: Sequence[str]) -> str:
    """Return words as a sentence."""
    return f"{' '.join(words).capitalize()}."


GREETING = sentence(WORDS[:GREETING_WORDS])


def words_of(number: int) -> Sequence[str]:
    """Return the words of a reply; the first has number 0."""
    first = GREETING_WORDS + number % REPLIES * REPLY_WORDS
    return WORDS[first : first + REPLY_WORDS]


def reply_text(number: int) -> str:
    """Return the text of a reply."""
    words = words_of(number)
    parts = [words[start : start + SENTENCE_WORDS] for start in range(0, REPLY_WORDS, SENTENCE_WORDS)]
    return " ".join(sentence(part) for part in parts)


def reply_of(messages: Sequence[Mapping[str, Any]]) -> str:
    """Return the reply to the messages of a request: the first of which nothing has been said.

    One that was interrupted before its caller heard a word is therefore given again, as a model does.
    """
    answers = (message.get("content") for message in messages if message["role"] == "assistant")
    said = {plain(word) for answer in answers for word in str(answer or "").split()}
    for number in range(REPLIES):
        if not said & set(words_of(number)):
            return reply_text(number)
    return reply_text(REPLIES - 1)
