"""Replies of the measured calls, in the words of ``sounds``: no word is in two of them. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

from parley.evals.failover.sounds import WORDS

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
    """Return the reply to the messages of a request: the number of answers before it decides.

    The greeting is one. Messages of the user may also hold passages, at some questions.
    """
    answers = sum(message["role"] == "assistant" for message in messages)
    return reply_text(max(0, answers - 1))
