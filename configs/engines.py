"""A name and settings to the checked settings of an engine in a registry. Imports no deployment: a worker has
one engine, and a Python environment without Pipecat.
"""

import typing
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from configs.load import parse_settings
from core.files import Checked
from core.registry import Registry


def checked_settings(
    engines: Registry[Any], name: str, settings: Mapping[str, Any], *, where: str
) -> BaseModel:
    """The settings of an engine, checked.

    Args:
        engines: the stage's registry.
        name: of the engine.
        settings: its own, by name.
        where: the place that they come from, for messages.

    Raises:
        ConfigError: an unknown name or field, a wrong value, a missing file or package.
    """
    checked = parse_settings(settings_model(engines.factory(name)), dict(settings), where=f"{where} ({name})")
    if isinstance(checked, Checked):
        checked.check()
    return checked


def settings_model(factory: Callable[..., Any]) -> type[BaseModel]:
    """The pydantic model that an engine's constructor takes as ``settings``."""
    constructor = vars(factory)["__init__"] if isinstance(factory, type) else factory
    hint = typing.get_type_hints(constructor)["settings"]
    return next(
        part
        for part in (hint, *typing.get_args(hint))
        if isinstance(part, type) and issubclass(part, BaseModel)
    )
