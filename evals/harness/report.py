"""Report of a measurement: percentiles, Markdown tables, pictures, JSON.

Percentiles are nearest rank: the smallest measured value that at least p percent of the values do not exceed.
It never invents a value between two measured ones; the p99 of 40 values is therefore the largest.

The ``matplotlib`` package is imported by ``picture`` alone, so that a run without a picture does not need it.
"""

import argparse
import json
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from parley.core.errors import ConfigError
from parley.evals.harness.command import exit_code

PERCENTILES = (50, 95, 99)
PICTURES = (".png", ".svg", ".pdf")
DASH = "-"


def percentile(values: Sequence[float], percent: int) -> float | None:
    """Return the nearest-rank percentile; None without values.

    Args:
        values: in any order.
        percent: 1..100.
    """
    if not values:
        return None
    rank = -(-percent * len(values) // 100)
    return sorted(values)[max(rank, 1) - 1]


def percentiles_ms(values_us: Sequence[int]) -> dict[str, int | None]:
    """Return ``{"p50": ..., "p95": ..., "p99": ...}`` in whole milliseconds."""
    ranked = {f"p{percent}": percentile(values_us, percent) for percent in PERCENTILES}
    return {name: None if value is None else round(value / 1000) for name, value in ranked.items()}


def tenths_ms(values_us: Sequence[int]) -> dict[str, float | None]:
    """Return the same in milliseconds with one decimal."""
    ranked = {f"p{percent}": percentile(values_us, percent) for percent in PERCENTILES}
    return {name: None if value is None else round(value / 1000, 1) for name, value in ranked.items()}


def ranked(values: Sequence[float], *, digits: int = 1) -> dict[str, float]:
    """Return the percentiles and the maximum of at least one value, rounded."""
    found = {f"p{percent}": percentile(values, percent) or 0.0 for percent in PERCENTILES}
    return {name: round(value, digits) for name, value in {**found, "max": max(values)}.items()}


def spread(values: Sequence[float], *, digits: int = 1) -> dict[str, Any]:
    """Return count, percentiles and maximum; the count alone of no values."""
    return {"count": len(values), **(ranked(values, digits=digits) if values else {})}


def percent(part: int, whole: int) -> float | None:
    """Return the percentage; None of nothing."""
    return round(100 * part / whole, 1) if whole else None


def cell(value: object) -> str:
    """Return a value as a cell of a table; a dash for None."""
    return DASH if value is None else str(value)


def cells(values: Mapping[str, object], *names: str) -> str:
    """Return some values of a mapping in one cell: ``50 / 95 / 99``; by default the percentiles."""
    return " / ".join(cell(values[name]) for name in names or ("p50", "p95", "p99"))


def markdown(head: Sequence[str], rows: Sequence[Sequence[object]]) -> str:
    """Return a Markdown table, without a line end after its last row."""
    lines = [f"| {' | '.join(map(cell, row))} |" for row in (head, *rows)]
    return "\n".join((lines[0], "|" + "---|" * len(head), *lines[1:]))


@contextmanager
def picture(path: Path, size_inches: tuple[float, float]) -> Iterator[tuple[Any, Any]]:
    """Yield a figure and its axes to draw on; write them to the path at the end of the context.

    Raises:
        ConfigError: matplotlib is not installed, or cannot write this kind of file.
    """
    check_picture(path)
    try:
        from matplotlib.backends.backend_agg import FigureCanvasAgg
        from matplotlib.figure import Figure
    except ImportError as error:
        raise ConfigError("a picture needs the extra 'evals': pip install -e '.[evals]'") from error
    figure = Figure(figsize=size_inches, layout="constrained")
    FigureCanvasAgg(figure)
    yield figure, figure.add_subplot()
    figure.savefig(path, dpi=130)


def check_picture(path: Path) -> None:
    """Raise ConfigError when a path is not that of a picture."""
    if path.suffix not in PICTURES:
        raise ConfigError(f"{path}: not a picture", known=PICTURES)


def add_outputs(parser: argparse.ArgumentParser, *, with_table: bool = True) -> None:
    """Add ``--json`` and ``--table`` to a command line."""
    parser.add_argument("--json", type=Path, help="write the figures to this JSON file")
    if with_table:
        parser.add_argument("--table", type=Path, help="write the Markdown table to this file")


def check_outputs(arguments: argparse.Namespace, *names: str) -> None:
    """Check before minutes of measuring that results can be written.

    Args:
        arguments: of the command line.
        names: of the options that hold paths. By default ``json`` and ``table``.

    Raises:
        OSError: a file cannot be written.
    """
    for name in names or ("json", "table"):
        path = getattr(arguments, name, None)
        if path is None:
            continue
        if path.exists():
            path.open("ab").close()
        else:
            with tempfile.TemporaryFile(dir=path.parent):
                pass


def as_json(result: Mapping[str, Any]) -> str:
    """Return figures as they are printed and stored."""
    return json.dumps(result, indent=2) + "\n"


def publish(
    arguments: argparse.Namespace,
    result: Mapping[str, Any],
    table: Callable[[dict[str, Any]], str] | None = None,
) -> int:
    """Write figures to the files of ``add_outputs``, and print the table, or without one the JSON.

    Returns:
        The exit status of a command that has measured: 0.
    """
    if arguments.json is not None:
        arguments.json.write_text(as_json(result), encoding="utf-8")
    text = as_json(result) if table is None else table(dict(result)).rstrip("\n") + "\n"
    if getattr(arguments, "table", None) is not None:
        arguments.table.write_text(text, encoding="utf-8")
    print(text, end="")
    return 0


def run_command(
    arguments: argparse.Namespace,
    measure: Callable[[], Mapping[str, Any]],
    table: Callable[[dict[str, Any]], str] | None = None,
) -> int:
    """Check that the results can be written, measure, and publish; return the exit status of the command."""

    def run() -> int:
        check_outputs(arguments)
        return publish(arguments, measure(), table)

    return exit_code(run)
