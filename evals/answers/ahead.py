"""``python -m evals.answers.ahead``: measure what a search while the caller speaks saves at the turn's end.

The questions of a half of tests/golden are said at ``--words-per-s`` to the product's own stage
(``processors.dialogue.passages``), which gets the words so far as a call gives them to it: at most four times
a second, and in the pause. The turn ends ``--silence-ms`` after the last word. The time from then to the
request with its passages is what the search adds to the answer's latency. It is measured with the search
ahead, and without it: then the stage gets the question alone.

Recognisers report final words that differ from the last partial ones: ``--differs`` is the share of questions
whose last word is another one in the partials. These are searched at the end of the turn.
"""

import argparse
import asyncio
import random
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
from pipecat.frames.frames import LLMContextFrame
from pipecat.processors.aggregators.llm_context import LLMContext

from parley.evals.answers.asking import ROOT
from parley.evals.answers.retrieval import HALVES, SEARCH_S, other_passages, questions
from parley.evals.harness.command import count, machine
from parley.evals.harness.progress import Progress
from parley.evals.harness.report import add_outputs, run_command
from parley.models.llm.documents import user_cache
from parley.models.retrieval.files import load_passages
from parley.models.retrieval.finder import PassageFinder
from parley.models.retrieval.index import PassageIndex
from parley.models.retrieval.minilm import MiniLm
from parley.processors.dialogue.engine_llm import ReadAheadFrame
from parley.processors.dialogue.passages import QuestionPassages
from parley.processors.dialogue.speculation import READ_AHEAD_S

SET = "headings"
# Silence in which voice activity detection reports a pause.
PAUSE_S = 0.14


class CountedFinder:
    """Finder that counts its searches.

    Args:
        finder: searches.
    """

    def __init__(self, finder: PassageFinder) -> None:
        self._finder = finder
        self.searches = 0
        self.searching_s = 0.0

    def find(self, question: str, previous: str) -> Sequence[Any]:
        """Return what the finder finds."""
        self.searches += 1
        began_s = time.thread_time()
        try:
            return self._finder.find(question, previous)
        finally:
            self.searching_s += time.thread_time() - began_s


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m evals.answers.ahead",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--passages", type=count, default=0, help="least number of passages in the index")
    parser.add_argument("--set", choices=tuple(HALVES), default="report", help="half of the questions")
    parser.add_argument("--turns", type=count, help="turns of the half; default: all")
    parser.add_argument("--words-per-s", type=float, default=3.0, help="pace of the caller")
    parser.add_argument("--silence-ms", type=count, default=300, help="silence that ends a turn")
    parser.add_argument("--differs", type=float, default=0.33, help="share of finals unlike the last partial")
    add_outputs(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    given = build_parser().parse_args(argv)
    return run_command(given, lambda: asyncio.run(_measure(given)), _table)


async def _measure(given: argparse.Namespace) -> dict[str, Any]:
    index = await asyncio.to_thread(_index, ROOT / "knowledge", given.passages)
    asked = [question.turns[-1] for question in questions(given.set, 0.0)[SET]][: given.turns]
    rows: dict[str, Any] = {}
    for name in ("without", "ahead"):
        finder = CountedFinder(PassageFinder(index))
        chosen = random.Random(1)
        progress = Progress(name, len(asked))
        took_ms: list[float] = []
        spoken_s = 0.0
        for question in asked:
            stage = QuestionPassages(finder.find, timeout_s=SEARCH_S)
            if name == "ahead":
                differs = chosen.random() < given.differs
                spoken_s += await _speak(stage, question, given, differs=differs)
            began_s = time.perf_counter()
            await stage.on_frame(None, LLMContextFrame(_context(question)))
            took_ms.append((time.perf_counter() - began_s) * 1_000)
            progress.step()
        p50_ms, p95_ms = np.percentile(took_ms, (50, 95))
        rows[name] = {
            "end_to_request_ms": {"p50": round(float(p50_ms), 2), "p95": round(float(p95_ms), 2)},
            "searches_per_turn": round(finder.searches / len(asked), 2),
            "core_share_while_speaking": round(finder.searching_s / spoken_s, 4) if spoken_s else None,
        }
    return {
        "set": given.set,
        "passages": len(index.passages),
        "turns": len(asked),
        "words_per_s": given.words_per_s,
        "silence_ms": given.silence_ms,
        "differs": given.differs,
        "rows": rows,
        "machine": machine(),
    }


def _index(folder: Path, wanted: int) -> PassageIndex:
    passages = load_passages(folder)
    passages += other_passages(max(0, wanted - len(passages)))
    return PassageIndex(passages, MiniLm(), cache_folder=user_cache())


async def _speak(
    stage: QuestionPassages, question: str, given: argparse.Namespace, *, differs: bool
) -> float:
    """Say a question to the stage, up to the end of its turn; return the seconds of the words."""
    words = question.split()
    heard = [*words[:-1], "something"] if differs else words
    began_s = time.perf_counter()
    for at_s, number in given_on(len(heard), given.words_per_s):
        await asyncio.sleep(max(0.0, began_s + at_s - time.perf_counter()))
        await stage.on_frame(None, ReadAheadFrame(_context(" ".join(heard[:number]))))
    spoken_s = len(heard) / given.words_per_s
    await asyncio.sleep(max(0.0, began_s + spoken_s + given.silence_ms / 1_000 - time.perf_counter()))
    return spoken_s


def given_on(words: int, words_per_s: float) -> list[tuple[float, int]]:
    """Return when how many words are given on, as ``Speculation`` does: at intervals, and in the pause."""
    moments: list[tuple[float, int]] = []
    due_s = 0.0
    waits = False
    for number in range(1, words + 1):
        at_s = number / words_per_s
        if waits and due_s <= at_s:
            moments.append((due_s, number - 1))
            due_s, waits = due_s + READ_AHEAD_S, False
        if at_s >= due_s:
            moments.append((at_s, number))
            due_s = at_s + READ_AHEAD_S
        else:
            waits = True
    if waits:
        moments.append((min(due_s, words / words_per_s + PAUSE_S), words))
    return moments


def _context(words: str) -> LLMContext:
    return LLMContext(messages=[{"role": "user", "content": words}])


def _table(result: dict[str, Any]) -> str:
    lines = [
        f"{result['turns']} turns of the {result['set']} half, {result['passages']} passages, "
        f"{result['words_per_s']:g} words a second, {result['silence_ms']} ms of silence",
        "",
        "| search | end of turn to request p50, p95 | searches a turn | of a core while speaking |",
        "|---|---|---|---|",
    ]
    for name, row in result["rows"].items():
        took, share = row["end_to_request_ms"], row["core_share_while_speaking"]
        shown = "" if share is None else f"{100 * share:.1f} %"
        lines.append(
            f"| {name} | {took['p50']:.1f}, {took['p95']:.1f} ms | {row['searches_per_turn']:.1f} | {shown} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
