"""YAML to plain values: the single loader of all files that users write."""

import re
from typing import Any

import yaml

from parley.core.errors import ConfigError


class _Yaml(yaml.SafeLoader):
    """Loader with the booleans of YAML 1.2: "on", "off", "yes" and "no" are words."""

    yaml_implicit_resolvers = {
        first: [(tag, pattern) for tag, pattern in resolvers if tag != "tag:yaml.org,2002:bool"]
        for first, resolvers in yaml.SafeLoader.yaml_implicit_resolvers.items()
    }


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
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        # ValueError: an impossible date. RecursionError: brackets nested too deeply.
        raise ConfigError(f"{where} is not YAML: {' '.join(str(error).split())}") from error
