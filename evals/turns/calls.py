"""Barge-in in real WebRTC calls with the embedded engines: time to silence, and false yields.

Each caller asks for a long answer. Shortly after it begins they hum ("uh huh", "yeah"); a few seconds later
they interrupt with their next question. Two sources are compared on one clock. The caller's recording has the
last audible sample of the bot before the caller has finished. The server reports its decision (``barge_in``
messages). A hum is a false yield when the record of a reply (``heard`` messages) shows that it was cut off.
An interruption is missed when the bot talks over it to the end. Sounds that were not over the bot's voice are
counted by reason and not judged.

Callers are tasks of the coroutine that awaits them and always hang up. The voices are synthetic, on a quiet
line: the result is about the chain and its times, not about the shares of hums in real calls.
"""

import asyncio
import random
import sys
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any

import numpy as np
import soxr
import yaml

from parley.audio.audible import AudibleSpan, audible_spans
from parley.configs.load import read_yaml
from parley.core.errors import PeerError
from parley.core.media import ms_to_samples
from parley.evals.harness import recording
from parley.evals.harness.command import machine
from parley.evals.harness.launcher import server_at
from parley.evals.harness.questions import LONG_ANSWERS, Utterance
from parley.evals.harness.report import percentile
from parley.evals.harness.speech import RATE_HZ as MIC_RATE_HZ
from parley.evals.harness.speech import Speakers, Spoken
from parley.evals.harness.webrtc_caller import SLOT_US, Line, Sent

RATE_HZ = 16_000
# The callers' voices; the bot's is slt.
VOICES = ("rms", "awb", "kal16")
HUMS = ("uh huh", "yeah", "okay", "right", "hm", "i see")
ANSWER_MS = 8_000
GREETING_QUIET_MS = 600
# From the first sound of an answer to the hum, and from its end to the interruption; the hum is judged
# meanwhile.
HUM_AFTER_MS = (400, 1_200)
INTERRUPT_AFTER_MS = (1_500, 2_300)
# Longest pause inside the bot's speech, and latest decision after the end of a sound.
PAUSE_MS = 900
VERDICT_MS = 1_400
MAX_ROUNDS = 4
SPARE_PERCENT = 40


class LeftOut(StrEnum):
    """Reasons for which a sound was not over the bot's voice."""

    NO_ANSWER = "the question before it was not answered in time"
    OVER = "the answer was over"


@dataclass(frozen=True, slots=True)
class Interruption:
    """A question over an answer. Times in milliseconds.

    Attributes:
        stopped: true when the bot fell silent before the caller had finished.
        voice_to_silence: from the caller's first audible sample to the bot's last one; None when the bot went
            on.
        decision_to_silence: from the server's decision to the same; negative when the bot was in a pause;
            None without a decision.
        voice_to_decision: None without a decision.
        reason: of the cut, as reported by the server.
        recording: file name of the call.
        at_ms: of the first audible sample in it.
    """

    stopped: bool
    voice_to_silence: float | None
    decision_to_silence: float | None
    voice_to_decision: float | None
    reason: str | None
    recording: str
    at_ms: int


@dataclass(frozen=True, slots=True)
class Hum:
    """A backchannel over an answer.

    Attributes:
        word: spoken word.
        yielded: true when the answer was cut for it.
        reason: of the cut, as reported by the server.
        ducked_ms: time for which the bot was quieter, None when it was not.
        recording: as of an interruption.
        at_ms: as of an interruption.
    """

    word: str
    yielded: bool
    reason: str | None
    ducked_ms: float | None
    recording: str
    at_ms: int


@dataclass(slots=True)
class Judged:
    """Results of the callers' sounds."""

    interruptions: list[Interruption] = field(default_factory=list)
    hums: list[Hum] = field(default_factory=list)
    left_out: Counter[str] = field(default_factory=Counter)


@dataclass(frozen=True, slots=True)
class _Over:
    """An answer and the sounds over it."""

    asked: Sent
    hum: Sent
    word: str
    question: Sent


