"""Decide when a language model has failed its caller, and what may still be said after that.

The module is pure: times arrive as arguments, nothing here waits. ``LlmTimeouts`` turns the progress of one
answer into the next deadline. ``SaidSoFar`` records the text that left for the voice and keeps it from being
said again. ``core.failover.CircuitBreaker`` decides whether a model that keeps failing is asked at all.
``llm_failover`` carries the decisions out.
"""

import re
from collections.abc import Callable
from enum import Enum, StrEnum, auto

from pydantic import Field

from parley.core.strict_model import StrictModel
from parley.processors.dialogue.filler_schedule import WaitSettings

# A sentence ends at its mark plus closing quotes and brackets; the mark of "3.5" or "x.y" is followed by no
# space.
_SENTENCE_END = re.compile(r"[.!?…][\"')\]”’]*(?=\s|$)|[。！？][」』”’]*")
_MARKS = frozenset('.,;:!?…)]"”’。、，！？；：」』')
# Languages without spaces reach no word end for long; the voice takes whole sentences anyway.
_MAX_HELD_CHARS = 40
# The caller has then been waiting for the end of turn as well (180 to 900 ms), and 2 s of silence sound like
# a broken line.
FIRST_TOKEN_MS = 1_000
_CLAUSE_MARKS = (",", ";", ":", "-", "–", "—")


class GuardSettings(StrictModel):
    """Deadlines of a model's answer, and the phrases that are said after them."""

    first_token_ms: int = Field(
        FIRST_TOKEN_MS,
        ge=20,
        le=30_000,
        description="time limit from the end of the turn to the first text. A longer one than the default "
        "makes the limits of the gaps in the text longer in proportion",
    )
    bridge: str = Field(
        "Sorry, I lost my connection for a moment.",
        description="phrase when the model stops inside a sentence",
    )
    apology: str = Field(
        "I cannot answer that right now. Please ask me again in a moment.",
        description="phrase when the fallback fails too, when a model without a fallback gives no answer, "
        "or when nothing arrives within a minute",
    )
    waiting: WaitSettings = WaitSettings()


def _in_proportion(usual_ms: int) -> Callable[[dict[str, int]], int]:
    """Return the default of a limit: ``usual_ms``, or more where the first text may take longer."""
    return lambda read: usual_ms * max(FIRST_TOKEN_MS, read["first_token_ms"]) // FIRST_TOKEN_MS


class GuardTuning(GuardSettings):
    """Guard settings including the values that no deployment sets.

    Attributes:
        token_gap_ms: longest gap between two pieces of text while the caller hears speech.
        silence_budget_ms: silence that the caller may hear before ``silent_gap_ms`` applies.
        silent_gap_ms: longest gap between two pieces of text once the silence budget is used up.
        tool_call_ms: deadline while the model writes a tool call, which shows no text.
        fallback_first_ms: from the failure to the fallback's first text.
        fallback_gap_ms: between two pieces of the fallback's text.
        fallback_total_ms: the whole of the fallback's answer.
        max_failures: consecutive failures after which the model is not asked any more.
        cool_down_ms: for how long it is not asked.
    """

    # A model that takes longer to its first text is a slow one, whose pieces come more slowly too.
    token_gap_ms: int = Field(default_factory=_in_proportion(1_500), ge=20, le=30_000)
    silence_budget_ms: int = Field(default_factory=_in_proportion(1_400), ge=20, le=30_000)
    silent_gap_ms: int = Field(default_factory=_in_proportion(400), ge=20, le=30_000)
    tool_call_ms: int = Field(default=2500, ge=20, le=60_000)
    fallback_first_ms: int = Field(default=600, ge=20, le=30_000)
    fallback_gap_ms: int = Field(default=2000, ge=20, le=30_000)
    fallback_total_ms: int = Field(default=30_000, ge=100, le=120_000)
    max_failures: int = Field(default=3, ge=1, le=100)
    cool_down_ms: int = Field(default=30_000, ge=0, le=3_600_000)


