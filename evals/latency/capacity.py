"""Capacity: the number of simultaneous calls at which no caller notices the others.

Steps of N simultaneous calls, N rising. Each call follows the pattern of a telephone call: the caller asks,
the bot answers, then both are silent for about as long as either of them spoke. Each side therefore speaks a
third of the time. All callers ask the same questions in the same order, at different moments. The same
conversation alone, held first, gives each reply its unloaded counterpart, even from a model that words an
answer by its place in the dialogue. All callers live in this process, the server in another one.

Three things are measured at the client, over the window in which all N calls are up:

* Lateness: the delay of a packet of audible bot speech after its RTP timestamp, against the earliest packet
  of the call.
* Stretch: silence inside a reply that the same reply does not have in a call alone (``replies.stretch``). A
  server whose synthesis starves sends its silence punctually.
* Voice-to-voice of every question: a server that is punctual and slow is full as well.

The capacity is the largest N that passes, as does every step before it. A step passes when p99 of lateness
and of stretch stay within ``LIMIT_MS``, p95 of voice-to-voice stays within ``ANSWER_RATIO`` times that of one
call alone, and every question is answered. The capacity by lateness alone is another figure, reported with
it. The steps end at the first N that fails by lateness, or because a call is refused or breaks.

On a virtual machine the host may take the processor away. A step that fails while the host took more than
``STOLEN_SHARE`` is not evidence about the server. It is measured again, up to ``ATTEMPTS`` times in all, and
every attempt is reported with the host's share.

The clients share the machine with the server. The lateness of their own event loop is reported as well
(``client_lag_ms``), as that much of the lateness may be theirs: a step that fails while their loop stood for
``CLIENT_STALL_US`` is measured again in the same way. Their heap is not collected during a step. One task
group owns all calls of a step.
"""

import asyncio
import os
import random
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

import numpy as np

from parley.audio.audible import audible_spans, is_loud
from parley.core.errors import PeerError
from parley.evals.harness import recording
from parley.evals.harness.collector import uncollected
from parley.evals.harness.launcher import Server
from parley.evals.harness.manners import Manners, ask, hear_greeting
from parley.evals.harness.playout import lateness_us
from parley.evals.harness.report import percentile, tenths_ms
from parley.evals.harness.speech import RATE_HZ, Spoken
from parley.evals.harness.webrtc_caller import SLOT_US, Line, Sent, now_us
from parley.evals.latency.replies import Reply, least_stretch, reply
from parley.evals.latency.stolen import StolenTime

STEPS = (2, 3, 4, 5, 6, 8, 10, 12, 14, 16, 20, 24, 28, 32)
LIMIT_MS = 40
# Bound of p95 of voice-to-voice, against that of one call alone. A caller notices an answer that takes half
# as long again (600 ms instead of 400), and pauses are drawn from both sides of it.
ANSWER_RATIO = 1.5
MIN_SILENCE_MS = 1_000
MAX_SILENCE_MS = 10_000
DIAL_SPACING_S = 0.3
MAX_START_S = 10.0
LAG_PROBE_S = 0.005
UNLOADED_RUNS = 2
STOLEN_SHARE = 0.02
# A client that stands for as long delays the packets of every call by an audible gap.
CLIENT_STALL_US = 30_000
ATTEMPTS = 3


@dataclass(slots=True)
class Caller:
    """A call of a step.

    Attributes:
        line: the connection.
        unanswered: number of questions without an answer.
        asked: number of all questions.
    """

    line: Line
    unanswered: int = 0
    asked: int = 0


