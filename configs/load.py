"""YAML to a checked ``Deployment``; a fault is a ``ConfigError``: where it is and what would be right."""

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from configs.deployment import Deployment
from core.errors import ConfigError

Settings = TypeVar("Settings", bound=BaseModel)
CONFIG_DIR = Path(__file__).parent


def known_deployments() -> tuple[str, ...]:
    """Names of the shipped deployments."""
    return tuple(sorted(path.stem for path in CONFIG_DIR.glob("*.yaml")))


def load_deployment(source: str | Path) -> Deployment:
    """Read a deployment from a path or, without a folder and suffix, by the name of a shipped one.

    Raises:
        ConfigError: missing or unreadable file, not YAML, unknown field (the known ones are listed), wrong
            value.
    """
    path = Path(source)
    if not path.suffix and path.parent == Path("."):
        path = CONFIG_DIR / f"{source}.yaml"
        if not path.exists():
            raise ConfigError(f"no deployment {str(source)!r}", known=known_deployments())
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    try:
        data = yaml.safe_load(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{path} is not YAML: {' '.join(str(error).split())}") from error
    if data is None:
        data = {}
    if not isinstance(data, dict):
        raise ConfigError(f"{path} must hold a mapping")
    return parse_settings(Deployment, data, where=str(path))


def parse_settings(model: type[Settings], data: dict[str, Any], *, where: str) -> Settings:
    """Validate ``data`` as ``model``.

    Raises:
        ConfigError: one line with every fault, its place, and for an unknown field the known ones.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        faults = []
        for fault in error.errors():
            place = ".".join(str(part) for part in fault["loc"])
            if fault["type"] == "extra_forbidden":
                known = ", ".join(_fields_at(model, fault["loc"][:-1]))
                faults.append(f"unknown field {place!r} (known: {known})")
            else:
                faults.append(f"{place}: {fault['msg']}")
        raise ConfigError(f"{where}: {'; '.join(faults)}") from error


def _fields_at(model: type[BaseModel], place: tuple[int | str, ...]) -> list[str]:
    current: Any = model
    for part in place:
        annotation = current.model_fields[part].annotation
        candidates = [annotation, *getattr(annotation, "__args__", ())]
        current = next(
            candidate
            for candidate in candidates
            if isinstance(candidate, type) and issubclass(candidate, BaseModel)
        )
    return sorted(current.model_fields)
