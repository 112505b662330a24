"""Write down the decisions of full-duplex calls and their times, and compare them with earlier ones.

    python -m tests.sim.duplex_traces --calls 300 --write before.json
    python -m tests.sim.duplex_traces --calls 300 --compare before.json
    python -m tests.sim.duplex_traces --calls 40 --digests tests/sim/duplex_traces.json

Each seed makes a call of its own on virtual time, with a scripted engine alone in its pipeline. Callers
interrupt, pause, hang up and force it to listen; engines are late, stall and fail. Every tenth call is a
whole one, with the two-tier engine or another. A trace holds the engine's output, every unit, event and
apology with its millisecond, and the text of the records. Identifiers are numbered in order of appearance.
Digests leave out the loudness, whose last digit depends on the processor.
"""

import argparse
import asyncio
import json
import random
import re
import sys
import tempfile
from collections.abc import Callable, Coroutine
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
from loguru import logger
from pipecat.frames.frames import (
    AggregatedTextFrame,
    CancelFrame,
    Frame,
    InputAudioRawFrame,
    InterruptionFrame,
    LLMMessagesAppendFrame,
    OutputAudioRawFrame,
    OutputTransportMessageFrame,
    OutputTransportMessageUrgentFrame,
    TTSAudioRawFrame,
    TTSStartedFrame,
    TTSStoppedFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)

from parley.core.call_events import (
    CallBegan,
    CallEnded,
    CallEvent,
    EnginesGivenUp,
    PauseExpired,
    SpeechReported,
    TurnEndRequested,
    UnitTaken,
)
from parley.evals.bench.duplex_jitter.reading import read_ticks
from parley.models.omni import OmniHost
from parley.processors.duplex.omni import DuplexPauseFrame, DuplexResumeFrame
from tests.fakes.duplex_call import Call, play, script
from tests.fakes.executor import TimedExecutor
from tests.fakes.omni import OmniScript, ScriptedOmniHost
from tests.sim.call import RunningCall, silence, simulate, voice
from tests.sim.traces import digest

Trace = dict[str, list[Any]]
WHOLE_EVERY = 10
# Events whose facts are in another part of a trace, or show in what follows from them: failures (``ends``),
# units (``ticks``), words on their way to the engine, the bounds of a whole call.
LEFT_OUT = EnginesGivenUp | PauseExpired | UnitTaken | SpeechReported | CallBegan | CallEnded
_ID = re.compile(r"[0-9a-f]{8}-?(?:[0-9a-f]{4}-?){3}[0-9a-f]{12}")


def trace(seed: int) -> Trace:
    """Hold the call of a seed and return its trace."""
    rng = random.Random(seed)
    made = _whole(rng) if seed % WHOLE_EVERY == 0 else _alone(rng)
    numbers: dict[str, str] = {}
    text = _ID.sub(
        lambda found: numbers.setdefault(found[0], f"id{len(numbers)}"), json.dumps(made, default=repr)
    )
    result: Trace = json.loads(text)
    return result


def digests(calls: int) -> list[str]:
    """Return the digest of each of a number of calls, in the order of their seeds."""
    return [_digest(trace(seed)) for seed in range(calls)]


def _digest(made: Trace) -> str:
    compared = {name: lines for name, lines in made.items() if name != "loudness"}
    return digest([json.dumps(compared, sort_keys=True)])


# An engine alone in its pipeline.


def _alone(rng: random.Random) -> Trace:
    unit_ms = rng.choice((80, 80, 200, 1_000))
    holds_first, hosts = rng.random() < 0.5, rng.randint(1, 3)
    options: dict[str, Any] = {
        "has_voice": rng.random() < 0.4,
        "holds_first": holds_first,
        "reports_units": rng.random() < 0.3,
        "tick": {
            "prepare_ms": 1_000,
            "hang_ms": 500,
            "grace_ms": 100,
            "deferred_finalize": rng.random() < 0.8,
            "gate": {"gating": rng.choice(("none", "none", "vad", "wake")), "hold_ms": 500, "wake_ms": 2_000},
        },
        "pause_ms": 2_000,
        "most_failures": rng.randint(1, 4),
        "recovered_units": 10,
    }
    scripts = [_script(rng, unit_ms) for _ in range(hosts)]
    directly = rng.random() < 0.2
    call = Call(
        *scripts,
        executors=lambda: TimedExecutor(_costs(rng, unit_ms)),
        uses_pipeline_audio=not directly,
        **options,
    )
    events: list[Any] = []
    call.events.subscribe(CallEvent, lambda event: _write(events, event, call.began_s))
    play(call, lambda call: _talk(rng, call, directly=directly))
    passed = zip(call.watch.at_s, call.watch.frames, strict=True)
    return {
        "left": [each for at_s, frame in passed if (each := _frame(frame, at_s - call.began_s)) is not None],
        "ticks": [_tick(asdict(tick), call.began_s) for tick in call.ticks],
        "events": events,
        "heard": [[reply.text, reply.unheard, reply.truncated] for reply in call.replies],
        "sounds": list(call.sounds_ms()),
        "forced": [engine.forced for host in call.hosts for engine in host.engines],
        "ends": [
            [round((at_s - call.began_s) * 1000) for at_s in call.apologies],
            call.given_up,
            call.pauses_expired,
        ],
    }