@dataclass(slots=True)
class Step:
    """Results of a step.

    Attributes:
        calls: N.
        lateness_us: of packets with audible speech, all calls.
        all_lateness_us: of every packet.
        stretches_us: per reply that has an unloaded counterpart.
        answers_us: voice-to-voice of the questions. Questions into which the bot spoke are left out.
        alone_us: p95 of the same in a call alone. None when it is not known, and then no step passes.
        audible_gaps: number of inserted silences that are audible as gaps.
        worst: the most stretched reply, for inspection.
        unmatched: number of replies without a counterpart.
        asked: number of questions.
        unanswered: number of questions without an answer.
        client_lag_us: lateness of the client's own loop.
        server_cpu: CPU seconds of the server per second. None when the server was not started here.
        bot_share: share of the window in which a bot was audible, mean over the calls.
        caller_share: the same of the callers.
        stolen_share: share of the processors' time that the host took in the window. None when not known.
        broken: reason for which a call was refused or broke. Empty when all of them held.
    """

    calls: int
    lateness_us: list[int] = field(default_factory=list)
    all_lateness_us: list[int] = field(default_factory=list)
    stretches_us: list[int] = field(default_factory=list)
    answers_us: list[int] = field(default_factory=list)
    alone_us: float | None = None
    audible_gaps: int = 0
    worst: Reply | None = None
    unmatched: int = 0
    asked: int = 0
    unanswered: int = 0
    client_lag_us: list[int] = field(default_factory=list)
    server_cpu: float | None = None
    bot_share: float = 0.0
    caller_share: float = 0.0
    stolen_share: float | None = None
    broken: str = ""

    @property
    def passed(self) -> bool:
        """True when no caller noticed the others."""
        stretch = percentile(self.stretches_us, 99) or 0
        return self.punctual and stretch <= LIMIT_MS * 1000 and self.answers_in_time

    @property
    def answers_in_time(self) -> bool:
        """True when answers came about as soon as in a call alone."""
        taken = percentile(self.answers_us, 95)
        return taken is not None and self.alone_us is not None and taken <= ANSWER_RATIO * self.alone_us

    @property
    def punctual(self) -> bool:
        """True when every question was answered and the packets came in time, whatever their content."""
        late = percentile(self.lateness_us, 99)
        return late is not None and not self.unanswered and late <= LIMIT_MS * 1000

    @property
    def was_disturbed(self) -> bool:
        """True when a failure is not evidence: the host took time, or the clients themselves stood."""
        stood_us = max(self.client_lag_us, default=0)
        return (self.stolen_share or 0.0) > STOLEN_SHARE or stood_us >= CLIENT_STALL_US

    def as_json(self) -> dict[str, Any]:
        """Return the figures in milliseconds with one decimal, because single milliseconds matter here."""
        return {
            "calls": self.calls,
            "passed": self.passed,
            "punctual": self.punctual,
            "host_took": None if self.stolen_share is None else round(self.stolen_share, 3),
            "broken": self.broken or None,
            "lateness_ms": tenths_ms(self.lateness_us),
            "lateness_all_packets_ms": tenths_ms(self.all_lateness_us),
            "stretch_ms": tenths_ms(self.stretches_us),
            "voice_to_voice_ms": tenths_ms(self.answers_us),
            "answers_in_time": self.answers_in_time,
            "gaps_over_40_ms": self.audible_gaps,
            "replies": len(self.stretches_us),
            "most_stretched": None if self.worst is None else asdict(self.worst),
            "replies_without_reference": self.unmatched,
            "questions": self.asked,
            "unanswered": self.unanswered,
            "client_lag_ms": tenths_ms(self.client_lag_us),
            "server_cpu": None if self.server_cpu is None else round(self.server_cpu, 3),
            "bot_speaks": round(self.bot_share, 2),
            "caller_speaks": round(self.caller_share, 2),
        }


async def measure(
    server: Server,
    questions: Sequence[Spoken],
    *,
    seconds: int,
    max_calls: int,
    seed: int,
    progress: Callable[[str], None] = print,
) -> dict[str, Any]:
    """Find the capacity of a running server.

    Raises:
        PeerError: not even the unloaded call works.
    """
    with uncollected():
        runs = [await _unloaded(server, questions) for _ in range(UNLOADED_RUNS)]
    references = [answer for run in runs for answer in run.replies]
    alone = [taken for run in runs for taken in run.answers_us]
    alone_us = percentile(alone, 95)
    steps: list[Step] = []
    for calls in (n for n in STEPS if n <= max_calls):
        for _ in range(ATTEMPTS):
            try:
                with uncollected():
                    step = await run_step(server, calls, questions, references, seconds=seconds, seed=seed)
                step.alone_us = alone_us
            except PeerError as error:
                # The failure is the result of this many calls; the results of fewer calls are kept.
                step = Step(calls, broken=str(error))
            steps.append(step)
            progress(_progress(step))
            if step.passed or not step.was_disturbed:
                break
        if not any(step.punctual for step in steps if step.calls == calls):
            break
    return {
        "capacity": _largest([step.calls for step in steps], {step.calls for step in steps if step.passed}),
        "capacity_by_lateness": max((step.calls for step in steps if step.punctual), default=0),
        "steps": [step.as_json() for step in steps],
        "unloaded_replies": len(references),
        "unloaded_stretch_ms": tenths_ms(_self_stretch([run.replies for run in runs])),
        "unloaded_voice_to_voice_ms": tenths_ms(alone),
    }


def _largest(tried: Sequence[int], passed: set[int]) -> int:
    """Return the largest number of calls up to which every step passed; 0 when the first failed."""
    largest = 0
    for calls in tried:
        if calls not in passed:
            break
        largest = calls
    return largest


