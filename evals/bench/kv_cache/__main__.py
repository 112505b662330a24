"""``python -m evals.bench kv_cache``: measure the effect of keeping a conversation's cache.

``trace``: hits, false hits and tokens that were read again, of three policies on the same conversations.
``prompts``: share of its history that each request of a call leaves in place, turn by turn and in all.
``ttft``: time to the first token with the cache kept and with everything read anew, turn by turn, and a plot.
"""

import argparse
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from parley.evals.harness.command import exit_code, machine, positive
from parley.evals.harness.progress import Progress
from parley.evals.harness.report import as_json, picture
from parley.runtime.event_loop import run

TURNS = 40
# State of the cache at the end of a question, and its label in the plot.
WAYS = {
    "anew": "everything read anew",
    "kept": "cache kept, the question read at its end",
    "ahead_but_one": "cache kept, read while it was said, all but the last word",
    "ahead": "cache kept, read while it was said",
}


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(prog="python -m evals.bench kv_cache", description=__doc__)
    parts = parser.add_subparsers(dest="part", required=True)
    trace = parts.add_parser("trace", help="measure hits and false hits")
    trace.add_argument("--seeds", type=int, default=3)
    prompts = parts.add_parser("prompts", help="measure what each request keeps of a call's history")
    prompts.add_argument("--turns", type=positive, default=20, help="turns of the call")
    prompts.add_argument("--answer-tokens", type=positive, default=440, help="length of each answer")
    prompts.add_argument(
        "--budget-tokens", type=positive, default=4_500, help="budget of the conversation's settings"
    )
    ttft = parts.add_parser("ttft", help="measure the time to the first token")
    ttft.add_argument("--turns", type=int, default=TURNS)
    ttft.add_argument("--repeats", type=int, default=3)
    ttft.add_argument("--plot", type=Path, help="write the plot to this PNG file")
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    given = build_parser().parse_args(argv)
    return exit_code(lambda: _run(given))


def _run(given: argparse.Namespace) -> int:
    with tempfile.TemporaryDirectory() as folder:
        if given.part == "trace":
            found = _trace(Path(folder), given.seeds)
        elif given.part == "prompts":
            found = _prompts(Path(folder), given.turns, given.answer_tokens, given.budget_tokens)
        else:
            found = _ttft(Path(folder), given.turns, given.repeats)
            if given.plot is not None:
                _plot(found, given.plot)
    print(as_json(found | {"machine": machine()}), end="")
    return 0


def _trace(folder: Path, seeds: int) -> dict[str, Any]:
    from parley.evals.bench.kv_cache.trace import POLICIES, Counts, trace
    from parley.evals.bench.kv_cache.trace import run as run_trace
    from parley.evals.tiny_qwen3 import install_tiny_qwen3

    install_tiny_qwen3(folder, is_ascii=True)
    whole = {name: Counts() for name in POLICIES}
    progress = Progress("policies", seeds * len(POLICIES))
    for seed in range(seeds):
        steps = trace(seed)
        for name, policy in POLICIES.items():
            progress.step(f"{name}, seed {seed}")
            for fact, value in asdict(run_trace(policy(folder, steps), steps)).items():
                setattr(whole[name], fact, getattr(whole[name], fact) + value)
    bound = whole["clairvoyant"].hits
    return {
        "policies": {
            name: asdict(counts) | {"of_the_bound": round(counts.hits / bound, 4)}
            for name, counts in whole.items()
        }
    }


def _prompts(folder: Path, turns: int, answer_tokens: int, budget_tokens: int) -> dict[str, Any]:
    """Hold the call without and with documents."""
    from parley.evals.bench.kv_cache.prompts import run_call, script
    from parley.evals.tiny_qwen3 import install_tiny_qwen3

    calls: dict[str, Any] = {}
    for name, has_documents in (("without_documents", False), ("with_documents", True)):
        counts = run(
            run_call(
                install_tiny_qwen3(folder / name, is_ascii=True),
                script(turns),
                has_documents=has_documents,
                answer_tokens=answer_tokens,
                budget_tokens=budget_tokens,
            )
        )
        for each in counts.requests:
            causes = f" ({', '.join(each.causes)})" if each.causes else ""
            print(
                f"{name}, turn {each.turn}: kept {each.kept_tokens} of {each.history_tokens} tokens of "
                f"history, {each.earlier_tokens} before the words; Claude {each.sent_kept_chars} of "
                f"{each.sent_history_chars} characters{causes}",
                file=sys.stderr,
            )
        calls[name] = {
            "turns": turns,
            "summaries": counts.summaries,
            "history_tokens": sum(each.history_tokens for each in counts.requests),
            "kept_tokens": sum(each.kept_tokens for each in counts.requests),
            "kept_share": round(counts.kept_share, 4),
            "kept_share_of_all_before_the_words": round(counts.strict_share, 4),
            "claude_kept_share": round(counts.claude_share, 4),
        }
    return calls


