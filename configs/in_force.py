"""Settings in force of a deployment as rows, for its operator: what ``--print-config`` prints, one by one.

A password in an address is hidden as in the printed file. A value is hidden as a whole where the name of its
setting is that of a secret: the rows leave the machine, and a printed file does not.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from pydantic import BaseModel

from parley.configs.deployment import Choice, Deployment
from parley.configs.describe import Setting, below, plain, settings_of
from parley.configs.print_config import EngineSettings, meaning, scalar

HIDDEN = "***"
# Names whose values are secrets wherever they stand. ``token_env`` is the name of a variable, and is shown.
SECRET_NAME = re.compile(r"(.*_)?(headers|env|password|secret|token|api_key|authorization)", re.IGNORECASE)
# A deployment has about a thousand; a list in it may be long.
MOST_ROWS = 5_000


@dataclass(frozen=True, slots=True)
class SettingInForce:
    """Value that a deployment sets, or leaves at its default.

    Attributes:
        path: names from the root, joined by dots; an item of a list has its number from 0.
        value: effective value, on one line of YAML.
        default: where it is left out; empty where there is none, and where the value is the default.
        is_given: the deployment gives it.
        meaning: description, unit and bounds.
    """

    path: str
    value: str
    default: str
    is_given: bool
    meaning: str


def settings_in_force(
    deployment: Deployment, *, engine_settings: EngineSettings | None = None
) -> list[SettingInForce]:
    """Return every setting, in the order of the models, without secrets. Takes some tens of milliseconds.

    Args:
        deployment: as it was loaded.
        engine_settings: finds the settings of each engine with their defaults. None: only those that the
            deployment gives are returned.
    """
    rows = _Rows(engine_settings).group(deployment, settings_of(Deployment), "", is_given=True)
    return [row for row, _ in zip(rows, range(MOST_ROWS), strict=False)]


class _Rows:
    def __init__(self, engine_settings: EngineSettings | None) -> None:
        self._engine_settings = engine_settings

    def group(
        self, value: BaseModel, settings: Iterable[Setting], path: str, *, is_given: bool
    ) -> Iterator[SettingInForce]:
        """Yield the rows of a group's fields."""
        for setting in settings:
            given = is_given and setting.name in value.model_fields_set
            own = f"{path}.{setting.name}" if path else setting.name
            yield from self._field(setting, getattr(value, setting.name), own, is_given=given)

    def _field(self, setting: Setting, value: Any, path: str, *, is_given: bool) -> Iterator[SettingInForce]:
        if isinstance(value, Choice):
            yield from self._choice(setting, value, path, setting.path, is_given=is_given)
        elif isinstance(value, BaseModel):
            yield from self.group(value, below(setting), path, is_given=is_given)
        elif isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            yield from self._list(setting, value, path, is_given=is_given)
        else:
            yield _row(path, setting, value, is_given=is_given)

    def _list(
        self, setting: Setting, values: Sequence[BaseModel], path: str, *, is_given: bool
    ) -> Iterator[SettingInForce]:
        for place, one in enumerate(values):
            own, place_path = f"{path}.{place}", f"{setting.path}.{place}"
            if isinstance(one, Choice):
                yield from self._choice(setting, one, own, place_path, is_given=is_given)
            else:
                yield _row(own, setting, one.model_dump(mode="json", exclude_unset=True), is_given=is_given)

    def _choice(
        self, setting: Setting, choice: Choice, path: str, place: str, *, is_given: bool
    ) -> Iterator[SettingInForce]:
        default = setting.default
        of_default = default.name if isinstance(default, Choice) else ""
        shown = scalar(of_default) if is_given and of_default and of_default != choice.name else ""
        text = meaning(setting, shows_default=False)
        yield SettingInForce(f"{path}.name", scalar(choice.name), shown, is_given, text)
        known = None if self._engine_settings is None else self._engine_settings(place, choice)
        if isinstance(known, BaseModel):
            for each in settings_of(type(known), place):
                own, given = f"{path}.settings.{each.name}", each.name in choice.settings
                yield _row(own, each, getattr(known, each.name), is_given=given)
            return
        for name, value in choice.settings.items():
            yield SettingInForce(f"{path}.settings.{name}", _shown(name, value), "", True, "")


def _row(path: str, setting: Setting, value: Any, *, is_given: bool) -> SettingInForce:
    shown = _shown(setting.name, value)
    default = "" if setting.is_required or not is_given else _shown(setting.name, setting.default)
    text = meaning(setting, shows_default=False)
    return SettingInForce(path, shown, "" if default == shown else default, is_given, text)


def _shown(name: str, value: Any) -> str:
    return scalar(_without_secrets(name, plain(value)))


def _without_secrets(name: str, value: Any) -> Any:
    """Return a value of JSON's types without those that are secrets by their names."""
    if isinstance(value, Mapping):
        is_secret = SECRET_NAME.fullmatch(name) is not None
        return {key: HIDDEN if is_secret else _without_secrets(str(key), each) for key, each in value.items()}
    if isinstance(value, list):
        return [_without_secrets(name, each) for each in value]
    if isinstance(value, str) and value and SECRET_NAME.fullmatch(name):
        return HIDDEN
    return value
