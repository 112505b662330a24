"""Draw the state tables of turn taking into docs/explanation/turn_taking.md.

Run by hand after a table has changed: ``python -m scripts.draw_turn_taking``.
"""

from collections.abc import Mapping
from enum import Enum
from pathlib import Path
from typing import TypeVar

from parley.turn_taking import idle
from parley.turn_taking.barge_in import table as barge_in_table

StateT = TypeVar("StateT", bound=Enum)
EventT = TypeVar("EventT", bound=Enum)
ActT = TypeVar("ActT", bound=Enum)

DOCUMENT = Path(__file__).resolve().parents[1] / "docs" / "explanation" / "turn_taking.md"


def drawn(document: str) -> str:
    """Return the document with the current diagrams of the tables."""
    barge = mermaid(
        barge_in_table.TRANSITIONS,
        first=barge_in_table.BargeInState.LISTENING,
        silent=barge_in_table.BargeInAct.NOTHING,
    )
    silence = mermaid(idle.TRANSITIONS, first=idle.IdleState.WAITING, silent=idle.IdleAct.NOTHING)
    return in_document(in_document(document, "barge-in", barge), "idle", silence)


def mermaid(
    transitions: Mapping[tuple[StateT, EventT], tuple[StateT, ActT]], *, first: StateT, silent: ActT
) -> str:
    """Return a table as a state diagram.

    Args:
        transitions: (state, event) to (state, act).
        first: the state in which it begins.
        silent: the act that is not written.

    Returns:
        Lines of Mermaid without a fence; arrows between the same two states with the same act are one.
    """
    arrows: dict[tuple[StateT, StateT, ActT], list[str]] = {}
    for (state, event), (to, act) in transitions.items():
        arrows.setdefault((state, to, act), []).append(event.name.lower())
    lines = ["stateDiagram-v2", f"    [*] --> {first.name}"]
    for (state, to, act), events in arrows.items():
        done = "" if act is silent else f" / {act.value}"
        lines.append(f"    {state.name} --> {to.name}: {', '.join(events)}{done}")
    return "\n".join(lines)


def in_document(document: str, name: str, diagram: str) -> str:
    """Return a document with the diagram between ``<!-- name -->`` and ``<!-- /name -->``.

    Raises:
        ValueError: the marks are not there, once each and in this order.
    """
    begin, end = f"<!-- {name} -->", f"<!-- /{name} -->"
    if document.count(begin) != 1 or document.count(end) != 1 or document.index(begin) > document.index(end):
        raise ValueError(f"expected {begin} and {end} once each, in this order")
    head, rest = document.split(begin)
    tail = rest.split(end)[1]
    return f"{head}{begin}\n```mermaid\n{diagram}\n```\n{end}{tail}"


if __name__ == "__main__":
    DOCUMENT.write_text(drawn(DOCUMENT.read_text(encoding="utf-8")), encoding="utf-8")
