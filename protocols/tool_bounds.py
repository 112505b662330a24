"""Bound for the tools that a client declares, or brings by a server of its own, all of them together.

Each pattern of a schema is compiled, and each value is checked: both are counted before anything is done.
"""

from collections.abc import Sequence

MOST_TOOL_VALUES, MOST_PATTERNS = 10_000, 32
TOO_LARGE = f"over {MOST_TOOL_VALUES} values or {MOST_PATTERNS} patterns in total"


def is_too_large(tools: Sequence[object]) -> bool:
    """Return whether it would take long to check the schemas of tools, given as JSON."""
    values = patterns = 0
    waiting: list[object] = [tools]
    while waiting:
        value = waiting.pop()
        values += 1
        if isinstance(value, dict):
            patterns += "pattern" in value
            waiting.extend(value.values())
        elif isinstance(value, list | tuple):
            waiting.extend(value)
        if values + len(waiting) > MOST_TOOL_VALUES or patterns > MOST_PATTERNS:
            return True
    return False
