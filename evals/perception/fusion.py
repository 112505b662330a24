"""``python -m evals.perception.fusion``: answer scripted turns whose right answer needs more than the words.

Someone points at one thing after another while asking about "this one", two people want opposite things, and
"this is fine" is said tensely (``fusion_set``; other turns have no second meaning and must be answered
plainly). Words come at once, reports of the voice after 80 ms, those of a camera with 5 pictures a second
after 200 ms, each with jitter. Each turn goes through the perception of a call, on virtual time, and the
embedded answerer answers what a model would read. The answer is right when it has the words that the script
expects, and none that it forbids.

There are three arms. ``event time`` is the product. In ``arrival order`` each report counts as happening when
it arrives, and the turn does not wait. ``words alone`` has no reports. ``--set tuning`` uses the turns that
the rules of the answerer were written with; the report side has other things, questions and documents.
"""

import argparse
import asyncio
import json
import sys
import tempfile
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from parley.evals import virtual_time
from parley.evals.harness.command import machine, positive
from parley.evals.harness.progress import Progress
from parley.evals.harness.report import add_outputs, markdown, percent, run_command
from parley.evals.perception.scripted import Performance, SpecialistReport, perform, reports
from parley.evals.perception.scripted_call import ScriptedCall, scripted_call
from parley.models.llm import Message
from parley.models.llm.documents import DocumentLlm, DocumentLlmSettings
from parley.processors.fusion.perception import PerceptionSettings

SETS = Path(__file__).parent / "fusion_set"
EVENT_TIME, ARRIVAL, WORDS = "event time", "arrival order", "words alone"
ARMS = (EVENT_TIME, ARRIVAL, WORDS)
LOOK_UP_TIMEOUT_S = 60
PAUSE_S = 2


@dataclass(frozen=True, slots=True)
class ScriptedTurn:
    """A turn of the set.

    Attributes:
        kind: what its answer needs.
        text: with marks, see ``scripted``.
        expects: words of the right answer; empty for any.
        forbids: words that a right answer does not have; empty for none.
        comes_from: mark of what the hand pointed at before.
        goes_to: mark of what it points at afterwards.
    """

    kind: str
    text: str
    expects: str
    forbids: str = ""
    comes_from: str | None = None
    goes_to: str | None = None

    def is_right(self, answer: str) -> bool:
        """Return whether an answer is right."""
        return self.expects.lower() in answer.lower() and not (
            self.forbids and self.forbids.lower() in answer.lower()
        )


def read_set(name: str) -> tuple[list[ScriptedTurn], dict[str, str]]:
    """Return the turns of a set, and what its marks stand for."""
    stored = json.loads((SETS / name / "turns.json").read_text(encoding="utf-8"))
    turns = [
        ScriptedTurn(
            turn["kind"],
            turn["text"],
            turn["expects"],
            turn.get("forbids", ""),
            turn.get("from"),
            turn.get("to"),
        )
        for turn in stored["turns"]
    ]
    return turns, stored["things"]


async def perceived(
    folder: Path, performances: Sequence[tuple[Performance, Sequence[SpecialistReport]]], arm: str
) -> list[str]:
    """Return what a model reads of each turn, in one arm."""
    settings = PerceptionSettings(settle_ms=0) if arm == ARRIVAL else PerceptionSettings()
    texts: list[str] = []
    async with scripted_call(folder, settings) as call:
        for performance, found in performances:
            texts.append(await _text(call, performance, found, arm))
            # The caller listens.
            await asyncio.sleep(PAUSE_S)
    return texts


async def _text(
    call: ScriptedCall, performance: Performance, found: Sequence[SpecialistReport], arm: str
) -> str:
    given = {
        EVENT_TIME: found,
        ARRIVAL: [report.as_arrived() for report in found],
        WORDS: (),
    }[arm]
    return (await call.turn(performance, given)).text or performance.text


async def answer(model: DocumentLlm, text: str) -> str:
    """Return the answer to one turn alone."""
    return "".join([piece async for piece in model.reply([Message("user", text)])])


def measure(arguments: argparse.Namespace) -> dict[str, Any]:
    """Play the set and return the JSON."""
    turns, things = read_set(arguments.set)
    settings = DocumentLlmSettings(folder=SETS / arguments.set, timeout_s=LOOK_UP_TIMEOUT_S)
    model = DocumentLlm(settings)
    right: dict[str, Counter[str]] = {arm: Counter() for arm in ARMS}
    asked: Counter[str] = Counter()
    failures: list[dict[str, str]] = []
    progress = Progress("runs of the set", arguments.repeats * len(ARMS))
    for number in range(arguments.repeats):
        seed = arguments.seed * 1_000 + number
        performances = [
            perform(turn.text, things, seed * 100 + at, comes_from=turn.comes_from, goes_to=turn.goes_to)
            for at, turn in enumerate(turns)
        ]
        scripts = [(each, reports(each, seed * 100 + at)) for at, each in enumerate(performances)]
        asked.update(turn.kind for turn in turns)
        for arm in ARMS:
            with tempfile.TemporaryDirectory() as folder:
                texts = virtual_time.run(perceived(Path(folder), scripts, arm))
            for turn, text in zip(turns, texts, strict=True):
                said = asyncio.run(answer(model, text))
                if turn.is_right(said):
                    right[arm][turn.kind] += 1
                elif arm == EVENT_TIME:
                    failures.append({"read": text, "answered": said, "expected": turn.expects})
            progress.step(arm)
    return {
        "turns": len(turns),
        "repeats": arguments.repeats,
        "right_percent": {
            arm: {kind: percent(right[arm][kind], asked[kind]) for kind in asked}
            | {"all": percent(right[arm].total(), asked.total())}
            for arm in ARMS
        },
        "failures": failures,
        "settings": {"set": arguments.set, "seed": arguments.seed},
        "machine": machine(),
    }


def table(result: Mapping[str, Any]) -> str:
    """Return the right answers as a table."""
    found = result["right_percent"]
    kinds = list(found[EVENT_TIME])
    rows = [[arm, *(found[arm][kind] for kind in kinds)] for arm in ARMS]
    return markdown(["right answers, %", *kinds], rows)


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.perception.fusion",
        description="Answer scripted turns whose right answer needs more than the words.",
    )
    root.add_argument("--set", choices=["report", "tuning"], default="report")
    root.add_argument("--repeats", type=positive, default=5, help="drawn times of each turn")
    root.add_argument("--seed", type=int, default=1)
    add_outputs(root)
    return root


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    arguments = parser().parse_args(argv)
    return run_command(arguments, lambda: measure(arguments), table)


if __name__ == "__main__":
    sys.exit(main())
