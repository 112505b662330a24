"""Calls in a row: greeting, one question, its answer, the caller hangs up.

Violations are counted on both sides: those that streamdouble and the front find in the server's messages, and
the caller's messages that the server refused. A call is answered when the session holds a question and an
answer to it, and the caller received sound of it. Voice to voice runs on the caller's clock. It begins when
the packet with the last audible sample of the question leaves. It ends with the arrival of the first audible
packet (``audio.audible``, -45 dBFS; comfort noise has -66). The answer plays at once when it arrives, so this
is the time of hearing it, without the ways of the telephone network.
"""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parley.evals.harness.phone_caller import Held, Recording, Said, Script, call
from parley.evals.harness.phone_server import Telephone, telephone, turns
from parley.evals.harness.phone_speech import VOICES, said, turn_packets
from parley.evals.harness.progress import say
from parley.evals.harness.questions import WHOLE
from parley.evals.harness.report import spread
from parley.evals.human.callers import CallerTurn, SpeechKind, open_callers
from parley.evals.human.hesitations import HesitationLaw

TARGET = "0 violations of the protocol, every call answered"
GREETING_QUIET_S, GREETING_S = 0.6, 20.0
ANSWER_S = 8.0
# Time of listening to an answer: at least one mark has come back by then.
LISTENED_S = 2.5


@dataclass(frozen=True, slots=True)
class PhoneQuestion:
    """Question of one caller.

    Attributes:
        text: the words.
        packets: of the line.
        speech: human or synthetic.
    """

    text: str
    packets: tuple[bytes, ...]
    speech: str


async def measure(
    count: int,
    folder: Path,
    *,
    speech: SpeechKind = SpeechKind.SYNTHETIC,
    own_speech: Path | None = None,
    seed: int = 1,
    greeting: str | None = None,
) -> dict[str, Any]:
    """Place ``count`` calls; see ``telephone`` for the greeting.

    Raises:
        AgentError: the server does not start, a call cannot be placed, or recordings were not fetched.
    """
    questions = await asyncio.to_thread(_questions, count, speech, own_speech, seed)
    async with telephone(folder, greeting=greeting) as phone:
        calls = [await _one(phone, number, question) for number, question in enumerate(questions)]
        ignored = phone.ignored()
        front = list(phone.front.violations)
    by_server = sum(one["violations"] for one in calls) + len(front)
    answered = sum(one["answered"] for one in calls)
    voice_to_voice_ms = [one["voice_to_voice_ms"] for one in calls if one["voice_to_voice_ms"] is not None]
    return {
        "target": TARGET,
        "reached": by_server == 0 and not ignored and answered == count,
        "calls": count,
        "answered": answered,
        "violations": {"server": by_server, "caller": len(ignored), "examples": [*front, *ignored][:5]},
        "ended_by_server": sum(one["closed_by"] is not None for one in calls),
        "voice_to_voice_ms": spread(voice_to_voice_ms),
        "by_speech": {kind: _of_speech(calls, kind) for kind in sorted({one["speech"] for one in calls})},
        "marks": {
            "sent": sum(one["marks_sent"] for one in calls),
            "echoed": sum(one["marks_echoed"] for one in calls),
            # Marks of the answer's end, for which the caller did not wait.
            "behind_hang_up": sum(one["marks_sent"] - one["marks_echoed"] for one in calls),
        },
        "per_call": calls,
    }


def _questions(count: int, speech: SpeechKind, own: Path | None, seed: int) -> list[PhoneQuestion]:
    if speech is SpeechKind.SYNTHETIC:
        texts = [WHOLE[number % len(WHOLE)] for number in range(count)]
        return [
            PhoneQuestion(text, said(text, VOICES[number % len(VOICES)]), speech.value)
            for number, text in enumerate(texts)
        ]
    # Without pauses: a call has one question, and only its answer is counted.
    callers = open_callers(speech, law=HesitationLaw(per_turn=0.0), own=own)
    return [question_of(caller) for caller in callers.turns(count, seed)]


def question_of(caller: CallerTurn) -> PhoneQuestion:
    """Return a turn of a caller as it goes over the line."""
    return PhoneQuestion(caller.turn.utterance.text, turn_packets(caller.turn), caller.kind.value)


async def _one(phone: Telephone, number: int, question: PhoneQuestion) -> dict[str, Any]:
    asked: list[Said] = []

    def script(recording: Recording) -> Script:
        yield from recording.until_quiet(GREETING_QUIET_S, GREETING_S)
        spoken = yield from recording.say(question.text, question.packets)
        asked.append(spoken)
        if (yield from recording.until_heard(spoken.last_s, ANSWER_S)):
            yield from recording.wait(LISTENED_S)

    held = await call(phone.front.url, script)
    events = await phone.newest()
    heard_as = " ".join(turn["text"] for turn in turns(events, "user_turn"))
    answers = turns(events, "bot_turn")[1:]
    waited_ms = _voice_to_voice_ms(held, asked)
    one = {
        "question": question.text,
        "speech": question.speech,
        "heard_as": heard_as,
        "answered": bool(heard_as and answers and waited_ms is not None),
        "voice_to_voice_ms": waited_ms,
        "violations": held.result.violation_count,
        "marks_sent": len(held.result.marks_received),
        "marks_echoed": len(held.result.marks_echoed),
        "closed_by": held.result.closed_by,
    }
    say(f"call {number + 1}: {one}")
    return one


def _of_speech(calls: Sequence[Mapping[str, Any]], kind: str) -> dict[str, Any]:
    mine = [one for one in calls if one["speech"] == kind]
    waited_ms = [one["voice_to_voice_ms"] for one in mine if one["voice_to_voice_ms"] is not None]
    answered = sum(one["answered"] for one in mine)
    return {"calls": len(mine), "answered": answered, "voice_to_voice_ms": spread(waited_ms)}


def _voice_to_voice_ms(held: Held, asked: list[Said]) -> float | None:
    """Return the voice to voice of a call; None when nothing was asked or nothing came."""
    if not asked:
        return None
    answer = held.recording.speech_between(asked[0].last_s, float("inf"))
    return round((answer[0].at_s - asked[0].last_s) * 1000, 1) if answer else None
