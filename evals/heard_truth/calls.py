"""Callers who interrupt long answers at random moments, with their next question.

A question interrupts the answer to the one before it: a voice at full level, in the middle of the bot's
speech. A question that interrupted nothing is counted by its reason (``LeftOut``), never just dropped. Each
call runs in the task that awaits it; it always hangs up. Every wait has a deadline.
"""

import asyncio
import random
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import soxr

from parley.audio.audible import audible_spans
from parley.core.errors import PeerError
from parley.core.media import ms_to_samples
from parley.evals.harness import recording, sessions
from parley.evals.harness.playout import Playout
from parley.evals.harness.speech import RATE_HZ as MIC_RATE_HZ
from parley.evals.harness.speech import Spoken
from parley.evals.harness.webrtc_caller import SLOT_US, Line, Message, Sent
from parley.evals.heard_truth.session import is_committed, is_shown
from parley.evals.heard_truth.stream import stream
from parley.evals.heard_truth.truth import RATE_HZ, locate, reference, to_ms
from parley.models.tts import TextToSpeech

# Range of the time from the answer's first sound to an interruption.
EARLIEST_MS = 300
LATEST_MS = 6_000
ANSWER_MS = 8_000
GREETING_QUIET_MS = 600
# The record of an interrupted reply is there when the interruption has been noticed.
RECORD_MS = 3_000
# Sound of the bot after this much silence is not of the reply before it.
REPLY_GAP_MS = 900
# A record that came before the interruption, within the delay of a client's buffer and a busy loop, is that
# of a reply that was just over.
JUST_OVER_MS = 1_000


class LeftOut(StrEnum):
    """Reasons for which a question interrupted nothing."""

    NO_ANSWER = "the question before it was not answered in time"
    OVER = "the answer was over"
    NOT_BEGUN = "the answer had not begun"
    WHOLE = "the answer was heard to its last word"


@dataclass(frozen=True, slots=True)
class Interruption:
    """An interruption, in the caller's recording and in the server's record.

    Attributes:
        at_ms: time into the answer, by the first audible sample of both.
        stop_ms: from the first audible sample of the interruption to the last one of the bot.
        heard_ms: position up to which the reply was heard. None when that could not be determined.
        heard_words: number of words heard for the most part.
        fit: of the end of the sound in the reply, 0..1.
        record_ms: the server's ``audio_ms``, up to its last audible sample there. None without a record.
        record_words: the server's count of words heard.
        released_words: Pipecat's own count. None when the server does not send it.
        remembered: true when the context holds the text of the record. None when the server does not send it,
            or there is no record.
        text: the server's text.
        truth: the text by the recording.
        clauses: input of the voice.
        recording: file name of the call.
        begun_ms: first audible sample of the reply in it.
        committed: true when the timeline of the session agrees with the record. None without a session.
        shown: true when the view of the model agrees with the record. None without a session.
        speech: of the voice that interrupted, human or synthetic.
    """

    at_ms: int
    stop_ms: int
    heard_ms: int | None
    heard_words: int | None
    fit: float | None
    record_ms: int | None
    record_words: int | None
    released_words: int | None
    remembered: bool | None
    text: str
    truth: str
    clauses: tuple[str, ...]
    recording: str
    begun_ms: int
    committed: bool | None = None
    shown: bool | None = None
    speech: str = "synthetic"

    @property
    def word_error(self) -> int | None:
        """Words that the record has too many; None when either side is missing."""
        if self.record_words is None or self.heard_words is None:
            return None
        return self.record_words - self.heard_words


@dataclass(frozen=True, slots=True)
class Plan:
    """Script of one caller.

    Attributes:
        questions: the first one is asked in silence. Each of the others interrupts.
        seed: of the moments.
        due_percent: share of a word from which it counts as heard.
    """

    questions: Sequence[Spoken]
    seed: int
    due_percent: int


@dataclass(slots=True)
class Judged:
    """Results of a call's questions, without the first one.

    Attributes:
        interruptions: those that cut an answer off.
        left_out: number of those that did not, by reason (``LeftOut``).
    """

    interruptions: list[Interruption] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