def _script(rng: random.Random, unit_ms: int) -> OmniScript:
    votes = "".join(rng.choice("lllb") * rng.randint(1, 6) + "s" * rng.randint(1, 12) for _ in range(8))
    votes = "".join("y" if letter == "l" and rng.random() < 0.1 else letter for letter in votes)
    return script(
        votes,
        unit_ms=unit_ms,
        fails_at=rng.randint(0, 40) if rng.random() < 0.4 else None,
        context_units=rng.choice((None, None, 20)),
    )


def _costs(rng: random.Random, unit_ms: int) -> Callable[[str], float | None]:
    share = rng.choice((0.0, 0.0, 0.3, 0.9, 1.5))
    hangs = rng.choice(("", "", "", "", "prepare", "open_engine", "finalize", "hear_and_say", "cleanup"))

    def took_s(name: str) -> float | None:
        name = name.strip("_")
        if name == hangs and rng.random() < 0.1:
            return None
        if name in ("hear_and_say", "finalize"):
            return share * unit_ms / 1000 * rng.choice((0.5, 1.0))
        return 0.03 if share else 0.0

    return took_s


async def _talk(rng: random.Random, call: Call, *, directly: bool) -> None:
    ends_s = rng.uniform(3, 9)
    speaking = asyncio.create_task(_speak(rng, call, directly=directly))
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while (left_s := began_s + ends_s - loop.time()) > 0:
        await asyncio.sleep(min(left_s, rng.expovariate(1.5)))
        await _disturb(rng, call)
    if rng.random() < 0.1:
        await call.give(CancelFrame())
    speaking.cancel()


