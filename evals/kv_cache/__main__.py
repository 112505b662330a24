"""``python -m evals.kv_cache``: what keeping a conversation's cache is worth.

``trace``: hits, false hits and what was read again, of three policies on the same conversations.
``ttft``: time to the first token with the cache kept and with everything read anew, turn by turn, and a plot.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from evals.command import machine

TURNS = 40


def build_parser() -> argparse.ArgumentParser:
    """The command line."""
    parser = argparse.ArgumentParser(prog="python -m evals.kv_cache", description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    trace = parts.add_parser("trace", help="hits and false hits")
    trace.add_argument("--seeds", type=int, default=3)
    ttft = parts.add_parser("ttft", help="time to the first token")
    ttft.add_argument("--turns", type=int, default=TURNS)
    ttft.add_argument("--repeats", type=int, default=3)
    ttft.add_argument("--plot", type=Path, help="write a PNG here")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """The exit status."""
    given = build_parser().parse_args(arguments)
    with tempfile.TemporaryDirectory() as folder:
        if given.part == "trace":
            found = _trace(Path(folder), given.seeds)
        else:
            found = _ttft(Path(folder), given.turns, given.repeats)
            if given.plot is not None:
                _plot(found, given.plot)
    print(json.dumps(found | {"machine": machine()}, indent=2))
    return 0


def _trace(folder: Path, seeds: int) -> dict[str, Any]:
    from evals.kv_cache.trace import POLICIES, Counts, run, trace
    from evals.tiny_qwen3 import install_tiny_qwen3

    install_tiny_qwen3(folder, is_ascii=True)
    whole = {name: Counts() for name in POLICIES}
    for seed in range(seeds):
        steps = trace(seed)
        for name, policy in POLICIES.items():
            print(f"{name}, seed {seed}", file=sys.stderr)
            for fact, value in asdict(run(policy(folder, steps), steps)).items():
                setattr(whole[name], fact, getattr(whole[name], fact) + value)
    bound = whole["clairvoyant"].hits
    return {
        "policies": {
            name: asdict(counts) | {"of_the_bound": round(counts.hits / bound, 4)}
            for name, counts in whole.items()
        }
    }


def _ttft(folder: Path, turns: int, repeats: int) -> dict[str, Any]:
    """A model that is large enough for its reading to be felt on a CPU."""
    from evals.tiny_qwen3 import install_tiny_qwen3
    from models.llm import Message
    from models.llm.kv.causal import CausalLm, CausalSettings
    from models.llm.kv.dialogue import Answered, Asked, Remembered

    install_tiny_qwen3(folder, layers=4, width=256)
    model = CausalLm(
        CausalSettings(model=folder, device="cpu", threads=1, answer_tokens=48, context_tokens=32_768)
    )
    kept: list[list[float]] = [[] for _ in range(turns)]
    anew: list[list[float]] = [[] for _ in range(turns)]
    for repeat in range(repeats):
        scope, cold = model.scope(f"kept {repeat}"), model.scope(f"anew {repeat}")
        remembered, dialogue = Remembered(), [Message("system", "Be brief.")]
        for turn in range(turns):
            dialogue.append(
                Message("user", f"Question {turn}: what does a transfer to another country cost?")
            )
            asked = remembered.ask(dialogue)
            told: list[Any] = []
            began_s = time.perf_counter()
            for each in model.answer(scope, asked):
                if not told:
                    kept[turn].append((time.perf_counter() - began_s) * 1000)
                told.append(each)
            answered = told[-1]
            assert isinstance(answered, Answered)
            remembered.answered(asked, answered)
            model.forget(cold)
            began_s = time.perf_counter()
            reading = model.answer(cold, Asked(tuple(dialogue)))
            next(reading)
            anew[turn].append((time.perf_counter() - began_s) * 1000)
            reading.close()
            dialogue.append(Message("assistant", answered.text))
        print(f"{repeat + 1} of {repeats}", file=sys.stderr)
    return {
        "turns": turns,
        "kept_ms": [round(statistics.median(each), 2) for each in kept],
        "anew_ms": [round(statistics.median(each), 2) for each in anew],
    }


def _plot(found: dict[str, Any], path: Path) -> None:
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    turns = range(1, found["turns"] + 1)
    figure, axes = plt.subplots(figsize=(7, 4), dpi=110)
    axes.plot(turns, found["anew_ms"], label="everything read anew", color="#b5543c")
    axes.plot(turns, found["kept_ms"], label="cache kept, verified", color="#1f6f8b")
    axes.set_xlabel("turn of the conversation")
    axes.set_ylabel("time to the first token, ms")
    axes.set_ylim(bottom=0)
    axes.grid(alpha=0.3)
    axes.legend()
    figure.tight_layout()
    figure.savefig(path, metadata={"Software": None})


if __name__ == "__main__":
    sys.exit(main())
