"""Print the effective deployment as YAML that is explained by comments and can be loaded again.

A value that the deployment gives is a line. A default is a line with ``#`` before the name and the effective
value after it. A printed file therefore means the same as the deployment. The difference matters: leaving a
setting out can mean more than giving its default (a recogniser has its own figures for some), and a default
may change.
"""

import json
import re
import textwrap
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from pydantic import BaseModel

from parley.configs.deployment import Choice, Deployment
from parley.configs.describe import Setting, below, has_texts_by_name, plain, settings_of

WIDTH = 110
HEAD = (
    "# The effective deployment. Lines with # in front of a name are defaults, which it leaves out: to",
    "# change one, remove the # there and in the line of its group.",
)
# The password in an address, between the user and the host.
PASSWORD = re.compile(r"(?<=://)([^:/@\s]*):[^@\s]*@")
# Words that YAML 1.1 or 1.2 reads as something other than text.
NOT_TEXT = re.compile(r"^(true|false|null|yes|no|on|off|y|n|~)$|^[-+.]?[0-9]", re.IGNORECASE)
BARE = re.compile(r"^[A-Za-z0-9_/][A-Za-z0-9_./:-]*(?<!:)$")
# Finds the settings of an engine by its place and choice; returns a message where they cannot be determined.
EngineSettings = Callable[[str, Choice], BaseModel | str]


def as_yaml(deployment: Deployment, *, engine_settings: EngineSettings | None = None) -> str:
    """Return the deployment with every setting, its description, unit, bounds and default; no password.

    Args:
        deployment: as it was loaded; its folders are absolute.
        engine_settings: finds the settings of each engine with their defaults. None: only those that the
            deployment gives are written.
    """
    return (
        "\n".join(
            [*HEAD, *_Printer(engine_settings).group(deployment, settings_of(Deployment), "", is_given=True)]
        )
        + "\n"
    )


class _Printer:
    def __init__(self, engine_settings: EngineSettings | None) -> None:
        self._engine_settings = engine_settings

    def group(
        self, value: BaseModel, settings: Iterable[Setting], indent: str, *, is_given: bool
    ) -> Iterator[str]:
        """Yield the lines of a group's fields."""
        for setting in settings:
            given = is_given and setting.name in value.model_fields_set
            yield from self._field(setting, getattr(value, setting.name), indent, is_given=given)

    def _field(self, setting: Setting, value: Any, indent: str, *, is_given: bool) -> Iterator[str]:
        yield from _comment(meaning(setting, shows_default=is_given), indent)
        start = f"{indent}{'' if is_given else '#'}{setting.name}:"
        deeper = f"{indent}  "
        if isinstance(value, Choice):
            yield start
            yield from self._choice(setting.path, value, deeper, is_given=is_given)
        elif isinstance(value, BaseModel):
            yield f"{start} {{}}" if is_given and not value.model_fields_set else start
            yield from self.group(value, below(setting), deeper, is_given=is_given)
        elif has_texts_by_name(setting):
            changed = {name: text for name, text in value.items() if text != setting.default[name]}
            yield f"{start} {{}}" if is_given and not changed else start
            yield from _texts(setting.default, changed, deeper)
        elif is_given and isinstance(value, tuple) and value and isinstance(value[0], BaseModel):
            yield start
            yield from self._list(setting.path, value, deeper)
        else:
            yield f"{start} {scalar(value)}"

    def _list(self, path: str, values: Sequence[BaseModel], indent: str) -> Iterator[str]:
        for place, one in enumerate(values):
            if isinstance(one, Choice):
                first, *rest = self._choice(f"{path}.{place}", one, f"{indent}  ", is_given=True)
                yield f"{indent}- {first.strip()}"
                yield from rest
            else:
                yield f"{indent}- {scalar(one.model_dump(mode='json', exclude_unset=True))}"

    def _choice(self, path: str, choice: Choice, indent: str, *, is_given: bool) -> Iterator[str]:
        mark = "" if is_given else "#"
        yield f"{indent}{mark}name: {scalar(choice.name)}"
        known = None if self._engine_settings is None else self._engine_settings(path, choice)
        if isinstance(known, str):
            yield from _comment(known, indent)
        if not isinstance(known, BaseModel) or not type(known).model_fields:
            if "settings" in choice.model_fields_set:
                yield f"{indent}{mark}settings: {scalar(choice.settings)}"
            return
        yield f"{indent}{'' if choice.settings else '#'}settings:"
        for setting in settings_of(type(known), path):
            given = setting.name in choice.settings
            yield from _comment(meaning(setting, shows_default=given), f"{indent}  ")
            yield f"{indent}  {'' if given else '#'}{setting.name}: {scalar(getattr(known, setting.name))}"


def _texts(defaults: Mapping[str, str], changed: Mapping[str, str], indent: str) -> Iterator[str]:
    """Yield the lines of texts by name, each of which may be given without the others."""
    for name, default in defaults.items():
        if name in changed:
            yield from _comment(f"default {scalar(default)}", indent)
        yield f"{indent}{'' if name in changed else '#'}{name}: {scalar(changed.get(name, default))}"


def meaning(setting: Setting, *, shows_default: bool) -> str:
    """Return the description of a setting with its unit and bounds, on one line."""
    facts = [setting.unit, setting.bounds]
    if shows_default and setting.group is None and not setting.is_required and not has_texts_by_name(setting):
        facts.append(f"default {scalar(setting.default)}")
    known = "; ".join(fact for fact in facts if fact)
    text = setting.description.replace("`", "")
    return f"{text} ({known})" if text and known else text or known


def _comment(text: str, indent: str) -> Iterator[str]:
    for line in textwrap.wrap(text, WIDTH - len(indent) - 2, break_long_words=False, break_on_hyphens=False):
        yield f"{indent}# {line}"


def scalar(value: Any) -> str:
    """Return a value on one line of YAML."""
    simple = plain(value)
    if isinstance(simple, str):
        shown = PASSWORD.sub(r"\1:***@", simple)
        is_bare = BARE.match(shown) and not NOT_TEXT.match(shown)
        return shown if is_bare else json.dumps(shown, ensure_ascii=False)
    return json.dumps(simple, ensure_ascii=False)