def _ttft(folder: Path, turns: int, repeats: int) -> dict[str, Any]:
    """Measure a model that is large enough for its reading to be noticeable on a CPU."""
    from parley.evals.tiny_qwen3 import install_tiny_qwen3
    from parley.models.llm.kv.causal import CausalLm, CausalSettings

    # Each token it writes is a piece of text.
    install_tiny_qwen3(folder, layers=4, width=256, is_ascii=True)
    model = CausalLm(
        CausalSettings(model=folder, device="cpu", threads=1, answer_tokens=48, context_tokens=32_768)
    )
    first_ms: dict[str, list[list[float]]] = {way: [[] for _ in range(turns)] for way in WAYS}
    progress = Progress("conversations", repeats)
    for repeat in range(repeats):
        talks = {way: _Talk(model, f"{way} {repeat}") for way in WAYS}
        for turn in range(turns):
            question = f"Question {turn}: what does a transfer to another country cost?"
            words = question.split()
            for way, talk in talks.items():
                talk.hear(question)
                if way == "anew":
                    model.forget(talk.scope)
                    talk.remembered.forget()
                read = {"ahead": words, "ahead_but_one": words[:-1]}.get(way, [])
                for count in range(1, len(read) + 1):
                    talk.read(" ".join(read[:count]))
                first_ms[way][turn].append(talk.answer())
        progress.step()
    return {"turns": turns} | {
        f"{way}_ms": [round(statistics.median(each), 2) for each in all_ms]
        for way, all_ms in first_ms.items()
    }


class _Talk:
    """Conversation with a model, as in the bot (see ``CausalReplies``), without its thread."""

    def __init__(self, model: Any, session: str) -> None:
        from parley.models.llm import Message
        from parley.models.llm.kv.dialogue import Remembered

        self._model = model
        self.scope = model.scope(session)
        self.remembered = Remembered()
        self._dialogue = [Message("system", "Be brief.")]

    def hear(self, question: str) -> None:
        from parley.models.llm import Message

        self._dialogue.append(Message("user", question))

    def read(self, words: str) -> None:
        """Read the words of the question that were spoken so far."""
        from parley.models.llm import Message

        told: list[Any] = []
        asked = self.remembered.ask([*self._dialogue[:-1], Message("user", words)])
        for each in self._model.answer(self.scope, asked, is_stopped=lambda: bool(told)):
            told.append(each)
        self.remembered.answered(asked, told[-1])

    def answer(self) -> float:
        """Return the milliseconds from the whole question to the first piece of the answer, which is made to
        its end.
        """
        from parley.models.llm import Message

        began_s = time.perf_counter()
        first_ms: float | None = None
        asked = self.remembered.ask(self._dialogue)
        for each in self._model.answer(self.scope, asked):
            if isinstance(each, str) and first_ms is None:
                first_ms = (time.perf_counter() - began_s) * 1000
        self.remembered.answered(asked, each)
        self._dialogue.append(Message("assistant", each.text))
        if first_ms is None:
            raise SystemExit("the model generates nothing: use another seed")
        return first_ms


def _plot(found: dict[str, Any], path: Path) -> None:
    turns = range(1, found["turns"] + 1)
    colours = ("#b5543c", "#c69214", "#1f6f8b", "#2e7d4f")
    with picture(path, (7, 4)) as (_, axes):
        for (way, label), colour in zip(WAYS.items(), colours, strict=True):
            axes.plot(turns, found[f"{way}_ms"], label=label, color=colour)
        axes.set_xlabel("turn of the conversation")
        axes.set_ylabel("time to the first token, ms")
        axes.set_yscale("log")
        axes.grid(alpha=0.3, which="both")
        axes.legend(loc="center", bbox_to_anchor=(0.6, 0.32), fontsize=8)


if __name__ == "__main__":
    raise SystemExit(main())