def _progress(step: Step) -> str:
    if step.broken:
        return f"{step.calls} calls: {step.broken}: failed"
    report = step.as_json()
    taken = "" if step.stolen_share is None else f", the host took {step.stolen_share:.1%}"
    return (
        f"{step.calls} calls: lateness p99 {report['lateness_ms']['p99']} ms, stretch p99 "
        f"{report['stretch_ms']['p99']} ms, voice-to-voice p95 {report['voice_to_voice_ms']['p95']} ms, "
        f"{step.unanswered} of {step.asked} unanswered, "
        f"server CPU {report['server_cpu']}{taken}: {'passed' if step.passed else 'failed'}"
    )


@dataclass(frozen=True, slots=True)
class Alone:
    """Replies and voice-to-voice of a call alone in which every question is asked once."""

    replies: list[Reply]
    answers_us: list[int]


async def _unloaded(server: Server, questions: Sequence[Spoken]) -> Alone:
    """Hold a call alone in which every question is asked once."""
    line = Line(server.url)
    manners = Manners()
    try:
        await line.dial()
        await hear_greeting(line, manners)
        for question in questions:
            await ask(line, question, manners)
        alone = Alone(replies_of(line), answers_of(line))
    finally:
        await line.hang_up()
    if not alone.replies:
        raise PeerError(f"{server.url} answered none of {len(questions)} questions in a single call")
    return alone


def _self_stretch(runs: Sequence[Sequence[Reply]]) -> list[int]:
    """Return the stretch among the unloaded replies: the spread without any load."""
    found: list[int] = []
    for index, run in enumerate(runs):
        others = [answer for other in (*runs[:index], *runs[index + 1 :]) for answer in other]
        results = [least_stretch(answer, others) for answer in run]
        found.extend(result.inserted_us for result in results if result is not None)
    return found


async def run_step(
    server: Server,
    calls: int,
    questions: Sequence[Spoken],
    references: Sequence[Reply],
    *,
    seconds: int,
    seed: int,
) -> Step:
    """Run N calls for ``seconds`` after the last one has come up.

    Raises:
        PeerError: a call did not connect or broke.
    """
    callers = [Caller(Line(server.url)) for _ in range(calls)]
    step = Step(calls)
    everybody_up = asyncio.Event()
    window: list[int] = []
    try:
        for caller in callers:
            await caller.line.dial()
            await asyncio.sleep(DIAL_SPACING_S)
        async with asyncio.TaskGroup() as tasks:
            probe = tasks.create_task(probe_lag(step.client_lag_us), name="capacity.lag")
            talks = [
                tasks.create_task(
                    _talk(caller, questions, random.Random(seed * 1000 + index), everybody_up, window),
                    name=f"capacity.call{index}",
                )
                for index, caller in enumerate(callers)
            ]
            await asyncio.gather(*(hear_greeting(caller.line, Manners()) for caller in callers))
            step.client_lag_us.clear()
            stolen = StolenTime()
            stolen.sample()
            cpu_before = server.cpu_s()
            window.extend((now_us(), now_us() + seconds * 1_000_000))
            everybody_up.set()
            await asyncio.sleep(seconds)
            cpu_after = server.cpu_s()
            if cpu_before is not None and cpu_after is not None:
                step.server_cpu = (cpu_after - cpu_before) / seconds
            stolen.sample()
            stolen_us = stolen.between(window[0], now_us())
            if stolen_us is not None:
                step.stolen_share = stolen_us / (seconds * 1_000_000 * (os.cpu_count() or 1))
            await asyncio.gather(*talks)
            probe.cancel()
        for caller in callers:
            _account(step, caller, references, window[0], window[1])
    except* PeerError as group:
        # A broken call ends the step. Raise its error, not one about a group of tasks.
        raise group.exceptions[0] from None
    finally:
        await asyncio.gather(*(caller.line.hang_up() for caller in callers), return_exceptions=True)
    return step


