"""Summaries of older turns: when one is due, the turns that it covers, and how it is written.

Decides from the committed events; ``prompt`` shows the result, and the caller commits it. A summary is one
more event. Nothing is deleted, and a view of the whole log stays possible. Each summary includes the one
before it.

Summaries are written by the deployment's language model (``LlmSummarizer``) or composed of the most
informative sentences (``ExtractiveSummarizer``: pure, without a model, always available). When the model
fails or takes too long, the extract takes its place, so that no turn is lost. The facts that the person
stated depend on neither: the state at the summarised turns is stored with the text, word for word.
"""

import asyncio
import math
import re
import unicodedata
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Literal, Protocol

from loguru import logger
from pydantic import Field

from parley.core.client_rules import CLIENT_TEXT
from parley.core.clock import Clock
from parley.core.errors import AgentError
from parley.core.strict_model import StrictModel
from parley.language import Language, find_language
from parley.language.facts import FactRules
from parley.session_store.events import Draft, Event, Kind
from parley.session_store.memory import (
    SessionState,
    current_events,
    fold_state,
    has_client_text,
    newest_summary,
    state_payload,
    text_in,
)
from parley.session_store.prompt import (
    CountTokens,
    Entry,
    Turn,
    approximate_tokens,
    next_picture,
    split_sentences,
    turn_tokens,
    turns_of,
    without_remarks,
)

SUMMARY_INSTRUCTION = (
    "You keep the memory of a conversation between a person and an assistant. Write a summary from which "
    "the assistant can go on without the transcript: what the person wants, what was asked and answered, "
    "what was decided or promised, what is still open, and every name, number, date and amount exactly as it "
    "was said. Take over what an earlier summary says. Say where a reply was not heard to its end. Invent "
    "nothing. Plain sentences, no headings, at most {words} words."
)


class CompactionTuning(StrictModel):
    """Bounds of the summaries of older turns.

    Attributes:
        keep_turns: newest turns that are kept unchanged, to which follow-up questions refer; fewer if they
            alone fill ``kept_share`` of the model's context, but at least one.
        summary_tokens: longest summary; a quarter of the model's context where that is less, so that a small
            one keeps room for turns.
        budget_share: share of the model's context that turns may fill before older ones are summarised. A
            summary costs the model's cache of all turns that stay, so it should come rarely: two thirds
            leave 2,000 of 6,000 tokens for a long newest turn, a tool's result or a slow summary.
        noted_share: the same for turns together with the last summary, which leaves less room in a small
            context: a view that is too long loses its oldest turns, and the cache, with each request.
        kept_share: share of the model's context that the turns that stay may fill.
        timeout_s: time limit of the language model for a summary. The person does not wait for it, but the
            turns that it covers fill the context meanwhile.
    """

    keep_turns: int = Field(default=6, ge=1, le=1_000)
    summary_tokens: int = Field(default=500, ge=50, le=20_000)
    budget_share: float = Field(default=0.67, gt=0.0, le=1.0)
    noted_share: float = Field(default=0.8, gt=0.0, le=1.0)
    kept_share: float = Field(default=0.5, gt=0.0, le=1.0)
    timeout_s: float = Field(default=15.0, gt=0.0, le=300.0)


@dataclass(frozen=True, slots=True)
class SummaryLine:
    """Message to be summarised, including the remarks about cut-offs."""

    who: Literal["person", "assistant", "tool"]
    text: str


@dataclass(frozen=True, slots=True)
class SummaryRequest:
    """Content to be summarised.

    Attributes:
        lines: the turns, the oldest first.
        previous: summary of the turns before them; empty when they are the first.
        state: facts known at their end.
        max_tokens: maximum length of the summary.
    """

    lines: tuple[SummaryLine, ...]
    previous: str
    state: SessionState
    max_tokens: int


class Summarizer(Protocol):
    """Writer of summaries."""

    async def summarize(self, request: SummaryRequest) -> str:
        """Return the summary as text.

        Raises:
            AgentError: it failed; the caller has a fallback.
        """
        ...


