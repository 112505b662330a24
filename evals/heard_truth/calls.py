"""Callers who interrupt long answers at random moments, with their next question.

A question is an interruption of the answer to the one before it: voice, at full level, in the middle of the
bot's speech. Each call is a task of whoever awaits it; it always hangs up. Every wait has a deadline.
"""

import asyncio
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import soxr

from audio.audible import audible_spans
from core.media import ms_to_samples
from evals.heard_truth.stream import stream
from evals.heard_truth.truth import RATE_HZ, locate, reference, to_ms
from evals.latency import recording
from evals.latency.client import SLOT_US, Line, Message, Sent
from evals.latency.playout import Playout
from evals.latency.speech import RATE_HZ as MIC_RATE_HZ
from evals.latency.speech import Spoken
from models.tts import TextToSpeech

# An interruption comes this long after the answer's first sound.
EARLIEST_MS = 300
LATEST_MS = 6_000
ANSWER_MS = 8_000
GREETING_QUIET_MS = 600
# The record of an interrupted reply is there when the interruption has been noticed.
RECORD_MS = 3_000
# Sound of the bot that is heard after this much silence is not of the reply before it.
REPLY_GAP_MS = 900


@dataclass(frozen=True, slots=True)
class Interruption:
    """One interruption, in the caller's recording and in the server's record.

    Attributes:
        at_ms: into the answer, by the first audible sample of both.
        stop_ms: from the first audible sample of the interruption to the last one of the bot.
        heard_ms: how far the reply was heard; None when that could not be told.
        heard_words: words of which enough was heard.
        fit: of the end of the sound in the reply, 0..1.
        record_ms: the server's ``audio_ms``, up to its last audible sample there; None without a record.
        record_words: the server's count of words heard.
        released_words: Pipecat's own, None when the server does not tell.
        remembered: whether the context holds the text of the record; None when the server does not tell.
        text: the server's text.
        truth: the text by the recording.
        clauses: what the voice was given.
        recording: file name of the call.
        begun_ms: first audible sample of the reply in it.
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

    @property
    def word_error(self) -> int | None:
        """Words that the record has too many; None when either side is missing."""
        if self.record_words is None or self.heard_words is None:
            return None
        return self.record_words - self.heard_words


@dataclass(frozen=True, slots=True)
class Plan:
    """What one caller does.

    Attributes:
        questions: the first one is asked in silence; each of the others interrupts.
        seed: of the moments.
        due_percent: the share of a word that counts.
    """

    questions: Sequence[Spoken]
    seed: int
    due_percent: int


async def call(url: str, plan: Plan, voice: TextToSpeech, path: Path) -> list[Interruption]:
    """Place one call and judge its interruptions; those that came after the end of an answer are left out.

    Raises:
        PeerError: the call did not connect or broke.
    """
    line = Line(url)
    dice = random.Random(plan.seed)
    interrupting: list[tuple[Sent, Sent]] = []
    try:
        await line.dial()
        if await line.wait_bot_audible(line.connected_us, ANSWER_MS):
            await line.wait_bot_quiet(GREETING_QUIET_MS, 30_000)
        before: Sent | None = None
        for question in plan.questions:
            sent = await line.microphone.speak(question)
            if before is not None:
                interrupting.append((before, sent))
            before = None
            ended_us = line.microphone.at_us(sent.slot + len(question.packets))
            if await line.wait_bot_audible(ended_us, ANSWER_MS):
                await asyncio.sleep(dice.uniform(EARLIEST_MS, LATEST_MS) / 1000)
                if (line.bot_quiet_us() or 0) < REPLY_GAP_MS * 1000:
                    before = sent
        await asyncio.sleep(RECORD_MS / 1000)
        recording.write(line, path)
        played = recording.played(line)
    finally:
        await line.hang_up()
    judge = _Judge(line, played, voice, plan.due_percent, path.name)
    judged = [await asyncio.to_thread(judge.interruption, *pair) for pair in interrupting]
    return [one for one in judged if one is not None]


class _Judge:
    """One call's recording beside the server's messages."""

    def __init__(self, line: Line, played: Playout, voice: TextToSpeech, due_percent: int, name: str) -> None:
        self._line = line
        self._name = name
        self._bot = soxr.resample(played.pcm.astype(np.float32) / 32768, MIC_RATE_HZ, RATE_HZ)
        self._spans = audible_spans(self._bot, RATE_HZ)
        self._stream = stream(line.ears.frames, line.ears.frame_stamps)
        self._voice = voice
        self._due_percent = due_percent

    def interruption(self, question: Sent, interrupting: Sent) -> Interruption | None:
        """Judge it; None when the reply had ended before, or none was heard."""
        asked = self._user_edges(question)[1]
        first, last = self._user_edges(interrupting)
        # The bot is silent while it listens: what it says before the end of the interruption is the reply.
        spans = [span for span in self._spans if asked < span.first < last]
        if not spans or spans[-1].last < first or spans[0].first > first:
            return None
        begun, ended = spans[0].first, spans[-1].last
        record = self._record(self._at_us(first))
        if record is not None and not record["truncated"]:
            return None
        clauses = self._clauses(self._at_us(asked), self._at_us(last))
        said = reference(self._voice, clauses)
        heard = locate(said, self._sound(asked, last))
        words = said.words_until(heard.samples, self._due_percent) if heard is not None else None
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
            remembered=self._is_remembered(record) if record is not None else None,
            text=str(record["text"]) if record is not None else "",
            truth=" ".join(word.text for word in said.words[: words or 0]),
            clauses=tuple(clauses),
            recording=self._name,
            begun_ms=to_ms(begun),
        )

    def _sound(self, from_sample: int, to_sample: int) -> np.ndarray:
        """What the bot was heard to say between two places of the recording, in the bot's own time."""
        sound = self._stream.between(self._at_us(from_sample), self._at_us(to_sample))
        spans = audible_spans(sound, RATE_HZ)
        return sound[spans[0].first : spans[-1].last + 1] if spans else sound[:0]

    def _user_edges(self, sent: Sent) -> tuple[int, int]:
        """First and last audible sample of an utterance, in samples of the recording."""
        spans = audible_spans(sent.spoken.pcm.astype(np.float32) / 32768, MIC_RATE_HZ)
        start = sent.slot * ms_to_samples(SLOT_US // 1000, RATE_HZ)
        ratio = MIC_RATE_HZ // RATE_HZ
        return start + spans[0].first // ratio, start + spans[-1].last // ratio

    def _at_us(self, sample: int) -> int:
        return self._line.microphone.at_us(0) + sample * 1_000_000 // RATE_HZ

    def _messages(self, from_us: int, to_us: int) -> list[Message]:
        return [message for message in self._line.messages if from_us <= message.at_us < to_us]

    def _record(self, from_us: int) -> Mapping[str, Any] | None:
        """The reply that was over when the interruption had been noticed."""
        for data in _server_data(self._messages(from_us, from_us + RECORD_MS * 1000), "heard"):
            if data["in_context"]:
                return data
        return None

    def _is_remembered(self, record: Mapping[str, Any]) -> bool | None:
        remembered = _server_data(self._line.messages, "remembered")
        if not remembered:
            return None
        return not record["text"] or any(data["text"] == record["text"] for data in remembered)

    def _clauses(self, from_us: int, to_us: int) -> list[str]:
        """What the voice was given, as the client is told when it is about to be said."""
        bodies = [m.body for m in self._messages(from_us, to_us) if m.body.get("type") == "bot-output"]
        return [str(body["data"]["text"]) for body in bodies if not body["data"].get("spoken")]


def _server_data(messages: Sequence[Message], kind: str) -> list[Mapping[str, Any]]:
    payloads = [
        message.body.get("data") for message in messages if message.body.get("type") == "server-message"
    ]
    return [data for data in payloads if isinstance(data, dict) and data.get("kind") == kind]
