"""Simulator that runs an endpoint policy through a scripted call, event by event, in virtual time.

The policy gets the inputs of the pipeline, through the same interface and in the same order. They are the
bot's words, and a voice that begins and ends as voice activity detection reports it (late by the times of
``Hearing``). The model's probability comes at each look, with the end of the voice at the first. The final
words and a possible voice follow. After each event the simulator reads its deadline, and calls it when
that is due. A hold is cut when the policy ends the turn before the front end has reported the voice that
continues it. The caller then continues anyway, and the policy may adapt.

Latency is the silence from the caller's last word to the decision, without any computing.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from parley.evals.turns.callers import CallSpec, ScriptedCall, ScriptedTurn, Silence
from parley.evals.turns.signs import probability
from parley.turn_taking.endpointing.endpointer import EndpointPolicy


@dataclass(frozen=True, slots=True)
class Hearing:
    """Delays of the front end. The defaults are those of ``VadSettings``, except ``stop_ms``.

    Attributes:
        stop_ms: silence before voice activity detection reports it. It coincides with the first look at the
            completeness score (``CallSpec.looks_ms``), as when policies and prices were chosen. In a call it
            is 128 ms.
        onset_ms: voice before the first window of it is reported as possible.
        start_ms: voice before it is reported as a voice.
    """

    stop_ms: int = 160
    onset_ms: int = 32
    start_ms: int = 128


WORD_MS = 350
# From the decision to the caller's next turn: an answer and a breath.
ANSWER_MS = 5_000


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of a silence.

    Attributes:
        end: true when it was the end of the turn.
        wait_ms: silence before the policy ended the turn. None when it did not.
    """

    end: bool
    wait_ms: int | None


def run(
    policy: EndpointPolicy, call: ScriptedCall, spec: CallSpec, *, hearing: Hearing | None = None
) -> list[Outcome]:
    """Run the whole call with one policy; return an outcome for each silence, in order."""
    at_ms = 0
    outcomes: list[Outcome] = []
    for turn in call.turns:
        outcomes += _turn(policy, turn, at_ms, spec, hearing or Hearing())
        # Longer than any silence, so that turns do not overlap.
        at_ms += ANSWER_MS + sum(_speech_ms(s) + (s.length_ms or 10_000) for s in turn.silences)
    return outcomes


def _turn(
    policy: EndpointPolicy, turn: ScriptedTurn, at_ms: int, spec: CallSpec, hearing: Hearing
) -> Iterable[Outcome]:
    policy.on_bot_said(turn.prompt)
    policy.reset()
    ended = False
    for silence in turn.silences:
        policy.on_maybe_voice(at_ms + hearing.onset_ms)
        if ended:
            # As the user aggregator does when a voice begins after the end of a turn.
            policy.reset()
        policy.on_voice_started(at_ms + hearing.start_ms)
        fell_silent_ms = at_ms + _speech_ms(silence)
        outcome = _silence(policy, silence, fell_silent_ms, spec, hearing)
        ended = outcome.wait_ms is not None
        if ended:
            policy.reset()
        yield outcome
        at_ms = fell_silent_ms + (silence.length_ms or 0)


def _silence(
    policy: EndpointPolicy, silence: Silence, since_ms: int, spec: CallSpec, hearing: Hearing
) -> Outcome:
    end = silence.length_ms is None
    heard_again_ms = None if silence.length_ms is None else since_ms + silence.length_ms + hearing.onset_ms
    now_ms = since_ms
    for at_ms in _moments(since_ms, spec, hearing):
        if heard_again_ms is not None and at_ms > heard_again_ms:
            break
        decided_ms = _decide(policy, now_ms, until_ms=at_ms)
        if decided_ms is not None:
            return Outcome(end, decided_ms - since_ms)
        now_ms = at_ms
        _report_silence(policy, silence, at_ms - since_ms, at_ms, spec, hearing)
    decided_ms = _decide(policy, now_ms, until_ms=heard_again_ms)
    return Outcome(end, None if decided_ms is None else decided_ms - since_ms)


def _moments(since_ms: int, spec: CallSpec, hearing: Hearing) -> list[int]:
    """Return the times of events, without duplicates."""
    return sorted({since_ms + ms for ms in (hearing.stop_ms, spec.words_ms, *spec.looks_ms)})


def _report_silence(
    policy: EndpointPolicy, silence: Silence, silent_ms: int, at_ms: int, spec: CallSpec, hearing: Hearing
) -> None:
    if silent_ms == hearing.stop_ms:
        policy.on_voice_stopped(at_ms, silence_ms=hearing.stop_ms)
    if silent_ms in spec.looks_ms:
        if silent_ms > hearing.stop_ms:
            policy.on_look(at_ms)
        if policy.wants_voice_end and silent_ms == spec.looks_ms[0] and silence.voice_end is not None:
            policy.on_voice_end(silence.voice_end)
        complete = probability(silence.log_odds[spec.looks_ms.index(silent_ms)])
        policy.on_completeness(complete, filler_log_odds=silence.filler_log_odds)
    if silent_ms == spec.words_ms:
        policy.on_transcript(at_ms, silence.heard, last_word_confidence=silence.confidence)


def _decide(policy: EndpointPolicy, now_ms: int, *, until_ms: int | None) -> int | None:
    """Return the time in ``now_ms`` to ``until_ms`` at which the policy ends the turn; None when
    it does not.
    """
    while (due_ms := policy.next_deadline_ms()) is not None:
        # A deadline that new evidence has moved into the past is due now.
        now_ms = max(now_ms, due_ms)
        if until_ms is not None and now_ms >= until_ms:
            return None
        endpoint = policy.on_deadline(now_ms)
        if endpoint is not None:
            return endpoint.at_ms
    return None


def _speech_ms(silence: Silence) -> int:
    return WORD_MS * max(1, len(silence.said.split()))
