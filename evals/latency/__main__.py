"""``python -m evals.latency``: measure a server as its callers experience it.

There are three measurements: voice-to-voice over ``--turns`` questions (the default), ``--capacity`` and
``--call-start``. Each starts the server of ``--config`` in a process of its own, or uses the running one at
``--url``. ``--baseline stock`` then measures a stock Pipecat pipeline with the same engines, callers, words,
pauses and seed. ``--speech human`` uses recorded people as callers, ``mixed`` also voice generators on which
nothing was tuned (``evals.human``). Recordings and logs are written to ``--out-dir``. Faults end the run with
one line and status 2.
"""

import argparse
import asyncio
import random
from collections.abc import Sequence
from contextlib import AbstractAsyncContextManager
from pathlib import Path
from typing import Any

from parley.core.errors import ConfigError, PeerError
from parley.evals.harness.collector import uncollected
from parley.evals.harness.command import count, exit_code, machine, positive
from parley.evals.harness.launcher import ROOT, Server, healthy, server_at
from parley.evals.harness.manners import Manners
from parley.evals.harness.progress import say
from parley.evals.harness.questions import LONG_ANSWERS, Utterance, conversation, plan
from parley.evals.harness.report import add_outputs, check_outputs, check_picture, publish
from parley.evals.harness.speech import Speakers, Spoken, of_turn
from parley.evals.harness.webrtc_caller import JITTER_PREFETCH
from parley.evals.human.callers import SpeechKind, add_speech_option, open_callers
from parley.evals.human.hesitations import HesitationLaw
from parley.evals.latency import call_start, capacity, report
from parley.evals.latency.conversation import converse
from parley.evals.latency.figures import LONGEST_PAUSE_MS, TurnFigures, by_speech, ratio, summary
from parley.evals.latency.techniques import CAPACITY_WITHOUT, TECHNIQUES, write

# A turn of natural talk is longer than this, so this number of questions is enough for a step.
SECONDS_PER_TURN = 12
# Recorded callers pause about once in a turn; at the end of the longest pause an answer would still be too
# early.
CALLERS = HesitationLaw(per_turn=1.0, longest_ms=LONGEST_PAUSE_MS)
GAP_MS = (200, 900)


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.latency",
        description="Measure voice-to-voice latency, false cut-ins and capacity, recorded at the client.",
    )
    kind = root.add_mutually_exclusive_group()
    kind.add_argument(
        "--capacity", action="store_true", help="measure how many simultaneous calls the server holds"
    )
    kind.add_argument(
        "--call-start", action="store_true", help="measure the effect of a starting call on a running one"
    )
    root.add_argument("--turns", type=positive, default=40, help="measured questions")
    root.add_argument("--turns-per-call", type=positive, default=10)
    root.add_argument("--warmup", type=count, default=1, help="unmeasured questions at the start of a call")
    root.add_argument("--seconds", type=positive, default=60, help="length of a capacity step")
    root.add_argument("--max-calls", type=positive, default=32, help="largest capacity step")
    root.add_argument("--starts", type=positive, default=20, help="calls started during the running one")
    root.add_argument("--seed", type=int, default=1)
    root.add_argument("--config", type=Path, default=Path("configs/embedded.yaml"))
    root.add_argument(
        "--without",
        action="append",
        default=[],
        choices=tuple(TECHNIQUES),
        help="part of the product to switch off; may be repeated",
    )
    root.add_argument("--url", help="address of a running server to measure instead of starting one")
    root.add_argument(
        "--mode", choices=["cascade", "duplex"], help="mode of the calls; default: the server's"
    )
    root.add_argument("--baseline", choices=["stock"], help="also measure a stock Pipecat pipeline")
    root.add_argument("--only-baseline", action="store_true", help="measure the baseline only")
    add_speech_option(root)
    add_outputs(root)
    root.add_argument("--waterfall", type=Path, help="write the waterfall picture to this file")
    root.add_argument("--out-dir", type=Path, default=Path("out/latency"))
    return root


