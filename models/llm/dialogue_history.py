"""Facts of a conversation, read from its messages, and answers to questions about it.

Input: the messages, which may begin with notes. Output: a ``DialogueHistory`` that holds the caller's
statements about themselves and answers questions about it, or returns None. Pure. ``document_answer`` asks
the documents and decides the order: "what is my daily limit" may be in them.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from parley.core.prompt_notes import PromptNotes, merge_notes, parse_notes
from parley.language import Language, find_language
from parley.language.conversation import KnownConversation, Recalled
from parley.language.facts import ExtractedFacts
from parley.models.llm import Message
from parley.sequencer.reading import RenderedPart, read_turn

# A correction refers to a statement in one of this many turns.
_RECENT_TURNS = 3
# Remarks that the session inserts into replies: where one was cut off. No white
# space precedes the first remark of a run: a search from each space of a page of spaces would take quadratic
# time.
_REMARK = re.compile(r"(?<!\s)\s*\[[^\]]*\]")
_MOST_PARTS = 100


@dataclass(frozen=True, slots=True)
class DialogueHistory:
    """Content of the messages, read once by ``read_conversation``.

    Attributes:
        messages: messages without notes and remarks, one for each turn.
        notes: notes of all messages; of two about the same, the later one.
        facts: statements of the caller about themselves, oldest first, including the last message's.
        intent: reason of the call; None when not stated.
        new: additions of the caller's last message.
        perceived: the caller's last turn with what was perceived while it was said.
        language: that of the conversation.
    """

    messages: tuple[Message, ...]
    notes: PromptNotes
    facts: Mapping[str, str]
    intent: str | None
    new: ExtractedFacts
    perceived: Sequence[RenderedPart]
    language: Language

    def recall(self, words: Sequence[str], topics: Sequence[str]) -> Recalled | None:
        """Return the answer when ``words`` ask about the conversation, else None.

        Args:
            words: the question.
            topics: topics so far, oldest first.
        """
        return self.language.conversation.recall(self._known(), words, topics)

    def acknowledge(self) -> Recalled | None:
        """Return the answer to a statement; None when the last message states nothing, or also asks."""
        if not self.messages or self.language.facts.asks(self.messages[-1].text):
            return None
        return self.language.conversation.acknowledge(self._known())

    @property
    def previous_was_personal(self) -> bool:
        """True when the caller's message before the last was a statement, or a question about the
        conversation.
        """
        said = [message.text for message in self.messages if message.role == "user"]
        facts = self.language.facts
        if len(said) < 2:
            return False
        words = self.language.small_talk.spoken_words(said[-2])
        return self.recall(words, ()) is not None or bool(
            facts.extract_facts(said[-2], {}).facts and not facts.asks(said[-2])
        )

    def _known(self) -> KnownConversation:
        said = [message.text for message in self.messages if message.role == "user"][:-1]
        return KnownConversation(self.facts, self.intent, self.notes.summary, said, self.new)


def read_conversation(messages: Sequence[Message], language: Language | None = None) -> DialogueHistory:
    """Return the content of the messages; system messages may hold notes too.

    Args:
        messages: the oldest first.
        language: that of the conversation; None for the default language.
    """
    language = language or find_language()
    notes = PromptNotes()
    turns: list[tuple[Message, PromptNotes]] = []
    # Notes that wait for the words that they precede.
    own = PromptNotes()
    perceived: list[RenderedPart] = []
    for message in messages:
        # Consecutive turns without an answer come in one message, with blank lines between.
        parts = message.text.split("\n\n", _MOST_PARTS) if message.role == "user" else [message.text]
        is_noted = bool(parse_notes(message.text)[0])
        for part in parts:
            found, text = parse_notes(part)
            notes, own = merge_notes(notes, found), merge_notes(own, found)
            if message.role == "user":
                perceived = read_turn(text)
                text = _as_meant(perceived, language) or text.strip()
            elif message.role == "assistant":
                text = _without_remarks(text)
            if (text and message.role != "system") or not is_noted:
                turns.append((replace(message, text=text), own))
                own = PromptNotes()
    facts: dict[str, str] = {}
    intent: str | None = None
    recent: list[tuple[str, ...]] = []
    new = ExtractedFacts()
    last = max((at for at, (turn, _) in enumerate(turns) if turn.role == "user"), default=None)
    for at, (turn, own) in enumerate(turns):
        # Notes state what is known after their turn. Only the words of the last one may be newer.
        _restate(facts, own.facts)
        intent = own.intent or intent
        if turn.role != "user":
            continue
        known = [name for names in reversed(recent[-_RECENT_TURNS:]) for name in names]
        new = language.facts.extract_facts(turn.text, facts, known)
        _restate(facts, new.facts)
        intent = new.intent or intent
        if at != last:
            _restate(facts, own.facts)
        recent.append(tuple(reversed(list(new.facts))))
    return DialogueHistory(tuple(turn for turn, _ in turns), notes, facts, intent, new, perceived, language)


def _restate(facts: dict[str, str], stated: Mapping[str, str]) -> None:
    """Set facts; the ones that are stated become the newest."""
    for name, value in stated.items():
        facts.pop(name, None)
        facts[name] = value


def _as_meant(parts: Iterable[RenderedPart], language: Language) -> str:
    """Return the words of a turn, with the thing that was pointed at in the place of "this one"."""
    said = ""
    for part in parts:
        if part.referent is None:
            said = f"{said} {part.words}".strip()
        else:
            said = language.perceived.name_referent(part.words, part.referent, said)
    return said


def _without_remarks(text: str) -> str:
    """Return a reply without remarks except the last one, by which ``dialogue`` detects a cut-off."""
    # Search only up to the last closing bracket: after it each opening bracket would be searched to the end.
    end = text.rfind("]") + 1
    remarked, rest = text[:end], text[end:]
    bare = (_REMARK.sub("", remarked) + rest).strip()
    last = list(_REMARK.finditer(remarked))[-1:]
    return bare + (last[0][0] if last and last[0].end() == end and not rest.strip() else "")