class FailureReason(StrEnum):
    """Reason for which the fallback answers."""

    NO_FIRST_TOKEN = "no_first_token"
    STALLED = "stalled"
    ERROR = "error"
    EMPTY = "empty"
    CIRCUIT_OPEN = "circuit_open"


class AnswerState(Enum):
    """State of an answer: the model that gives it."""

    IDLE = auto()
    PRIMARY = auto()
    TOOLS = auto()
    FALLBACK = auto()


class AnswerStep(Enum):
    """Event in the course of an answer."""

    ASKED = auto()
    DIVERTED = auto()
    CALLED_TOOLS = auto()
    FAILED = auto()
    ENDED = auto()
    STOPPED = auto()


TRANSITIONS: dict[tuple[AnswerState, AnswerStep], AnswerState] = {
    (AnswerState.IDLE, AnswerStep.ASKED): AnswerState.PRIMARY,
    (AnswerState.IDLE, AnswerStep.DIVERTED): AnswerState.FALLBACK,
    (AnswerState.PRIMARY, AnswerStep.CALLED_TOOLS): AnswerState.TOOLS,
    (AnswerState.TOOLS, AnswerStep.CALLED_TOOLS): AnswerState.TOOLS,
    (AnswerState.PRIMARY, AnswerStep.FAILED): AnswerState.FALLBACK,
    (AnswerState.PRIMARY, AnswerStep.ENDED): AnswerState.IDLE,
    (AnswerState.TOOLS, AnswerStep.ENDED): AnswerState.IDLE,
    (AnswerState.FALLBACK, AnswerStep.ENDED): AnswerState.IDLE,
    (AnswerState.IDLE, AnswerStep.STOPPED): AnswerState.IDLE,
    (AnswerState.PRIMARY, AnswerStep.STOPPED): AnswerState.IDLE,
    (AnswerState.TOOLS, AnswerStep.STOPPED): AnswerState.IDLE,
    (AnswerState.FALLBACK, AnswerStep.STOPPED): AnswerState.IDLE,
}


class LlmTimeouts:
    """Deadline of one answer of the primary model.

    Args:
        settings: see ``GuardTuning``.
        asked_ms: when the question was passed to the model.
        tools: True when the question came with tools.
        signs: True when the service reports that the model begins to write a tool call (its metrics are on).
    """

    def __init__(self, settings: GuardTuning, *, asked_ms: int, tools: bool, signs: bool) -> None:
        self._settings = settings
        self._asked_ms = asked_ms
        # Without the report, a tool call being written looks like a model that does not answer.
        self._first_ms = settings.tool_call_ms if tools and not signs else settings.first_token_ms
        self._tools = tools
        self._text_ms: int | None = None
        self._tool_call_ms: int | None = None
        self._silent_since_ms: int | None = asked_ms
        self._speakable = False
        self._paused = False

    def on_answer_begun(self, at_ms: int) -> None:
        """Note that the answer began. Text follows at once, or else it is a tool call."""
        if self._tools:
            self._tool_call_ms = at_ms

    def on_text(self, at_ms: int, *, speakable: bool) -> None:
        """Note that text arrived. ``speakable``: the voice now holds at least one whole sentence."""
        self._text_ms = at_ms
        if speakable and not self._speakable:
            self._speakable = True
            self._silent_since_ms = None

    def on_bot_started(self) -> None:
        """Note that the bot is heard."""
        self._silent_since_ms = None

    def on_bot_stopped(self, at_ms: int) -> None:
        """Note that the bot is not heard any more."""
        self._silent_since_ms = at_ms

    def pause(self) -> None:
        """Suspend the deadline: a tool runs, which has a deadline of its own."""
        self._paused = True

    def deadline_ms(self) -> int | None:
        """Return when the answer counts as failed if nothing more arrives; None while paused."""
        limits = self._settings
        if self._paused:
            return None
        if self._text_ms is None:
            if self._tool_call_ms is not None:
                return self._tool_call_ms + limits.tool_call_ms
            return self._asked_ms + self._first_ms
        by_gap = self._text_ms + limits.token_gap_ms
        if self._silent_since_ms is None:
            return by_gap
        patience_ms = self._silent_since_ms + limits.silence_budget_ms
        return min(by_gap, max(self._text_ms + limits.silent_gap_ms, patience_ms))

    def reason(self) -> FailureReason:
        """Return the reason for a deadline missed right now."""
        return FailureReason.NO_FIRST_TOKEN if self._text_ms is None else FailureReason.STALLED