async def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Run the requested measurement and return the JSON.

    Raises:
        AgentError: a server does not start or answer, an engine of the callers' voices is missing.
    """
    if not arguments.url and not (ROOT / arguments.config).exists():
        raise PeerError(f"no configuration at {arguments.config}")
    if arguments.url and arguments.without:
        raise ConfigError("--without changes the server that is started here, not the one at --url")
    if arguments.speech is not SpeechKind.SYNTHETIC and (arguments.capacity or arguments.call_start):
        raise ConfigError(
            "--speech is only for voice-to-voice: --capacity and --call-start have their own callers"
        )
    if arguments.url and not await healthy(arguments.url):
        raise PeerError(f"no healthy server at {arguments.url}")
    for path in (arguments.json, arguments.table, arguments.waterfall):
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
    check_outputs(arguments, "json", "table", "waterfall")
    if arguments.waterfall is not None:
        check_picture(arguments.waterfall)
    arguments.out_dir.mkdir(parents=True, exist_ok=True)
    questions = await asyncio.to_thread(_speak_all, arguments)
    systems = ["parley"] * (not arguments.only_baseline)
    systems += ["stock"] * (arguments.baseline == "stock" or arguments.only_baseline)
    results = {}
    for system in systems:
        async with _server(system, arguments) as server:
            results[system] = await _one(system, server, questions, arguments)
    ours = results.get("parley") or results["stock"]
    baseline = results.get("stock") if "parley" in results else None
    result = {"system": systems[0], **ours, "baseline": baseline}
    if not arguments.capacity and not arguments.call_start:
        result["ratio_p50"] = ratio(ours, baseline) if baseline else None
    return {**result, "settings": _settings(arguments), "machine": machine()}


def _speak_all(arguments: argparse.Namespace) -> list[Spoken]:
    if arguments.speech is not SpeechKind.SYNTHETIC:
        return _recorded(arguments)
    speakers = Speakers(arguments.out_dir / "voices")
    if arguments.capacity:
        utterances = conversation(-(-arguments.seconds // SECONDS_PER_TURN), "flite", "rms")
    elif arguments.call_start:
        utterances = [Utterance((text,), 0, "flite", "rms", 400) for text in LONG_ANSWERS]
    else:
        utterances = plan(arguments.warmup, arguments.seed + 1) + plan(arguments.turns, arguments.seed)
    return [speakers.speak(utterance) for utterance in utterances]


def _recorded(arguments: argparse.Namespace) -> list[Spoken]:
    callers = open_callers(arguments.speech, law=CALLERS, own=arguments.own_speech)
    turns = callers.turns(arguments.warmup, arguments.seed + 1) if arguments.warmup else []
    turns += callers.turns(arguments.turns, arguments.seed)
    dice = random.Random(arguments.seed)
    return [of_turn(turn, dice.randint(*GAP_MS)) for turn in turns]


def _server(system: str, arguments: argparse.Namespace) -> AbstractAsyncContextManager[Server]:
    config = arguments.config
    without = [*arguments.without, *(CAPACITY_WITHOUT if arguments.capacity else [])]
    if system == "parley" and without:
        config = write(config, without, arguments.out_dir / "without.yaml")
    url = arguments.url if system == "parley" else None
    return server_at(url, system, config, arguments.out_dir / f"{system}.log")


async def _one(
    system: str, server: Server, questions: Sequence[Spoken], arguments: argparse.Namespace
) -> dict[str, Any]:
    if arguments.capacity:
        return await capacity.measure(
            server,
            questions,
            seconds=arguments.seconds,
            max_calls=arguments.max_calls,
            seed=arguments.seed,
            progress=lambda text: say(f"{system}: {text}"),
        )
    if arguments.call_start:
        with uncollected():
            return await call_start.measure(server, questions, starts=arguments.starts)
    turns = await _conversations(system, server, questions, arguments)
    apart = {} if arguments.speech is SpeechKind.SYNTHETIC else {"by_speech": by_speech(turns)}
    return summary(turns) | apart


async def _conversations(
    system: str, server: Server, questions: Sequence[Spoken], arguments: argparse.Namespace
) -> list[TurnFigures]:
    manners = Manners()
    # A stock pipeline has no modes.
    mode = arguments.mode if system == "parley" else None
    if arguments.warmup:
        path = arguments.out_dir / f"{system}-warmup.wav"
        await converse(server.url, questions[: arguments.warmup], path, manners, mode=mode)
    measured = questions[arguments.warmup :]
    turns: list[TurnFigures] = []
    for start in range(0, len(measured), arguments.turns_per_call):
        path = arguments.out_dir / f"{system}-{start // arguments.turns_per_call:02d}.wav"
        asked = measured[start : start + arguments.turns_per_call]
        call = await converse(server.url, asked, path, manners, mode=mode)
        turns.extend(call)
        values = [round((t.voice_to_voice_us or 0) / 1000) if t.voice_to_voice_us else "-" for t in call]
        say(f"{system}: {len(turns)} of {len(measured)} turns, voice-to-voice ms {values}")
    return turns


def _settings(arguments: argparse.Namespace) -> dict[str, Any]:
    settings = {key: _plain(value) for key, value in vars(arguments).items()}
    return {
        **settings,
        "client_jitter_buffer_packets": JITTER_PREFETCH,
        "audible": "RMS over 10 ms at or above -45 dBFS for 20 ms",
        "percentile": "nearest rank",
    }


def _plain(value: Any) -> Any:
    if isinstance(value, SpeechKind):
        return value.value
    return str(value) if isinstance(value, Path) else value


def _publish(arguments: argparse.Namespace, result: dict[str, Any]) -> int:
    if arguments.capacity:
        return publish(arguments, result, report.capacity_table)
    if arguments.call_start:
        return publish(arguments, result, report.call_start_table)
    publish(arguments, result, report.latency_table)
    if arguments.waterfall:
        report.waterfall(result, arguments.waterfall)
    return 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    arguments = parser().parse_args(argv)
    return exit_code(lambda: _publish(arguments, asyncio.run(measure(arguments))))


if __name__ == "__main__":
    raise SystemExit(main())
