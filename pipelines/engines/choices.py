"""Resolution of a name and settings in a deployment to a checked row of a registry."""

from collections.abc import Mapping
from typing import Any

from pydantic import BaseModel

from parley.configs.deployment import Choice
from parley.configs.engines import checked_settings, settings_model
from parley.configs.load import parse_settings
from parley.core.errors import ConfigError
from parley.core.registry import Registry, is_target
from parley.processors.service_rows import ServiceRow


def engine_settings(
    engines: Registry[Any], choice: Choice, given: Mapping[str, Any], *, where: str
) -> BaseModel:
    """Return the checked settings of an embedded engine.

    Args:
        engines: registry of the stage.
        choice: choice of the deployment.
        given: values of the deployment itself, for fields that the engine has and the choice omits.
        where: place in the deployment, for messages.

    Raises:
        ConfigError: an unknown name or field, a wrong value, a missing file or package.
    """
    known = settings_model(engines.factory(choice.name)).model_fields
    fitting = {name: value for name, value in given.items() if name in known}
    return checked_settings(engines, choice.name, {**fitting, **choice.settings}, where=where)


def service_row(services: Registry[ServiceRow[Any]], choice: Choice, *, where: str) -> ServiceRow[Any]:
    """Return a service's row with its checked settings.

    Raises:
        ConfigError: an unknown name or field, a wrong value, a missing key or package.
    """
    row_type = services.factory(choice.name)
    if not (isinstance(row_type, type) and issubclass(row_type, ServiceRow)):
        raise ConfigError(f"{where}: {choice.name!r} is no row of a service (processors/service_rows.py)")
    row = row_type(parse_settings(row_type.settings_type, choice.settings, where=f"{where} ({choice.name})"))
    row.check()
    return row


def _is_service(engines: Registry[Any], name: str) -> bool:
    """Return whether a module of the deployment's own has a service row under this name, and no engine."""
    if not is_target(name):
        return False
    factory = engines.factory(name)
    return isinstance(factory, type) and issubclass(factory, ServiceRow)


def engine_or_service(
    engines: Registry[Any],
    services: Registry[ServiceRow[Any]],
    choice: Choice,
    given: Mapping[str, Any],
    *,
    where: str,
    others: tuple[str, ...] = (),
) -> BaseModel | ServiceRow[Any]:
    """Return the settings of an embedded engine, or the row of a service, as the name requires.

    ``others`` are further names that are valid there; the message for an unknown name lists them.

    Raises:
        ConfigError: as ``engine_settings`` and ``service_row``; an unknown name lists both kinds.
    """
    if choice.name in engines and not _is_service(engines, choice.name):
        return engine_settings(engines, choice, given, where=where)
    if choice.name not in services:
        known = tuple(sorted((*engines.names(), *services.names(), *others)))
        raise ConfigError(f"{where}: unknown engine {choice.name!r}", known=known)
    return service_row(services, choice, where=where)
