"""Settings of a deployment as data: name, type, default, bounds and description, read from the models.

``print_config``, ``docs/reference/settings.md`` and the schema for editors are all made from this. A
description is therefore written once, in the field that it describes.
"""

import re
import types
import typing
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from enum import Enum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from parley.configs.deployment import Choice

# Ending of a setting's name to the unit of its value; the first match counts.
UNITS: Mapping[str, str] = types.MappingProxyType(
    {
        "bytes_per_s": "bytes per second",
        "_per_minute": "per minute",
        "_per_hour": "per hour",
        "_per_s": "per second",
        "_bytes": "bytes",
        "_percent": "%",
        "_tokens": "tokens",
        "_turns": "turns",
        "_dbm0": "dBm0",
        "_days": "days",
        "_words": "words",
        "_log_odds": "log odds",
        "_db": "dB",
        "_ms": "ms",
        "_mb": "MB",
        "_s": "s",
    }
)
# Type of a value to its description in words.
TYPE_WORDS: Mapping[object, str] = types.MappingProxyType(
    {
        bool: "true or false",
        int: "whole number",
        float: "number",
        str: "text",
        Path: "path",
        Any: "anything",
    }
)

# Stands for a default that follows from other settings.
DEPENDS = "depends"


@dataclass(frozen=True, slots=True)
class Setting:
    """A value that a deployment can set, or a group of such values.

    Attributes:
        path: names from the root, joined by dots; ``[]`` follows a name whose value is a list of groups.
        kind: description of the type, in words.
        default: value where the setting is left out. None where ``is_required``; ``DEPENDS`` where it follows
            from other settings.
        is_required: true when its group cannot be given without it.
        unit: of the value; empty where it has none.
        bounds: accepted values, in words; empty where the kind says it all.
        description: its meaning, in markdown.
        group: model of its fields; None for a single value.
    """

    path: str
    kind: str
    default: Any
    is_required: bool
    unit: str
    bounds: str
    description: str
    group: type[BaseModel] | None

    @property
    def name(self) -> str:
        """Last part of the path, without ``[]``."""
        return self.path.removesuffix("[]").rpartition(".")[2]


def settings_of(
    model: type[BaseModel], path: str = "", defaults: BaseModel | None = None
) -> Iterator[Setting]:
    """Yield the fields of a model in the model's order, without the fields of nested groups.

    Args:
        model: of a group.
        path: of the group.
        defaults: the group as it is where it is left out; None for the defaults of the model.
    """
    for name, field in model.model_fields.items():
        setting = _setting(f"{path}.{name}" if path else name, name, field)
        yield setting if defaults is None else replace(setting, default=getattr(defaults, name))


def below(setting: Setting) -> Iterator[Setting]:
    """Yield the fields of a group; nothing for a single value."""
    if setting.group is not None:
        defaults = setting.default if isinstance(setting.default, setting.group) else None
        yield from settings_of(setting.group, setting.path, defaults)


def leaves(settings: Iterable[Setting]) -> Iterator[Setting]:
    """Yield every single value that can be set, with groups expanded, in the order of the models."""
    for setting in settings:
        if setting.group is None:
            yield setting
        else:
            yield from leaves(below(setting))


def shared_once(settings: Iterable[Setting]) -> Iterator[Setting]:
    """Yield every single value, those of a group that stands in several places only where it stands first."""
    known: set[tuple[type[BaseModel] | None, str]] = set()
    waiting: deque[tuple[Setting, type[BaseModel] | None]] = deque((each, None) for each in settings)
    while waiting:
        setting, group = waiting.popleft()
        if setting.group is not None:
            waiting.extendleft(reversed([(each, owner(setting.group, each.name)) for each in below(setting)]))
        elif (group, setting.name) not in known:
            known.add((group, setting.name))
            yield setting


def owner(group: type[BaseModel], name: str) -> type[BaseModel]:
    """Return the group that declares a field, which may be a base of the one that has it.

    Two settings with the same one and the same name are one setting in two places.
    """
    declares = (each for each in group.__mro__ if name in each.__dict__.get("__annotations__", {}))
    return next((each for each in declares if issubclass(each, BaseModel)), group)