async def measure(
    *,
    interruptions: int,
    per_call: int,
    seed: int,
    config: Path,
    out_dir: Path,
    url: str | None = None,
    mode: str | None = None,
) -> dict[str, Any]:
    """Place calls until the given number of answers was interrupted.

    Args:
        interruptions: number to be judged.
        per_call: number of them in one call.
        seed: of words and moments.
        config: of the server that is started.
        out_dir: for recordings and the log; exists.
        url: of a running server, in place of one that is started.
        mode: "cascade" or "duplex"; None leaves it to the server.

    Raises:
        AgentError: a server does not start or answer, or too few answers were long enough.
    """
    speakers = Speakers(out_dir / "voices")
    judged = Judged()
    async with server_at(url, "parley", config, out_dir / "server.log") as server:
        root = server.url
        # An engine's first sentence may find cold caches.
        await _call(root, speakers, 2, seed + 900, out_dir / "warmup.wav", mode)
        for number in range(MAX_ROUNDS * -(-interruptions // per_call)):
            missing = interruptions - len(judged.interruptions)
            if missing <= 0:
                break
            count = min(per_call, missing + -(-missing * SPARE_PERCENT // 100))
            path = out_dir / f"call-{number:02d}.wav"
            one = await _call(root, speakers, count + 1, seed + number, path, mode)
            judged.interruptions += one.interruptions
            judged.hums += one.hums
            judged.left_out += one.left_out
            _say(f"{len(judged.interruptions)} of {interruptions}, {len(judged.hums)} hums")
    if len(judged.interruptions) < interruptions:
        raise PeerError(
            f"only {len(judged.interruptions)} answers were talked over, {judged.left_out.total()} were not; "
            f"see {out_dir}"
        )
    settings = {"seed": seed, "config": str(config), "url": url, "mode": mode}
    return {**figures(judged), "settings": settings, "machine": machine()}


def figures(judged: Judged) -> dict[str, Any]:
    """Return the judged sounds as the figures of the JSON."""
    over, hums = judged.interruptions, judged.hums
    return {
        "kind": "webrtc",
        "interruptions": len(over),
        "barge_in_recall": _share([one.stopped for one in over]),
        "decision_to_silence_ms": _quantiles([one.decision_to_silence for one in over]),
        "voice_to_decision_ms": _quantiles([one.voice_to_decision for one in over]),
        "barge_in_stop_ms": _quantiles([one.voice_to_silence for one in over]),
        "reasons": dict(Counter(one.reason for one in over if one.reason is not None)),
        "backchannels": len(hums),
        "false_yield_rate": _share([hum.yielded for hum in hums]),
        "duck_ms": _quantiles([hum.ducked_ms for hum in hums]),
        "left_out": dict(judged.left_out),
        "per_interruption": [asdict(one) for one in over],
        "per_backchannel": [asdict(hum) for hum in hums],
    }


def table(result: Mapping[str, Any]) -> str:
    """Return the result as a Markdown table."""
    rows = [
        ("decision to the bot's last sample", result["decision_to_silence_ms"]),
        ("first sample of the voice to the decision", result["voice_to_decision_ms"]),
        ("first sample of the voice to the bot's last", result["barge_in_stop_ms"]),
        ("bot lower for a hum", result["duck_ms"]),
    ]
    settings = result["settings"]
    mode = settings.get("mode") or "the server's mode"
    lines = [
        f"{settings['config']}, {mode}, real WebRTC calls, synthetic voices, seed {settings['seed']}:",
        "",
    ]
    lines += ["| ms | p50 | p95 |", "|---|---|---|"]
    lines += [f"| {name} | {_whole(one['p50'])} | {_whole(one['p95'])} |" for name, one in rows]
    recall, yields = result["barge_in_recall"], result["false_yield_rate"]
    lines += [
        "",
        f"{result['interruptions']} interruptions, {_percent(recall)} stopped the bot; "
        f"{result['backchannels']} backchannels, {_percent(yields)} did. Left out: {result['left_out']}.",
        "",
    ]
    return "\n".join(lines)


async def _call(
    url: str, speakers: Speakers, questions: int, seed: int, path: Path, mode: str | None
) -> Judged:
    """Place one call: each question but the first interrupts the answer to the one before."""
    line, dice, judged = Line(url, mode=mode), random.Random(seed), Judged()
    voice = VOICES[seed % len(VOICES)]

    def speak(text: str) -> Spoken:
        return speakers.speak(Utterance((text,), 0, "flite", voice, 0))

    spoken = [speak(LONG_ANSWERS[(seed + n) % len(LONG_ANSWERS)]) for n in range(questions)]
    hums = {word: speak(word) for word in HUMS}
    over: list[_Over] = []
    try:
        await line.dial()
        if await line.wait_bot_audible(line.connected_us, ANSWER_MS):
            await line.wait_bot_quiet(GREETING_QUIET_MS, 30_000)
        asked = await line.microphone.speak(spoken[0])
        for question in spoken[1:]:
            ended_us = line.microphone.at_us(asked.slot + len(asked.spoken.packets))
            if not await line.wait_bot_audible(ended_us, ANSWER_MS):
                judged.left_out[LeftOut.NO_ANSWER] += 1
                asked = await line.microphone.speak(question)
                continue
            await asyncio.sleep(dice.uniform(*HUM_AFTER_MS) / 1000)
            word = dice.choice(HUMS)
            hum = await line.microphone.speak(hums[word])
            await asyncio.sleep(dice.uniform(*INTERRUPT_AFTER_MS) / 1000)
            before, asked = asked, await line.microphone.speak(question)
            over.append(_Over(before, hum, word, asked))
        await asyncio.sleep(VERDICT_MS / 1000)
        recording.write(line, path)
        bot = recording.played(line).pcm
    finally:
        await line.hang_up()
    judge = await asyncio.to_thread(_Judge, line, bot, path.name)
    for one in over:
        judge.judge(one, judged)
    return judged


class _Judge:
    """Judge of one call: its recording and the server's decisions."""

    def __init__(self, line: Line, bot: np.ndarray, name: str) -> None:
        self._name = name
        audio = soxr.resample(bot.astype(np.float32) / 32768, MIC_RATE_HZ, RATE_HZ)
        self._spans = audible_spans(audio, RATE_HZ)
        origin_us = line.microphone.at_us(0) + line.wall_offset_us
        # Times at which the record of a cut reply arrived; available from a server that reports no decisions,
        # too.
        self._cut_replies = [
            (message.at_us - line.microphone.at_us(0)) * RATE_HZ // 1_000_000
            for message in line.messages
            if _is_cut_reply(message.body.get("data"))
        ]
        # (sample of the recording, act, reason), in order.
        self._decisions = [
            ((int(data["at_us"]) - origin_us) * RATE_HZ // 1_000_000, str(data["act"]), data.get("reason"))
            for data in line.server_messages("barge_in")
        ]

    def judge(self, over: _Over, judged: Judged) -> None:
        """Judge both sounds over one answer."""
        hum, word = _edges(over.hum), over.word
        if not self._is_on(hum[0]):
            judged.left_out[LeftOut.OVER] += 1
            return
        question = _edges(over.question)
        told = self._between(hum[0], question[0])
        cut = self._first(told, "cut")
        yielded = cut is not None or any(hum[0] <= at < question[0] for at in self._cut_replies)
        duck, restored = self._first(told, "duck"), self._first(told, "restore")
        ducked_ms = None if duck is None or restored is None else _ms(restored[0] - duck[0])
        reason = None if cut is None else str(cut[2])
        judged.hums.append(Hum(word, yielded, reason, ducked_ms, self._name, int(_ms(hum[0]))))
        if not self._is_on(question[0]):
            judged.left_out[LeftOut.OVER] += 1
            return
        judged.interruptions.append(self._interruption(question))

    def _interruption(self, edges: tuple[int, int]) -> Interruption:
        first, last = edges
        cut = self._first(self._between(first, last + ms_to_samples(VERDICT_MS, RATE_HZ)), "cut")
        heard = self._heard_until(first, last)
        stopped = last - heard > ms_to_samples(100, RATE_HZ)
        return Interruption(
            stopped=stopped,
            voice_to_silence=_ms(heard - first) if stopped else None,
            decision_to_silence=_ms(heard - cut[0]) if stopped and cut is not None else None,
            voice_to_decision=_ms(cut[0] - first) if cut is not None else None,
            reason=str(cut[2]) if cut is not None else None,
            recording=self._name,
            at_ms=int(_ms(first)),
        )

    def _is_on(self, sample: int) -> bool:
        """Return whether the bot is in the middle of an answer: it is audible around a moment."""
        pause = ms_to_samples(PAUSE_MS, RATE_HZ)
        before = any(span.first < sample and span.last > sample - pause for span in self._spans)
        return before and any(span.last > sample and span.first < sample + pause for span in self._spans)

    def _heard_until(self, first: int, last: int) -> int:
        """Return the last audible sample of the bot that belongs to its speech at ``first``."""
        heard = first
        for span in self._spans:
            if span.first < last and span.last > first:
                heard = max(heard, min(span.last, last))
        return heard

    def _between(self, first: int, last: int) -> Sequence[tuple[int, str, Any]]:
        return [decision for decision in self._decisions if first <= decision[0] < last]

    @staticmethod
    def _first(decisions: Sequence[tuple[int, str, Any]], act: str) -> tuple[int, str, Any] | None:
        return next((decision for decision in decisions if decision[1] == act), None)


def _is_cut_reply(data: object) -> bool:
    if not isinstance(data, dict) or data.get("kind") != "heard":
        return False
    return bool(data["in_context"] and data["truncated"])


def _edges(sent: Sent) -> tuple[int, int]:
    """Return the first and last audible sample of a sent utterance, in samples of the recording."""
    spans: list[AudibleSpan] = audible_spans(sent.spoken.pcm.astype(np.float32) / 32768, MIC_RATE_HZ)
    start = sent.slot * ms_to_samples(SLOT_US // 1000, RATE_HZ)
    ratio = MIC_RATE_HZ // RATE_HZ
    return start + spans[0].first // ratio, start + spans[-1].last // ratio


def plain(config: Path, out_dir: Path) -> Path:
    """Write the deployment with interruptions left to Pipecat to a file in ``out_dir``; return its path."""
    settings = read_yaml(config)
    settings.setdefault("hearing", {})["barge_in"] = None
    path = out_dir / "plain.yaml"
    path.write_text(yaml.safe_dump(settings))
    return path


def _ms(samples: int) -> float:
    return round(samples * 1000 / RATE_HZ, 1)


def _share(flags: Sequence[bool]) -> float | None:
    return round(sum(flags) / len(flags), 4) if flags else None


def _quantiles(values: Sequence[float | None]) -> dict[str, float | None]:
    known = [value for value in values if value is not None]
    return {f"p{percent}": percentile(known, percent) for percent in (50, 95)}


def _whole(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


def _percent(share: float | None) -> str:
    return "none" if share is None else f"{100 * share:.1f} %"


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)
