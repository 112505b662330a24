"""Sentences of callers: the questions of ``tests/golden/questions.json``.

Those marked for tuning are for fits, the held-out ones for reports.
"""

import json
from pathlib import Path

GOLDEN = Path(__file__).resolve().parents[2] / "tests" / "golden" / "questions.json"


def sentences(*, held_out: bool) -> list[str]:
    """Return all sentences of a set, in lower case and without punctuation."""
    return [plain(text) for text in texts(held_out=held_out)]


def texts(*, held_out: bool) -> list[str]:
    """Return all sentences of a set as they are written."""
    rows = json.loads(GOLDEN.read_text(encoding="utf-8"))["held_out" if held_out else "tune"]
    return [row[1] for row in rows]


def plain(text: str) -> str:
    """Return a text in lower case and without punctuation."""
    return "".join(c for c in text.lower() if c.isalpha() or c in " '")
