"""Validation of a tool's arguments against its JSON schema (2020-12), with errors that a model can act on.

Supports the part of the standard that models handle well. ``schema_faults`` refuses the rest when a
deployment is loaded, because an unchecked rule would be misleading. ``format``, ``default`` and descriptive
texts are allowed and check nothing, as in the standard.

A schema may come from a client, and arguments come from a model that a caller steers. The cost of a check is
therefore bounded on both sides: schemas in depth and size, one check in steps, and patterns are searched in
linear time (``models.tools.patterns``).
"""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from parley.core.errors import ShapeError
from parley.models.tools.patterns import MAX_TEXT_BYTES, check_pattern, is_searchable, matches

# Further errors do not help a model to correct its call.
MAX_FAULTS = 5
# Limits of a schema: subschemas, nesting, values in all its enums, and patterns. Far more than a model can
# follow.
MAX_PARTS, MAX_DEPTH, MAX_VALUES, MAX_PATTERNS = 1_000, 24, 2_000, 64
# Limits of one check. A step is a value against a rule, some 4 us. A search for a pattern counts as many
# steps, and takes up to 11 us longer for each byte (``models.tools.patterns``): a check takes 50 ms at most.
MAX_STEPS, SEARCH_STEPS, BYTE_STEPS = 10_000, 100, 3
# Longest list of allowed values in an error.
MAX_SHOWN_CHARS = 1_000

