"""A name and settings in a deployment to a checked row of a registry."""

import typing
from collections.abc import Callable, Mapping
from typing import Any

from pydantic import BaseModel

from configs.deployment import Choice
from configs.load import parse_settings
from core.errors import ConfigError
from core.files import Checked
from core.registry import Registry
from processors.service_rows import ServiceRow


def engine_settings(
    engines: Registry[Any], choice: Choice, given: Mapping[str, Any], *, where: str
) -> BaseModel:
    """The settings of an embedded engine, checked.

    Args:
        engines: the stage's registry.
        choice: of the deployment.
        given: values of the deployment itself, for those fields that the engine has and the choice leaves
            out.
        where: the place in the deployment, for messages.

    Raises:
        ConfigError: an unknown name or field, a wrong value, a missing file or package.
    """
    model = settings_model(engines.factory(choice.name))
    fitting = {name: value for name, value in given.items() if name in model.model_fields}
    settings = parse_settings(model, {**fitting, **choice.settings}, where=f"{where} ({choice.name})")
    if isinstance(settings, Checked):
        settings.check()
    return settings


def service_row(services: Registry[ServiceRow[Any]], choice: Choice, *, where: str) -> ServiceRow[Any]:
    """A service's row with its settings, checked.

    Raises:
        ConfigError: an unknown name or field, a wrong value, a missing key or package.
    """
    row_type = typing.cast(type[ServiceRow[Any]], services.factory(choice.name))
    row = row_type(parse_settings(row_type.settings_type, choice.settings, where=f"{where} ({choice.name})"))
    row.check()
    return row


def engine_or_service(
    engines: Registry[Any],
    services: Registry[ServiceRow[Any]],
    choice: Choice,
    given: Mapping[str, Any],
    *,
    where: str,
) -> BaseModel | ServiceRow[Any]:
    """The settings of an embedded engine, or the row of a service, whichever the name means.

    Raises:
        ConfigError: see the two above; an unknown name lists both kinds.
    """
    if choice.name in engines:
        return engine_settings(engines, choice, given, where=where)
    if choice.name not in services:
        known = tuple(sorted((*engines.names(), *services.names())))
        raise ConfigError(f"{where}: unknown engine {choice.name!r}", known=known)
    return service_row(services, choice, where=where)


def settings_model(factory: Callable[..., Any]) -> type[BaseModel]:
    """The pydantic model that an engine's constructor takes as ``settings``."""
    constructor = vars(factory)["__init__"] if isinstance(factory, type) else factory
    hint = typing.get_type_hints(constructor)["settings"]
    return next(
        part
        for part in (hint, *typing.get_args(hint))
        if isinstance(part, type) and issubclass(part, BaseModel)
    )
