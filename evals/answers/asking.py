"""Put golden questions to the embedded answerer and count the results.

The recognised words of a turn may differ from the written ones. A turn of which the recogniser is not sure is
asked back, as in a call, and its question then counts as not right.
"""

import json
import time
from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from parley.evals.answers.scoring import NOT_UNDERSTOOD, Golden, Kind, Statements, judge
from parley.models.llm import Message
from parley.models.llm.documents import DocumentLlm, DocumentLlmSettings
from parley.turn_taking.clarification import AskBack, AskBackSettings, Clarification

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
FOLDERS = {
    "bank": ROOT / "knowledge" / "bank",
    "product": HERE / "documents" / "product",
    "pump": HERE / "documents" / "pump",
}
LOOK_UP_TIMEOUT_S = 60.0


@dataclass(frozen=True, slots=True)
class HeardTurn:
    """Recognised words of a turn.

    Attributes:
        text: input of the answerer.
        confidences: of each word. None when they are not known.
    """

    text: str
    confidences: tuple[float, ...] | None = None


@dataclass(slots=True)
class Tally:
    """Verdicts on one half.

    Attributes:
        asked: number of questions by kind.
        right: number of right answers by kind.
        reversed: number of answers that say the opposite.
        facts_for_noise: number of statements of the documents in answer to noise or another language.
        asked_back: number of turns that were not answered because the recogniser was not sure of them.
        failures: (question, answer) of each that was not right.
        first_token_ms: from the question to the first piece of each answer.
    """

    asked: Counter[str] = field(default_factory=Counter)
    right: Counter[str] = field(default_factory=Counter)
    reversed: int = 0
    facts_for_noise: int = 0
    asked_back: int = 0
    failures: list[tuple[str, str]] = field(default_factory=list)
    first_token_ms: list[float] = field(default_factory=list)

    def figures(self) -> dict[str, Any]:
        """Return the printed figures."""
        return {
            "asked": self.asked.total(),
            "right": self.right.total(),
            "right_share": round(self.right.total() / max(1, self.asked.total()), 3),
            "reversed": self.reversed,
            "facts_for_noise": self.facts_for_noise,
            "asked_back": self.asked_back,
            "first_token_ms": {f"p{percent}": self._percentile(percent) for percent in (50, 95)},
        }

    def _percentile(self, percent: int) -> float | None:
        # When every turn was asked back, nothing was answered.
        return round(float(np.percentile(self.first_token_ms, percent)), 1) if self.first_token_ms else None


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
    """Read a document set as statements, without headings: they state nothing, and name topics in answers."""
    texts = (path.read_text(encoding="utf-8") for path in sorted(FOLDERS[name].glob("*.md")))
    return Statements("\n".join(line for line in text.splitlines() if line[:1] != "#") for text in texts)


def load_models() -> dict[str, DocumentLlm]:
    """Load an answerer for each document set. Blocks.

    The long timeout keeps a busy machine from changing answers.
    """
    return {
        name: DocumentLlm(DocumentLlmSettings(folder=folder, timeout_s=LOOK_UP_TIMEOUT_S))
        for name, folder in FOLDERS.items()
    }


class Examiner:
    """Examiner that asks questions about every document set.

    Args:
        models: answerers by the name of their document set.
        ask_back: when a turn is asked back. None for never.
    """

    def __init__(self, models: Mapping[str, DocumentLlm], ask_back: AskBackSettings | None = None) -> None:
        self._models = models
        self._ask_back = ask_back
        self._statements = {name: read_statements(name) for name in FOLDERS}

    async def run(
        self,
        rows: Sequence[Golden],
        hear: Callable[[str], HeardTurn] = HeardTurn,
        *,
        written: Collection[Kind] = NOT_UNDERSTOOD,
    ) -> Tally:
        """Ask every question, each in a conversation of its own.

        Args:
            rows: the questions.
            hear: returns the recognised words of a written turn.
            written: kinds whose turns stay as written. Noise with simulated word errors is still noise.
        """
        tally = Tally()
        for golden in rows:
            messages = await self._converse(golden, HeardTurn if golden.kind in written else hear, tally)
            verdict = judge(golden, messages[-1].text, self._statements[golden.documents])
            tally.asked[golden.kind] += 1
            tally.right[golden.kind] += verdict.is_right
            tally.reversed += verdict.is_reversed
            tally.facts_for_noise += verdict.is_fact_for_noise
            if not verdict.is_right:
                spoken = " / ".join(message.text for message in messages[:-1])
                question = f"[{golden.documents}, {golden.kind}] {spoken}"
                tally.failures.append((question, messages[-1].text))
        return tally

    async def _converse(
        self, golden: Golden, hear: Callable[[str], HeardTurn], tally: Tally
    ) -> list[Message]:
        messages: list[Message] = []
        asking = Clarification(self._ask_back)
        for turn in golden.turns:
            heard = hear(turn)
            messages.append(Message("user", heard.text))
            if self._ask_back is not None:
                asking.on_words(heard.text, heard.confidences)
                doubt = asking.on_turn(heard.text)
                if isinstance(doubt, AskBack):
                    tally.asked_back += 1
                    messages.append(Message("assistant", doubt.text))
                    continue
            started = time.perf_counter()
            pieces: list[str] = []
            async for piece in self._models[golden.documents].reply(messages):
                if not pieces:
                    tally.first_token_ms.append(1000 * (time.perf_counter() - started))
                pieces.append(piece)
            messages.append(Message("assistant", "".join(pieces)))
        return messages