async def _talk(
    caller: Caller,
    questions: Sequence[Spoken],
    dice: random.Random,
    everybody_up: asyncio.Event,
    window: list[int],
) -> None:
    """Ask until the window closes; the last answer is received to its end."""
    await everybody_up.wait()
    # A random start keeps the callers out of step.
    await asyncio.sleep(dice.uniform(0, MAX_START_S))
    while now_us() < window[1]:
        question = questions[caller.asked % len(questions)]
        began_us = now_us()
        caller.asked += 1
        if not await ask(caller.line, question, Manners()):
            caller.unanswered += 1
            if not caller.line.alive:
                raise PeerError("a call failed under load")
        silence_us = min(max((now_us() - began_us) // 2, MIN_SILENCE_MS * 1000), MAX_SILENCE_MS * 1000)
        # The time that ``ask`` waited at the end of the reply is part of the silence.
        rest_us = silence_us * dice.uniform(0.7, 1.3) - Manners().reply_quiet_ms * 1000
        await asyncio.sleep(max(0.0, rest_us / 1e6))


async def probe_lag(lags_us: list[int]) -> None:
    """Record the lateness of short sleeps until cancelled."""
    loop = asyncio.get_running_loop()
    while True:
        due = loop.time() + LAG_PROBE_S
        await asyncio.sleep(LAG_PROBE_S)
        lags_us.append(int((loop.time() - due) * 1e6))


def _account(step: Step, caller: Caller, references: Sequence[Reply], start_us: int, end_us: int) -> None:
    line = caller.line
    step.asked += caller.asked
    step.unanswered += caller.unanswered
    late, audible = packet_lateness(line)
    for at_us, packet_us, is_audible in zip(line.ears.arrivals.at_us, late, audible, strict=True):
        if start_us <= at_us <= end_us:
            step.all_lateness_us.append(packet_us)
            if is_audible:
                step.lateness_us.append(packet_us)
    bot_us = 0
    for answer in replies_of(line):
        bot_us += answer.length_us if start_us <= answer.start_us <= end_us else 0
        result = least_stretch(answer, references)
        if result is None:
            step.unmatched += 1
            continue
        if result.inserted_us > max(step.stretches_us, default=0):
            step.worst = answer
        step.stretches_us.append(result.inserted_us)
        step.audible_gaps += result.audible_gaps
    step.answers_us.extend(answers_of(line))
    spoken_us = sum(sent.spoken.pcm.size for sent in line.microphone.sent) * 1_000_000 // RATE_HZ
    step.bot_share += bot_us / (end_us - start_us) / step.calls
    step.caller_share += spoken_us / (end_us - start_us) / step.calls


def packet_lateness(line: Line) -> tuple[list[int], list[bool]]:
    """Return the lateness of every packet of a call, and true for each that carries audible sound."""
    arrivals = line.ears.arrivals
    loud = {
        stamp
        for stamp, frame in zip(line.ears.frame_stamps, line.ears.frames, strict=True)
        if is_loud(frame.pcm.astype(np.float32) / 32768)
    }
    late = lateness_us(arrivals.at_us, arrivals.rtp_timestamps, RATE_HZ)
    return late, [stamp in loud for stamp in arrivals.rtp_timestamps]


def replies_of(line: Line) -> list[Reply]:
    """Return the replies of a call as played at the client; unanswered questions have none."""
    origin_us = line.microphone.at_us(0)
    timeline = recording.played(line).pcm.astype(np.float32) / 32768
    spans = audible_spans(timeline, RATE_HZ)
    sent = line.microphone.sent
    found: list[Reply] = []
    for index, question in enumerate(sent):
        start_us = _end_us(line, question)
        limit_us = line.microphone.at_us(sent[index + 1].slot) if index + 1 < len(sent) else now_us()
        inside = [
            span for span in spans if start_us <= origin_us + span.first * 1_000_000 // RATE_HZ < limit_us
        ]
        if inside:
            text = _bot_text(line, line.microphone.at_us(question.slot), limit_us) or question.spoken.text
            found.append(reply(text, inside, RATE_HZ, origin_us))
    return found


def answers_of(line: Line) -> list[int]:
    """Return the voice-to-voice of the questions of a call, in microseconds, as played at the client.

    Questions without an answer, and those into which the bot spoke, are left out.
    """
    origin_us = line.microphone.at_us(0)
    timeline = recording.played(line).pcm.astype(np.float32) / 32768
    begins = [origin_us + span.first * 1_000_000 // RATE_HZ for span in audible_spans(timeline, RATE_HZ)]
    found: list[int] = []
    for index, question in enumerate(line.microphone.sent):
        start_us = line.microphone.at_us(question.slot)
        spoken = audible_spans(question.spoken.pcm.astype(np.float32) / 32768, RATE_HZ)
        if not spoken:
            continue
        last_us = start_us + spoken[-1].last * 1_000_000 // RATE_HZ
        behind = line.microphone.sent[index + 1 :]
        limit_us = line.microphone.at_us(behind[0].slot) if behind else now_us()
        first_us = next((at_us for at_us in begins if start_us <= at_us < limit_us), None)
        if first_us is not None and first_us > last_us:
            found.append(first_us - last_us)
    return found


def _end_us(line: Line, sent: Sent) -> int:
    return line.microphone.at_us(sent.slot) + len(sent.spoken.packets) * SLOT_US


def _bot_text(line: Line, start_us: int, end_us: int) -> str:
    """Return the model's text in a stretch of the call, from RTVI; empty when the server does not send it."""
    pieces = [
        str((message.body.get("data") or {}).get("text", ""))
        for message in line.messages
        if message.body.get("type") == "bot-llm-text" and start_us <= message.at_us < end_us
    ]
    return "".join(pieces).strip()
