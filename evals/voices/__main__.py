"""``python -m evals.voices``: measure the latency of the embedded voices, by wall clock on an idle machine.

The engine is called as the server calls it, in the calling thread, with the same clause repeatedly. A test
cannot check a limit in milliseconds, because it depends on the machine and its other load. The tests
therefore check the share of the work that comes before the first piece, which does not.
"""

import argparse
import time
from collections.abc import Sequence
from typing import Any

from parley.core.errors import AgentError
from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.evals.harness.command import machine, positive
from parley.evals.harness.progress import Progress
from parley.evals.harness.report import add_outputs, cells, markdown, ranked, run_command
from parley.models.tts import TTS, SpeechPiece, TextToSpeech

TEN_WORDS = "The monthly fee is five dollars, and you can cancel."
ENGINES = ("hibari", "flite", "espeak")
# The limit of the default voice for the ten words, and of the one after it.
LIMIT_MS = {"hibari": 50.0, "flite": 30.0}
WARMUP_RUNS = 3


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.voices",
        description="Measure the time to the first audio of the embedded voices.",
    )
    root.add_argument(
        "--engine", choices=ENGINES, action="append", help="engine to measure; may be repeated; default: all"
    )
    root.add_argument("--runs", type=positive, default=50, help="clauses per engine")
    root.add_argument("--text", default=TEN_WORDS, help="clause to synthesise")
    add_outputs(root, with_table=False)
    return root


def measure(engine: TextToSpeech, text: str, runs: int) -> dict[str, Any]:
    """Speak ``text`` ``runs`` times; return the waits in milliseconds from the call.

    Raises:
        AgentError: the engine failed, or made no sound of the text.
    """
    firsts: list[float] = []
    wholes: list[float] = []
    spoken_ms = processor_ms = 0.0
    for run in range(WARMUP_RUNS + runs):
        pieces: list[tuple[float, int]] = []

        def sink(piece: SpeechPiece, pieces: list[tuple[float, int]] = pieces) -> bool:
            pieces.append((time.perf_counter(), len(piece.pcm)))
            return True

        began, processor_began_s = time.perf_counter(), time.process_time()
        engine.synthesize(text, sink)
        ended = time.perf_counter()
        if not pieces:
            raise AgentError(f"the voice produced no audio for {text!r}")
        if run >= WARMUP_RUNS:
            firsts.append((pieces[0][0] - began) * 1000)
            wholes.append((ended - began) * 1000)
            processor_ms += (time.process_time() - processor_began_s) * 1000
        spoken_ms = sum(size for _, size in pieces) / PCM_BYTES_PER_SAMPLE / engine.rate_hz * 1000
    return {
        "runs": runs,
        "first_audio_ms": ranked(firsts),
        "whole_ms": ranked(wholes),
        "spoken_ms": round(spoken_ms),
        "processor_percent": round(processor_ms / runs / spoken_ms * 100, 2),
    }


def run(arguments: argparse.Namespace) -> dict[str, Any]:
    """Measure every engine.

    Raises:
        AgentError: an engine is missing, or failed.
    """
    names = arguments.engine or ENGINES
    progress, engines = Progress("voices", len(names)), {}
    for name in names:
        limit_ms = LIMIT_MS.get(name) if arguments.text == TEN_WORDS else None
        figures = measure(TTS.create(name), arguments.text, arguments.runs)
        engines[name] = {**figures, "limit_ms": limit_ms}
        progress.step(name)
    return {"text": arguments.text, "engines": engines, "machine": machine()}


def table(result: dict[str, Any]) -> str:
    """Return the figures as a Markdown table."""
    head = (
        *("voice", "runs", "first audio p50 / p95 / p99 ms", "limit ms", "whole clause p50 ms"),
        *("speech ms", "of a core while it speaks"),
    )
    rows = [
        (
            *(name, figures["runs"], cells(figures["first_audio_ms"]), figures["limit_ms"]),
            *(figures["whole_ms"]["p50"], figures["spoken_ms"], f"{figures['processor_percent']} %"),
        )
        for name, figures in result["engines"].items()
    ]
    return markdown(head, rows)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    arguments = parser().parse_args(argv)
    return run_command(arguments, lambda: run(arguments), table)


if __name__ == "__main__":
    raise SystemExit(main())
