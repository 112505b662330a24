"""YAML to plain values: the single loader of all files that users write."""

import re
from collections.abc import Iterable
from typing import Any

import yaml

from parley.core.errors import ConfigError


class DuplicateKeyError(yaml.YAMLError):
    """A mapping has a key twice."""


class _Yaml(yaml.SafeLoader):
    """Loader with the booleans of YAML 1.2: "on", "off", "yes" and "no" are words."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }

    def compose_mapping_node(self, anchor: Any) -> yaml.MappingNode:
        """Refuse a key that a mapping has twice; PyYAML would keep the last one (PyYAML)."""
        node = super().compose_mapping_node(anchor)
        lines: dict[tuple[str, str], int] = {}
        for key, _ in node.value:
            if not isinstance(key, yaml.ScalarNode):
                continue
            line, name = key.start_mark.line + 1, (key.tag, key.value)
            if name in lines:
                raise DuplicateKeyError(
                    f"line {line}: the key {key.value!r} is there already, in line {lines[name]}"
                )
            lines[name] = line
        return node


_Yaml.add_implicit_resolver(
    "tag:yaml.org,2002:bool", re.compile(r"^(?:true|True|TRUE|false|False|FALSE)$"), list("tTfF")
)


def parse_yaml_value(text: str, *, where: str) -> Any:
    """Return the value that a YAML text holds; None for an empty text. Booleans are those of YAML 1.2.

    Raises:
        ConfigError: not YAML; the message names ``where``.
    """
    try:
        # A safe loader: it creates plain values and nothing else.
        return yaml.load(text, Loader=_Yaml)  # noqa: S506
    except DuplicateKeyError as error:
        raise ConfigError(f"{where}: {error}") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # ValueError: an impossible date. RecursionError: brackets nested too deeply.
        raise ConfigError(f"{where} is not YAML: {' '.join(str(error).split())}") from error


def named_values(given: Iterable[str], *, option: str = "") -> dict[str, Any]:
    """Return the values of ``NAME=VALUE`` of a command line, each read as YAML.

    Args:
        given: as written.
        option: option that they belong to, for errors.

    Raises:
        ConfigError: one has another form, or a value is not YAML.
    """
    values: dict[str, Any] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise ConfigError(f"{option}{': ' if option else ''}{each!r}: expected NAME=VALUE")
        values[name] = parse_yaml_value(value, where=f"the value of {each!r}")
    return values
