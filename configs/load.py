"""Read YAML into a checked ``Deployment``. A ``ConfigError`` says where a fault is and what would be right.

Decides what a relative folder means (``bot.knowledge``, ``models_dir``, the file of the session store), so
that the working directory does not matter. A path in a user's file is relative to the folder of that file.
Defaults, and everything in a shipped deployment, are relative to the project, which holds ``knowledge`` and
the ``models-cache`` of ``make models``.
"""

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from parley.configs.replaced import instead_of
from parley.core.errors import ConfigError
from parley.core.yaml_text import parse_yaml_value

if TYPE_CHECKING:
    from parley.configs.deployment import Deployment

Settings = TypeVar("Settings", bound=BaseModel)
# Overrides the store's address in the deployment, because the address may hold a password.
STORE_URL_ENV = "PARLEY_STORE_URL"
# Matches sqlite:///folder/file.db, and not sqlite:////folder/file.db.
RELATIVE_FILE = re.compile(r"sqlite:///(?!/)")
CONFIG_DIR = Path(__file__).resolve().parent
PROJECT_DIR = CONFIG_DIR.parent


def known_deployments() -> tuple[str, ...]:
    """Return the names of the shipped deployments, sorted."""
    return tuple(sorted(path.stem for path in CONFIG_DIR.glob("*.yaml")))


def parse_yaml(text: str, *, where: str) -> dict[str, Any]:
    """Return the mapping that a YAML text holds; empty for an empty text. Booleans are those of YAML 1.2.

    Raises:
        ConfigError: not YAML, or not a mapping; the message names ``where``.
    """
    data = parse_yaml_value(text, where=where)
    if data is None:
        return {}
    if not isinstance(data, dict):
        raise ConfigError(f"{where} must hold a mapping")
    return data


def read_yaml(path: Path) -> dict[str, Any]:
    """Read a file as ``parse_yaml`` does.

    Raises:
        ConfigError: the file cannot be read, is not YAML, or holds no mapping.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read {path}: {error}") from error
    return parse_yaml(text, where=str(path))


def load_deployment(source: str | Path) -> "Deployment":
    """Read a deployment from a path or, without a folder and suffix, by the name of a shipped one.

    Its folders (``bot.knowledge``, ``models_dir``) become absolute; the module docstring describes how.

    Raises:
        ConfigError: a missing or unreadable file, no YAML, an unknown field (the known ones are listed) or a
            wrong value. For a setting that was removed, the message names its replacement.
    """
    # Imports Pipecat, which logs at once. The log level must have been set before.
    from parley.configs.deployment import Deployment

    path = Path(source)
    if not path.suffix and path.parent == Path("."):
        path = CONFIG_DIR / f"{source}.yaml"
        if not path.exists():
            raise ConfigError(f"there is no deployment {str(source)!r}", known=known_deployments())
    data = read_yaml(path)
    folder = path.resolve().parent
    base = PROJECT_DIR if folder == CONFIG_DIR else folder
    return _with_absolute_folders(parse_settings(Deployment, data, where=str(path)), base)


def _with_absolute_folders(deployment: "Deployment", base: Path) -> "Deployment":
    def absolute(part: BaseModel, field: str) -> Path:
        start = base if field in part.model_fields_set else PROJECT_DIR
        folder: Path = start / getattr(part, field)
        return folder

    bot = deployment.bot.model_copy(update={"knowledge": absolute(deployment.bot, "knowledge")})
    remembering = deployment.remembering
    store = remembering.store
    given = os.environ.get(STORE_URL_ENV, "")
    url = given or store.url
    if not given and RELATIVE_FILE.match(url):
        start = base if "url" in store.model_fields_set else PROJECT_DIR
        url = f"sqlite:////{str(start / url.removeprefix('sqlite:///')).lstrip('/')}"
    remembering = remembering.model_copy(update={"store": store.model_copy(update={"url": url})})
    operations, voices = deployment.operations, deployment.operations.voices
    if voices.default is not None:
        voices = voices.model_copy(update={"default": absolute(voices, "default")})
    duplex = deployment.duplex
    paths = {
        name: absolute(duplex, name)
        for name in ("llm_voice", "tts_voice", "tick_log")
        if getattr(duplex, name) is not None
    }
    folders = {
        "bot": bot,
        "models_dir": absolute(deployment, "models_dir"),
        "remembering": remembering,
        "duplex": duplex.model_copy(update=paths),
        "operations": operations.model_copy(
            update={
                "data_dir": absolute(operations, "data_dir"),
                "presets_dir": absolute(operations, "presets_dir"),
                "voices": voices,
            }
        ),
    }
    return deployment.model_copy(update=folders)


def parse_settings(model: type[Settings], data: dict[str, Any], *, where: str) -> Settings:
    """Validate ``data`` as ``model``.

    Raises:
        ConfigError: one line with every fault and its place; for an unknown field, with the known ones.
    """
    try:
        return model.model_validate(data)
    except ValidationError as error:
        faults = []
        for fault in error.errors():
            place = ".".join(str(part) for part in fault["loc"])
            if fault["type"] == "extra_forbidden":
                known = ", ".join(_fields_at(model, fault["loc"][:-1]))
                said = f"unknown field {place!r} (known: {known})"
            else:
                said = f"{place}: {fault['msg']}"
            faults.append(said + instead_of(place, where=where))
        raise ConfigError(f"{where}: {'; '.join(faults)}") from error


def _fields_at(model: type[BaseModel], place: tuple[int | str, ...]) -> list[str]:
    current: Any = model
    for part in place:
        if isinstance(part, int):
            # An index of a list: all its items are of one kind.
            continue
        annotation = current.model_fields[part].annotation
        candidates = [annotation, *get_args(annotation)]
        current = next(
            candidate
            for candidate in candidates
            if isinstance(candidate, type) and issubclass(candidate, BaseModel)
        )
    return sorted(current.model_fields)