async def call(url: str, plan: Plan, voice: TextToSpeech, path: Path) -> Judged:
    """Place one call and judge its interruptions.

    Raises:
        PeerError: the call did not connect or broke, or its session cannot be read.
    """
    line = Line(url)
    dice = random.Random(plan.seed)
    judged = Judged()
    interrupting: list[tuple[Sent, Sent]] = []
    views: dict[int, Sequence[Mapping[str, Any]]] = {}
    try:
        await line.dial()
        if await line.wait_bot_audible(line.connected_us, ANSWER_MS):
            await line.wait_bot_quiet(GREETING_QUIET_MS, 30_000)
        before: Sent | LeftOut | None = None
        for question in plan.questions:
            sent = await line.microphone.speak(question)
            if isinstance(before, LeftOut):
                judged.left_out[before] += 1
            elif before is not None:
                interrupting.append((before, sent))
            before = LeftOut.NO_ANSWER
            ended_us = line.microphone.at_us(sent.slot + len(question.packets))
            answered = await line.wait_bot_audible(ended_us, ANSWER_MS)
            # An answered turn is durable, and so is everything before it.
            views[sent.slot] = await _view(url, line)
            if answered:
                await asyncio.sleep(dice.uniform(EARLIEST_MS, LATEST_MS) / 1000)
                quiet_us = line.bot_quiet_us() or 0
                before = sent if quiet_us < REPLY_GAP_MS * 1000 else LeftOut.OVER
        await asyncio.sleep(RECORD_MS / 1000)
        session_id = _session_id(line)
        events = await sessions.timeline(url, session_id) if session_id is not None else ()
        recording.write(line, path)
        played = recording.played(line)
    finally:
        await line.hang_up()
    judge = _Judge(line, played, voice, plan.due_percent, path.name)
    for asked, cutting in interrupting:
        stored = Stored(events, views[cutting.slot]) if session_id is not None else None
        one = await asyncio.to_thread(judge.interruption, asked, cutting, stored)
        if isinstance(one, LeftOut):
            judged.left_out[one] += 1
        else:
            judged.interruptions.append(one)
    return judged


@dataclass(frozen=True, slots=True)
class Stored:
    """The session's data on an interruption.

    Attributes:
        events: the timeline, at the end of the call.
        messages: the view of the model, when the interrupting question was answered.
    """

    events: Sequence[Mapping[str, Any]]
    messages: Sequence[Mapping[str, Any]]


def _session_id(line: Line) -> str | None:
    """Return the session of a call; None when the server keeps none."""
    ids = {str(data["id"]) for data in line.server_messages("session")}
    if len(ids) > 1:
        raise PeerError("the server reported two sessions for one call")
    return ids.pop() if ids else None


async def _view(url: str, line: Line) -> Sequence[Mapping[str, Any]]:
    session_id = _session_id(line)
    return () if session_id is None else await sessions.prompt(url, session_id)


