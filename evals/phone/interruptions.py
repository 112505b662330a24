"""Callers who interrupt long answers at varied moments: the record's last word against the last one heard.

A question interrupts the answer to the one before it, in full voice, 0.3 to 6 s into its sound. The truth is
the caller's: packets on the caller's playback clock until the ``clear`` came (``playback``). Its position in
the reply is looked up in the voice's own sound and word times (``evals.heard_truth.truth``). It is compared
with the ``bot_turn`` of the session.

The decision is the server's log line about it (DEBUG, to the millisecond), and ``clear`` is its arrival here,
on one machine: the way through the front is included. After a ``clear`` only silence and comfort noise may
come before the caller has finished. No answer begins before that, so any other sound would be of the old
reply.

``--speech human`` has recorded people interrupt, as in ``evals.heard_truth``: every other question is theirs,
the ones between are synthetic and have long answers, and only interruptions by people are counted.
``--speech mixed`` counts both.
"""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import soxr

from parley.audio.audible import audible_spans
from parley.configs.deployment import Deployment
from parley.core.errors import PeerError
from parley.evals.harness.phone_caller import Held, Recording, Said, Script, ahead_s, call
from parley.evals.harness.phone_server import Telephone, telephone
from parley.evals.harness.phone_speech import VOICES, is_speech, said, samples_of
from parley.evals.harness.progress import say
from parley.evals.harness.questions import LONG_ANSWERS
from parley.evals.harness.report import percent, spread
from parley.evals.heard_truth.deployed_voice import deployed_voice
from parley.evals.heard_truth.truth import RATE_HZ, locate, reference
from parley.evals.human.callers import CallerSpeech, SpeechKind, open_callers
from parley.evals.human.hesitations import HesitationLaw
from parley.evals.phone.calls import PhoneQuestion, question_of
from parley.evals.phone.playback import playback
from parley.models.tts import TextToSpeech
from parley.models.tts.clauses import split_clauses
from parley.processors.playout.heard import PlayoutSettings
from parley.protocols.twilio_media import RATE_HZ as LINE_HZ

TARGET = (
    "last word within 1 of the caller's recording in 95 %; clear within 20 ms of the decision; no speech of "
    "the old reply behind clear"
)
GOAL_PERCENT, CLEAR_GOAL_MS = 95.0, 20.0
GREETING_QUIET_S, GREETING_S = 0.6, 20.0
ANSWER_S = 8.0
EARLIEST_S, LATEST_S = 0.3, 6.0
# The bot's pauses are shorter: after a longer silence it was over.
REPLY_GAP_S = 0.9
# From the first sound of an interruption: by then the reply is cut, or will not be.
CUT_S = 3.0
RECORD_S = 2.0
# A reply's record is written at the cut.
SAME_CUT_S = 0.5
SPARE_PERCENT, MAX_ROUNDS = 40, 4


class LeftOut(StrEnum):
    """Reasons for which a question interrupted nothing."""

    NO_ANSWER = "the question before it was not answered in time"
    OVER = "the answer was over"
    WHOLE = "the answer was heard to its last word"


@dataclass(frozen=True, slots=True)
class Interruption:
    """A question over an answer.

    Attributes:
        at_ms: time from the beginning of the answer's sound.
        heard_words: number of words heard for the most part, by the recording. None when that is not known.
        record_words: number of words by the session. None without a record.
        truncated: true when the session records a cut.
        fit: of the end of the received sound in the voice's own sound.
        clear_ms: from the decision to the ``clear``, without the way. None without one of them.
        late_packets: number after the ``clear`` and before the caller had finished, louder than comfort
            noise.
        text: heard words, by the session.
        truth: heard words, by the recording.
        speech: kind of the caller who interrupts: human or synthetic.
    """

    at_ms: int
    heard_words: int | None
    record_words: int | None
    truncated: bool
    fit: float | None
    clear_ms: float | None
    late_packets: int
    text: str
    truth: str
    speech: str = SpeechKind.SYNTHETIC.value

    @property
    def word_error(self) -> int | None:
        """Words that the record has too many; None when either side is missing."""
        if self.record_words is None or self.heard_words is None:
            return None
        return self.record_words - self.heard_words


@dataclass(slots=True)
class Judged:
    """Results of the questions, without the first one of each call."""

    interruptions: list[Interruption] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)
    violations: int = 0


