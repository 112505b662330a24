"""``python -m evals.answers``: how often the embedded answerer is right on 100 golden questions.

Three document sets: the bank of ``knowledge/``, the product's own documents (a copy, so that editing them
does not move the figure) and a technical manual with tables and negations. Rules and limits are chosen on
``golden/tuning.json`` and ``golden/practice.json``. ``golden/report.json`` is the figure: its questions were
written before the code that they judge, and its failures are not printed, so that the code is not tuned on
them. ``golden/noise_*.json`` have more turns that are no question in the language of the documents.

``--heard FILE`` takes what a recogniser understood: JSON, an object of written to heard texts.
``--turns`` prints those that can be read aloud; ``--word-errors RATE`` simulates a recogniser with real
confusions.
"""

import argparse
import asyncio
import json
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from evals.answers.scoring import NOT_UNDERSTOOD, Golden, Kind, Statements, judge
from evals.answers.word_errors import WordErrors
from evals.command import machine
from models.llm import Message
from models.llm.documents import DocumentLlm, DocumentLlmSettings

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FOLDERS = {
    "bank": ROOT / "knowledge" / "bank",
    "product": HERE / "documents" / "product",
    "pump": HERE / "documents" / "pump",
}
SETS = ("tuning", "report", "noise_tuning", "noise_report")
CONFUSIONS = ROOT / "tests" / "golden"


@dataclass(slots=True)
class Tally:
    """Verdicts on one half.

    Attributes:
        asked, right: by kind.
        reversed: answers that say the opposite.
        facts_for_noise: statements of the documents in answer to noise or another language.
        failures: (question, answer) of what was not right.
        first_token_ms: from the question to the first piece of each answer.
    """

    asked: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)
    reversed: int = 0
    facts_for_noise: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    first_token_ms: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """Return what is printed of it."""
        return {
            "asked": self.asked.total(),
            "right": self.right.total(),
            "right_share": round(self.right.total() / max(1, self.asked.total()), 3),
            "reversed": self.reversed,
            "facts_for_noise": self.facts_for_noise,
            "first_token_ms": {
                "p50": round(float(np.percentile(self.first_token_ms, 50)), 1),
                "p95": round(float(np.percentile(self.first_token_ms, 95)), 1),
            },
        }


def read_golden(name: str) -> list[Golden]:
    """Read the questions of ``golden/NAME.json``."""
    rows = json.loads((HERE / "golden" / f"{name}.json").read_text(encoding="utf-8"))
    return [
        Golden(
            documents=row["documents"],
            kind=Kind(row["kind"]),
            **{key: tuple(row.get(key, ())) for key in ("turns", "facts", "wrong", "reversed")},
        )
        for row in rows
    ]


def read_statements(name: str) -> Statements:
    """Read the document set of a name as statements; headings state nothing, and name topics in answers."""
    texts = (path.read_text(encoding="utf-8") for path in sorted(FOLDERS[name].glob("*.md")))
    return Statements("\n".join(line for line in text.splitlines() if line[:1] != "#") for text in texts)


async def run_half(
    rows: Sequence[Golden],
    models: Mapping[str, DocumentLlm],
    statements: Mapping[str, Statements],
    hear: Callable[[str], str] = lambda text: text,
) -> Tally:
    """Ask every question of a half, each in a conversation of its own."""
    tally = Tally()
    for golden in rows:
        messages: list[Message] = []
        answer = ""
        for turn in golden.turns:
            # Noise and other languages stay as they are: what a recogniser makes of them is noise as well.
            said = turn if golden.kind in NOT_UNDERSTOOD else hear(turn)
            messages.append(Message("user", said))
            started = time.perf_counter()
            pieces: list[str] = []
            async for piece in models[golden.documents].reply(messages):
                if not pieces:
                    tally.first_token_ms.append(1000 * (time.perf_counter() - started))
                pieces.append(piece)
            answer = "".join(pieces)
            messages.append(Message("assistant", answer))
        verdict = judge(golden, answer, statements[golden.documents])
        tally.asked[golden.kind] += 1
        tally.right[golden.kind] += verdict.is_right
        tally.reversed += verdict.is_reversed
        tally.facts_for_noise += verdict.is_fact_for_noise
        if not verdict.is_right:
            spoken = [message.text for message in messages[:-1]]
            tally.failures.append((f"[{golden.documents}, {golden.kind}] {' / '.join(spoken)}", answer))
    return tally


def build_parser() -> argparse.ArgumentParser:
    """Return the command line."""
    parser = argparse.ArgumentParser(
        prog="python -m evals.answers", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--heard", type=Path, help="JSON: what a recogniser understood of each written turn")
    parser.add_argument("--word-errors", type=float, default=0.0, metavar="RATE", help="0 to 1")
    parser.add_argument(
        "--turns", action="store_true", help="print the turns that a recogniser may hear, as JSON"
    )
    parser.add_argument("--seed", type=int, default=1, help="of the word errors")
    parser.add_argument("--json", type=Path, help="where the figures go as well")
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the evaluation and return the exit status."""
    given = build_parser().parse_args(arguments)
    if given.turns:
        print(json.dumps(spoken_turns(), indent=2, ensure_ascii=False))
        return 0
    figures = asyncio.run(_measure(given))
    text = json.dumps(figures | {"machine": machine()}, indent=2)
    print(text)
    if given.json is not None:
        given.json.write_text(text + "\n", encoding="utf-8")
    return 0


def spoken_turns() -> list[str]:
    """Return the turns of both halves that can be read aloud to a recogniser, each once."""
    rows = [*read_golden("tuning"), *read_golden("report")]
    return list(dict.fromkeys(turn for row in rows if row.kind not in NOT_UNDERSTOOD for turn in row.turns))


def channel(given: argparse.Namespace) -> Callable[[str], str]:
    """Return what is heard of a turn, by the command line."""
    if given.heard is not None:
        heard: dict[str, str] = json.loads(given.heard.read_text(encoding="utf-8"))
        return lambda text: heard.get(text, text)
    if given.word_errors:
        return WordErrors(_confusions(), rate=given.word_errors, seed=given.seed).hear
    return lambda text: text


def _confusions() -> list[tuple[str, str]]:
    written, heard = (
        json.loads((CONFUSIONS / name).read_text(encoding="utf-8"))
        for name in ("questions.json", "questions_heard.json")
    )
    pairs: list[tuple[str, str]] = []
    for part, rows in written.items():
        for one, other in zip(rows, heard[part], strict=True):
            pairs.append((one[-1], other[-1]) if isinstance(one, list) else (one, other))
    return pairs


async def _measure(given: argparse.Namespace) -> dict[str, Any]:
    statements = {name: read_statements(name) for name in FOLDERS}
    models = {
        name: await asyncio.to_thread(DocumentLlm, DocumentLlmSettings(folder=folder))
        for name, folder in FOLDERS.items()
    }
    hear = channel(given)
    figures: dict[str, Any] = {}
    for half in SETS:
        tally = await run_half(read_golden(half), models, statements, hear)
        figures[half] = tally.figures()
        if half.endswith("report"):
            continue
        for question, answer in tally.failures:
            print(f"not right: {question}\n           {answer}", file=sys.stderr)
    return figures


if __name__ == "__main__":
    sys.exit(main())
