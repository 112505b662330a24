"""``python -m evals.phone``: telephone calls by Twilio's protocol, with simulated callers.

``calls``: calls in a row, violations of the protocol, voice to voice; ``--speech`` uses recorded people.
``interruptions``: the session's record of the heard words against the caller's own recording, and how soon
and how reliably the bot is silent. ``bad_line``: recognition with lost and late packets, against a clean
line. ``concealment``: the same of the recogniser alone, by the method that fills the holes. ``load``: many
calls at a time, the pacing of packets and the processor's time, next to stock Pipecat. Each prints JSON and
its target.
"""

import argparse
import asyncio
from collections.abc import Sequence
from pathlib import Path

from parley.evals.harness.command import count, machine, positive
from parley.evals.harness.report import add_outputs, run_command
from parley.evals.human.callers import add_speech_option


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m evals.phone", description=__doc__)
    parser.add_argument(
        "--out-dir", type=Path, default=Path("out/phone"), help="folder for deployments, logs and sessions"
    )
    add_outputs(parser, with_table=False)
    parser.add_argument(
        "--greeting",
        help="greeting of the bot in calls, interruptions and bad_line, whose callers wait for it "
        "(default: the bot's own)",
    )
    parts = parser.add_subparsers(dest="part", required=True)
    calls = parts.add_parser("calls", help="measure consecutive calls")
    calls.add_argument("--count", type=positive, default=60)
    calls.add_argument("--seed", type=count, default=1, help="seed of the choice of recorded callers")
    add_speech_option(calls)
    cuts = parts.add_parser("interruptions", help="measure the accuracy of the last word heard")
    cuts.add_argument("--count", type=positive, default=100)
    cuts.add_argument("--per-call", type=positive, default=20)
    cuts.add_argument("--seed", type=count, default=1)
    add_speech_option(cuts)
    cuts.add_argument(
        "--way-ms",
        type=count,
        default=0,
        help="one-way delay to the caller; the same applies in the other direction",
    )
    bad = parts.add_parser("bad_line", help="measure recognition with lost and late packets")
    bad.add_argument("--turns", type=positive, default=40)
    bad.add_argument("--per-call", type=positive, default=5)
    bad.add_argument("--loss-percent", type=count, default=5)
    bad.add_argument("--jitter-ms", type=count, default=60)
    bad.add_argument("--seed", type=count, default=1)
    bad.add_argument("--control", action="store_true", help="measure the clean line once more")
    holes = parts.add_parser("concealment", help="compare the methods that fill gaps in a line")
    holes.add_argument("--draws", type=positive, default=6)
    holes.add_argument("--loss-percent", type=count, default=5)
    holes.add_argument("--questions", type=positive, default=24, help="questions, at most 24, in two voices")
    load = parts.add_parser("load", help="measure many concurrent calls")
    load.add_argument("--calls", type=positive, default=30)
    load.add_argument("--seconds", type=positive, default=60)
    load.add_argument("--systems", nargs="+", help="systems to measure; default: all")
    return parser


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the figures; return 2 after one line on standard error when nothing could be measured."""
    given = build_parser().parse_args(arguments)
    folder = given.out_dir / given.part
    if given.part == "calls":
        from parley.evals.phone import calls

        measured = calls.measure(
            given.count,
            folder,
            speech=given.speech,
            own_speech=given.own_speech,
            seed=given.seed,
            greeting=given.greeting,
        )
    elif given.part == "interruptions":
        from parley.evals.phone import interruptions

        measured = interruptions.measure(
            given.count,
            given.per_call,
            given.seed,
            folder,
            way_ms=given.way_ms,
            speech=given.speech,
            own_speech=given.own_speech,
            greeting=given.greeting,
        )
    elif given.part == "bad_line":
        from parley.evals.phone import bad_line

        line = bad_line.Line(given.loss_percent / 100, given.jitter_ms)
        measured = bad_line.measure(
            given.turns,
            given.per_call,
            line,
            given.seed,
            folder,
            control=given.control,
            greeting=given.greeting,
        )
    elif given.part == "concealment":
        from parley.evals.harness.questions import WHOLE
        from parley.evals.phone import concealment

        measured = concealment.measure(
            given.draws, given.loss_percent / 100, questions=WHOLE[: given.questions]
        )
    else:
        from parley.evals.phone import load

        measured = load.measure(given.calls, given.seconds, folder, given.systems or tuple(load.FAKED))
    return run_command(given, lambda: {"part": given.part, **asyncio.run(measured), "machine": machine()})


if __name__ == "__main__":
    raise SystemExit(main())
