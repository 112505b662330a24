"""Decides what to answer: from the conversation or the documents, which sentences, or "I don't know".

In: the messages of a dialogue. Out: the whole answer as text. Blocking (the question is embedded, about 10
ms) and thread-safe; owns nothing that changes. ``models.llm.documents`` runs it in a thread and streams the
result.

What the conversation itself answers ("what is my name") comes first; see ``remembered``. A statement that the
documents have nothing to say about is acknowledged.

An answer from the documents is made of whole sentences of one passage, so that it cannot say what the
documents do not, and so that the next turn can find it again in the messages. The limits below were chosen on
the questions of tests/golden (written, misheard, out of scope); the tests state what they reach on questions
that were not used for choosing.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from models.llm import Message
from models.llm.dialogue import Dialogue, DialogueReader
from models.llm.remembered import Conversation, read_conversation
from models.llm.small_talk import (
    Intent,
    exact_intent,
    is_noise,
    phrase_intent,
    question_words,
    spoken_words,
    wants_more,
    wants_repeat,
)
from models.llm.spoken_text import spoken_list
from models.retrieval.index import PassageIndex

# A phrase of small talk this close to what was said is what was said; questions reach 0.55 by accident.
_SMALL_TALK_LIKENESS = 0.62
# A question that stands on its own scores at least this; then the topic of the last answer is not mixed in.
_SELF_CONTAINED_SCORE = 0.5
# Share of the question itself, beside the question under the heading of the topic, in a follow-up.
_OWN_SHARE = 0.4
# The heading alone lifts every score, so a follow-up needs more than a first question: pizza under "opening
# hours" scores 0.39, Sundays 0.63.
_FOLLOW_UP_THRESHOLD = 0.44
_FOLLOW_UP_WORDS = 4
_FOLLOW_UP_MARKED_WORDS = 9
_FOLLOW_UP_OPENINGS = ("and", "but", "or", "what about", "how about", "what if")
_POINTING = frozenset("it its that they them their those these this there one ones him her".split())
# Further sentences are said when they fit the question nearly as well as the best one.
_SENTENCE_MARGIN = 0.08
# The first sentence of a passage holds its main point: a general question should get it.
_FIRST_SENTENCE_BONUS = 0.06
# For a sentence that holds all words of the question which its heading lacks ("and on sundays").
_SHARED_WORDS_BONUS = 0.12
# Words that say nothing about what is asked for, beside those of one or two letters.
_EMPTY_WORDS = frozenset(
    "what when where which who how why does did can could will would should shall may must have has are "
    "was were you your the and for about any there that this they them with from many much long please "
    "tell know want need get give say use it's i'm don't not cost costs price open".split()
)
# Asks for one sentence of a passage, whatever else is asked.
_AMOUNT = frozenset("cost costs price much many long".split())
_STEM_LETTERS = 5
# A sentence that begins so cannot stand without the one before it.
_LEANING = frozenset(
    "it they this that these those then he she both otherwise anything also its their".split()
)
# "You can also ..."
_ALSO_WORDS = 4
_TOPIC_SCORE = 0.15
# Beside a statement: what is left of the utterance when the statement is taken out.
_BESIDES_WORDS = 3
_JOINING = frozenset("and but so also because".split())

_ASK_AGAIN = (
    "Sorry, I did not catch that. Could you say it again?",
    "I did not understand you. Could you repeat that, please?",
)
_NOTHING_SAID = "I have not said anything yet. What would you like to know?"
_UNKNOWN = (
    "I don't know. Here is what I can answer: {topics}.",
    "I don't know that one. I can tell you about {topics}.",
    "Sorry, I don't know. You can ask me about {topics}.",
)


@dataclass(frozen=True, slots=True)
class _Choice:
    """A passage, and how well each sentence of the index fits the question."""

    passage: int
    sentences: np.ndarray
    question: tuple[str, ...]
    follow_up: bool


class DocumentAnswer:
    """Answers from an index. Thread-safe.

    Args:
        index: the passages, built with ``small_talk.PHRASES`` as its phrases.
        name: what the agent calls itself.
        threshold: a question whose best passage scores less is answered with "I don't know".
        max_words: longest answer, without the naming of the source; one sentence is always said whole.
        max_sentences: sentences in one answer.
        greeting: said when the dialogue holds no user message yet; None makes one from the name and some
            topics.
    """

    def __init__(
        self,
        index: PassageIndex,
        *,
        name: str,
        threshold: float,
        max_words: int,
        max_sentences: int,
        greeting: str | None = None,
    ) -> None:
        self._index = index
        self._reader = DialogueReader(index.sentences)
        self._name = name
        self._name_words = tuple(spoken_words(name))
        self._threshold = threshold
        self._max_words = max_words
        self._max_sentences = max_sentences
        self._greeting = greeting
        names = _names(index)
        self._topics = [_mid_sentence(passage.title, names) for passage in index.passages]
        first_of: dict[str, int] = {}
        for number, passage in enumerate(index.passages):
            first_of.setdefault(passage.source, number)
        self._first_of_source = list(first_of.values())

    def answer(self, messages: Sequence[Message]) -> str:
        """The answer to the last user message, never empty. Blocks."""
        conversation = read_conversation(messages)
        dialogue = self._reader.read(conversation.messages)
        if conversation.previous_was_personal:
            # "My name is Ada" is nothing that a question follows.
            dialogue = replace(dialogue, previous_words=())
        if not dialogue.opened:
            return self._greeting or f"Hello, I am {self._name}. Ask me about {self._example_topics(0)}."
        words = self._without_name(dialogue.words)
        if wants_repeat(words):
            return self._repeat(dialogue) if dialogue.last_reply else _NOTHING_SAID
        if wants_more(words) and dialogue.topic_said:
            return self._more(dialogue)
        recalled = conversation.recall(words, self._topics_of(dialogue))
        if recalled is not None and recalled.sure:
            return recalled.text
        noted = conversation.acknowledge()
        if noted is not None and noted.sure:
            return self._besides(conversation, dialogue, noted.text)
        intent = exact_intent(words)
        if intent is not None:
            return self._small_talk(intent, dialogue)
        if is_noise(words):
            return _vary(_ASK_AGAIN, dialogue.replies)
        personal = recalled or noted
        return self._from_documents(
            question_words(words), dialogue, otherwise=personal.text if personal is not None else None
        )

    def _topics_of(self, dialogue: Dialogue) -> list[str]:
        """Headings of what was told, each where it was told last, the oldest first."""
        passages = (self._index.passage_of(number) for number in reversed(dialogue.told))
        return [self._topics[passage] for passage in dict.fromkeys(passages)][::-1]

    def _besides(self, conversation: Conversation, dialogue: Dialogue, thanks: str) -> str:
        """A statement that comes with something else: "my name is Ada and my card was stolen"."""
        rest = question_words(spoken_words(conversation.new.rest))
        while rest and rest[0] in _JOINING:
            rest = rest[1:]
        if len(rest) < _BESIDES_WORDS:
            return thanks
        ranking = self._index.rank([" ".join(rest)])[0]
        best = int(np.argmax(ranking.passages))
        if ranking.passages[best] < _SELF_CONTAINED_SCORE:
            return thanks
        return self._say(_Choice(best, ranking.sentences, tuple(rest), follow_up=False), dialogue)

    def _without_name(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """Without the agent's name as an address: "Parley, what is ..." but not "what is Parley"."""
        count = len(self._name_words)
        if count and words[:count] == self._name_words and len(words) > count + 1:
            return words[count:]
        if count and words[-count:] == self._name_words and exact_intent(words[:-count]) is not None:
            return words[:-count]
        return words

    def _from_documents(self, question: list[str], dialogue: Dialogue, *, otherwise: str | None) -> str:
        """The documents' answer; when they have none, ``otherwise`` or "I don't know"."""
        text = " ".join(question)
        context = self._context(question, dialogue)
        asked = [text] if context is None else [text, f"{context}. {text}"]
        rankings = self._index.rank(asked)
        own = rankings[0]
        best = int(np.argmax(own.passages))
        if own.phrases.size:
            phrase = int(np.argmax(own.phrases))
            if own.phrases[phrase] >= max(_SMALL_TALK_LIKENESS, float(own.passages[best])):
                return self._small_talk(phrase_intent(phrase), dialogue)
        choice: _Choice | None = None
        if context is not None and own.passages[best] < _SELF_CONTAINED_SCORE:
            mixed = _OWN_SHARE * own.passages + (1 - _OWN_SHARE) * rankings[1].passages
            followed = int(np.argmax(mixed))
            if mixed[followed] >= _FOLLOW_UP_THRESHOLD:
                sentences = _OWN_SHARE * own.sentences + (1 - _OWN_SHARE) * rankings[1].sentences
                choice = _Choice(followed, sentences, tuple(question), follow_up=True)
        if choice is None and own.passages[best] >= self._threshold:
            choice = _Choice(best, own.sentences, tuple(question), follow_up=False)
        if choice is not None:
            return self._say(choice, dialogue)
        if otherwise is not None:
            return otherwise
        # Two words that fit nothing are more often misheard than meant.
        if len(question) <= 2:
            return _vary(_ASK_AGAIN, dialogue.replies)
        return self._unknown(own.passages, dialogue)

    def _context(self, question: list[str], dialogue: Dialogue) -> str | None:
        """What a follow-up follows, or None when the question is none."""
        text = " ".join(question)
        marked = any(text.startswith(f"{opening} ") for opening in _FOLLOW_UP_OPENINGS) or bool(
            _POINTING.intersection(question)
        )
        if len(question) > (_FOLLOW_UP_MARKED_WORDS if marked else _FOLLOW_UP_WORDS):
            return None
        if dialogue.previous_words:
            return " ".join(question_words(dialogue.previous_words))
        if dialogue.topic_said:
            return self._index.passages[self._index.passage_of(dialogue.topic_said[-1])].title
        return None

    def _say(self, choice: _Choice, dialogue: Dialogue) -> str:
        passage = self._index.passages[choice.passage]
        numbers = list(self._index.sentence_numbers(choice.passage))
        fits = self._sentence_fits(choice)
        if self._asks_for_the_whole(choice):
            # "What are your opening hours": the passage is the answer, from its beginning.
            fits = {number: 1.0 for number in numbers}
        ordered = sorted(numbers, key=lambda number: (-fits[number], number))
        best = ordered[0]
        taken = self._with_support(best, numbers[0])
        for number in ordered[1:]:
            if fits[number] < fits[best] - _SENTENCE_MARGIN:
                break
            grown = taken | self._with_support(number, numbers[0])
            if len(grown) <= self._max_sentences and self._count_words(grown) <= self._max_words:
                taken = grown
        body = self._join(sorted(taken))
        return f"{_lead_in(passage.source, dialogue.replies)}{body}"

    def _asks_for_the_whole(self, choice: _Choice) -> bool:
        """Whether the question says nothing that the heading does not say, and wants no amount."""
        if choice.follow_up or _AMOUNT.intersection(choice.question):
            return False
        asked = _stems(choice.question)
        title = _stems(spoken_words(self._index.passages[choice.passage].title))
        return asked <= title

    def _sentence_fits(self, choice: _Choice) -> dict[int, float]:
        """How well each sentence of the chosen passage answers the question, by its number."""
        title = _stems(spoken_words(self._index.passages[choice.passage].title))
        asked = _stems(choice.question) - title
        numbers = self._index.sentence_numbers(choice.passage)
        fits = {}
        for number in numbers:
            fit = float(choice.sentences[number])
            if number == numbers[0] and not choice.follow_up:
                fit += _FIRST_SENTENCE_BONUS
            shared = asked & _stems(spoken_words(self._index.sentences[number]))
            fits[number] = fit + (_SHARED_WORDS_BONUS * len(shared) / len(asked) if asked else 0.0)
        return fits

    def _with_support(self, number: int, first: int) -> set[int]:
        """A sentence with those before it that it leans on; an "also" comes after the main point."""
        taken = {number}
        if "also" in spoken_words(self._index.sentences[number])[:_ALSO_WORDS]:
            taken.add(first)
        while (
            number > first
            and spoken_words(self._index.sentences[number])[:1]
            and (spoken_words(self._index.sentences[number])[0] in _LEANING)
        ):
            number -= 1
            taken.add(number)
        return taken

    def _repeat(self, dialogue: Dialogue) -> str:
        if not dialogue.last_said or dialogue.started is None:
            return dialogue.last_reply
        passage = self._index.passages[self._index.passage_of(dialogue.last_said[-1])]
        return f"{_lead_in(passage.source, 0)}{self._join(dialogue.last_said)}"

    def _more(self, dialogue: Dialogue) -> str:
        passage = self._index.passage_of(dialogue.topic_said[-1])
        rest: list[int] = []
        for number in self._index.sentence_numbers(passage):
            if number not in dialogue.said and len(rest) < self._max_sentences:
                if rest and self._count_words({*rest, number}) > self._max_words:
                    break
                rest.append(number)
        if rest:
            return self._join(rest)
        related = [n for n in self._index.related(passage, count=8) if not self._was_said(n, dialogue)][:3]
        topics = spoken_list([self._topics[number] for number in related])
        return f"That is all I have about {self._topics[passage]}." + (
            f" You can also ask me about {topics}." if topics else ""
        )

    def _was_said(self, passage: int, dialogue: Dialogue) -> bool:
        return any(number in dialogue.said for number in self._index.sentence_numbers(passage))

    def _small_talk(self, intent: Intent, dialogue: Dialogue) -> str:
        answer = _vary(intent.answers, dialogue.replies)
        return answer.format(name=self._name, topics=self._example_topics(dialogue.replies))

    def _unknown(self, scores: np.ndarray, dialogue: Dialogue) -> str:
        near = [int(number) for number in np.argsort(-scores)[:3] if scores[number] >= _TOPIC_SCORE]
        topics = (
            spoken_list([self._topics[number] for number in near])
            if len(near) > 1
            else self._example_topics(dialogue.replies)
        )
        return _vary(_UNKNOWN, dialogue.replies).format(topics=topics)

    def _example_topics(self, turn: int) -> str:
        """Three topics of different documents, others on every turn."""
        firsts = self._first_of_source
        step = max(1, len(firsts) // 3)
        chosen = dict.fromkeys(firsts[(turn + step * part) % len(firsts)] for part in range(3))
        return spoken_list([self._topics[number] for number in chosen])

    def _join(self, numbers: Sequence[int]) -> str:
        return " ".join(self._index.sentences[number] for number in numbers)

    def _count_words(self, numbers: set[int]) -> int:
        return sum(len(self._index.sentences[number].split()) for number in numbers)


def _vary(options: Sequence[str], turn: int) -> str:
    return options[turn % len(options)]


def _lead_in(source: str, turn: int) -> str:
    """Names the document, in another way on every turn; short, because it is what the caller waits for."""
    first, *rest = source.split(" ")
    if first.lower() in ("the", "a", "an", "our", "your", "my"):
        source = " ".join([first.lower(), *rest])
    else:
        source = f"the {source}"
    return _vary((f"From {source}: ", f"{source[:1].upper()}{source[1:]} says: ", f"In {source}: "), turn)


def _stems(words: Sequence[str]) -> set[str]:
    """The beginnings of the words that carry meaning: "sunday" and "sundays" are one."""
    return {word[:_STEM_LETTERS] for word in words if len(word) > 2 and word not in _EMPTY_WORDS}


def _names(index: PassageIndex) -> set[str]:
    """Words that the documents write with a capital inside a sentence, and "I"."""
    inside = (word.strip(",.;:!?") for sentence in index.sentences for word in sentence.split()[1:])
    return {"I", *(word for word in inside if word[:1].isupper())}


def _mid_sentence(title: str, names: set[str]) -> str:
    """A heading inside a sentence: its first letter is small, unless the word is a name."""
    first, space, rest = title.partition(" ")
    return title if first in names else f"{first[:1].lower()}{first[1:]}{space}{rest}"
