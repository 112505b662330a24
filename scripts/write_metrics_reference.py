"""Write docs/reference/metrics.md from the definitions of the metrics.

Run by hand after a metric has changed: ``python -m scripts.write_metrics_reference``. Prints the number of
metrics.
"""

from collections.abc import Iterator

from parley.configs.load import CONFIG_DIR
from parley.telemetry.definitions import DEFINITIONS, Definition

DOCUMENT = CONFIG_DIR.parent / "docs" / "reference" / "metrics.md"
HEAD = """# Metrics

Every metric of `GET /metrics`. Generated from `telemetry/definitions.py` by
`python -m scripts.write_metrics_reference`: change the meanings there, not here.
[metrics.md](../how-to/metrics.md) shows how to scrape them.

Metrics begin at 0 with their process. Names that Unmute has keep its prefix. The usual `process_*` metrics
(processor time, memory, descriptors) are there too. No label holds an id, a number, an address or words of a
caller. A label has at most 24 values, `model` 8; further ones count as `other`.
"""


def written() -> str:
    """Return the current content of the document."""
    return "\n".join([HEAD, "| metric | kind | labels | meaning |", "|---|---|---|---|", *_rows()]) + "\n"


def _rows() -> Iterator[str]:
    for each in DEFINITIONS:
        labels = ", ".join(f"`{label}`" for label in each.labels)
        yield f"| `{each.name}` | {each.kind} | {labels} | {each.about}{_bounds(each)} |"


def _bounds(definition: Definition) -> str:
    return f" (up to {definition.bounds[-1]:g})" if definition.bounds else ""


if __name__ == "__main__":
    DOCUMENT.write_text(written(), encoding="utf-8")
    print(f"{len(DEFINITIONS)} metrics")
