"""Settings of deployments as plain values: relative paths, and one deployment that extends another."""

import re
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

# Settings that are paths, relative to the folder of the file that gives them.
PATHS = (
    "bot.knowledge",
    "duplex.llm_voice",
    "duplex.tick_log",
    "duplex.tts_voice",
    "models_dir",
    "operations.data_dir",
    "operations.presets_dir",
    "thinking.vector_search.settings.folder",
    "recording.folder",
)
STORE_URL = "remembering.store.url"
# Matches sqlite:///folder/file.db, and not sqlite:////folder/file.db.
RELATIVE_FILE = re.compile(r"sqlite:///(?!/)")
CHOICE = {"name", "settings"}


def anchored(settings: Mapping[str, Any], folder: Path) -> dict[str, Any]:
    """Return the settings of a file with its relative paths starting at ``folder``.

    Values that are no text stay: they are refused, with their place, when the deployment is checked.
    """
    changed = dict(settings)
    for path in PATHS:
        changed = _replaced(changed, path.split("."), lambda value: str(folder / value))
    return _replaced(changed, STORE_URL.split("."), lambda value: absolute_store(value, folder))


def absolute_store(url: str, folder: Path) -> str:
    """Return the address of a store; a relative file starts at ``folder``."""
    if not RELATIVE_FILE.match(url):
        return url
    return f"sqlite:////{str(folder / url.removeprefix('sqlite:///')).lstrip('/')}"


def _replaced(settings: Mapping[str, Any], place: list[str], change: Callable[[str], str]) -> dict[str, Any]:
    """Return the settings with one text changed, where they have it."""
    name, *below = place
    value = settings.get(name)
    if below and isinstance(value, dict):
        return {**settings, name: _replaced(value, below, change)}
    if not below and isinstance(value, str):
        return {**settings, name: change(value)}
    return dict(settings)


def merged(base: Mapping[str, Any], own: Mapping[str, Any]) -> dict[str, Any]:
    """Return the settings of a deployment that extends another.

    Mappings are merged, and every other value of ``own``, a list or null too, replaces that of ``base``. An
    engine with another name replaces the base's engine with all its settings, which are not settings of it.

    Args:
        base: settings of the extended deployment.
        own: settings that take precedence.
    """
    both = dict(base)
    for name, value in own.items():
        below = base.get(name)
        if isinstance(value, dict) and isinstance(below, dict) and not _is_other_engine(below, value):
            value = merged(below, value)
        both[name] = value
    return both


def _is_other_engine(base: Mapping[str, Any], own: Mapping[str, Any]) -> bool:
    return "name" in base and base.keys() <= CHOICE and own.get("name", base["name"]) != base["name"]