def words_of(text: str) -> list[str]:
    """Return the words of a text for comparison: lower case, letters and digits only."""
    return re.findall(r"[^\W_]+", text.lower().replace("'", "").replace("’", ""))


def split_sentences(text: str) -> tuple[list[str], str]:
    """Return the whole sentences of a text, and the rest after the last one (may be empty)."""
    sentences: list[str] = []
    start = 0
    for match in _SENTENCE_END.finditer(text):
        sentences.append(text[start : match.end()].strip())
        start = match.end()
    return sentences, text[start:].strip()


def _complete_chars(text: str) -> int:
    """Return how many characters of a growing text are whole words."""
    if not text or text[-1] in _MARKS or len(text) > _MAX_HELD_CHARS:
        return len(text)
    gaps = list(re.finditer(r"\s+", text))
    return gaps[-1].start() if gaps else 0


class SaidSoFar:
    """Text of one answer that was passed to the voice."""

    def __init__(self) -> None:
        self._text = ""
        self._held = ""

    @property
    def text(self) -> str:
        """Everything released, in order."""
        return self._text

    def add(self, piece: str) -> str:
        """Add a piece of the answer; return the text that may be spoken now.

        A word that is still growing is held back with the space before it. So a stream that breaks never
        speaks half a word, and the bridge can close the sentence directly after the last whole one.
        """
        held = self._held + piece
        cut = _complete_chars(held)
        released, self._held = held[:cut], held[cut:]
        self._text += released
        return released

    def flush(self) -> str:
        """Return the text that was held back, now that the answer is over."""
        released, self._held = self._held, ""
        self._text += released
        return released

    @property
    def speakable(self) -> bool:
        """True when the voice has a whole sentence and text after it, without which it would still wait."""
        sentences, rest = split_sentences(self._text)
        return len(sentences) > 1 or bool(sentences and rest)

    @property
    def fragment(self) -> str:
        """The sentence that is open."""
        return split_sentences(self._text)[1]

    def bridge(self, sentence: str) -> str:
        """Return the text that precedes another model's continuation; drop the text that was held back.

        It is empty when nothing was said, only the space between after whole sentences, and inside a sentence
        its end and ``sentence``.
        """
        self._held = ""
        fragment = self.fragment
        if not self._text.strip():
            return ""
        if not fragment:
            return " "
        return f"{'' if fragment.endswith(_CLAUSE_MARKS) else '.'} {sentence} "

    def said(self, sentence: str) -> bool:
        """Return whether these words were said before, in this order and without a gap."""
        new = words_of(sentence)
        old = words_of(self._text)
        return bool(new) and any(old[i : i + len(new)] == new for i in range(len(old) - len(new) + 1))


class SentenceCutter:
    """Cutter of streamed text into sentences."""

    def __init__(self) -> None:
        self._text = ""

    def add(self, piece: str) -> list[str]:
        """Return the sentences that are complete now: their mark is followed by a space."""
        self._text += piece
        done: list[str] = []
        start = 0
        for match in _SENTENCE_END.finditer(self._text):
            # The mark may not be the last one: "..." or a closing quote can follow in the next piece.
            if match.end() == len(self._text):
                break
            done.append(self._text[start : match.end()].strip())
            start = match.end()
        self._text = self._text[start:]
        return [sentence for sentence in done if sentence]

    def flush(self) -> str:
        """Return the rest."""
        rest, self._text = self._text.strip(), ""
        return rest
