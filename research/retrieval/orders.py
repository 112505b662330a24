"""``python -m research.retrieval.orders``: orders of the found passages that were tried, on tuning questions.

Counts the questions whose right passage is among the first three, in each order:

* ``shipped``: that of the product (``models.retrieval.finder``).
* ``reranked W``: the best five, ordered anew by their score plus W times the likeness of single words: the
  mean, over the words of the question, of the largest cosine with a word of the passage (late interaction, as
  in ColBERT, with the word vectors of the product's own embedder; no package ships a cross-encoder).
* ``follow-ups``: a question of at most one content word is scored by 0.3 of its own score and 0.7 of that of
  both questions, and no longer by its own score alone.
* ``best of ten``: what a perfect reranking of the best ten would reach.

``--set report`` is for the figures of docs/adr/0018 alone, after everything was chosen.
"""

import argparse
import asyncio
import sys
import time
from collections.abc import Sequence
from typing import Any

import numpy as np

from parley.core.passage_notes import write_passages
from parley.evals.answers.asking import FOLDERS, ROOT
from parley.evals.answers.retrieval import HALVES, Asked, other_passages, questions
from parley.evals.harness.command import count, machine
from parley.evals.harness.report import add_outputs, run_command
from parley.models.llm.documents import user_cache
from parley.models.retrieval import Passage
from parley.models.retrieval.files import load_passages
from parley.models.retrieval.index import PassageIndex
from parley.models.retrieval.minilm import MiniLm, _encode, _layer_norm

SHOWN, RERANKED, CANDIDATES = 3, 5, 10
WEIGHTS = (0.2, 0.5, 1.0)
FOLLOW_UP_WORDS, DEPENDENT_TERMS, DEPENDENT_SHARE = 9, 1, 0.3


class WordVectors(MiniLm):
    """The product's embedder, with a vector for each word."""

    def words(self, text: str) -> np.ndarray:
        """Return float32, (tokens, 384), rows of length 1; the first and the last stand for the text."""
        ids = np.array([self._tokenizer.encode(text).ids])
        hidden = _layer_norm(self._words[ids] + self._positions[: ids.shape[1]], *self._norm)
        mask = np.zeros((1, 1, 1, ids.shape[1]), dtype=np.float32)
        for layer in self._layers:
            hidden = _encode(hidden, mask, layer)
        vectors: np.ndarray = hidden[0] / np.linalg.norm(hidden[0], axis=1, keepdims=True)
        return vectors


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return its exit status."""
    parser = argparse.ArgumentParser(
        prog="python -m research.retrieval.orders",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--passages", type=count, default=20_000, help="least number of passages")
    parser.add_argument("--set", choices=tuple(HALVES), default="tuning", help="half of the questions")
    add_outputs(parser)
    given = parser.parse_args(argv)
    return run_command(given, lambda: asyncio.run(_measure(given)), _table)


async def _measure(given: argparse.Namespace) -> dict[str, Any]:
    others = await asyncio.to_thread(other_passages, given.passages)
    embedder = WordVectors()
    asked = questions(given.set, 0.08)
    found: dict[str, dict[str, int]] = {}
    took_ms: list[float] = []
    index: PassageIndex | None = None
    for name, folder in {**FOLDERS, "all": ROOT / "knowledge"}.items():
        passages = load_passages(folder)
        passages += others[: max(0, given.passages - len(passages))]
        index = PassageIndex(passages, embedder, cache_folder=user_cache(), previous=index)
        for kind, rows in asked.items():
            for row in rows:
                if row.documents == name:
                    orders, rerank_ms = _orders(index, embedder, row)
                    took_ms.append(rerank_ms)
                    for order, numbers in orders.items():
                        counted = found.setdefault(order, dict.fromkeys(asked, 0))
                        counted[kind] += _is_answered(index, row, numbers)
    return {
        "set": given.set,
        "passages": given.passages,
        "asked": {kind: len(rows) for kind, rows in asked.items()},
        "found": found,
        "rerank_ms": {"p50": round(float(np.median(took_ms)), 1), "passages": RERANKED},
        "machine": machine(),
    }


def _orders(index: PassageIndex, embedder: WordVectors, row: Asked) -> tuple[dict[str, list[int]], float]:
    """Return the best passages for a question in each order, and how long reranking took."""
    question, previous = row.turns[-1], row.turns[-2] if len(row.turns) > 1 else ""
    texts = [question]
    if previous and len(question.split()) <= FOLLOW_UP_WORDS:
        texts.append(f"{previous} {question}")
    own, *more = (ranking.scores for ranking in index.rank(texts))
    shipped = np.maximum(own, 0.5 * own + 0.5 * more[0]) if more else own
    dependent = shipped
    if more and len(set(index.terms(question))) <= DEPENDENT_TERMS:
        dependent = DEPENDENT_SHARE * own + (1 - DEPENDENT_SHARE) * more[0]
    best = np.argsort(-shipped, kind="stable")[:CANDIDATES]
    began_s = time.perf_counter()
    asked = embedder.words(texts[0])[1:-1]
    near = np.array(
        [
            float((asked @ embedder.words(_text(index.passages[number])).T).max(axis=1).mean())
            for number in best[:RERANKED]
        ]
    )
    rerank_ms = (time.perf_counter() - began_s) * 1_000
    orders = {"shipped": best[:SHOWN].tolist()}
    for weight in WEIGHTS:
        places = np.argsort(-(shipped[best[:RERANKED]] + weight * near), kind="stable")
        orders[f"reranked {weight:g}"] = best[places[:SHOWN]].tolist()
    orders["follow-ups"] = np.argsort(-dependent, kind="stable")[:SHOWN].tolist()
    orders["best of ten"] = best.tolist()
    return orders, rerank_ms


def _text(passage: Passage) -> str:
    return f"{'. '.join((*passage.above, passage.title))}. {passage.text}"


def _is_answered(index: PassageIndex, row: Asked, numbers: Sequence[int]) -> bool:
    return row.is_answered_by(write_passages([index.passages[number].quoted() for number in numbers]))


def _table(result: dict[str, Any]) -> str:
    kinds = list(result["asked"])
    lines = [
        f"{result['set']} half, {result['passages']} passages; reranking {RERANKED} passages takes "
        f"{result['rerank_ms']['p50']} ms (p50)",
        "",
        "| order | " + " | ".join(f"{kind} ({result['asked'][kind]})" for kind in kinds) + " |",
        "|---" * (len(kinds) + 1) + "|",
    ]
    for order, counted in result["found"].items():
        lines.append(f"| {order} | " + " | ".join(str(counted[kind]) for kind in kinds) + " |")
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