async def measure(
    count: int,
    per_call: int,
    seed: int,
    folder: Path,
    *,
    way_ms: float = 0.0,
    speech: SpeechKind = SpeechKind.SYNTHETIC,
    own_speech: Path | None = None,
    greeting: str | None = None,
) -> dict[str, Any]:
    """Measure ``count`` interruptions.

    Args:
        count: number of interruptions.
        per_call: number of them in one call.
        seed: of their times.
        folder: for files.
        way_ms: from the server to the caller, and as long back. With it, sent and heard audio differ.
        speech: origin of the interrupting voices.
        own_speech: folder of the user's recordings in place of the packages'.
        greeting: see ``telephone``.

    Raises:
        AgentError: the server does not start, a call cannot be placed, too few answers were interrupted.
    """
    voice = deployed_voice(Deployment())
    judged = Judged()
    people = None
    if speech is not SpeechKind.SYNTHETIC:
        law = HesitationLaw(per_turn=0.0)
        people = await asyncio.to_thread(open_callers, SpeechKind.HUMAN, law=law, own=own_speech)
    async with telephone(folder, "-vv", greeting=greeting) as phone:
        phone.front.there_s = phone.front.back_s = way_ms / 1000
        for number in range(MAX_ROUNDS * -(-count // per_call)):
            missing = count - len(judged.interruptions)
            if missing <= 0:
                break
            questions = 1 + min(per_call, missing + -(-missing * SPARE_PERCENT // 100))
            asked = await asyncio.to_thread(questions_of, questions, seed + number, people)
            found = await _call(phone, voice, asked, seed + number, judged, way_ms=way_ms)
            judged.interruptions += [
                one for one in found if speech is not SpeechKind.HUMAN or one.speech == SpeechKind.HUMAN.value
            ]
            errors = [one.word_error for one in judged.interruptions]
            say(f"{len(judged.interruptions)} of {count}: {errors}")
        ignored = phone.ignored()
        judged.violations += len(phone.front.violations)
    surplus = len(judged.interruptions) - count
    if surplus < 0:
        raise PeerError(f"only {len(judged.interruptions)} answers were interrupted: {dict(judged.left_out)}")
    counted = judged.interruptions[:count]
    kinds = sorted({one.speech for one in counted})
    by_speech = {kind: _accuracy([one for one in counted if one.speech == kind]) for kind in kinds}
    figures = _summary(counted, judged, surplus, ignored)
    return {"way_ms": way_ms, "speech": speech.value, **figures, "by_speech": by_speech}


def _accuracy(interruptions: Sequence[Interruption]) -> dict[str, Any]:
    errors = [one.word_error for one in interruptions]
    known = [error for error in errors if error is not None]
    return {
        "interruptions": len(interruptions),
        "within_one_word_percent": percent(sum(abs(error) <= 1 for error in known), len(errors)),
        "clear_ms": spread([one.clear_ms for one in interruptions if one.clear_ms is not None]),
    }


def _summary(
    interruptions: Sequence[Interruption], judged: Judged, surplus: int, ignored: Sequence[str]
) -> dict[str, Any]:
    errors = [one.word_error for one in interruptions]
    known = [error for error in errors if error is not None]
    # An interruption that could not be judged counts as a miss: only demonstrated results are claimed.
    within = percent(sum(abs(error) <= 1 for error in known), len(errors)) or 0.0
    clear_ms = [one.clear_ms for one in interruptions if one.clear_ms is not None]
    late = sum(one.late_packets for one in interruptions)
    return {
        "target": TARGET,
        "reached": within >= GOAL_PERCENT
        and len(clear_ms) == len(interruptions)
        and max(clear_ms) <= CLEAR_GOAL_MS
        and late == 0,
        "interruptions": len(interruptions),
        "attempts": len(interruptions) + surplus + judged.left_out.total(),
        "left_out": dict(judged.left_out),
        "surplus": surplus,
        "within_one_word_percent": within,
        "exact_percent": percent(known.count(0), len(errors)),
        "word_errors": {str(error): count for error, count in sorted(Counter(known).items())},
        "without_truth": sum(one.heard_words is None for one in interruptions),
        "without_record": sum(one.record_words is None for one in interruptions),
        "truncated": sum(one.truncated for one in interruptions),
        "clear_ms": spread(clear_ms),
        "without_decision": len(interruptions) - len(clear_ms),
        "late_packets": late,
        "violations": {"server": judged.violations, "caller": len(ignored)},
        "per_interruption": [{**asdict(one), "word_error": one.word_error} for one in interruptions],
    }


def questions_of(count: int, seed: int, people: CallerSpeech | None = None) -> list[PhoneQuestion]:
    """Return the questions of a call; with ``people`` every second one is of a recorded person.

    Recorded people hardly ask about the documents, so that their answers are too short to be interrupted.
    """
    texts = [LONG_ANSWERS[(seed + number) % len(LONG_ANSWERS)] for number in range(count)]
    synthetic, voice = SpeechKind.SYNTHETIC.value, VOICES[seed % len(VOICES)]
    questions = [PhoneQuestion(text, said(text, voice), synthetic) for text in texts]
    if people is not None:
        questions[1::2] = [question_of(caller) for caller in people.turns(count // 2, seed)]
    return questions


async def _call(
    phone: Telephone,
    voice: TextToSpeech,
    questions: Sequence[PhoneQuestion],
    seed: int,
    judged: Judged,
    *,
    way_ms: float,
) -> list[Interruption]:
    """Hold a call, and return its interruptions; ``judged`` gets the rest."""
    dice = random.Random(seed)
    interrupting: list[tuple[Said, Said, str]] = []

    def script(recording: Recording) -> Script:
        yield from recording.until_quiet(GREETING_QUIET_S, GREETING_S)
        before: Said | LeftOut | None = None
        for question in questions:
            spoken = yield from recording.say(question.text, question.packets)
            if isinstance(before, LeftOut):
                judged.left_out[before] += 1
            elif before is not None:
                interrupting.append((before, spoken, question.speech))
            before = LeftOut.NO_ANSWER
            if (yield from recording.until_heard(spoken.last_s, ANSWER_S)):
                yield from recording.wait(dice.uniform(EARLIEST_S, LATEST_S))
                silent_s = time.perf_counter() - (recording.loud_s or 0.0)
                before = spoken if silent_s < REPLY_GAP_S else LeftOut.OVER
        yield from recording.wait(RECORD_S)

    held = await call(phone.front.url, script)
    judged.violations += held.result.violation_count
    replies = _replies(await phone.newest())
    cuts_s = [cut_s - ahead_s() for cut_s in phone.cuts_s()]
    found = []
    for asked, cutting, speech in interrupting:
        one = await asyncio.to_thread(_judge, held, asked, cutting, replies, cuts_s, voice, way_ms)
        if isinstance(one, LeftOut):
            judged.left_out[one] += 1
        else:
            found.append(replace(one, speech=speech))
    return found


def _replies(events: Sequence[Mapping[str, Any]]) -> list[tuple[float, Mapping[str, Any]]]:
    """Return the end of each reply, wall clock, and its record."""
    return [(event["arrival_us"] / 1e6, event["payload"]) for event in events if event["kind"] == "bot_turn"]


def _judge(
    held: Held,
    asked: Said,
    cutting: Said,
    replies: Sequence[tuple[float, Mapping[str, Any]]],
    cuts_s: Sequence[float],
    voice: TextToSpeech,
    way_ms: float,
) -> Interruption | LeftOut:
    recording = held.recording
    clear_s = next((at for at in recording.clears if cutting.first_s < at < cutting.first_s + CUT_S), None)
    # Without a clear the whole reply was heard; its record is the next one that is over.
    end_s = clear_s if clear_s is not None else cutting.first_s + CUT_S
    played = [
        each
        for each in playback(recording.heard, recording.clears)
        if asked.last_s < each.starts_s < end_s and each.mu_law
    ]
    sound = samples_of(b"".join(each.mu_law for each in played))
    spans = audible_spans(sound, LINE_HZ)
    loud = [each for each in played if is_speech(each.mu_law)]
    if not spans or not loud or loud[-1].ends_s < cutting.first_s:
        return LeftOut.OVER
    until_s = cutting.last_s + ANSWER_S
    record = _record(replies, asked.last_s + ahead_s(), end_s + ahead_s(), until_s + ahead_s())
    if record is None:
        heard, said_by_bot = None, None
    else:
        said_by_bot = reference(voice, split_clauses(f"{record['text']} {record['unheard']}".strip()))
        # The line has its own level, and noise in silence.
        heard = locate(said_by_bot, _raised(sound[spans[0].first : spans[-1].last + 1]), as_loud=False)
    words = None
    if heard is not None and said_by_bot is not None:
        words = said_by_bot.words_until(heard.samples, PlayoutSettings().word_due_percent)
        if record is not None and not record["truncated"] and words == len(said_by_bot.words):
            return LeftOut.WHOLE
    decided_s = max((cut for cut in cuts_s if clear_s is not None and cut <= clear_s), default=None)
    late = recording.not_noise_between(clear_s, cutting.last_s) if clear_s is not None else []
    return Interruption(
        at_ms=round((cutting.first_s - loud[0].starts_s) * 1000),
        heard_words=words,
        record_words=None if record is None else int(record["last_word"]) + 1,
        truncated=record is not None and bool(record["truncated"]),
        fit=None if heard is None else round(heard.fit, 3),
        clear_ms=None
        if clear_s is None or decided_s is None or clear_s - decided_s > SAME_CUT_S
        else round((clear_s - decided_s) * 1000 - way_ms, 1),
        late_packets=len(late),
        text="" if record is None else str(record["text"]),
        truth="" if said_by_bot is None else " ".join(word.text for word in said_by_bot.words[: words or 0]),
    )


def _record(
    replies: Sequence[tuple[float, Mapping[str, Any]]], asked_s: float, end_s: float, until_s: float
) -> Mapping[str, Any] | None:
    """Return the record of the last reply that was over in a time: cut at its end, or over shortly before.

    A reply that was not cut is over when it has been heard: then its record is the next one.
    """
    behind = [(at_s, payload) for at_s, payload in replies if asked_s < at_s < until_s]
    over = [payload for at_s, payload in behind if at_s < end_s + SAME_CUT_S]
    if over:
        return over[-1]
    return behind[0][1] if behind else None


def _raised(sound: np.ndarray) -> np.ndarray:
    """Raise a sound of the line to 16 kHz: float32, (samples,)."""
    return np.asarray(soxr.resample(sound, LINE_HZ, RATE_HZ), dtype=np.float32)
