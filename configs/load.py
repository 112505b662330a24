"""Read YAML into a checked ``Deployment``. A ``ConfigError`` says where a fault is and what would be right.

Decides what a relative path means (``bot.knowledge``, ``models_dir``, the file of the session store). A path
in a user's file starts at the folder of that file, also when it is read by a link to it. Everything in a
shipped deployment, and the defaults of what is shipped (``knowledge``, ``presets``), start at the folder of
the project. The defaults of what is written start there too, or in the current directory when Parley is
installed (``core.installation``).
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from pydantic import BaseModel, ValidationError

from parley.configs.merging import absolute_store, anchored, merged
from parley.configs.replaced import instead_of
from parley.core.errors import ConfigError, reason_of
from parley.core.installation import SHIPPED_DIR, written_dir
from parley.core.yaml_text import parse_yaml_value

if TYPE_CHECKING:
    from parley.configs.deployment import Deployment

Settings = TypeVar("Settings", bound=BaseModel)
# Overrides the store's address in the deployment, because the address may hold a password.
STORE_URL_ENV = "PARLEY_STORE_URL"
CONFIG_DIR = Path(__file__).resolve().parent
PROJECT_DIR = SHIPPED_DIR
EXTENDS = "extends"


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
        raise ConfigError(f"cannot read {path}: {reason_of(error)}") from error
    return parse_yaml(text, where=str(path))


def load_deployment(source: str | Path) -> "Deployment":
    """Read a deployment from a path or, without a folder and suffix, by the name of a shipped one.

    Its folders (``bot.knowledge``, ``models_dir``) become absolute; the module docstring describes how. A
    file with ``extends`` holds the differences from another deployment (``configs.merging``).

    Raises:
        ConfigError: a missing or unreadable file, no YAML, an unknown field (the known ones are listed) or a
            wrong value, or files that extend each other. For a setting that was removed, the message names
            its replacement.
    """
    # Imports Pipecat, which logs at once. The log level must have been set before.
    from parley.configs.deployment import Deployment

    path = _path_of(source)
    return _with_default_folders(parse_settings(Deployment, _settings_of(path), where=str(path)))


def _path_of(source: str | Path, folder: Path = Path()) -> Path:
    """Return the path of a deployment by its name, or by a path that starts at ``folder``.

    Raises:
        ConfigError: there is no shipped deployment of this name.
    """
    path = Path(source)
    if path.suffix or path.parent != Path("."):
        return folder / path
    path = CONFIG_DIR / f"{source}.yaml"
    if not path.exists():
        raise ConfigError(f"there is no deployment {str(source)!r}", known=known_deployments())
    return path


def _settings_of(path: Path, extending: tuple[Path, ...] = ()) -> dict[str, Any]:
    """Return the settings of a file together with those that it extends; paths are absolute.

    Args:
        path: of the file.
        extending: resolved paths of the files that extend it, outermost first.

    Raises:
        ConfigError: a file cannot be read, is not YAML or holds no mapping; ``extends`` names no deployment,
            or leads back to a file that it started from.
    """
    own = read_yaml(path)
    base = own.pop(EXTENDS, None)
    resolved = path.resolve()
    chain = (*extending, resolved)
    own = anchored(own, PROJECT_DIR if resolved.parent == CONFIG_DIR else resolved.parent)
    if base is None:
        return own
    if not isinstance(base, str):
        raise ConfigError(f"{path}: {EXTENDS}: expected the name of a deployment or a file, not {base!r}")
    try:
        extended = _path_of(base, resolved.parent)
    except ConfigError as error:
        raise ConfigError(f"{path}: {EXTENDS}: {error}") from error
    if extended.resolve() in chain:
        circle = " -> ".join(str(each) for each in (*chain, extended.resolve()))
        raise ConfigError(f"{path}: {EXTENDS}: a deployment cannot extend itself ({circle})")
    return merged(_settings_of(extended, chain), own)


def _with_default_folders(deployment: "Deployment") -> "Deployment":
    """Return the deployment with the paths absolute that no file gives, and the store of the environment."""
    shipped, written = PROJECT_DIR, written_dir()
    remembering, operations, duplex = deployment.remembering, deployment.operations, deployment.duplex
    recording = deployment.recording
    url = os.environ.get(STORE_URL_ENV, "") or absolute_store(remembering.store.url, written)
    store = remembering.store.model_copy(update={"url": url})
    tick_log = None if duplex.tick_log is None else written / duplex.tick_log
    return deployment.model_copy(
        update={
            "bot": deployment.bot.model_copy(update={"knowledge": shipped / deployment.bot.knowledge}),
            "models_dir": written / deployment.models_dir,
            "remembering": remembering.model_copy(update={"store": store}),
            "duplex": duplex.model_copy(update={"tick_log": tick_log}),
            "recording": recording.model_copy(update={"folder": written / recording.folder}),
            "operations": operations.model_copy(
                update={
                    "data_dir": written / operations.data_dir,
                    "presets_dir": shipped / operations.presets_dir,
                }
            ),
        }
    )


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
            elif fault["type"] in ("model_type", "model_attributes_type"):
                said = f"{place}: {_expected_section(model, fault['loc'], fault['input'])}"
            else:
                said = f"{place}: {fault['msg']}"
            faults.append(said + instead_of(place, where=where))
        raise ConfigError(f"{where}: {'; '.join(faults)}") from error


def _expected_section(model: type[BaseModel], place: tuple[int | str, ...], given: object) -> str:
    """Return what to write where another value stands in place of a section of settings."""
    known = _fields_at(model, place)
    listed = f" (known: {', '.join(known)})" if known else ""
    if given is None:
        return f"the section is empty: give it a setting, or leave it out{listed}"
    if isinstance(given, str) and "name" in known:
        return f"write {{name: {given}}}"
    return f"expected a section with settings, not {given!r}{listed}"


def _fields_at(model: type[BaseModel], place: tuple[int | str, ...]) -> list[str]:
    """Return the settings of a section; none where the place is in no model."""
    current: type[BaseModel] | None = model
    for part in place:
        if isinstance(part, int):
            # An index of a list: all its items are of one kind.
            continue
        if current is None or part not in current.model_fields:
            return []
        annotation = current.model_fields[part].annotation
        candidates = [annotation, *get_args(annotation)]
        current = next(
            (
                candidate
                for candidate in candidates
                if isinstance(candidate, type) and issubclass(candidate, BaseModel)
            ),
            None,
        )
    return [] if current is None else sorted(current.model_fields)
