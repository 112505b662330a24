"""Convert a dataclass to the facts of a message and back, checked by the types of its fields.

Each field becomes a fact of its name; a dataclass in a tuple becomes a row of its values. Numbers of numpy
are written as plain numbers. An ``int`` is a count and never negative; a ``float`` is finite. Facts of other
types are refused, because neither side of a link trusts the other. Pure; standard library only.
"""

import math
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import fields, is_dataclass
from enum import Enum
from types import NoneType
from typing import Any, Literal, TypeVar, get_args, get_origin, get_type_hints

from parley.core.errors import PeerError

T = TypeVar("T")
# Pair of functions: to a fact, and from a fact.
_Converters = tuple[Callable[[Any], Any], Callable[[Any], Any]]
_KNOWN: dict[type[Any], dict[str, _Converters]] = {}


def to_facts(value: object, *, without: Collection[str] = ()) -> dict[str, Any]:
    """Return the fields of a dataclass as facts, except ``without``, which cross as bytes."""
    converters = _of_fields(type(value))
    return {
        name: write(getattr(value, name)) for name, (write, _) in converters.items() if name not in without
    }


def from_facts(kind: type[T], facts: object, **given: Any) -> T:
    """Return a dataclass made from received facts.

    Args:
        kind: the dataclass.
        facts: as received.
        **given: fields that crossed as bytes.

    Raises:
        PeerError: the facts do not fit the dataclass.
    """
    try:
        if not isinstance(facts, Mapping):
            raise TypeError("the message has no facts")
        converters = _of_fields(kind)
        found = {name: read(facts[name]) for name, (_, read) in converters.items() if name not in given}
        return kind(**found, **given)
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise PeerError(f"unreadable {kind.__name__}: {type(error).__name__}") from error


def to_rows(values: Iterable[object]) -> list[list[Any]]:
    """Return dataclasses as rows of values."""
    return [list(to_facts(value).values()) for value in values]


def from_rows(kind: type[T], rows: object) -> tuple[T, ...]:
    """Return dataclasses made from received rows.

    Raises:
        PeerError: the rows do not fit the dataclass.
    """
    if not isinstance(rows, list):
        raise PeerError(f"rows of {kind.__name__} that cannot be read")
    names = list(_of_fields(kind))
    if not all(isinstance(row, list) and len(row) == len(names) for row in rows):
        raise PeerError(f"a row of {kind.__name__} that cannot be read")
    return tuple(from_facts(kind, dict(zip(names, row, strict=True))) for row in rows)


def _of_fields(kind: type[Any]) -> dict[str, _Converters]:
    if kind not in _KNOWN:
        hints = get_type_hints(kind)
        _KNOWN[kind] = {field.name: _of_hint(hints[field.name]) for field in fields(kind)}
    return _KNOWN[kind]


def _of_hint(hint: Any) -> _Converters:
    parts = get_args(hint)
    if NoneType in parts:
        write, read = _of_hint(next(part for part in parts if part is not NoneType))
        return _or_none(write), _or_none(read)
    if get_origin(hint) is Literal:
        return str, lambda value: parts[parts.index(value)]
    if get_origin(hint) is tuple:
        return _of_tuple(parts)
    if get_origin(hint) is dict:
        return dict, _exactly(dict)
    if isinstance(hint, type) and is_dataclass(hint):
        return to_facts, lambda value: from_facts(hint, value)
    if isinstance(hint, type) and issubclass(hint, Enum):
        return lambda value: value.value, hint
    return _PLAIN.get(hint, (_exactly(NoneType), _exactly(NoneType)))


def _of_tuple(parts: tuple[Any, ...]) -> _Converters:
    if parts[-1] is not Ellipsis:
        converters = [_of_hint(part) for part in parts]

        def each_by(place: int, values: Any) -> list[Any]:
            return [pair[place](value) for pair, value in zip(converters, values, strict=True)]

        return lambda values: each_by(0, values), lambda values: tuple(each_by(1, _exactly(list)(values)))
    if is_dataclass(parts[0]):
        return to_rows, lambda values: from_rows(parts[0], values)
    write, read = _of_hint(parts[0])
    return lambda values: [write(v) for v in values], lambda values: tuple(map(read, _exactly(list)(values)))


def _or_none(convert: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda value: None if value is None else convert(value)


def _exactly(kind: type[T]) -> Callable[[Any], T]:
    def read(value: Any) -> T:
        if type(value) is not kind:
            raise TypeError(f"the message has no {kind.__name__}")
        return value

    return read


def _read_count(value: Any) -> int:
    if type(value) is not int or value < 0:
        raise TypeError("expected a count")
    return value


def _read_number(value: Any) -> float:
    if type(value) not in (int, float) or not math.isfinite(value):
        raise TypeError("expected a number")
    return float(value)


_PLAIN: dict[Any, _Converters] = {
    bool: (bool, _exactly(bool)),
    int: (int, _read_count),
    float: (float, _read_number),
    str: (str, _exactly(str)),
}