_TYPES: dict[str, tuple[str, Callable[[Any], bool]]] = {
    "object": ("an object", lambda value: isinstance(value, dict)),
    "array": ("a list", lambda value: isinstance(value, list)),
    "string": ("text", lambda value: isinstance(value, str)),
    "boolean": ("true or false", lambda value: isinstance(value, bool)),
    "null": ("null", lambda value: value is None),
    "number": ("a number", lambda value: _is_number(value)),
    # 3.0 is an integer in the standard.
    "integer": ("a whole number", lambda value: _is_number(value) and value == value // 1),
}
_TEXTS = frozenset({"title", "description", "default", "examples", "format", "$comment", "deprecated"})
_BOUNDS: dict[str, tuple[str, Callable[[Any, Any], bool]]] = {
    "minimum": ("at least {}", lambda value, bound: value >= bound),
    "maximum": ("at most {}", lambda value, bound: value <= bound),
    "exclusiveMinimum": ("more than {}", lambda value, bound: value > bound),
    "exclusiveMaximum": ("less than {}", lambda value, bound: value < bound),
}
_SIZES: dict[str, tuple[type[str] | type[list[Any]], str, Callable[[int, int], bool]]] = {
    "minLength": (str, "at least {} characters long", lambda size, bound: size >= bound),
    "maxLength": (str, "at most {} characters long", lambda size, bound: size <= bound),
    "minItems": (list, "a list of at least {}", lambda size, bound: size >= bound),
    "maxItems": (list, "a list of at most {}", lambda size, bound: size <= bound),
}
_KNOWN = frozenset(
    {
        "type",
        "enum",
        "const",
        "properties",
        "required",
        "additionalProperties",
        "items",
        "pattern",
        "anyOf",
        *_TEXTS,
        *_BOUNDS,
        *_SIZES,
    }
)


class _TooMuchError(Exception):
    """Raised when a check takes more steps than allowed."""


class _Steps:
    """Counter of the steps that one check may still take."""

    def __init__(self) -> None:
        self._left = MAX_STEPS

    def take(self, count: int = 1) -> None:
        self._left -= count
        if self._left < 0:
            raise _TooMuchError


def argument_faults(schema: Mapping[str, Any], arguments: object) -> list[str]:
    """Return the errors in arguments, a few lines at most; empty when they are valid.

    Args:
        schema: without ``schema_faults``.
        arguments: parsed from the model's JSON.
    """
    faults: list[str] = []
    try:
        for fault in _faults(schema, arguments, "the arguments", _Steps()):
            faults.append(fault)
            if len(faults) == MAX_FAULTS:
                break
    except (_TooMuchError, RecursionError):
        faults.append("the arguments are too large to be checked")
    return faults


def schema_faults(schema: object) -> list[str]:
    """Return the errors in a tool's ``parameters``; empty when ``argument_faults`` supports all of them."""
    faults: list[str] = []
    for fault in _schema_faults(schema, "parameters", _Size(), depth=0):
        faults.append(fault)
        if len(faults) == MAX_FAULTS:
            break
    if not faults and isinstance(schema, dict) and schema.get("type") != "object":
        faults.append("parameters: needs 'type: object'")
    return faults


class _Size:
    """Count of the contents of a schema so far."""

    def __init__(self) -> None:
        self.parts = self.values = self.patterns = 0

    def add(self, schema: Mapping[str, Any]) -> str:
        """Count one subschema; return a text for the limit that it exceeds, or an empty one."""
        self.parts += 1
        enum = schema.get("enum")
        self.values += len(enum) if isinstance(enum, list) else 0
        self.patterns += "pattern" in schema
        if self.parts > MAX_PARTS:
            return f"over {MAX_PARTS} schemas in one"
        if self.values > MAX_VALUES:
            return f"over {MAX_VALUES} values in enums"
        return f"over {MAX_PATTERNS} patterns" if self.patterns > MAX_PATTERNS else ""


def _faults(schema: Mapping[str, Any], value: Any, place: str, steps: _Steps) -> Iterator[str]:
    steps.take()
    wanted = schema.get("type")
    if wanted is not None:
        types = [wanted] if isinstance(wanted, str) else wanted
        if not any(_TYPES[name][1](value) for name in types):
            yield f"{place} must be {' or '.join(_TYPES[name][0] for name in types)}"
            return
    if "enum" in schema and not any(_same(value, one, steps) for one in schema["enum"]):
        yield f"{place} must be one of {_shown(schema['enum'])}"
    if "const" in schema and not _same(value, schema["const"], steps):
        yield f"{place} must be {_shown(schema['const'])}"
    for name, (words, holds) in _BOUNDS.items():
        if name in schema and _is_number(value) and not holds(value, schema[name]):
            yield f"{place} must be {words.format(schema[name])}"
    for name, (kind, words, fits) in _SIZES.items():
        if name in schema and isinstance(value, kind) and not fits(len(value), schema[name]):
            yield f"{place} must be {words.format(schema[name])}"
    if "pattern" in schema and isinstance(value, str):
        steps.take(SEARCH_STEPS)
        if not is_searchable(value):
            yield f"{place} must have at most {MAX_TEXT_BYTES} characters, to be matched with a pattern"
        else:
            steps.take(BYTE_STEPS * len(value.encode()))
            if not matches(schema["pattern"], value):
                yield f"{place} must match the pattern {schema['pattern']}"
    if isinstance(value, dict):
        yield from _object_faults(schema, value, place, steps)
    if isinstance(value, list) and "items" in schema:
        for index, item in enumerate(value):
            yield from _faults(schema["items"], item, f"{_inside(place)}[{index}]", steps)
    if "anyOf" in schema:
        readings = [list(_faults(one, value, place, steps)) for one in schema["anyOf"]]
        if all(readings):
            yield " or ".join(reading[0] for reading in readings)


def _object_faults(
    schema: Mapping[str, Any], value: Mapping[str, Any], place: str, steps: _Steps
) -> Iterator[str]:
    properties = schema.get("properties", {})
    for name in schema.get("required", ()):
        steps.take()
        if name not in value:
            yield f"{_member(place, name)} is missing"
    more = schema.get("additionalProperties", True)
    for name, member in value.items():
        steps.take()
        rule = properties.get(name, more)
        if rule is False:
            yield f"{_member(place, name)} is not known"
        elif rule is not True:
            yield from _faults(rule, member, _member(place, name), steps)


def _schema_faults(schema: object, place: str, size: _Size, *, depth: int) -> Iterator[str]:
    if not isinstance(schema, dict):
        yield f"{place}: must be a schema, an object"
        return
    excess = size.add(schema) or (f"over {MAX_DEPTH} schemas deep" if depth >= MAX_DEPTH else "")
    if excess:
        yield f"{place}: {excess}"
        return
    for name in sorted(str(name) for name in schema.keys() - _KNOWN):
        yield f"{place}: {name!r} is not checked here (known: {', '.join(sorted(_KNOWN))})"
    for name, is_right, words in _KEYWORDS:
        if name in schema and not is_right(schema[name]):
            yield f"{place}.{name}: must be {words}"
            return
    parts = [(f"properties.{name}", part) for name, part in schema.get("properties", {}).items()]
    parts += [(f"anyOf.{index}", part) for index, part in enumerate(schema.get("anyOf", ()))]
    parts += [("items", schema["items"])] if "items" in schema else []
    if not isinstance(schema.get("additionalProperties", True), bool):
        parts.append(("additionalProperties", schema["additionalProperties"]))
    for name, part in parts:
        yield from _schema_faults(part, f"{place}.{name}", size, depth=depth + 1)


def _is_type(value: object) -> bool:
    names = [value] if isinstance(value, str) else value
    # Only texts are looked up: an object has no hash.
    return (
        isinstance(names, list)
        and bool(names)
        and all(isinstance(name, str) and name in _TYPES for name in names)
    )


def _is_pattern(value: object) -> bool:
    if not isinstance(value, str):
        return False
    try:
        check_pattern(value)
    except ShapeError:
        return False
    return True


def _is_names(value: object) -> bool:
    return isinstance(value, list) and all(isinstance(name, str) for name in value)


def _is_named(value: object) -> bool:
    return isinstance(value, dict) and all(isinstance(name, str) for name in value)


def _is_size(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool) and value >= 0


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


_KEYWORDS: tuple[tuple[str, Callable[[Any], bool], str], ...] = (
    ("type", _is_type, f"one or several of {', '.join(_TYPES)}"),
    ("enum", lambda value: isinstance(value, list) and bool(value), "a list of values"),
    ("properties", _is_named, "schemas by name"),
    ("required", _is_names, "a list of names"),
    ("additionalProperties", lambda value: isinstance(value, bool | dict), "true, false or a schema"),
    ("items", lambda value: isinstance(value, dict), "a schema"),
    ("anyOf", lambda value: isinstance(value, list) and bool(value), "a list of schemas"),
    ("pattern", _is_pattern, "a regular expression as RE2 has it: short, no lookaround, no back-references"),
    *((name, _is_number, "a number") for name in _BOUNDS),
    *((name, _is_size, "a whole number, 0 or more") for name in _SIZES),
)


def _same(a: object, b: object, steps: _Steps) -> bool:
    """Return whether two values are equal as JSON: 1 equals 1.0 and not true."""
    steps.take()
    if isinstance(a, bool) or isinstance(b, bool):
        return a is b
    if isinstance(a, dict) and isinstance(b, dict):
        return a.keys() == b.keys() and all(_same(a[name], b[name], steps) for name in a)
    if isinstance(a, list) and isinstance(b, list):
        return len(a) == len(b) and all(_same(x, y, steps) for x, y in zip(a, b, strict=True))
    return a == b


def _shown(value: object) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MAX_SHOWN_CHARS else f"{text[:MAX_SHOWN_CHARS]}..."


def _inside(place: str) -> str:
    return "" if place == "the arguments" else place


def _member(place: str, name: str) -> str:
    inside = _inside(place)
    return f"{inside}.{name}" if inside else name
