"""Check the settings of an engine against the model that its constructor takes.

Imports no deployment: a worker has one engine, and a Python environment without Pipecat.
"""

import typing
from collections.abc import Callable, Mapping
from inspect import getattr_static
from typing import Any

from pydantic import BaseModel

from parley.configs.load import parse_settings
from parley.core.errors import ConfigError, one_line
from parley.core.files import Checked
from parley.core.registry import Registry, factory_text


def checked_settings(
    engines: Registry[Any], name: str, settings: Mapping[str, Any], *, where: str
) -> BaseModel:
    """Return the checked settings of an engine.

    Args:
        engines: registry of the stage.
        name: of the engine.
        settings: values by name.
        where: origin of the settings, for messages.

    Raises:
        ConfigError: an unknown name or field, a wrong value, or a missing file or package.
    """
    checked = parse_settings(settings_model(engines.factory(name)), dict(settings), where=f"{where} ({name})")
    if isinstance(checked, Checked):
        checked.check()
    return checked


def settings_model(factory: Callable[..., Any]) -> type[BaseModel]:
    """Return the pydantic model that an engine's constructor takes as ``settings``.

    Raises:
        ConfigError: it takes none.
    """
    constructor = getattr_static(factory, "__init__") if isinstance(factory, type) else factory
    where = factory_text(factory)
    try:
        hint = typing.get_type_hints(constructor).get("settings")
    except Exception as error:
        # Annotations of another package are evaluated, and an instance has none.
        raise ConfigError(f"{where} has no types of its parameters: {one_line(error)}") from error
    for part in (hint, *typing.get_args(hint)):
        if isinstance(part, type) and issubclass(part, BaseModel):
            return part
    raise ConfigError(f"{where} takes no 'settings' of a pydantic model")
