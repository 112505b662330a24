"""``python -m evals.bench answer_batching``: measure a causal model that writes several answers at a time.

A random Qwen3 of the given size answers conversations of different lengths, each in a thread of its own as in
a worker: once a token of one answer after the other, once with the answers' tokens in one pass
(``models.llm.kv.batching``). Prints, for each number of conversations, tokens per second, the time between
two tokens of an answer, how many times the throughput is, and the mean number of answers in a pass, as JSON.
"""

import argparse
import tempfile
import threading
import time
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np

from parley.evals.harness.command import exit_code, machine, positive
from parley.evals.harness.progress import Progress
from parley.evals.harness.report import as_json

# Words of the conversations' first questions: no two have the same length.
QUESTION_WORDS = 12


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m evals.bench answer_batching", description=__doc__)
    parser.add_argument("--layers", type=positive, default=8, help="layers of the model")
    parser.add_argument("--width", type=positive, default=512, help="width of a layer")
    parser.add_argument("--heads", type=positive, default=4, help="heads of a layer, an even number")
    parser.add_argument("--streams", type=positive, nargs="+", default=[1, 8], help="conversations at a time")
    parser.add_argument("--tokens", type=positive, default=200, help="tokens of each conversation's answers")
    parser.add_argument("--repeats", type=positive, default=3, help="measurements of each, in turn")
    parser.add_argument("--threads", type=positive, default=1, help="threads of torch on a CPU")
    parser.add_argument("--device", default="auto", help="auto, cpu or cuda")
    parser.add_argument("--seed", type=int, default=1, help="of the weights and the sampling")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    given = build_parser().parse_args(argv)
    return exit_code(lambda: _run(given))


def _run(given: argparse.Namespace) -> int:
    print(as_json(measure(given) | {"machine": machine()}), end="")
    return 0


def measure(given: argparse.Namespace) -> dict[str, Any]:
    """Return the figures of all numbers of conversations, in both ways."""
    # Packages of an extra.
    from parley.evals.tiny_qwen3 import install_tiny_qwen3
    from parley.models.llm.kv.causal import CausalLm, CausalSettings

    progress = Progress("measured", 2 * given.repeats * len(given.streams))
    found: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        weights = install_tiny_qwen3(
            Path(folder),
            seed=given.seed,
            layers=given.layers,
            width=given.width,
            heads=given.heads,
            is_ascii=True,
        )
        settings = {
            "model": weights,
            "device": given.device,
            "threads": given.threads,
            "temperature": 1.0,
            "answer_tokens": given.tokens,
        }
        models = {
            rows: CausalLm(
                CausalSettings.model_validate({**settings, "seed": given.seed, "batch_rows": rows})
            )
            for rows in (1, max(2, *given.streams))
        }
    for lm in models.values():
        _tokens_per_s(lm, 1, 10)
    # In turn: a machine may become slower by the minute.
    for repeat in range(given.repeats):
        for streams in given.streams:
            for rows, lm in models.items():
                per_s, between_ms = _tokens_per_s(lm, streams, given.tokens)
                found.append(
                    {
                        "streams": streams,
                        "batched": rows > 1,
                        "repeat": repeat,
                        "tokens_per_s": round(per_s, 1),
                        "between_tokens_ms": between_ms,
                    }
                )
                progress.step(f"{streams} at a time, {per_s:.0f} tokens/s")
    mean_rows = round(models[max(models)].mean_rows, 2)
    return {
        "layers": given.layers,
        "width": given.width,
        "mean_rows": mean_rows,
        "times": _times(found),
        "ways": found,
    }


def _times(found: Sequence[dict[str, Any]]) -> dict[str, dict[str, float]]:
    """Return how many times the throughput is with batches, for each number of conversations."""
    pairs: dict[str, list[float]] = {}
    # Measured one after the other.
    for serial, batched in zip(found[::2], found[1::2], strict=True):
        times = round(batched["tokens_per_s"] / serial["tokens_per_s"], 2)
        pairs.setdefault(str(serial["streams"]), []).append(times)
    return {
        streams: {"median": median(times), "least": min(times), "most": max(times)}
        for streams, times in pairs.items()
    }


def _tokens_per_s(lm: Any, streams: int, tokens: int) -> tuple[float, dict[str, float]]:
    """Have conversations answered at once; return tokens per second, and times between two tokens in ms."""
    begun = threading.Barrier(streams + 1)
    with ThreadPoolExecutor(streams) as threads:
        talks = [threads.submit(_talk, lm, number, tokens, begun) for number in range(streams)]
        begun.wait(timeout=60)
        began_s = time.perf_counter()
        counts = [talk.result() for talk in talks]
        lasted_s = time.perf_counter() - began_s
    between_ms = np.concatenate([np.diff(moments) for _, moments in counts]) * 1_000
    return sum(count for count, _ in counts) / lasted_s, {
        "p50": round(float(np.percentile(between_ms, 50)), 2),
        "p95": round(float(np.percentile(between_ms, 95)), 2),
    }


def _talk(lm: Any, number: int, tokens: int, begun: threading.Barrier) -> tuple[int, list[float]]:
    """Ask until this many tokens were written; return their number, and when the pieces came."""
    from parley.models.llm import Message
    from parley.models.llm.kv.dialogue import GenerationRequest, GenerationResult

    scope, count, moments, turn = lm.scope(f"conversation {number}"), 0, list[float](), 0
    begun.wait(timeout=60)
    while count < tokens:
        turn += 1
        question = Message("user", " ".join(["word"] * (QUESTION_WORDS + 5 * number + turn)))
        for piece in lm.answer(scope, GenerationRequest((question,))):
            if isinstance(piece, str):
                moments.append(time.perf_counter())
            elif isinstance(piece, GenerationResult):
                count += len(piece.char_ends)
    return count, moments


if __name__ == "__main__":
    raise SystemExit(main())
