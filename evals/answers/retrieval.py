"""``python -m evals.answers.retrieval``: measure the search in documents before each question to a model.

Counts the questions for which the right passage is among the three that stand in the request, and the time of
a search. The request is made by the product's own stage (``processors.dialogue.passages``).

There are two sets of questions. Those of tests/golden name the heading of the right passage and have a second
version, as PocketSphinx heard it; those of ``golden/report.json`` name facts, which must all stand in the
passages, and are also asked with word errors (``--word-errors``, seeds 1 to 3). ``--set tuning`` uses the
halves on which limits may be chosen, and prints what was not found.

``--passages N`` adds other passages until there are N: sentences of the documentation of installed Python
packages. They make the search slower and give it more to confuse. Embedding them takes about 8 ms each once;
the vectors are stored as those of any documents.

``--chroma FOLDER`` has Chroma find the nearest vectors (``thinking.vector_search``), in a folder of its own.
"""

import argparse
import ast
import asyncio
import json
import sys
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from pipecat.frames.frames import LLMContextFrame
from pipecat.processors.aggregators.llm_context import LLMContext

from parley.configs.engines import checked_settings
from parley.evals.answers.asking import FOLDERS, ROOT, read_golden
from parley.evals.answers.scoring import FROM_DOCUMENTS, holds
from parley.evals.answers.word_errors import WordErrors, confusions
from parley.evals.harness.command import count, machine
from parley.evals.harness.progress import Progress, say
from parley.evals.harness.report import add_outputs, run_command
from parley.models.llm.documents import user_cache
from parley.models.retrieval import Passage
from parley.models.retrieval.files import load_passages
from parley.models.retrieval.finder import PassageFinder
from parley.models.retrieval.index import PassageIndex
from parley.models.retrieval.markdown import sentences
from parley.models.retrieval.minilm import MiniLm
from parley.models.retrieval.nearest import VECTOR_SEARCH
from parley.processors.dialogue.passages import QuestionPassages

HEADINGS = ROOT / "tests" / "golden"
HALVES = {"tuning": "tune", "report": "held_out"}
SEEDS = (1, 2, 3)
# Words of a sentence that may be a passage.
LEAST_WORDS, MOST_WORDS = 6, 40
# Not waited for in a measurement: a late search would count as one that found nothing.
SEARCH_S = 60.0


@dataclass(frozen=True, slots=True)
class Asked:
    """Question with what must stand in the request.

    Attributes:
        documents: name of the document set.
        turns: words of the caller; the last are the question.
        facts: all of them must be in the passages.
        title: heading of the right passage; empty where facts decide.
    """

    documents: str
    turns: tuple[str, ...]
    facts: tuple[str, ...] = ()
    title: str = ""

    def is_answered_by(self, request: str) -> bool:
        """Return whether the block of passages has what is needed."""
        if self.title:
            heads = [line for line in request.splitlines() if line.startswith("(") and line.endswith(":")]
            return any(head.removesuffix(":").endswith(f", {self.title}") for head in heads)
        return all(holds(request, fact) for fact in self.facts)


def build_parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m evals.answers.retrieval",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--passages", type=count, default=0, help="least number of passages in each index")
    parser.add_argument("--chroma", type=Path, metavar="FOLDER", help="find the nearest vectors with Chroma")
    parser.add_argument("--word-errors", type=float, default=0.08, help="share of misheard words, 0 to 1")
    parser.add_argument("--set", choices=tuple(HALVES), default="report", help="half of the questions")
    parser.add_argument("--first", type=count, metavar="N", help="only the first N questions of each kind")
    add_outputs(parser)
    return parser


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    given = build_parser().parse_args(argv)
    return run_command(given, lambda: asyncio.run(_measure(given)), _table)


def questions(half: str, word_errors: float) -> dict[str, list[Asked]]:
    """Return the questions of a half by the name of their set."""
    sets: dict[str, list[Asked]] = {}
    for name, file in (("headings", "questions.json"), ("headings, misheard", "questions_heard.json")):
        rows = json.loads((HEADINGS / file).read_text(encoding="utf-8"))[HALVES[half]]
        sets[name] = [Asked("all", (question,), title=title) for title, question in rows]
    written = [row for row in read_golden(half) if row.kind in FROM_DOCUMENTS]
    sets["facts"] = [Asked(row.documents, row.turns, row.facts) for row in written]
    heard: list[Asked] = []
    for seed in SEEDS:
        errors = WordErrors(confusions(), rate=word_errors, seed=seed)
        heard += [
            Asked(row.documents, tuple(errors.hear(turn) for turn in row.turns), row.facts) for row in written
        ]
    sets["facts, misheard"] = heard
    return sets


