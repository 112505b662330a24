"""The same questions on a clean line and on one with lost and late packets: share of recognised turns.

Loss is streamdouble's: a lost packet never leaves, and the position of the next one in the call shows it.
Jitter is the front's (``front``). A call asks some questions, each after the answer to the one before. It is
complete when all of them were asked and the caller was the one to end it.

A turn is recognised on the clean line when its answer matches that to the typed question: it has the same
sentence of a document, or one of the same ones. The recogniser's other words are no measure: it writes some
for any sound. On the bad line that counts, and so do at least the words of the clean line.
"""

import asyncio
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from parley.evals.harness.phone_caller import Recording, Said, Script, ahead_s, call
from parley.evals.harness.phone_server import Telephone, telephone
from parley.evals.harness.phone_speech import VOICES, said
from parley.evals.harness.progress import say
from parley.evals.harness.questions import WHOLE
from parley.evals.harness.report import percent
from parley.models.llm import Message
from parley.models.llm.documents import DocumentLlm

TARGET = "every call completes; at least 90 % of the turns that are heard on the clean line are heard"
GOAL_PERCENT = 90.0
# Beginnings of answers that quote no document.
_NOT_QUOTED = re.compile(r"\s*(?:$|I don't know|Sorry|I did not understand|I am a computer program|Hello)")
QUIET_S, GREETING_S, ANSWER_S, ANSWERED_S = 1.0, 20.0, 8.0, 30.0


@dataclass(frozen=True, slots=True)
class Line:
    """Impairments of a line on the caller's speech.

    Attributes:
        loss: share of packets that are lost.
        jitter_ms: packets are late by 0 to this.
    """

    loss: float = 0.0
    jitter_ms: float = 0.0


@dataclass(frozen=True, slots=True)
class Turn:
    """A question and its answer.

    Attributes:
        asked: the spoken words.
        heard_as: recognised words in the session, all until the next question. Empty when there are none.
        answer: of the session, heard or not. Empty when there is none.
        typed: the answer to the words as they were spoken.
    """

    asked: str
    heard_as: str
    answer: str
    typed: str

    @property
    def is_heard(self) -> bool:
        """True when the answer matches that to the typed question."""
        return bool(quoted(self.answer) & quoted(self.typed))

    def is_as_good_as(self, clean: "Turn") -> bool:
        """Return whether the turn is recognised, or has all words of the clean line."""
        return self.is_heard or not Counter(clean.heard_as.split()) - Counter(self.heard_as.split())


def quoted(answer: str) -> set[str]:
    """Return the sentences of documents in an answer; an empty set for an answer without any."""
    return set() if _NOT_QUOTED.match(answer) else set(re.split(r"(?<=[.!?])\s+", answer.strip()))


async def typed(questions: Iterable[str]) -> dict[str, str]:
    """Return the documents' answer to each question."""
    model = await asyncio.to_thread(DocumentLlm)
    return {
        question: "".join([piece async for piece in model.reply([Message("user", question)])])
        for question in dict.fromkeys(questions)
    }


@dataclass(frozen=True, slots=True)
class Lines:
    """Results of the questions on one line."""

    turns: list[Turn]
    complete: int
    calls: int
    violations: int
    lost: int
    sent: int


