"""Write the tables of docs/reference/transports.md from the registry of transports.

Run by hand after a row has changed: ``python -m scripts.write_transports``.
"""

from collections.abc import Iterable, Sequence
from dataclasses import fields
from pathlib import Path

from parley.transports.registry import TRANSPORTS, Capabilities, Command, TransportRow

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "reference" / "transports.md"
COMMANDS = {
    Command.SERVE: "serves",
    Command.RECORDING: "one call with a WAV as the caller",
    Command.SIMULATION: "one call of a simulated caller",
    Command.DEVICES: "one call over this machine's devices",
    Command.ROOM: "joins the room",
    Command.AGENT: "with `--url`: calls an agent elsewhere (`agent`)",
}


def rows_table() -> str:
    """Return the table of the requirements of each row, and of the places where it is served."""
    head = ("transport", "what it is", "`--transport`", "routes", "settings", "extra", "environment")
    return _table(head, (_cells(row) for row in TRANSPORTS.rows()))


def capabilities_table() -> str:
    """Return the table of the capabilities of each transport."""
    names = [each.name for each in fields(Capabilities)]
    lines = (
        (row.name, *("yes" if getattr(row.capabilities, name) else "" for name in names))
        for row in TRANSPORTS.rows()
    )
    return _table(("", *(name.replace("_", " ") for name in names)), lines)


def written(document: str) -> str:
    """Return the document with the current tables."""
    return _between(_between(document, "rows", rows_table()), "capabilities", capabilities_table())


def _cells(row: TransportRow) -> Sequence[str]:
    return (
        f"`{row.name}`",
        row.summary,
        "" if row.command is None else COMMANDS[row.command],
        ", ".join(f"`{path}`" for path in row.routes),
        f"`{row.settings}`" if row.settings else "",
        f"`{row.extra}`" if row.extra else "",
        ", ".join(f"`{name}`" for name in row.env),
    )


def _table(head: Sequence[str], lines: Iterable[Sequence[str]]) -> str:
    rule = "|" + "---|" * len(head)
    return "\n".join((_line(head), rule, *map(_line, lines)))


def _line(cells: Sequence[str]) -> str:
    return f"| {' | '.join(cells)} |"


def _between(document: str, name: str, table: str) -> str:
    begins, ends = f"<!-- {name}: begins -->", f"<!-- {name}: ends -->"
    before, _, rest = document.partition(begins)
    _, _, after = rest.partition(ends)
    return f"{before}{begins}\n{table}\n{ends}{after}"


if __name__ == "__main__":
    DOCUMENT.write_text(written(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
