"""Seeded mutations of messages that respect their structure. Pure.

A message is JSON, as a Python value, or text of another form (SDP, a form, bytes of a stream). Each mutation
changes one thing: a value's type, a number's size, the length of a text or a list, a field's presence, the
depth, the encoding, or the bytes themselves. The same dice give the same mutations.
"""

import copy
import json
import random
from collections.abc import Callable, Sequence
from typing import Any

# Largest results of a mutation: the limits of the server are above and below them.
LONGEST_TEXT, LONGEST_LIST, DEEPEST = 20_000, 2_000, 200
# Deeper levels exist only through an earlier mutation.
DEEPEST_CHANGE = 12
STRANGE_TEXTS = (
    "", "\0", "\ud800", "\U0001f600" * 50, "../../etc/passwd", "%00%ff", "NaN", "null", "-1",
    "a" * LONGEST_TEXT, "\r\nX-Injected: 1", "{{7*7}}", "' OR 1=1 --", "\u202e", "AAAA", "=", "====",
)  # fmt: skip
STRANGE_NUMBERS = (
    0, -1, 1, 2**31, -(2**31), 2**63, 2**64, 10**308, -0.0, 1e-320, 0.1, 1e308,
    float("inf"), float("-inf"), float("nan"),
)  # fmt: skip
STRANGE_VALUES: tuple[Any, ...] = (None, True, False, [], {}, "", 0, [[]], {"": None})

Path = tuple[str | int, ...]
Dice = random.Random


def mutated(message: Any, dice: Dice) -> str:
    """Return the text of a message with one to three mutations; it may be invalid JSON."""
    value = copy.deepcopy(message)
    for _ in range(dice.randint(1, 3)):
        value = _changed(value, dice)
    text = _written(value)
    return dice.choice(_TEXT_CHANGES)(text, dice) if dice.random() < 0.2 else text


def mutated_text(text: str, dice: Dice) -> str:
    """Return a text of lines (SDP, a form, a head) with one to three mutations."""
    separator = "\r\n" if "\r\n" in text else "&" if "&" in text else "\n"
    lines = text.split(separator)
    for _ in range(dice.randint(1, 3)):
        place = dice.randrange(len(lines))
        change = dice.randrange(6)
        if change == 0:
            lines.insert(place, lines[place])
        elif change == 1 and len(lines) > 1:
            del lines[place]
        elif change == 2:
            lines[place] = lines[place][: dice.randrange(len(lines[place]) + 1)]
        elif change == 3:
            lines[place] += dice.choice(STRANGE_TEXTS).replace("\ud800", "?")
        elif change == 4:
            other = dice.randrange(len(lines))
            lines[place], lines[other] = lines[other], lines[place]
        else:
            lines[place] = "".join(
                str(dice.choice(STRANGE_NUMBERS)) if char.isdigit() and dice.random() < 0.3 else char
                for char in lines[place]
            )
    return separator.join(lines)


def mutated_bytes(data: bytes, dice: Dice) -> bytes:
    """Return bytes of which some were changed, left out or repeated."""
    changed = bytearray(data)
    for _ in range(dice.randint(1, 8)):
        if not changed:
            changed += dice.randbytes(16)
        place = dice.randrange(len(changed))
        match dice.randrange(4):
            case 0:
                changed[place] = dice.randrange(256)
            case 1:
                del changed[place : place + dice.randint(1, 16)]
            case 2:
                changed[place:place] = dice.randbytes(dice.randint(1, 64))
            case _:
                changed += changed[place : place + 64]
    return bytes(changed)


def _changed(value: Any, dice: Dice) -> Any:
    paths = list(paths_of(value))
    path = dice.choice(paths)
    change = dice.choice(_CHANGES)
    return replaced(value, path, change(value_at(value, path), dice))


def paths_of(value: Any, here: Path = ()) -> list[Path]:
    """Return the places of all values of a message, itself first."""
    found = [here]
    if len(here) >= DEEPEST_CHANGE:
        return found
    if isinstance(value, dict):
        for name, member in value.items():
            found += paths_of(member, (*here, name))
    elif isinstance(value, list):
        for place, member in enumerate(value[:8]):
            found += paths_of(member, (*here, place))
    return found


def value_at(value: Any, path: Path) -> Any:
    """Return the value at a place of ``paths_of``."""
    for step in path:
        value = value[step]
    return value


GONE = object()


def replaced(value: Any, path: Path, by: Any) -> Any:
    """Return the message with another value at a place, or without it (``GONE``); the message is changed."""
    if not path:
        return {} if by is GONE else by
    parent = value_at(value, path[:-1])
    if by is GONE:
        del parent[path[-1]]
    else:
        parent[path[-1]] = by
    return value


def _another_type(_old: Any, dice: Dice) -> Any:
    return copy.deepcopy(dice.choice(STRANGE_VALUES))


def _another_number(_old: Any, dice: Dice) -> Any:
    return dice.choice(STRANGE_NUMBERS)


def _another_text(_old: Any, dice: Dice) -> Any:
    return dice.choice(STRANGE_TEXTS)


def _left_out(_old: Any, _dice: Dice) -> Any:
    return GONE


def _nested(old: Any, dice: Dice) -> Any:
    for _ in range(dice.randint(1, DEEPEST)):
        old = [old] if dice.random() < 0.5 else {"a": old}
    return old


def _repeated(old: Any, dice: Dice) -> Any:
    # Copies: a later mutation of one of them must not multiply.
    times = dice.randint(0, LONGEST_LIST // (1 + len(_written(old)) // 50))
    return [copy.deepcopy(old) for _ in range(times)]


def _stretched(old: Any, dice: Dice) -> Any:
    return (
        old * dice.randint(2, 50)
        if isinstance(old, str) and len(old) < LONGEST_TEXT
        else _another_text(old, dice)
    )


def _more_fields(old: Any, dice: Dice) -> Any:
    if not isinstance(old, dict):
        return {"value": old}
    return {**old, **{f"x{number}": _another_type(None, dice) for number in range(dice.randint(1, 200))}}


_CHANGES: Sequence[Callable[[Any, Dice], Any]] = (
    _another_type, _another_number, _another_text, _left_out, _nested, _repeated, _stretched, _more_fields,
)  # fmt: skip
_TEXT_CHANGES: Sequence[Callable[[str, Dice], str]] = (
    lambda text, dice: text[: dice.randrange(len(text) + 1)],
    lambda text, _dice: text + text,
    lambda text, _dice: text + " " * LONGEST_TEXT,
    lambda text, dice: "[" * dice.randint(1, 50_000),
    lambda text, _dice: text.replace('"', "'"),
    lambda text, dice: "9" * dice.randint(1, 6_000),
)


def _written(value: Any) -> str:
    # Half of a surrogate pair stays an escape, which JSON may hold.
    return json.dumps(value)
