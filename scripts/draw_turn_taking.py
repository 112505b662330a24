"""Draws the state tables of turn taking into docs/turn_taking.md.

Run by hand after a table has changed: ``python -m scripts.draw_turn_taking``.
"""

from pathlib import Path

from turn_taking import barge_in_table, idle
from turn_taking.diagram import in_document, mermaid

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "turn_taking.md"


def drawn(document: str) -> str:
    """The document with the diagrams of the tables as they are."""
    barge = mermaid(
        barge_in_table.TRANSITIONS, first=barge_in_table.State.LISTENING, silent=barge_in_table.Act.NOTHING
    )
    silence = mermaid(idle.TRANSITIONS, first=idle.State.WAITING, silent=idle.Act.NOTHING)
    return in_document(in_document(document, "barge-in", barge), "idle", silence)


if __name__ == "__main__":
    DOCUMENT.write_text(drawn(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