async def _speak(rng: random.Random, call: Call, *, directly: bool) -> None:
    """Send audio as a call does, or whole units as a client of a socket does."""
    piece_ms = rng.choice((500, 1_000)) if directly else 20
    rate_hz = rng.choice((16_000, 16_000, 8_000))
    while True:
        await asyncio.sleep(piece_ms / 1000)
        frame = InputAudioRawFrame(bytes(rate_hz * piece_ms // 1000 * 2), rate_hz, 1)
        if directly:
            call.duplex.hear(frame)
        else:
            await call.give(frame)


async def _disturb(rng: random.Random, call: Call) -> None:
    match rng.choice((0, 0, 0, 3, 3, 3, 5, 6, 6, 7, 8, 8, 9, 10, 11)):
        case 0:
            await call.give(UserStartedSpeakingFrame())
            await call.give(InterruptionFrame())
        case 3:
            await call.give(UserStoppedSpeakingFrame())
        case 5:
            await call.give(InterruptionFrame())
        case 6:
            call.duplex.must_listen()
        case 7:
            await call.give(DuplexPauseFrame(pause_ms=rng.choice((300, 5_000, None))))
        case 8:
            await call.give(DuplexResumeFrame())
        case 9:
            await call.give(VADUserStartedSpeakingFrame())
        case 10:
            await call.give(VADUserStoppedSpeakingFrame())
        case _:
            context_id = f"voice {rng.randrange(1_000)}"
            await call.give(TTSStartedFrame(context_id=context_id))
            audio = b"\1\1" * rng.choice((1_600, 16_000))
            await call.give(TTSAudioRawFrame(audio, 16_000, 1, context_id=context_id))
            await call.give(TTSStoppedFrame(context_id=context_id))


# A whole call.


def _whole(rng: random.Random) -> Trace:
    hosts: list[OmniHost] = []
    if rng.random() < 0.4:
        hosts = [
            ScriptedOmniHost(replace(_script(rng, 80), output_rate_hz=24_000))
            for _ in range(rng.randint(1, 2))
        ]
    caller = [silence(rng.randint(300, 1_500))]
    for _ in range(rng.randint(1, 4)):
        caller += [voice(rng.randint(200, 2_000)), silence(rng.randint(300, 4_000))]
    events: list[Any] = []
    with tempfile.TemporaryDirectory() as folder:
        call = simulate(
            caller,
            Path(folder),
            omni=hosts,
            greeting=rng.choice(("", "Hello there, how can I help you on this fine day?")),
            scripts=[("One two three four five six. ", "Seven eight nine ten."), ("Sure.",), (1.5, "Late.")],
            words=rng.choice((("what", "is", "it"), ("mhm",) * 9, ("no", "wait"))),
            completeness=(rng.random(),),
            talks_over=rng.random() < 0.8,
            concurrently=lambda running: _during(random.Random(rng.random()), running, events),
        )
        _, units = read_ticks(Path(folder) / "ticks" / f"{call.call.call_id}.ticks.jsonl")
        ticks = [_tick(dict(unit), 1_000.0) for unit in units]
    return {
        "events": events,
        "ticks": ticks,
        "session": [[event.kind.value, event.payload.get("text")] for event in call.events],
        "asked": [len(call.model.asked)],
        "sounds": list(call.bot_spans_ms(gap_ms=20)),
        "loudness": np.abs(call.stereo[:, 1]).reshape(-1, 160).mean(axis=1).round(2).tolist(),
        "end": list(call.end),
    }


def _during(rng: random.Random, running: RunningCall, events: list[Any]) -> Coroutine[Any, Any, None]:
    running.call.events.subscribe(CallEvent, lambda event: _write(events, event, 1_000.0))
    return _interfere(rng, running)


async def _interfere(rng: random.Random, running: RunningCall) -> None:
    call = running.call
    for _ in range(rng.randint(0, 3)):
        await asyncio.sleep(rng.uniform(0.3, 3.0))
        match rng.randrange(5):
            case 0:
                call.events.publish(TurnEndRequested(call.events.now_ms(), rng.random() < 0.5))
            case 1:
                await call.live.input.queue(DuplexPauseFrame(pause_ms=500))
            case 2:
                await call.live.input.queue(DuplexResumeFrame())
            case 3:
                typed = [{"role": "user", "content": "What is it?"}]
                await call.live.input.queue(LLMMessagesAppendFrame(messages=typed, run_llm=True))
            case _:
                await call.live.input.queue(InterruptionFrame())


# Format of a trace.


def _frame(frame: Frame, at_s: float) -> list[Any] | None:
    received: object = ""
    if isinstance(frame, OutputAudioRawFrame):
        received = [len(frame.audio), getattr(frame, "context_id", None)]
    elif isinstance(frame, AggregatedTextFrame):
        received = [frame.text, frame.context_id]
    elif isinstance(frame, OutputTransportMessageFrame | OutputTransportMessageUrgentFrame):
        received = repr(frame.message)
    elif type(frame).__name__ in ("StartFrame", "MetricsFrame"):
        return None
    return [round(at_s * 1000), type(frame).__name__, received]


def _write(events: list[Any], event: CallEvent, began_s: float) -> None:
    if isinstance(event, LEFT_OUT):
        return
    # Timestamps on the session's clock are those of the event.
    received = re.sub(r"(_us|_ms)=\d{6,}", r"\1=.", repr(event))
    events.append([event.at_ms - round(began_s * 1000), received])


def _tick(tick: dict[str, Any], began_s: float) -> dict[str, Any]:
    return {**tick, "vote": str(tick["vote"]), "due_us": int(tick["due_us"]) - round(began_s * 1_000_000)}


def _compare(before: dict[str, Trace], calls: int) -> int:
    """Return the number of calls that differ; the first difference of each is printed."""
    differ = 0
    for seed in range(calls):
        was, now = before[str(seed)], trace(seed)
        for name, old in was.items():
            if old == (new := now.get(name, [])):
                continue
            differ += 1
            place = next(
                (at for at, pair in enumerate(zip(old, new, strict=False)) if pair[0] != pair[1]),
                min(len(old), len(new)),
            )
            print(f"seed {seed}, {name} {place} of {len(old)}, {len(new)}:")
            print(f"  before {old[place : place + 2]}\n  now    {new[place : place + 2]}")
            break
    print(f"{calls - differ} of {calls} calls as before")
    return differ


def main() -> int:
    """Return 1 when a call differs."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("--calls", type=int, default=300)
    goal = parser.add_mutually_exclusive_group(required=True)
    goal.add_argument("--write", type=Path)
    goal.add_argument("--compare", type=Path)
    goal.add_argument("--digests", type=Path)
    arguments = parser.parse_args()
    logger.remove()
    if arguments.digests is not None:
        arguments.digests.write_text(json.dumps(digests(arguments.calls)) + "\n")
        return 0
    if arguments.write is not None:
        traces = {str(seed): trace(seed) for seed in range(arguments.calls)}
        arguments.write.write_text(json.dumps(traces))
        return 0
    return 1 if _compare(json.loads(arguments.compare.read_text()), arguments.calls) else 0


if __name__ == "__main__":
    sys.exit(main())
