"""Choice of an answer: from the conversation, from statements of the documents, or "I don't know".

Input: the messages of a dialogue. Output: the whole answer as text. Blocking (the question is embedded, about
10 ms) and thread-safe; owns no mutable state. ``models.llm.documents`` runs it in a thread and streams the
result.

The order of the attempts:

* a request for a person, a farewell or a command (``language.intents``);
* words whose meaning changes by how they were said, or by whom (``language.perceived``);
* questions about the conversation itself ("what is my name", ``remembered``);
* small talk;
* noise and other languages (``intelligible``);
* the documents, after correction of misheard words (``misheard``).

A statement of the caller that the documents do not cover is acknowledged.

An answer from the documents consists of whole statements of one passage, or of cells of one table. It
therefore cannot state anything that the documents do not, and the next turn can find it again in the
messages. The limits below were chosen on the tuning half of ``evals.answers`` and the questions of
tests/golden.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import groupby, pairwise

import numpy as np

from parley.core.passage_notes import CitedPassage
from parley.core.pictures import UNSEEN
from parley.core.prompt_notes import parse_notes
from parley.language.intents import CallerIntent
from parley.language.small_talk import SmallTalkIntent
from parley.language.words import spoken_list
from parley.models.llm import Message
from parley.models.llm.dialogue import Dialogue, DialogueReader
from parley.models.llm.dialogue_history import DialogueHistory, read_conversation
from parley.models.llm.intelligible import Intelligible, TurnKind
from parley.models.llm.misheard import Misheard
from parley.models.llm.statement_choice import Question, StatementChoice
from parley.models.llm.tables import Tables
from parley.models.retrieval.index import PassageIndex, Ranking
from parley.models.retrieval.markdown import sentences
from parley.sequencer.reading import RenderedPart
from parley.sequencer.rendering import UNHAPPY

# A longer turn loses its middle: no question is so long, and the time of every step here grows with length.
_MOST_CHARS = 1_500
# Of a longer turn only the sentence with the question is looked up: the rest would hide it.
_ONE_QUESTION_WORDS = 30
# Of a turn without a question in a sentence of its own only the last words are looked up, which bounds the
# time.
_MOST_WORDS = 60
# Likeness at which an utterance counts as a phrase of small talk; questions reach 0.55 by accident.
_SMALL_TALK_LIKENESS = 0.62
# Weight of the words in common of a statement; likeness in meaning has weight 1.
_WORDS_SHARE = 0.3
# Weight of a named entry of a glossary or row of a table.
_KEY_SHARE = 0.25
# For a question about a named thing (a model). A statement that has the name, none of the other words and a
# lower score does not answer the question.
_NAMED_SCORE = 0.56
# A self-contained question has at least this likeness to a passage; earlier turns are then not mixed in.
_SELF_CONTAINED_LIKENESS = 0.5
# Score at which the rest of a turn that also states something is answered.
_OTHER_PART_SCORE = 0.75
# Share of the question itself in a follow-up; the rest is for the question that it follows. First for
# likeness, then for the words in common.
_OWN_SHARE, _OWN_WORDS_SHARE = 0.4, 0.6
_FOLLOW_UP_WORDS_SHARE = 0.2
# The words of the previous question raise every score, so a follow-up needs more than a first question.
_FOLLOW_UP_THRESHOLD = 0.5
_FOLLOW_UP_WORDS = 4
_FOLLOW_UP_MARKED_WORDS = 9
# Bonus for the passages under the heading of the last answer.
_SAME_TOPIC_BONUS = 0.05
# Bonus for an open question ("what is not covered"): a passage that denies is preferred when the question
# asks for a denial, and the reverse.
_POLARITY_BONUS = 0.1
# Bonus for a passage of steps, for a question about how something is done.
_STEPS_BONUS = 0.08
_TOPIC_SCORE = 0.15
# A reading of possibly misheard words is used when its score is higher by this, and by more the larger its
# distance.
_SOUND_WEIGHT = 0.5
_LEAST_GAIN = 0.1
_MOST_REPAIRS = 2
# Least words that must remain of an utterance after its statement is removed.
_OTHER_PART_WORDS = 3


@dataclass(frozen=True, slots=True)
class _Choice:
    """Passage with the fit of each statement of the index to the question."""

    passage: int
    score: float
    sentences: np.ndarray
    question: Question


class DocumentAnswer:
    """Answers from an index. Thread-safe.

    Args:
        index: the passages, built with the phrases of its language's small talk.
        name: the agent's name.
        threshold: a question whose best passage scores less is answered with "I don't know".
        max_words: longest answer; a single statement is always spoken whole.
        max_sentences: statements in one answer.
        greeting: used when the dialogue holds no user message yet; None makes one from the name and some
            topics.
        known_words: words of the language that are not noise; empty where there is no list.
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
        known_words: frozenset[str] = frozenset(),
    ) -> None:
        self._index = index
        self._language = index.language
        self._talk = index.language.small_talk
        self._asking = index.language.questions
        self._phrases = index.language.answers
        self._reader = DialogueReader(index.statements, language=index.language)
        self._statements = StatementChoice(index, max_words=max_words, max_statements=max_sentences)
        self._tables = Tables(index)
        self._misheard = Misheard(index, known_words)
        self._intelligible = Intelligible(
            (*(f"{passage.title}. {passage.text}" for passage in index.passages), name),
            known_words,
            language=index.language,
        )
        self._name = name
        self._name_words = tuple(self._talk.spoken_words(name))
        self._threshold = threshold
        self._greeting = greeting
        names = _names(index)
        self._topics = [_mid_sentence(passage.title, names) for passage in index.passages]
        self._denies = np.array(
            [
                index.language.content.is_negated(index.words(f"{passage.title} {passage.lead}"))
                or (passage.form == "text" and index.language.content.is_negated(index.words(passage.text)))
                for passage in index.passages
            ]
        )
        self._names_of = [
            frozenset(index.names.of(index.words(f"{passage.title} {passage.text}")))
            for passage in index.passages
        ]
        self._is_steps = np.array([passage.form == "steps" for passage in index.passages])
        first_of: dict[str, int] = {}
        for number, passage in enumerate(index.passages):
            first_of.setdefault(passage.source, number)
        self._first_of_source = list(first_of.values())

    def answer(self, messages: Sequence[Message]) -> str:
        """Return the answer to the last user message, never empty. Blocks.

        A picture with the message is answered first, so that no person believes that it was seen.
        """
        asked = next((message.text for message in reversed(messages) if message.role == "user"), "")
        if UNSEEN not in asked:
            return self._answer(messages)
        if not parse_notes(asked)[1].replace(UNSEEN, "").strip():
            return self._phrases.no_pictures
        return f"{self._phrases.no_pictures} {self._answer(messages)}"

    def cited(self, answer: str) -> tuple[CitedPassage, ...]:
        """Return the passages that an answer consists of, in the order in which they are said. Blocks."""
        numbers = self._reader.read([Message("assistant", answer)]).spoken_sentences
        passages = dict.fromkeys(self._index.passage_of(number) for number in numbers)
        return tuple(self._index.passages[number].cited for number in passages)

    def _answer(self, messages: Sequence[Message]) -> str:
        messages = [replace(message, text=_bounded(message.text)) for message in messages]
        conversation = read_conversation(messages, self._language)
        dialogue = self._reader.read(conversation.messages)
        if conversation.previous_was_personal:
            # A question does not follow a statement such as "My name is Ada".
            dialogue = replace(dialogue, previous_words=(), asked_words=())
        if not dialogue.opened:
            return self._greeting or self._phrases.greeting.format(
                name=self._name, topics=self._example_topics(0)
            )
        said = next(message.text for message in reversed(conversation.messages) if message.role == "user")
        words = self._without_name(dialogue.words)
        answered = self._answer_request(words, said, dialogue)
        if answered is not None:
            return answered
        perceived = self._answer_perceived(conversation.perceived)
        if perceived is not None:
            return perceived
        recalled = conversation.recall(words, self._topics_of(dialogue))
        if recalled is not None and recalled.sure:
            return recalled.text
        noted = conversation.acknowledge()
        if noted is not None and noted.sure:
            return self._answer_other_part(conversation, dialogue, noted.text)
        intent = self._talk.exact_intent(words)
        if intent is not None:
            return self._small_talk(intent, dialogue)
        heard = self._intelligible.judge(said)
        if heard is TurnKind.FOREIGN:
            return self._phrases.other_language.format(language=self._intelligible.language)
        if heard is TurnKind.NOISE or self._talk.is_noise(words):
            return _vary(self._phrases.ask_again, dialogue.replies)
        personal = recalled or noted
        return self._from_documents(
            self._as_meant(self._the_question(said, words)),
            dialogue,
            before=self._statement_before(said),
            otherwise=personal.text if personal is not None else None,
        )

    def _answer_request(self, words: Sequence[str], said: str, dialogue: Dialogue) -> str | None:
        """Return the answer to a request, command or source question; None for any other question."""
        match self._language.intents.caller_intent(" ".join(words)):
            case CallerIntent.HUMAN:
                return self._phrases.no_human
            case CallerIntent.FAREWELL:
                return self._phrases.farewell
            case CallerIntent.STOP:
                return self._phrases.stopped
            case CallerIntent.MOMENT:
                return self._phrases.moment
            case CallerIntent.REPEAT:
                return self._repeat(dialogue) if dialogue.last_reply else self._phrases.nothing_said
            case CallerIntent.MORE if dialogue.topic_said:
                return self._more(dialogue)
        if " ".join(self._talk.question_words(words)) in self._asking.sources and dialogue.topic_said:
            source = self._source_of(dialogue.topic_said[-1])
            return self._phrases.source.format(source=source)
        return None

    def _answer_perceived(self, parts: Sequence[RenderedPart]) -> str | None:
        """Return the answer to consent in an unhappy voice, or to two people who disagree; else None."""
        rules = self._language.perceived
        for part in parts:
            if not set(UNHAPPY).isdisjoint(part.labels) and rules.approves(part.words):
                return self._phrases.sounds_unhappy
        turns = [
            " ".join(part.words for part in group)
            for _, group in groupby(parts, key=lambda part: part.speaker)
        ]
        for first, second in pairwise(turns):
            if rules.opposes(first, second):
                return self._phrases.disagree.format(first=first.rstrip(" .,;"), second=second.rstrip(" .,;"))
        return None

    def _source_of(self, sentence: int) -> str:
        first, _, rest = self._index.passages[self._index.passage_of(sentence)].source.partition(" ")
        if first.lower() in self._asking.articles:
            return f"{first.lower()} {rest}"
        return f"{self._phrases.the}{first} {rest}".strip()

    def _topics_of(self, dialogue: Dialogue) -> list[str]:
        """Return the headings of what was spoken, each at its last mention, oldest first."""
        passages = (self._index.passage_of(number) for number in reversed(dialogue.spoken_sentences))
        return [self._topics[passage] for passage in dict.fromkeys(passages)][::-1]

    def _the_question(self, said: str, words: Sequence[str]) -> list[str]:
        """Return the words of the sentence with the question in a long turn, at most ``_MOST_WORDS``."""
        if len(words) > _ONE_QUESTION_WORDS:
            asking = [sentence for sentence in sentences(said) if self._language.facts.asks(sentence)]
            if asking:
                words = self._talk.spoken_words(asking[-1])
        return self._talk.question_words(words[-_MOST_WORDS:])

    def _answer_other_part(self, conversation: DialogueHistory, dialogue: Dialogue, thanks: str) -> str:
        """Return the answer to a statement with another part: "my name is Ada and my card was stolen"."""
        rest = self._talk.question_words(self._talk.spoken_words(conversation.new.rest))
        while rest and rest[0] in self._asking.joining:
            rest = rest[1:]
        if len(rest) < _OTHER_PART_WORDS:
            return thanks
        question = self._question(rest)
        choice = self._best(self._index.rank([question.text])[0], question)
        return thanks if choice is None or choice.score < _OTHER_PART_SCORE else self._say(choice)

    def _without_name(self, words: tuple[str, ...]) -> tuple[str, ...]:
        """Return the words without the agent's name as an address: "Parley, what is ...", not "what is
        Parley".
        """
        count = len(self._name_words)
        if count and words[:count] == self._name_words and len(words) > count + 1:
            return words[count:]
        if (
            count
            and words[-count:] == self._name_words
            and self._talk.exact_intent(words[:-count]) is not None
        ):
            return words[:-count]
        return words

    def _statement_before(self, said: str) -> list[str]:
        """Return the words of the sentence that the last one points to: "I lost a coat. Where is it?"."""
        parts = sentences(said)
        if len(parts) < 2 or self._asking.pointing.isdisjoint(self._talk.spoken_words(parts[-1])):
            return []
        return self._talk.question_words(self._talk.spoken_words(parts[-2])[-_MOST_WORDS:])

    def _from_documents(
        self, question: list[str], dialogue: Dialogue, *, before: Sequence[str], otherwise: str | None
    ) -> str:
        """Return the documents' answer; when they have none, ``otherwise`` or "I don't know".

        ``before`` is a statement in the same turn that the question points to.
        """
        context = self._context(question, dialogue)
        cells = self._from_tables(question, dialogue, is_follow_up=context is not None)
        if cells:
            return cells
        own_question = self._question(question)
        asked = (
            [own_question.text] if context is None else [own_question.text, f"{context}. {own_question.text}"]
        )
        rankings = self._index.rank(asked)
        own = rankings[0]
        best = self._best(own, own_question)
        if own.phrases.size:
            phrase = int(np.argmax(own.phrases))
            if own.phrases[phrase] >= max(_SMALL_TALK_LIKENESS, float(own.passages.max())):
                return self._small_talk(self._talk.phrase_intent(phrase), dialogue)
        choice: _Choice | None = None
        is_whole = best is not None and own.passages[best.passage] >= _SELF_CONTAINED_LIKENESS
        if context is not None and not is_whole:
            choice = self._followed(own_question, context, rankings, dialogue)
        if choice is None and best is not None and best.score >= self._threshold:
            choice = best
        if choice is None:
            choice = self._reworded(question, before)
        if choice is not None:
            return self._say(choice, choosing=question if context is not None else ())
        if otherwise is not None:
            return otherwise
        # Two words that fit nothing are more often misheard than meant.
        if len(question) <= 2:
            return _vary(self._phrases.ask_again, dialogue.replies)
        return self._unknown(own.passages, dialogue)

    def _reworded(self, question: Sequence[str], before: Sequence[str]) -> _Choice | None:
        """Return the passage for another wording of a question; None without a good fit."""
        wordings = [wording.split() for wording in self._asking.reworded(" ".join(question))]
        if len(before) >= _OTHER_PART_WORDS:
            wordings.append(list(before))
        if not wordings:
            return None
        asked = [self._question(words) for words in wordings]
        rankings = self._index.rank([each.text for each in asked])
        found = (self._best(ranking, each) for ranking, each in zip(rankings, asked, strict=True))
        good = (each for each in found if each is not None and each.score >= self._threshold)
        return max(good, key=lambda each: each.score, default=None)

    def _from_tables(self, question: Sequence[str], dialogue: Dialogue, *, is_follow_up: bool) -> str:
        """Return cells that answer by the structure of a table; empty where none do."""
        words = self._index.words(" ".join(question))
        said = dialogue.topic_said if is_follow_up or self._tables.is_choice(words) else ()
        cells = self._tables.compare(words, said) if self._tables.is_choice(words) else []
        if cells and said and self._tables.is_open_choice(words):
            return self._phrases.no_advice + self._statements.text(cells)
        if not cells and is_follow_up:
            cells = self._tables.follow(dialogue.last_said, words)
        if not cells:
            cells = self._tables.look_up(words) or self._tables.list_rows(words)
        return self._statements.text(cells)

    def _as_meant(self, question: list[str]) -> list[str]:
        """Return a question with its misheard words corrected, as far as the documents support that.

        A question that the documents can answer is kept as recognised.
        """
        for _ in range(_MOST_REPAIRS):
            readings = self._misheard.readings(question)
            if not readings:
                break
            heard = self._scores([question])[0]
            if heard >= self._threshold:
                break
            scores = self._scores([reading.words for reading in readings])
            gains = [
                score - heard - _SOUND_WEIGHT * reading.distance
                for score, reading in zip(scores, readings, strict=True)
            ]
            best = int(np.argmax(gains))
            if gains[best] < _LEAST_GAIN:
                break
            question = list(readings[best].words)
        return question

    def _scores(self, questions: Sequence[Sequence[str]]) -> list[float]:
        """Return the score of the best passage for each question by itself; -1 where none is admitted."""
        asked = [self._question(words) for words in questions]
        rankings = self._index.rank([each.text for each in asked])
        choices = [self._best(ranking, each) for ranking, each in zip(rankings, asked, strict=True)]
        return [choice.score if choice is not None else -1.0 for choice in choices]

    def _question(self, words: Sequence[str]) -> Question:
        text = " ".join(words)
        joined = self._index.words(text)
        return Question(
            words=tuple(words),
            text=text,
            terms=tuple(self._index.terms(text)),
            names=frozenset(self._index.names.of(joined)),
        )

    def _best(self, ranking: Ranking, question: Question) -> _Choice | None:
        """Return the best passage for a question; None when it names something that the documents do not."""
        scores = self._admitted(ranking.scores, question)
        if scores is None:
            return None
        best = int(np.argmax(scores))
        if question.names and not self._says_of_name(best, ranking, question):
            return None
        return _Choice(best, float(scores[best]), ranking.sentences, question)

    def _says_of_name(self, passage: int, ranking: Ranking, question: Question) -> bool:
        """Return whether a passage answers the question about a name, rather than only containing the
        name.
        """
        others = frozenset(question.terms) - question.names
        if not others:
            return True
        numbers = self._index.sentence_numbers(passage)
        if max(float(ranking.sentences[number]) for number in numbers) >= _NAMED_SCORE:
            return True
        heading = frozenset(self._index.terms(self._index.passages[passage].title))
        held = (self._index.terms_of(number) | heading for number in numbers)
        return any(terms & others and terms & question.names for terms in held)

    def _admitted(self, scores: np.ndarray, question: Question) -> np.ndarray | None:
        if question.words and question.words[0] in self._asking.open_questions:
            wanted = self._language.content.is_negated(question.words)
            scores = scores + _POLARITY_BONUS * np.where(self._denies == wanted, 0.0, -1.0) * (
                1.0 if wanted else 0.3
            )
        if question.text.startswith(self._asking.how_to):
            scores = scores + _STEPS_BONUS * self._is_steps
        if question.names:
            holds = self._holding(question.names)
            if not holds.any():
                return None
            scores = np.where(holds, scores, -1.0)
        return scores

    def _holding(self, names: frozenset[str]) -> np.ndarray:
        """Return the passages that have one of the names, in a statement or a heading: bool, (passages,)."""
        return np.array([not names.isdisjoint(held) for held in self._names_of])

    def _followed(
        self, question: Question, context: str, rankings: Sequence[Ranking], dialogue: Dialogue
    ) -> _Choice | None:
        """Return the passage for a question that depends on the previous one; None without a good fit."""
        own, both = rankings
        scores = _OWN_SHARE * own.passages + (1 - _OWN_SHARE) * both.passages
        covered = _OWN_WORDS_SHARE * own.covered + (1 - _OWN_WORDS_SHARE) * both.covered
        scores = scores + _FOLLOW_UP_WORDS_SHARE * covered + _KEY_SHARE * own.keyed
        if dialogue.topic_said:
            last = self._index.passages[self._index.passage_of(dialogue.topic_said[-1])]
            same = [passage.title == last.title for passage in self._index.passages]
            scores = scores + _SAME_TOPIC_BONUS * np.array(same)
        admitted = self._admitted(scores, question)
        if admitted is None:
            return None
        best = int(np.argmax(admitted))
        if admitted[best] < _FOLLOW_UP_THRESHOLD:
            return None
        sentences_fit = _OWN_SHARE * own.sentences + (1 - _OWN_SHARE) * both.sentences
        return _Choice(best, float(admitted[best]), sentences_fit, replace(question, is_follow_up=True))

    def _context(self, question: list[str], dialogue: Dialogue) -> str | None:
        """Return the question or topic that a follow-up refers to; None when the question is no follow-up."""
        text = " ".join(question)
        marked = (
            any(text.startswith(f"{opening} ") for opening in self._asking.follow_ups)
            or bool(self._asking.pointing.intersection(question))
            or self._tables.is_choice(question)
        )
        if len(question) > (_FOLLOW_UP_MARKED_WORDS if marked else _FOLLOW_UP_WORDS):
            return None
        if dialogue.asked_words and (dialogue.previous_words or dialogue.topic_said):
            return " ".join(self._talk.question_words(dialogue.asked_words))
        if dialogue.topic_said:
            return self._index.passages[self._index.passage_of(dialogue.topic_said[-1])].title
        return None

    def _say(self, choice: _Choice, *, choosing: Sequence[str] = ()) -> str:
        question = choice.question
        if choosing and self._tables.is_choice(choosing):
            # A choice needs both sides, so the passage is spoken from its beginning.
            numbers = self._statements.fill(self._index.sentence_numbers(choice.passage))
            advice = self._phrases.no_advice if self._tables.is_open_choice(choosing) else ""
            return advice + self._statements.text(numbers)
        if len(question.names) > 1:
            return self._statements.text(self._of_each_name(choice))
        chosen = self._statements.choose(choice.passage, choice.sentences, choice.question)
        return self._statements.text(self._statements.with_list(chosen))

    def _of_each_name(self, choice: _Choice) -> list[int]:
        """Return the best statement for each of several names: both weights for "the K100 and the K200"."""
        asked = frozenset(choice.question.terms) - choice.question.names

        def fit(number: int) -> float:
            shared = len(asked & self._index.terms_of(number)) / max(1, len(asked))
            return float(choice.sentences[number]) + _WORDS_SHARE * shared

        found: set[int] = set()
        for name in choice.question.names:
            holding = [n for n in range(len(self._index.sentences)) if name in self._index.terms_of(n)]
            if holding:
                found.add(max(holding, key=fit))
        return self._statements.fill(sorted(found))

    def _repeat(self, dialogue: Dialogue) -> str:
        if not dialogue.last_said or dialogue.started is None:
            return dialogue.last_reply
        return self._statements.text(dialogue.last_said)

    def _more(self, dialogue: Dialogue) -> str:
        passage = self._index.passage_of(dialogue.topic_said[-1])
        rest = [n for n in self._index.sentence_numbers(passage) if n not in dialogue.said]
        if rest:
            return self._statements.text(self._statements.fill(rest))
        related = [n for n in self._index.related(passage, count=8) if not self._was_said(n, dialogue)]
        names = list(dict.fromkeys(self._topics[number] for number in related))
        topics = self._either([name for name in names if name != self._topics[passage]][:3])
        return self._phrases.all_said.format(topic=self._topics[passage]) + (
            self._phrases.related.format(topics=topics) if topics else ""
        )

    def _was_said(self, passage: int, dialogue: Dialogue) -> bool:
        return any(number in dialogue.said for number in self._index.sentence_numbers(passage))

    def _small_talk(self, intent: SmallTalkIntent, dialogue: Dialogue) -> str:
        answer = _vary(intent.answers, dialogue.replies)
        return answer.format(name=self._name, topics=self._example_topics(dialogue.replies))

    def _unknown(self, scores: np.ndarray, dialogue: Dialogue) -> str:
        best = [self._topics[number] for number in np.argsort(-scores)[:12] if scores[number] >= _TOPIC_SCORE]
        near = list(dict.fromkeys(best))[:3]
        topics = self._either(near) if len(near) > 1 else self._example_topics(dialogue.replies)
        return _vary(self._phrases.unknown, dialogue.replies).format(topics=topics)

    def _example_topics(self, turn: int) -> str:
        """Return three topics of different documents, others on every turn."""
        firsts = self._first_of_source
        step = max(1, len(firsts) // 3)
        chosen = dict.fromkeys(firsts[(turn + step * part) % len(firsts)] for part in range(3))
        return self._either([self._topics[number] for number in chosen])

    def _either(self, topics: Sequence[str]) -> str:
        return spoken_list(topics, last=self._phrases.either)


def _bounded(text: str) -> str:
    """Return a text without its middle when it is too long; the question is at its beginning or its end."""
    if len(text) <= _MOST_CHARS:
        return text
    return f"{text[: _MOST_CHARS // 3].rpartition(' ')[0]} {text[-2 * _MOST_CHARS // 3 :].partition(' ')[2]}"


def _vary(options: Sequence[str], turn: int) -> str:
    return options[turn % len(options)]


def _names(index: PassageIndex) -> set[str]:
    """Return the words that the documents write with a capital inside a sentence, and "I"."""
    inside = (word.strip(",.;:!?") for sentence in index.sentences for word in sentence.split()[1:])
    return {"I", *(word for word in inside if word[:1].isupper())}


def _mid_sentence(title: str, names: set[str]) -> str:
    """Return a heading for use inside a sentence: with a small first letter, unless the word is a name.

    A heading with another capital that no sentence has is a name as a whole: "Riverside Climbing Gym".
    """
    first, space, rest = title.partition(" ")
    is_name = first in names or any(word[:1].isupper() and word not in names for word in rest.split())
    return title if is_name else f"{first[:1].lower()}{first[1:]}{space}{rest}"