def described(model: type[BaseModel]) -> str:
    """Return the first paragraph of a model's docstring, as markdown on one line."""
    return as_markdown((model.__doc__ or "").strip().split("\n\n")[0])


def as_markdown(text: str) -> str:
    """Return a description on one line, with names in single backticks."""
    return " ".join(text.replace("``", "`").split())


def plain(value: Any) -> Any:
    """Return a value converted to the types of YAML and JSON."""
    if isinstance(value, BaseModel):
        return value.model_dump(mode="json")
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, Path):
        return str(value)
    if isinstance(value, Mapping):
        return {plain(key): plain(one) for key, one in value.items()}
    if isinstance(value, (tuple, list)):
        return [plain(one) for one in value]
    return value


def has_texts_by_name(setting: Setting) -> bool:
    """Return whether a setting has several texts by name, which are shown below each other."""
    texts = setting.default.values() if isinstance(setting.default, Mapping) else ()
    return bool(texts) and all(isinstance(text, str) for text in texts)


def _setting(path: str, name: str, field: FieldInfo) -> Setting:
    group, is_list = _group_in(field.annotation)
    default = None if field.is_required() else field.default
    if field.default_factory is not None:
        takes_others = field.default_factory_takes_validated_data
        default = DEPENDS if takes_others else field.default_factory()  # type: ignore[call-arg]
    description = as_markdown(field.description or "") or (described(group) if group is not None else "")
    return Setting(
        path=f"{path}[]" if group is not None and is_list else path,
        kind=_in_words(field.annotation),
        default=default,
        is_required=field.is_required(),
        unit=next((unit for ending, unit in UNITS.items() if name.endswith(ending)), ""),
        bounds=_bounds(field),
        description=description,
        group=group,
    )


def _group_in(annotation: Any) -> tuple[type[BaseModel] | None, bool]:
    """Return the model of a value, or of each item of a list, and whether it is a list."""
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return (None if annotation is Choice else annotation), False
    for part in get_args(annotation):
        group, is_list = _group_in(part)
        if group is not None:
            return group, is_list or get_origin(annotation) in (tuple, list)
    return None, False


def _in_words(annotation: Any) -> str:
    if annotation in TYPE_WORDS:
        return TYPE_WORDS[annotation]
    origin, parts = get_origin(annotation), get_args(annotation)
    if origin is typing.Annotated:
        return _in_words(parts[0])
    if origin is Literal:
        return _one_of(f"`{part}`" for part in parts)
    if origin in (tuple, list):
        return f"list of {_in_words(parts[0])}"
    if origin in (typing.Union, types.UnionType):
        return _one_of("`null`" if part is type(None) else _in_words(part) for part in parts)
    if origin is dict:
        return f"mapping of {_in_words(parts[0])} to {_in_words(parts[1])}"
    if isinstance(annotation, type) and issubclass(annotation, Enum):
        return _one_of(f"`{one.value}`" for one in annotation)
    if annotation is Choice:
        return "`name` and its `settings`"
    return "group"


def _one_of(words: Iterable[str]) -> str:
    *first, last = dict.fromkeys(words)
    return f"{', '.join(first)} or {last}" if first else last


def _bounds(field: FieldInfo) -> str:
    known: dict[str, Any] = {}
    for one in field.metadata:
        for bound in ("ge", "gt", "le", "lt", "pattern", "min_length", "max_length"):
            if (value := getattr(one, bound, None)) is not None:
                known[bound] = value
    low, high = known.get("ge", known.get("gt")), known.get("le", known.get("lt"))
    words = []
    if low is not None and high is not None:
        words.append(
            f"{'over ' if 'gt' in known else ''}{low:,} to {'under ' if 'lt' in known else ''}{high:,}"
        )
    elif low is not None or high is not None:
        words.append(f"at least {low:,}" if high is None else f"at most {high:,}")
    if "max_length" in known:
        words.append(f"at most {known['max_length']}")
    return re.sub(r"(\d)\.0\b", r"\1", ", ".join(words))
