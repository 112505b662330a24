"""Compare two recordings of the same caller: turn by turn, what was heard, decided and said.

Input: the events of two timelines (``recording.json``), the later one of a replay. Output: pairs of turns
with the names of what differs. Times count from the caller's arrival, so that both timelines have the
caller's audio at the same place. Pure.

A turn is the caller's words and what the agent said until the next ones; what it said unasked is a turn
without words. Turns are paired by the end of the caller's voice, which the audio fixes, or by the beginning
of the reply where there is none. A turn that one recording has alone was split off, merged or missed.

Decisions are: that there is a turn, that it was answered, the words of the answer, whether it was cut off,
and tools. A phrase that covers the wait for an answer ("Okay.") is a matter of time, and not a part of it.
Words of the caller that were recognised otherwise, and times, are differences, not decisions. The end of the
recorded call decides nothing: what the caller did not stay for is not compared.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

# Two recognisers place the end of the same voice this far apart at most. Turns are further apart.
SAME_END_MS = 1_500
# What is said unasked depends on timers that begin with other events.
SAME_UNASKED_MS = 5_000


class Difference(StrEnum):
    """Difference between a turn then and now."""

    ONLY_THEN = "turn is missing now"
    ONLY_NOW = "turn is new"
    ANSWERED = "answered or not"
    ANSWER = "answer"
    CUT = "cut off or not"
    TOOLS = "tools"
    WORDS = "caller's words"


@dataclass(frozen=True, slots=True)
class CallTurn:
    """Turn of a recorded call: words of the caller, and what the agent said to them.

    Attributes:
        at_ms: end of the caller's voice, or the time of a typed text; without words of a caller, beginning of
            the reply.
        text: words of the caller; empty when the agent spoke unasked.
        waited_ms: silence after which the end of the turn was decided; None where no stage decided it.
        heard: what the caller heard of the reply.
        unheard: the rest of it.
        is_cut: the caller interrupted the reply.
        latency_ms: from the end of the voice, or from the text, to the first sound of the reply; None without
            either.
        tool_calls: number of times that the model called tools.
        cost: of the engines, in the currency of the prices; None where it is not known.
        is_typed: the caller typed it, or pressed keys.
    """

    at_ms: int
    text: str = ""
    waited_ms: int | None = None
    heard: str = ""
    unheard: str = ""
    is_cut: bool = False
    latency_ms: int | None = None
    tool_calls: int = 0
    cost: float | None = None
    is_typed: bool = False

    @property
    def is_answered(self) -> bool:
        """The agent said something."""
        return bool(self.heard or self.unheard)


@dataclass(frozen=True, slots=True)
class TurnPair:
    """The same turn in both recordings.

    Attributes:
        then: in the first one; None when it is new.
        now: in the replay; None when it is missing.
        differences: in the order of ``Difference``.
    """

    then: CallTurn | None
    now: CallTurn | None
    differences: tuple[Difference, ...]

    @property
    def is_decided_alike(self) -> bool:
        """Nothing was decided otherwise."""
        return not set(self.differences) - {Difference.WORDS}


def turns_of(events: Sequence[Mapping[str, Any]], arrival_ms: float = 0.0) -> list[CallTurn]:
    """Return the turns of a timeline; times count from ``arrival_ms``.

    Events of other kinds, and without their fields, are left out.
    """
    reader = _TurnReader(arrival_ms)
    for event in events:
        if isinstance(event.get("at_ms"), int):
            reader.take(event)
    return reader.turns()


def compare(
    then: Sequence[CallTurn], now: Sequence[CallTurn], *, until_ms: float = math.inf
) -> list[TurnPair]:
    """Pair the turns of two recordings in order and name the differences.

    What the second one has after ``until_ms``, the end of the first one's timeline, is not compared.
    """
    pairs = []
    for before, after in _paired(then, [turn for turn in now if turn.at_ms <= until_ms]):
        is_last = bool(then) and before is then[-1]
        pairs.append(TurnPair(before, after, tuple(_differences(before, after, is_last=is_last))))
    return pairs


class _TurnReader:
    """Collects turns from events in their order."""

    def __init__(self, arrival_ms: float) -> None:
        self._arrival_ms = arrival_ms
        self._made: list[dict[str, Any]] = []
        self._end_ms: int | None = None
        self._waited_ms: int | None = None
        self._begun_ms: dict[str, int] = {}
        self._is_cut = False

    def take(self, event: Mapping[str, Any]) -> None:
        at_ms, text = round(event["at_ms"] - self._arrival_ms), str(event.get("text") or "")
        match event.get("event"):
            case "VoiceEnded":
                self._end_ms = at_ms - _ms(event, "silence_ms")
            case "TurnEndDecided":
                self._waited_ms = _ms(event, "silence_ms")
                self._end_ms = at_ms - self._waited_ms
            case "TurnEnded":
                self._on_turn_ended(at_ms, text)
            case "TurnTranscribed" if text:
                self._on_transcribed(at_ms, text)
            case "TextTyped":
                self._made.append({"at_ms": at_ms, "text": text, "is_typed": True})
            case "ToolsCalled" if self._made:
                self._made[-1]["tool_calls"] = self._made[-1].get("tool_calls", 0) + 1
            case "TurnPriced" if self._made:
                self._on_priced(event.get("cost"))
            case "ReplyStarted":
                self._begun_ms[str(event.get("reply_id"))] = at_ms
                self._is_cut = False
            case "ReplyCut":
                self._is_cut = True
            case "ReplyFinished":
                self._on_reply(event, text)

    def turns(self) -> list[CallTurn]:
        kept = [made for made in self._made if not made.pop("is_untold", False) or made.get("heard")]
        return [CallTurn(**made) for made in kept]

    def _on_turn_ended(self, at_ms: int, text: str) -> None:
        end_ms = at_ms if self._end_ms is None else self._end_ms
        made: dict[str, Any] = {"at_ms": end_ms, "text": text, "waited_ms": self._waited_ms}
        self._end_ms = self._waited_ms = None
        # Without words it is noise, or a turn whose words a realtime service brings later.
        self._made.append(made if text else {**made, "is_untold": True})

    def _on_transcribed(self, at_ms: int, text: str) -> None:
        for made in reversed(self._made):
            if made.get("is_untold"):
                made["text"] = text
                del made["is_untold"]
                return
        self._made.append({"at_ms": at_ms, "text": text})

    def _on_priced(self, cost: Any) -> None:
        turn = self._made[-1]
        known = turn.get("cost", 0.0)
        is_known = isinstance(cost, (int, float)) and known is not None
        turn["cost"] = known + cost if is_known else None

    def _on_phrase(self, event: Mapping[str, Any]) -> None:
        """Take a phrase that is no part of the conversation: its sound ends the wait, and answers nothing."""
        begun_ms = self._begun_ms.pop(str(event.get("reply_id")), None)
        turn = self._made[-1] if self._made else None
        if begun_ms is not None and turn is not None and turn.get("text"):
            turn.setdefault("latency_ms", begun_ms - turn["at_ms"])

    def _on_reply(self, event: Mapping[str, Any], heard: str) -> None:
        unheard = str(event.get("unheard") or "")
        if event.get("in_context") is False:
            self._on_phrase(event)
            return
        begun_ms = self._begun_ms.pop(str(event.get("reply_id")), None)
        if begun_ms is None or not (heard or unheard):
            return
        turn = self._made[-1] if self._made else None
        is_of_caller = turn is not None and (turn.get("text") or turn.get("is_typed"))
        if turn is None or (not is_of_caller and begun_ms - turn["at_ms"] > SAME_UNASKED_MS):
            turn = {"at_ms": begun_ms}
            self._made.append(turn)
        elif turn.get("text") and "latency_ms" not in turn:
            turn["latency_ms"] = begun_ms - turn["at_ms"]
        turn["heard"] = _joined(turn.get("heard", ""), heard)
        turn["unheard"] = unheard
        turn["is_cut"] = bool(self._is_cut and event.get("truncated"))
        self._is_cut = False


def _ms(event: Mapping[str, Any], name: str) -> int:
    value = event.get(name)
    return value if isinstance(value, int) else 0


def _joined(one: str, other: str) -> str:
    return f"{one} {other}".strip()


def _paired(
    then: Sequence[CallTurn], now: Sequence[CallTurn]
) -> Iterator[tuple[CallTurn | None, CallTurn | None]]:
    here = there = 0
    while here < len(then) and there < len(now):
        before, after = then[here], now[there]
        apart_ms = after.at_ms - before.at_ms
        is_same_kind = (bool(before.text), before.is_typed) == (bool(after.text), after.is_typed)
        if is_same_kind and abs(apart_ms) <= (SAME_END_MS if before.text else SAME_UNASKED_MS):
            yield before, after
            here, there = here + 1, there + 1
        elif apart_ms >= 0:
            yield before, None
            here += 1
        else:
            yield None, after
            there += 1
    yield from ((before, None) for before in then[here:])
    yield from ((None, after) for after in now[there:])


def _differences(then: CallTurn | None, now: CallTurn | None, *, is_last: bool) -> Iterator[Difference]:
    if then is None or now is None:
        yield Difference.ONLY_NOW if then is None else Difference.ONLY_THEN
        return
    # The caller may have left before or within the last answer.
    stayed = not is_last or (then.is_answered and not then.unheard)
    if then.is_answered != now.is_answered and (stayed or then.is_answered):
        yield Difference.ANSWERED
    elif then.is_answered and not _same_answer(then, now, stayed=stayed):
        yield Difference.ANSWER
    if then.is_cut != now.is_cut and (stayed or then.is_cut):
        yield Difference.CUT
    if then.tool_calls != now.tool_calls:
        yield Difference.TOOLS
    if _words(then.text) != _words(now.text):
        yield Difference.WORDS


def _same_answer(then: CallTurn, now: CallTurn, *, stayed: bool) -> bool:
    before, after = (_words(_joined(turn.heard, turn.unheard)) for turn in (then, now))
    if then.is_cut or now.is_cut or not stayed:
        # How much was written when the answer was cut off depends on the time alone.
        length = min(len(before), len(after))
        return before[:length] == after[:length]
    return before == after


def _words(text: str) -> list[str]:
    kept = "".join(each if each.isalnum() or each in "'-" else " " for each in text.lower())
    return kept.split()
