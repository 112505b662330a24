"""``python -m evals.turns``: measure which sounds over the bot's voice stop it, and how soon.

By default the engines that ship process synthetic sounds in simulated speakerphone calls (``overlap_audio``);
a run takes minutes. Printed are the share of interruptions that stop the bot (recall) and the length of voice
before that, the share of backchannels that stop it, how often its own echo does, and the same for each kind
of sound. The policies are those of the product and timers on voice activity.

``--webrtc`` measures real calls to a real server instead (``calls``). It reports the time from the decision
to the last sample of the bot that the caller receives, and the number of backchannels that stop the bot.
``--plain`` leaves barge-in to Pipecat's own rule, for comparison.

``--speech human`` has recorded people speak over the bot instead, and ``mixed`` voice generators as well.
These are the calls of ``evals.turns.yielding``, with all its policies. Ends of turns are measured by
``evals.turns.frontier``.
"""

import argparse
import asyncio
import os
import sys
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from parley.core.errors import ConfigError
from parley.evals.harness.command import positive
from parley.evals.harness.report import add_outputs, markdown, run_command
from parley.evals.human.callers import SpeechKind, add_speech_kind
from parley.evals.turns import calls, overlap_audio, yielding
from parley.evals.turns.overlap_calls import OF_A_CALL


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.turns", description="Measure which sounds over the bot's voice stop it."
    )
    kind = root.add_mutually_exclusive_group()
    kind.add_argument("--audio", action="store_true", help="simulated calls, the default")
    kind.add_argument("--webrtc", action="store_true", help="real calls to a server")
    add_speech_kind(root)
    root.add_argument("--sounds", type=positive, help="sounds of --speech human and mixed; default: all")
    root.add_argument("--seed", type=int, default=1)
    root.add_argument(
        "--overlap-calls",
        type=positive,
        default=24,
        help=f"simulated calls with {len(OF_A_CALL)} sounds each",
    )
    root.add_argument(
        "--overlap-shared-by",
        type=positive,
        default=1,
        help="simulated calls over which the sounds of one call are spread",
    )
    root.add_argument("--processes", type=positive, default=len(os.sched_getaffinity(0)))
    add_outputs(root)
    root.add_argument("--mode", choices=["cascade", "duplex"], help="mode of the calls of --webrtc")
    root.add_argument("--interruptions", type=positive, default=40, help="interruptions of --webrtc")
    root.add_argument("--per-call", type=positive, default=10, help="interruptions per call")
    root.add_argument(
        "--config",
        type=Path,
        default=Path("configs/embedded.yaml"),
        help="deployment of the server of --webrtc",
    )
    root.add_argument("--url", help="address of a running server to use instead")
    root.add_argument(
        "--plain", action="store_true", help="the server at --url leaves interruptions to Pipecat"
    )
    root.add_argument(
        "--out-dir", type=Path, default=Path("out/turns"), help="folder for the recordings of --webrtc"
    )
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    arguments = parser().parse_args(argv)
    return run_command(arguments, lambda: _run(arguments), table)


def _run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure.

    Raises:
        AgentError: an engine is not installed or failed, or a call did.
    """
    if arguments.speech is not SpeechKind.SYNTHETIC:
        return _of_people(arguments)
    return _in_calls(arguments) if arguments.webrtc else _in_simulated_calls(arguments)


def _of_people(arguments: argparse.Namespace) -> dict[str, Any]:
    if arguments.webrtc:
        raise ConfigError(f"--speech {arguments.speech.value} is for simulated calls; leave --webrtc out")
    began = time.monotonic()
    policies = yielding.judged(
        mixed=arguments.speech is SpeechKind.MIXED,
        seed=arguments.seed,
        most=arguments.sounds,
        processes=arguments.processes,
    )
    return {
        "kind": "people",
        "speech": arguments.speech.value,
        "seed": arguments.seed,
        "yielding": policies,
        "took_s": round(time.monotonic() - began, 1),
    }


def _in_simulated_calls(arguments: argparse.Namespace) -> dict[str, Any]:
    began = time.monotonic()

    def heard(ducked_by: str | None) -> list[overlap_audio.Trial]:
        return overlap_audio.measure(
            arguments.overlap_calls,
            arguments.seed,
            processes=min(arguments.processes, arguments.overlap_calls),
            shared_by=arguments.overlap_shared_by,
            ducked_by=ducked_by,
        )

    loud = heard(None)
    policies = {name: overlap_audio.judge(name, loud) for name in overlap_audio.POLICIES}
    barge_in = {
        "kind": "audio",
        "sounds": dict(Counter(trial.sound.value for trial in loud)),
        "policies": policies
        | {name: overlap_audio.judge(name, heard(name)) for name in overlap_audio.DUCKING},
        # The product's policies in the calls of the others, in which the bot does not get quieter.
        "at_full_volume": {name: policies[name] for name in overlap_audio.DUCKING},
    }
    return {
        "kind": "audio",
        "seed": arguments.seed,
        "barge_in": barge_in,
        "took_s": round(time.monotonic() - began, 1),
    }


def _in_calls(arguments: argparse.Namespace) -> dict[str, Any]:
    arguments.out_dir.mkdir(parents=True, exist_ok=True)
    config = calls.plain(arguments.config, arguments.out_dir) if arguments.plain else arguments.config
    return asyncio.run(
        calls.measure(
            interruptions=arguments.interruptions,
            per_call=arguments.per_call,
            seed=arguments.seed,
            config=config,
            out_dir=arguments.out_dir,
            url=arguments.url,
            mode=arguments.mode,
        )
    )


def table(result: dict[str, Any]) -> str:
    """Return the figures as Markdown."""
    if "yielding" in result:
        return yielding.table(result["yielding"])
    if "barge_in" not in result:
        return calls.table(result)
    judged = result["barge_in"]["policies"]
    kinds = list(next(iter(judged.values()))["yields"])
    head = ("policy", "recall", "stop p50", "p95", "false yields", "cut by itself", *kinds)
    rows = [
        (
            name,
            _share(row["barge_in_recall"]),
            _ms(row["barge_in_stop_ms"]["p50"]),
            _ms(row["barge_in_stop_ms"]["p95"]),
            _share(row["false_yield_rate"]),
            row["self_interruptions"],
            *(_share(row["yields"][kind]) for kind in kinds),
        )
        for name, row in judged.items()
    ]
    return f"sounds over the bot (simulated calls):\n\n{markdown(head, rows)}"


def _share(value: float | None) -> str:
    return "" if value is None else f"{100 * value:.1f} %"


def _ms(value: float | None) -> str:
    return "" if value is None else f"{value:.0f}"


if __name__ == "__main__":
    sys.exit(main())