async def measure(
    questions: int,
    per_call: int,
    line: Line,
    seed: int,
    folder: Path,
    *,
    control: bool = False,
    greeting: str | None = None,
) -> dict[str, Any]:
    """Ask each question once on each line.

    Args:
        questions: number of questions.
        per_call: number of them in one call.
        line: the bad one.
        seed: of its impairments.
        folder: for files.
        control: true to repeat the clean line, which shows the differences that no line causes.
        greeting: see ``telephone``.

    Raises:
        AgentError: the server does not start, or a call cannot be placed.
    """
    asked = [WHOLE[number % len(WHOLE)] for number in range(questions)]
    calls = [asked[at : at + per_call] for at in range(0, questions, per_call)]
    answers = await typed(asked)
    found: list[Lines] = []
    async with telephone(folder, greeting=greeting) as phone:
        for which in (Line(), line, *([Line()] if control else [])):
            phone.front.jitter_ms, phone.front.dice = which.jitter_ms, Random(seed)
            found.append(await _all(phone, calls, answers, which, seed))
        ignored = phone.ignored()
        violations = len(phone.front.violations) + sum(each.violations for each in found)
    clean, bad, *again = found
    lines = {"clean": clean, "bad": bad}
    both = list(zip(clean.turns, bad.turns, strict=True))
    heard = [(one, other) for one, other in both if one.is_heard]
    as_good = sum(other.is_as_good_as(one) for one, other in heard)
    share = percent(as_good, len(heard)) or 0.0
    return {
        "target": TARGET,
        "reached": bad.complete == bad.calls and clean.complete == clean.calls and share >= GOAL_PERCENT,
        "line": {"loss": line.loss, "jitter_ms": line.jitter_ms, "seed": seed},
        "packets": {"sent": bad.sent, "lost": bad.lost, "lost_percent": percent(bad.lost, bad.sent)},
        "turns": len(both),
        "complete": {"clean": [clean.complete, clean.calls], "bad": [bad.complete, bad.calls]},
        "answered": {which: sum(bool(turn.answer) for turn in of.turns) for which, of in lines.items()},
        "heard": {"clean": len(heard), "bad": sum(turn.is_heard for turn in bad.turns)},
        "heard_as_on_the_clean_line": as_good,
        "heard_percent": share,
        "clean_again_percent": percent(
            sum(
                other.is_as_good_as(one)
                for one, other in zip(clean.turns, again[0].turns, strict=True)
                if one.is_heard
            ),
            len(heard),
        )
        if again
        else None,
        "same_words": sum(one.heard_as == other.heard_as for one, other in both),
        "violations": {"server": violations, "caller": len(ignored)},
        "per_turn": [
            {
                "asked": one.asked,
                "clean": one.heard_as,
                "bad": other.heard_as,
                "heard": {"clean": one.is_heard, "bad": other.is_heard},
            }
            for one, other in both
        ],
    }


async def _all(
    phone: Telephone, calls: Sequence[Sequence[str]], answers: Mapping[str, str], line: Line, seed: int
) -> Lines:
    turns: list[Turn] = []
    complete = violations = lost = sent = 0
    for number, questions in enumerate(calls):
        asked: list[Said] = []
        held = await call(
            phone.front.url,
            lambda recording, ask=questions, to=asked, voice=VOICES[number % len(VOICES)]: _script(  # type: ignore[misc]
                recording, ask, to, voice
            ),
            loss=line.loss,
            seed=seed + number,
        )
        complete += len(asked) == len(questions) and held.result.closed_by is None
        violations += held.result.violation_count
        lost, sent = lost + held.result.frames_dropped, sent + held.result.frames_sent
        found = _turns(await phone.newest(), asked, questions, answers)
        turns += found
        for turn in found:
            say(f"{line}: {turn.asked!r} heard as {turn.heard_as!r}")
    return Lines(turns, complete, len(calls), violations, lost, lost + sent)


def _script(recording: Recording, questions: Sequence[str], asked: list[Said], voice: str) -> Script:
    yield from recording.until_quiet(QUIET_S, GREETING_S)
    for question in questions:
        spoken = yield from recording.say(question, said(question, voice))
        asked.append(spoken)
        if (yield from recording.until_heard(spoken.last_s, ANSWER_S)):
            yield from recording.until_quiet(QUIET_S, ANSWERED_S)


def _turns(
    events: Sequence[Mapping[str, Any]],
    asked: Sequence[Said],
    questions: Sequence[str],
    answers: Mapping[str, str],
) -> list[Turn]:
    """Return the session's events of each question, from its first sound to that of the next one."""
    begins = [each.first_s + ahead_s() for each in asked] + [float("inf")] * (len(questions) + 1)

    def texts(number: int, kind: str) -> list[Mapping[str, Any]]:
        return [
            event["payload"]
            for event in events
            if event["kind"] == kind and begins[number] <= event["event_us"] / 1e6 < begins[number + 1]
        ]

    return [
        Turn(
            question,
            " ".join(turn["text"] for turn in texts(number, "user_turn")),
            " ".join(f"{turn['text']} {turn['unheard']}".strip() for turn in texts(number, "bot_turn")),
            answers[question],
        )
        for number, question in enumerate(questions)
    ]