class LlmSummarizer:
    """Summarizer that uses a language model.

    Args:
        ask: returns the model's whole answer for an instruction and a text; raises AgentError.
    """

    def __init__(self, ask: Callable[[str, str], Awaitable[str]]) -> None:
        self._ask = ask

    async def summarize(self, request: SummaryRequest) -> str:
        """Return the summary that the model writes (``Summarizer.summarize``)."""
        # A token is about three quarters of an English word.
        instruction = SUMMARY_INSTRUCTION.format(words=max(20, request.max_tokens * 3 // 4))
        return await self._ask(instruction, transcript(request))


class ExtractiveSummarizer:
    """Summarizer that selects the most informative sentences. Pure: equal turns give equal summaries.

    Args:
        count_tokens: of a text.
        language: that of the conversations; None for the default language.
    """

    def __init__(
        self, count_tokens: CountTokens = approximate_tokens, *, language: Language | None = None
    ) -> None:
        self._count = count_tokens
        self._language = language or find_language()

    async def summarize(self, request: SummaryRequest) -> str:
        """Return the extract (``Summarizer.summarize``)."""
        return self.extract(request)

    def extract(self, request: SummaryRequest) -> str:
        """Return the best lines that fit, in the order of the conversation.

        Where none fits, return the beginning of the best one, so that a summary of long turns is not empty.
        """
        scored = _scored(request, self._language)
        best = sorted(range(len(scored)), key=lambda at: (-scored[at][0], -at))
        chosen: set[int] = set()
        spare = request.max_tokens
        for at in best:
            cost = self._count(scored[at][1]) + 1
            if scored[at][0] > 0 and cost <= spare:
                chosen.add(at)
                spare -= cost
        if not chosen and best and scored[best[0]][0] > 0:
            return _beginning(scored[best[0]][1], lambda cut: self._count(cut) <= request.max_tokens)
        return "\n".join(dict.fromkeys(scored[at][1] for at in sorted(chosen)))


class Compactor:
    """Writes the summary of a session when it is due.

    Args:
        settings: when it is due, and its length.
        summarizer: the extractive one by default.
        budget_tokens: of the view that the model receives.
        count_tokens: of a text.
        facts: rules by which facts are extracted from the person's turns; None: they are not.
        language: that of the conversations; None for the default language.

    Attributes:
        facts: as given.
    """

    def __init__(
        self,
        settings: CompactionTuning | None = None,
        summarizer: Summarizer | None = None,
        *,
        budget_tokens: int = 6_000,
        count_tokens: CountTokens = approximate_tokens,
        facts: FactRules | None = None,
        language: Language | None = None,
    ) -> None:
        self.facts = facts
        self._settings = settings or CompactionTuning()
        self._extractive = (
            summarizer
            if isinstance(summarizer, ExtractiveSummarizer)
            else ExtractiveSummarizer(count_tokens, language=language)
        )
        self._summarizer = summarizer or self._extractive
        self._budget_tokens = budget_tokens
        self._count = count_tokens

    async def summary(self, events: Sequence[Event], clock: Clock) -> Draft | None:
        """Return the SUMMARY that is due, or None.

        Takes up to ``timeout_s`` when a language model writes it. Its key names the events that it covers, so
        that two concurrent ones are stored once.
        """
        # In a thread: an import of ten thousand turns takes seconds, which would hold up calls.
        until_seq = await asyncio.to_thread(self.due_until, events)
        if until_seq is None:
            return None
        request = await asyncio.to_thread(self._request, events, until_seq)
        text, how = await self._written(request)
        now_us = clock.now_us()
        payload = {
            "text": text,
            "until_seq": until_seq,
            "state": state_payload(request.state),
            "by": how,
            **({CLIENT_TEXT: True} if has_client_text(events) else {}),
        }
        return Draft(Kind.SUMMARY, payload, now_us, now_us, "system", key=f"summary.{until_seq}")

    def due_until(self, events: Sequence[Event]) -> int | None:
        """Return the seq up to which a summary is due; None when none is."""
        turns = turns_of(events)
        costs = [turn_tokens(turn, self._count) for turn in turns]
        settings = self._settings
        summary = newest_summary(current_events(events))
        noted = self._count(text_in(summary.payload, "text")) if summary is not None else 0
        budget_tokens = self._budget_tokens
        most_kept = budget_tokens * min(settings.kept_share, settings.budget_share)
        limit = min(budget_tokens * settings.budget_share, budget_tokens * settings.noted_share - noted)
        # Turns that may stay cannot be too many, however long the summary.
        if sum(costs) <= max(limit, most_kept):
            return None
        keep_turns = settings.keep_turns
        while keep_turns > 1 and sum(costs[-keep_turns:]) > most_kept:
            keep_turns -= 1
        return covered_until(turns, keep_turns=keep_turns)

    async def summarise_for_third_party(
        self, events: Sequence[Event], *, max_tokens: int | None = None, within_s: float | None = None
    ) -> str:
        """Return a summary of the whole conversation for a third party; empty when nothing was said.

        Args:
            events: of the session.
            max_tokens: maximum length; None: that of any summary.
            within_s: time limit of the language model; afterwards an extract takes its place.
        """
        if not events:
            return ""
        request = await asyncio.to_thread(self._request, events, events[-1].seq)
        if not request.lines and not request.previous:
            return ""
        if max_tokens is not None:
            request = replace(request, max_tokens=min(max_tokens, request.max_tokens))
        text, _ = await self._written(request, within_s)
        return text

    def _request(self, events: Sequence[Event], until_seq: int) -> SummaryRequest:
        previous = newest_summary(current_events(events))
        # Every picture is one of before: what a model said of it stands in its answer.
        turns = turns_of(events, pictures_from=next_picture(events))
        covered = [turn for turn in turns if max(turn.seqs) <= until_seq]
        return SummaryRequest(
            lines=tuple(line for turn in covered for entry in turn.entries for line in _lines(entry)),
            previous=text_in(previous.payload, "text") if previous is not None else "",
            state=fold_state(
                [event for event in events if event.seq <= until_seq or event is previous], self.facts
            ),
            max_tokens=min(self._settings.summary_tokens, self._budget_tokens // 4),
        )

    async def _written(self, request: SummaryRequest, within_s: float | None = None) -> tuple[str, str]:
        if self._summarizer is not self._extractive:
            try:
                async with asyncio.timeout(min(self._settings.timeout_s, within_s or math.inf)):
                    text = (await self._summarizer.summarize(request)).strip()
            except (AgentError, TimeoutError) as error:
                logger.warning(
                    f"the language model wrote no summary ({type(error).__name__}), using an extract instead"
                )
            else:
                if text:
                    return self._shortened(text, request.max_tokens), "summarizer"
                logger.warning("the language model wrote an empty summary, using an extract instead")
        return await asyncio.to_thread(self._extractive.extract, request), "extract"

    def _shortened(self, text: str, max_tokens: int) -> str:
        """Return the whole sentences within the maximum length, because a model does not count reliably."""
        kept = ""
        for sentence in re.findall(r"\S.*?(?:[.!?](?=\s)|\n|$)\s*", text, re.S):
            if self._count(kept + sentence) > max_tokens:
                break
            kept += sentence
        return kept.strip() or _beginning(text, lambda cut: self._count(cut) <= max_tokens)


def covered_until(turns: Sequence[Turn], *, keep_turns: int) -> int | None:
    """Return the seq up to which events can be covered while the newest turns stay whole; None when none can.

    The order of events and the order of commit differ for a late event, and no turn may lie on both sides. A
    turn whose tool call has no result stays as well: the next process that opens the session finds out the
    outcome of the call.
    """
    if len(turns) <= keep_turns:
        return None
    kept = [*turns[-keep_turns:], *(turn for turn in turns if turn.open)]
    until_seq = min(min(turn.seqs) for turn in kept) - 1
    while True:
        covered = [turn for turn in turns if max(turn.seqs) <= until_seq]
        split = [min(turn.seqs) for turn in turns if min(turn.seqs) <= until_seq < max(turn.seqs)]
        if not covered:
            return None
        if not split:
            return max(max(turn.seqs) for turn in covered)
        until_seq = min(split) - 1


def transcript(request: SummaryRequest) -> str:
    """Return the content to be summarised, as text for a language model."""
    parts = [f"Earlier summary:\n{request.previous}\n"] if request.previous else []
    if request.state.slots:
        known = "\n".join(f"{name}: {slot.value}" for name, slot in request.state.slots.items())
        parts.append(f"Known about the person:\n{known}\n")
    said = "\n".join(f"{line.who.capitalize()}: {line.text}" for line in request.lines)
    return "\n".join([*parts, f"Transcript:\n{said}"])


def _lines(entry: Entry) -> Iterable[SummaryLine]:
    if entry.role == "tools":
        return [SummaryLine("tool", f"{use.name}({use.arguments}) -> {use.result}") for use in entry.uses]
    return [SummaryLine("person" if entry.role == "user" else "assistant", entry.text)]


# Scores of lines. A question keeps its answer, and numbers and names are what people refer to later. A line
# that was kept once fades; otherwise the oldest lines would never leave.
_NUMBER_SCORE = 3.0
_FACT_SCORE = 4.0
_NAME_SCORE = 1.5
_QUESTION_SCORE = 2.0
_STATEMENT_SCORE = 3.0
_TOOL_SCORE = 3.0
_OLD_SCORE = 1.0
_RECENT_SCORE = 1.0
_LINE_WORDS = 40
# Words added to a line: "The person asked", "The assistant answered", "(cut off)".
_OWN_WORDS = 10
_SMALL_WORDS = 3
_TOOL_CHARS = 200
# Longer than any word that people write. A longer text without a space is not cut at a space.
_WORD_CHARS = 40
_CUT = " ..."
# Thai and Lao, Burmese, Khmer, kana, Chinese characters: no spaces between words, which have about two
# characters.
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u4dbf\u4e00-\u9fff\uf900-\ufaff"
    "\U00020000-\U0003ffff]"
)
_UNSPACED_WORD_CHARS = 2
_CAPITAL = re.compile(r"(?<=[a-z,] )[A-Z][a-z]+")


def _scored(request: SummaryRequest, language: Language) -> list[tuple[float, str]]:
    """Return lines with their scores, in the order of the conversation."""
    previous = _old_lines(request.previous)
    scored = [(_OLD_SCORE + _content_score(line, request.state, language), line) for line in previous]
    exchanges = _exchanges(request.lines, language)
    for at, (score, line) in enumerate(exchanges):
        recency = _RECENT_SCORE * (at + 1) / len(exchanges)
        content = _content_score(line, request.state, language)
        scored.append((score + content + recency if score else 0.0, line))
    return scored


def _old_lines(summary: str) -> list[str]:
    """Return the lines of an earlier summary; a paragraph that a model wrote is divided into sentences."""
    lines: list[str] = []
    for line in summary.splitlines():
        whole = _word_count(line) <= 2 * _LINE_WORDS + _OWN_WORDS
        lines.extend([line] if whole else split_sentences(line))
    return [line for line in lines if line.strip()]


def _exchanges(lines: Sequence[SummaryLine], language: Language) -> list[tuple[float, str]]:
    """Return sentences in reported form; a question and the beginning of its answer form one line."""
    exchanges: list[tuple[float, str]] = []
    at = 0
    while at < len(lines):
        line = lines[at]
        text = without_remarks(line.text)
        if line.who == "person" and language.facts.asks(text):
            answer = ""
            if at + 1 < len(lines) and lines[at + 1].who == "assistant":
                at += 1
                answer = _short(without_remarks(lines[at].text))
                answer += " (cut off)" if "[" in lines[at].text and answer else ""
            asked = f'The person asked: "{_short(text)}"'
            exchanges.append(
                (_QUESTION_SCORE, f'{asked} The assistant answered: "{answer}"' if answer else asked)
            )
        elif line.who == "person":
            stated = _STATEMENT_SCORE if language.facts.statements(text) else 0.0
            small = _word_count(text) <= _SMALL_WORDS and not stated and not language.numbers.mentions(text)
            exchanges.append((0.0 if small else 1.0 + stated, f'The person said: "{_short(text)}"'))
        elif line.who == "tool":
            exchanges.append((_TOOL_SCORE, f"Tool: {line.text[:_TOOL_CHARS]}"))
        elif text:
            # Unprompted speech of the assistant, such as a greeting or an offer.
            score = 0.5 if language.numbers.mentions(text) else 0.0
            exchanges.append((score, f'The assistant said: "{_short(text)}"'))
        at += 1
    return exchanges


def _content_score(line: str, state: SessionState, language: Language) -> float:
    plain = line.lower()
    score = _NUMBER_SCORE if language.numbers.mentions(line) else 0.0
    score += _FACT_SCORE if any(slot.value.lower() in plain for slot in state.slots.values()) else 0.0
    return score + min(2, len(_CAPITAL.findall(line))) * _NAME_SCORE


def _short(text: str) -> str:
    plain = " ".join(text.replace('"', "'").split())
    if _word_count(plain) <= _LINE_WORDS:
        return plain
    return _beginning(plain, lambda cut: _word_count(cut.removesuffix(_CUT)) <= _LINE_WORDS)


def _word_count(text: str) -> int:
    """Return the number of words, also for scripts without spaces between them."""
    unspaced = _UNSPACED.sub(" ", text)
    return len(unspaced.split()) + len(_UNSPACED.findall(text)) // _UNSPACED_WORD_CHARS


def _beginning(text: str, fits: Callable[[str], bool]) -> str:
    """Return the longest beginning of ``text`` that fits with the mark of a cut after it, in whole words.

    Args:
        text: longer than the limit.
        fits: returns whether a beginning with its mark fits. If one fits, every shorter one must fit too.
    """
    low, high = 0, len(text)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if fits(text[:middle].rstrip() + _CUT) else (low, middle - 1)
    end = low
    if 0 < end < len(text) and _in_word(text[end - 1]) and _in_word(text[end]):
        word = text.rfind(" ", 0, end) + 1
        end = word if word and end - word <= _WORD_CHARS else end
    while 0 < end < len(text) and unicodedata.category(text[end]) in ("Mn", "Mc", "Me", "Cf"):
        # A combining character belongs to the character before it.
        end -= 1
    kept = text[:end].rstrip()
    return kept + _CUT if kept else ""


def _in_word(char: str) -> bool:
    """Return whether a character is part of a word that ends at a space."""
    return (char in "'-" or unicodedata.category(char)[0] in "LMN") and not _UNSPACED.match(char)
