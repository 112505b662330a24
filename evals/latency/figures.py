"""Figures of a run: percentiles, sums and means. Pure arithmetic on measured values."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from parley.evals.harness.report import percentiles_ms
from parley.evals.latency.spans import SPANS, UNEXPLAINED

# Pauses in which cut-ins are counted: shorter ones end no turn, and in longer ones people expect an answer.
SHORTEST_PAUSE_MS, LONGEST_PAUSE_MS = 200, 1_200


@dataclass(frozen=True, slots=True)
class TurnFigures:
    """A measured turn.

    Attributes:
        text: words of the caller.
        pause_ms: pause inside it, 0 for none.
        voice_to_voice_us: None for a cut-in or no answer.
        cut_in: true when the bot began while the caller was still speaking.
        unanswered: true when the bot did not speak.
        spans_us: durations of the stages. Empty when the server sends no marks.
        client_buffer_us: the client's own jitter buffer, part of ``network_out``. None without an audible
            answer.
        send_late_us: lateness of the client's packets.
        cut_in_us: time of the cut-in from the start of the utterance. None without one.
        heard_as: words recognised by the server. Empty when it does not send them.
        reply: the server's answer. Empty when it does not send it.
        masked: true when the first sound was a phrase that covers the wait, not the answer.
        answered_ahead: true when the model had been asked before the turn was over, with the same words.
        pauses_ms: beginning and end of each silence inside, from the first sound.
        speech: human or synthetic.
    """

    text: str
    pause_ms: int
    voice_to_voice_us: int | None
    cut_in: bool
    unanswered: bool
    spans_us: Mapping[str, int] = field(default_factory=dict)
    client_buffer_us: int | None = None
    send_late_us: int = 0
    cut_in_us: int | None = None
    heard_as: str = ""
    reply: str = ""
    masked: bool = False
    answered_ahead: bool = False
    pauses_ms: tuple[tuple[int, int], ...] = ()
    speech: str = "synthetic"

    def pauses_met(self, longest_ms: int = LONGEST_PAUSE_MS) -> tuple[int, int]:
        """Count the pauses, of a length from ``SHORTEST_PAUSE_MS`` on, that the bot met, and those it cut.

        A cut-in belongs to the last pause that had begun, however late it is audible. Later pauses of the
        turn are not counted.
        """
        cut_ms = None if self.cut_in_us is None else self.cut_in_us / 1000
        met = [(first, end) for first, end in self.pauses_ms if cut_ms is None or first <= cut_ms]
        fitting = [end - first for first, end in met if SHORTEST_PAUSE_MS <= end - first <= longest_ms]
        last_ms = met[-1][1] - met[-1][0] if met else 0
        is_cut = cut_ms is not None and SHORTEST_PAUSE_MS <= last_ms <= longest_ms
        return len(fitting), int(is_cut)

    @property
    def unexplained_us(self) -> int | None:
        """Recorded voice-to-voice minus the spans; None without either."""
        if self.voice_to_voice_us is None or not self.spans_us:
            return None
        return self.voice_to_voice_us - sum(self.spans_us.values())

    def as_json(self) -> dict[str, Any]:
        """Return the entry of the list ``per_turn``, in milliseconds with one decimal."""
        spans = {name: us / 1000 for name, us in self.spans_us.items()}
        if self.unexplained_us is not None:
            spans[UNEXPLAINED] = self.unexplained_us / 1000
        value = self.voice_to_voice_us
        return {
            "text": self.text,
            "pause_ms": self.pause_ms,
            "voice_to_voice_ms": None if value is None else round(value / 1000, 1),
            "cut_in": self.cut_in,
            "cut_in_after_ms": None if self.cut_in_us is None else round(self.cut_in_us / 1000),
            "unanswered": self.unanswered,
            "spans_ms": {name: round(ms, 1) for name, ms in spans.items()},
            "heard_as": self.heard_as,
            "reply": self.reply,
            "masked": self.masked,
            "answered_ahead": self.answered_ahead,
            "pauses_ms": [list(pause) for pause in self.pauses_ms],
            "speech": self.speech,
        }


def typical(turns: Sequence[TurnFigures]) -> list[TurnFigures]:
    """Return the middle half of the answered turns with spans; its means represent the median turn and add
    up.
    """
    usable = [turn for turn in turns if turn.unexplained_us is not None]
    usable.sort(key=lambda turn: turn.voice_to_voice_us or 0)
    quarter = len(usable) // 4
    return usable[quarter : len(usable) - quarter]


def mean_spans_ms(turns: Sequence[TurnFigures]) -> dict[str, float]:
    """Return the mean of each span over the typical turns, ``unexplained`` last; empty without marks."""
    middle = typical(turns)
    if not middle:
        return {}
    # In the order in which they happened in the median turn: the transcript may come before the endpoint.
    order = list(middle[len(middle) // 2].spans_us)
    order += [name for name in SPANS if name not in order and any(name in t.spans_us for t in middle)]
    means = {
        name: round(sum(turn.spans_us.get(name, 0) for turn in middle) / len(middle) / 1000, 1)
        for name in order
    }
    unexplained = sum(turn.unexplained_us or 0 for turn in middle) / len(middle) / 1000
    return {**means, UNEXPLAINED: round(unexplained, 1)}


def summary(turns: Sequence[TurnFigures]) -> dict[str, Any]:
    """Return the JSON of one system."""
    values_us = [turn.voice_to_voice_us for turn in turns if turn.voice_to_voice_us is not None]
    errors_us = [abs(turn.unexplained_us) for turn in turns if turn.unexplained_us is not None]
    buffers_us = [turn.client_buffer_us for turn in turns if turn.client_buffer_us is not None]
    paused = [turn for turn in turns if turn.pause_ms]
    return {
        "turns": len(turns),
        "voice_to_voice_ms": percentiles_ms(values_us),
        "false_cut_ins": sum(turn.cut_in for turn in turns),
        "unanswered": sum(turn.unanswered for turn in turns),
        "masked": sum(turn.masked for turn in turns),
        "answered_ahead": sum(turn.answered_ahead for turn in turns),
        "spans_ms": mean_spans_ms(turns),
        "span_error_ms": {"p95": percentiles_ms(errors_us)["p95"]},
        "turns_with_pause": len(paused),
        "false_cut_ins_in_pauses": sum(turn.cut_in for turn in paused),
        "turns_with_spans": len(errors_us),
        "client_buffer_ms": percentiles_ms(buffers_us)["p50"],
        "client_send_late_ms": percentiles_ms([turn.send_late_us for turn in turns]),
        "span_percentiles_ms": {
            name: percentiles_ms([turn.spans_us[name] for turn in turns if name in turn.spans_us])
            for name in SPANS
            if any(name in turn.spans_us for turn in turns)
        },
        "pauses": _pauses(turns),
        "per_turn": [turn.as_json() for turn in turns],
    }


def _pauses(turns: Sequence[TurnFigures]) -> dict[str, int]:
    met = [turn.pauses_met() for turn in turns]
    return {"met": sum(count for count, _ in met), "cut": sum(cut for _, cut in met)}


def by_speech(turns: Sequence[TurnFigures]) -> dict[str, dict[str, Any]]:
    """Return the figures of people and of synthetic voices separately."""
    kinds = sorted({turn.speech for turn in turns})
    return {kind: summary([turn for turn in turns if turn.speech == kind]) for kind in kinds}


def ratio(ours: Mapping[str, Any], baseline: Mapping[str, Any]) -> float | None:
    """Return the median of ours divided by the baseline's; None when either has no answered turn."""
    mine, theirs = ours["voice_to_voice_ms"]["p50"], baseline["voice_to_voice_ms"]["p50"]
    return round(mine / theirs, 3) if mine is not None and theirs else None