class _Judge:
    """Judge of one call: its recording and the server's messages."""

    def __init__(self, line: Line, played: Playout, voice: TextToSpeech, due_percent: int, name: str) -> None:
        self._line = line
        self._name = name
        self._bot = soxr.resample(played.pcm.astype(np.float32) / 32768, MIC_RATE_HZ, RATE_HZ)
        self._spans = audible_spans(self._bot, RATE_HZ)
        self._stream = stream(line.ears.frames, line.ears.frame_stamps)
        self._voice = voice
        self._due_percent = due_percent

    def interruption(
        self, question: Sent, interrupting: Sent, stored: Stored | None
    ) -> Interruption | LeftOut:
        """Judge an interruption, or return why nothing was interrupted: by the audio, not by the server's
        messages.
        """
        asked = self._user_edges(question)[1]
        first, last = self._user_edges(interrupting)
        # The bot is silent while it listens: its speech before the end of the interruption is the reply.
        spans = [span for span in self._spans if asked < span.first < last]
        if not spans or spans[0].first > first:
            return LeftOut.NOT_BEGUN
        if spans[-1].last < first:
            return LeftOut.OVER
        begun, ended = spans[0].first, spans[-1].last
        record = self._record(self._at_us(first))
        clauses = self._clauses(self._at_us(asked), self._at_us(last))
        said = reference(self._voice, clauses)
        heard = locate(said, self._sound(asked, last))
        words = said.words_until(heard.samples, self._due_percent) if heard is not None else None
        if record is not None and not record["truncated"] and words == len(said.words):
            return LeftOut.WHOLE
        recorded = ms_to_samples(int(record["audio_ms"]), RATE_HZ) if record is not None else 0
        return Interruption(
            at_ms=to_ms(first - begun),
            stop_ms=to_ms(ended - first),
            heard_ms=to_ms(heard.samples) if heard is not None else None,
            heard_words=words,
            fit=heard.fit if heard is not None else None,
            record_ms=to_ms(said.audible_until(recorded)) if record is not None else None,
            record_words=int(record["last_word"]) + 1 if record is not None else None,
            released_words=record.get("released") if record is not None else None,
            **self._memory(record, stored),
            text=str(record["text"]) if record is not None else "",
            truth=" ".join(word.text for word in said.words[: words or 0]),
            clauses=tuple(clauses),
            recording=self._name,
            begun_ms=to_ms(begun),
            speech=interrupting.spoken.speech,
        )

    def _sound(self, from_sample: int, to_sample: int) -> np.ndarray:
        """Return the bot's speech between two positions of the recording, in the bot's own time."""
        sound = self._stream.between(self._at_us(from_sample), self._at_us(to_sample))
        spans = audible_spans(sound, RATE_HZ)
        return sound[spans[0].first : spans[-1].last + 1] if spans else sound[:0]

    def _user_edges(self, sent: Sent) -> tuple[int, int]:
        """Return the first and last audible sample of an utterance, in samples of the recording."""
        spans = audible_spans(sent.spoken.pcm.astype(np.float32) / 32768, MIC_RATE_HZ)
        start = sent.slot * ms_to_samples(SLOT_US // 1000, RATE_HZ)
        ratio = MIC_RATE_HZ // RATE_HZ
        return start + spans[0].first // ratio, start + spans[-1].last // ratio

    def _at_us(self, sample: int) -> int:
        return self._line.microphone.at_us(0) + sample * 1_000_000 // RATE_HZ

    def _messages(self, from_us: int, to_us: int) -> list[Message]:
        return [message for message in self._line.messages if from_us <= message.at_us < to_us]

    def _record(self, from_us: int) -> Mapping[str, Any] | None:
        """Return the record of the reply that was over when the interruption had been noticed, or just before
        it.
        """
        behind = _in_context(self._messages(from_us, from_us + RECORD_MS * 1000))
        before = _in_context(self._messages(from_us - JUST_OVER_MS * 1000, from_us))
        return behind[0] if behind else before[-1] if before else None

    def _memory(self, record: Mapping[str, Any] | None, stored: Stored | None) -> dict[str, bool | None]:
        """Return the fields of an interruption about the agreement of the context with the record."""
        if record is None:
            return {"remembered": None}
        if stored is None:
            return {"remembered": self._is_remembered(record)}
        committed = is_committed(stored.events, record)
        shown = is_shown(stored.messages, record)
        return {"remembered": committed and shown, "committed": committed, "shown": shown}

    def _is_remembered(self, record: Mapping[str, Any]) -> bool | None:
        remembered = _server_data(self._line.messages, "remembered")
        if not remembered:
            return None
        return not record["text"] or any(data["text"] == record["text"] for data in remembered)

    def _clauses(self, from_us: int, to_us: int) -> list[str]:
        """Return the input of the voice, as the client is notified when it is about to be spoken."""
        bodies = [m.body for m in self._messages(from_us, to_us) if m.body.get("type") == "bot-output"]
        return [str(body["data"]["text"]) for body in bodies if not body["data"].get("spoken")]


def _in_context(messages: Sequence[Message]) -> list[Mapping[str, Any]]:
    return [data for data in _server_data(messages, "heard") if data["in_context"]]


def _server_data(messages: Sequence[Message], kind: str) -> list[Mapping[str, Any]]:
    payloads = [
        message.body.get("data") for message in messages if message.body.get("type") == "server-message"
    ]
    return [data for data in payloads if isinstance(data, dict) and data.get("kind") == kind]
