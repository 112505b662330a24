"""Reading of a dialogue: which sentences of the documents were spoken, and the caller's question.

Inputs: the messages, oldest first, and the sentences that answers are made of. Output: a ``Dialogue``. Pure;
no state is kept between calls, because the messages are the only memory and exclude what the caller did not
hear.
"""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from parley.language import Language, find_language
from parley.models.llm import Message
from parley.models.retrieval import SpeakableStatement

# Marks by which sessions end a reply that was cut off: a bracketed remark, dashes or dots.
_CUT_OFF_MARK = re.compile(r"\s*(?:\[[^\]]*\]|\([^)]*\)|<[^>]*>|\u2014|\u2013|\u2026|\.{3}|-+)\s*$")
# The longest remark is a sentence, and at most two of them follow each other.
_MARK_CHARS, _MOST_MARKS = 200, 8
_KEY_WORDS = 3
_MOST_NEIGHBOURS = 20


@dataclass(frozen=True, slots=True)
class Dialogue:
    """Content of the messages.

    Attributes:
        words: the last user message in words; empty when there is none.
        opened: true when there is a user message.
        previous_words: the user message before, when no answer from the documents came in between; else
            empty.
        asked_words: the user message before, whatever came in between; empty when there is none.
        last_reply: the last assistant message without its cut-off mark; empty when there is none.
        last_said: numbers of the sentences in the last assistant message, in order, a started one included.
        started: number of the sentence in which the last assistant message breaks off, or None.
        topic_said: like ``last_said``, of the last message that held any.
        said: numbers of all sentences that were spoken in full.
        replies: number of assistant messages of which anything was heard.
        spoken_sentences: numbers of all sentences that were spoken or started, in order.
    """

    words: tuple[str, ...]
    opened: bool
    previous_words: tuple[str, ...]
    asked_words: tuple[str, ...]
    last_reply: str
    last_said: tuple[int, ...]
    started: int | None
    topic_said: tuple[int, ...]
    said: frozenset[int]
    replies: int
    spoken_sentences: tuple[int, ...]


class DialogueReader:
    """Reader that finds document sentences in spoken replies. Read-only after construction, thread-safe.

    Args:
        statements: statements that answers are made of; their positions are the numbers in ``Dialogue``. A
            plain text is a statement without a lead.
        language: that of the documents; None for the default language.
    """

    def __init__(
        self, statements: Sequence[SpeakableStatement | str], *, language: Language | None = None
    ) -> None:
        self._words_of = (language or find_language()).small_talk.spoken_words
        whole = [SpeakableStatement(each) if isinstance(each, str) else each for each in statements]
        self._sentences = [tuple(self._words_of(statement.text)) for statement in whole]
        # After a statement its neighbours may follow without the lead that they share.
        self._next_bare: list[tuple[tuple[int, tuple[str, ...]], ...]] = [
            tuple(
                (at, tuple(self._words_of(whole[at].bare)))
                for at in range(number + 1, min(number + 1 + _MOST_NEIGHBOURS, len(whole)))
                if statement.bare and whole[at].bare and whole[at].lead == statement.lead
            )
            for number, statement in enumerate(whole)
        ]
        self._by_key: dict[tuple[str, ...], list[int]] = {}
        for number, words in enumerate(self._sentences):
            if words:
                self._by_key.setdefault(words[:_KEY_WORDS], []).append(number)

    def read(self, messages: Sequence[Message]) -> Dialogue:
        """Return the content of ``messages``; system messages are ignored."""
        spoken = [message for message in messages if message.role != "system"]
        users = [at for at, message in enumerate(spoken) if message.role == "user"]
        # A message of which nothing was heard is no reply.
        replies = [
            at
            for at, message in enumerate(spoken)
            if message.role == "assistant" and without_cut_off_mark(message.text)
        ]
        found = {at: self._find(without_cut_off_mark(spoken[at].text)) for at in replies}
        last_reply = replies[-1] if replies else None
        answered = [at for at in replies if found[at][0]]
        last_said, started = found[last_reply] if last_reply is not None else ((), None)
        previous: tuple[str, ...] = ()
        if len(users) > 1 and not any(at > users[-2] for at in answered):
            previous = tuple(self._words_of(spoken[users[-2]].text))
        return Dialogue(
            words=tuple(self._words_of(spoken[users[-1]].text)) if users else (),
            opened=bool(users),
            previous_words=previous,
            asked_words=tuple(self._words_of(spoken[users[-2]].text)) if len(users) > 1 else (),
            last_reply=without_cut_off_mark(spoken[last_reply].text) if last_reply is not None else "",
            last_said=last_said,
            started=started,
            topic_said=found[answered[-1]][0] if answered else (),
            said=frozenset(n for numbers, cut in found.values() for n in numbers if n != cut),
            replies=len(replies),
            spoken_sentences=tuple(number for at in replies for number in found[at][0]),
        )

    def _find(self, reply: str) -> tuple[tuple[int, ...], int | None]:
        """Return the sentence numbers in a reply, in order, and the one in which it breaks off."""
        words = tuple(self._words_of(reply))
        numbers: list[int] = []
        at, ended_at = 0, -1
        while at < len(words):
            best, matched, cut = self._match(words[at:])
            if numbers and ended_at == at:
                for number, bare in self._next_bare[numbers[-1]]:
                    if words[at : at + len(bare)] == bare and len(bare) > matched:
                        best, matched, cut = number, len(bare), False
            if best is None:
                at += 1
                continue
            numbers.append(best)
            if cut:
                return tuple(numbers), best
            at += matched
            ended_at = at
        return tuple(numbers), None

    def _match(self, words: tuple[str, ...]) -> tuple[int | None, int, bool]:
        """Return the longest sentence at the front of ``words``, its length, and true if ``words`` end inside
        it.
        """
        best: tuple[int | None, int, bool] = (None, 0, False)
        keys = {words[:length] for length in range(1, _KEY_WORDS + 1)}
        for key in keys:
            for number in self._by_key.get(key, ()):
                sentence = self._sentences[number]
                if words[: len(sentence)] == sentence and (len(sentence) > best[1] or best[2]):
                    best = (number, len(sentence), False)
                elif best[0] is None and _breaks_off(words, sentence):
                    best = (number, len(words), True)
        return best


def without_cut_off_mark(text: str) -> str:
    """Return ``text`` without a trailing remark that it was interrupted."""
    bare = text.strip()
    for _ in range(_MOST_MARKS):
        # Only near the end: over a whole text the search takes quadratic time, 5 s for a page of dots.
        start = max(0, len(bare) - _MARK_CHARS)
        found = _CUT_OFF_MARK.search(bare, start)
        if found is None:
            break
        bare = bare[: found.start()]
    return bare


def _breaks_off(words: tuple[str, ...], sentence: tuple[str, ...]) -> bool:
    """Return whether ``words`` are the beginning of ``sentence``; the last word may be broken itself."""
    last = len(words) - 1
    return last < len(sentence) and words[:last] == sentence[:last] and sentence[last].startswith(words[last])
