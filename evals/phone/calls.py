"""Calls in a row: greeting, one question, its answer, the caller hangs up.

Violations are counted on both sides: what streamdouble and the front find in what the server sent, and what
the server refused of what the caller sent. A call is answered when the session holds a question and an
answer to it, and sound of it came. Voice to voice runs on the caller's clock, from the moment at which the
packet with the last audible sample of the question left to the arrival of the first audible packet
(``audio.audible``, -45 dBFS; comfort noise has -66): the answer plays at once when it comes, so this is when
it is heard, but for the ways of the telephone network.
"""

import sys
from pathlib import Path
from typing import Any

from evals.latency.questions import WHOLE
from evals.phone.caller import Held, Recording, Said, Script, call
from evals.phone.figures import spread
from evals.phone.serving import Telephone, telephone, turns
from evals.phone.speech import VOICES, said

TARGET = "0 violations of the protocol, every call answered"
GREETING_QUIET_S, GREETING_S = 0.6, 20.0
ANSWER_S = 8.0
# Of an answer: a mark at least has come back by then.
LISTENED_S = 2.5


async def measure(count: int, folder: Path) -> dict[str, Any]:
    """So many calls.

    Raises:
        AgentError: the server does not start, or a call cannot be placed.
    """
    async with telephone(folder) as phone:
        calls = [await _one(phone, number) for number in range(count)]
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
        "marks": {
            "sent": sum(one["marks_sent"] for one in calls),
            "echoed": sum(one["marks_echoed"] for one in calls),
            # Of the answer's end, which the caller did not wait for.
            "behind_hang_up": sum(one["marks_sent"] - one["marks_echoed"] for one in calls),
        },
        "per_call": calls,
    }


async def _one(phone: Telephone, number: int) -> dict[str, Any]:
    question = WHOLE[number % len(WHOLE)]
    asked: list[Said] = []

    def script(recording: Recording) -> Script:
        yield from recording.until_quiet(GREETING_QUIET_S, GREETING_S)
        spoken = yield from recording.say(question, said(question, VOICES[number % len(VOICES)]))
        asked.append(spoken)
        if (yield from recording.until_heard(spoken.last_s, ANSWER_S)):
            yield from recording.wait(LISTENED_S)

    held = await call(phone.front.url, script)
    events = await phone.newest()
    heard_as = " ".join(turn["text"] for turn in turns(events, "user_turn"))
    answers = turns(events, "bot_turn")[1:]
    waited_ms = _voice_to_voice_ms(held, asked)
    one = {
        "question": question,
        "heard_as": heard_as,
        "answered": bool(heard_as and answers and waited_ms is not None),
        "voice_to_voice_ms": waited_ms,
        "violations": held.result.violation_count,
        "marks_sent": len(held.result.marks_received),
        "marks_echoed": len(held.result.marks_echoed),
        "closed_by": held.result.closed_by,
    }
    print(f"call {number + 1}: {one}", file=sys.stderr, flush=True)
    return one


def _voice_to_voice_ms(held: Held, asked: list[Said]) -> float | None:
    """None when nothing was asked or nothing came."""
    if not asked:
        return None
    answer = held.recording.speech_between(asked[0].last_s, float("inf"))
    return round((answer[0].at_s - asked[0].last_s) * 1000, 1) if answer else None