async def _measure(given: argparse.Namespace) -> dict[str, Any]:
    folders = {**FOLDERS, "all": ROOT / "knowledge"}
    others = await asyncio.to_thread(other_passages, given.passages)
    embedder = MiniLm()
    finders: dict[str, PassageFinder] = {}
    sizes: dict[str, int] = {}
    building = Progress("indexes", len(folders))
    index: PassageIndex | None = None
    for name, folder in folders.items():
        passages = load_passages(folder)
        passages += others[: max(0, given.passages - len(passages))]
        # The other passages are the same in each index, and are embedded once.
        search = None
        if given.chroma is not None:
            place = {"folder": given.chroma / name}
            settings = checked_settings(VECTOR_SEARCH, "chroma", place, where="--chroma")
            search = VECTOR_SEARCH.create("chroma", settings)
        index = await asyncio.to_thread(
            PassageIndex,
            passages,
            embedder,
            cache_folder=user_cache(),
            previous=index,
            vector_search=search,
        )
        finders[name], sizes[name] = PassageFinder(index), len(passages)
        building.step(f"{name}, {len(passages)} passages")
    figures: dict[str, Any] = {}
    took_ms: list[float] = []
    for name, asked in questions(given.set, given.word_errors).items():
        asked = asked[: given.first]
        found = 0
        for question in asked:
            began_s = time.perf_counter()
            request = await _request(finders[question.documents], question)
            took_ms.append((time.perf_counter() - began_s) * 1_000)
            if question.is_answered_by(request):
                found += 1
            elif given.set == "tuning":
                say(f"not found: {question.turns[-1]} {question.title or question.facts}")
        figures[name] = {"asked": len(asked), "found": found, "hit_at_3": round(found / len(asked), 3)}
    p50_ms, p95_ms = np.percentile(took_ms, (50, 95))
    return {
        "set": given.set,
        "word_errors": given.word_errors,
        "passages": sizes,
        "questions": figures,
        "search_ms": {"p50": round(float(p50_ms), 1), "p95": round(float(p95_ms), 1)},
        "machine": machine(),
    }


async def _request(finder: PassageFinder, question: Asked) -> str:
    """Return the message with passages of the request for a question; empty where there is none."""
    messages: list[Any] = []
    for turn in question.turns[:-1]:
        messages += [{"role": "user", "content": turn}, {"role": "assistant", "content": "I see."}]
    messages.append({"role": "user", "content": question.turns[-1]})
    frame = LLMContextFrame(LLMContext(messages=messages))
    await QuestionPassages(finder.find, timeout_s=SEARCH_S).on_frame(None, frame)
    request: list[Any] = frame.context.messages
    return str(request[-2]["content"]) if len(request) > len(messages) else ""


def other_passages(wanted: int) -> list[Passage]:
    """Return passages of the documentation of installed packages, those of Python itself first."""
    found: dict[str, Passage] = {}
    for root in (Path(ast.__file__).parent, *(Path(path) for path in sys.path if path.endswith("-packages"))):
        for file in sorted(root.rglob("*.py")):
            if len(found) >= wanted:
                break
            for said in _documentation(file):
                found.setdefault(said, Passage(said, file.stem.replace("_", " "), file.parent.name))
    if len(found) < wanted:
        say(f"only {len(found)} other passages are installed")
    return list(found.values())[:wanted]


def _documentation(file: Path) -> Iterator[str]:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        # Test data of packages that is no Python.
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            documented = ast.get_docstring(node) or ""
            for said in sentences(" ".join(documented.partition("\n\n")[0].split())):
                if LEAST_WORDS <= len(said.split()) <= MOST_WORDS:
                    yield said


def _table(result: dict[str, Any]) -> str:
    sizes = sorted(set(result["passages"].values()))
    lines = [
        f"{result['set']} half; {sizes[0]} to {sizes[-1]} passages; "
        f"search {result['search_ms']['p50']} ms (p50), {result['search_ms']['p95']} ms (p95)",
        "",
        "| questions | asked | right passage in the request |",
        "|---|---|---|",
    ]
    for name, row in result["questions"].items():
        lines.append(f"| {name} | {row['asked']} | {row['found']} ({100 * row['hit_at_3']:.0f} %) |")
    return "\n".join(lines)


if __name__ == "__main__":
    raise SystemExit(main())
