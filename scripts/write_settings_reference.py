"""Write docs/reference/settings.md and configs/deployment.schema.json from the current settings.

Run by hand after a setting has changed: ``python -m scripts.write_settings_reference``. Prints the number of
settings.
"""

import json
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from pydantic import BaseModel

from parley.configs.deployment import Deployment
from parley.configs.describe import (
    Setting,
    below,
    described,
    has_texts_by_name,
    leaves,
    owner,
    plain,
    settings_of,
    shared_once,
)
from parley.configs.load import CONFIG_DIR
from parley.core.registry import Registry
from parley.pipelines.engines.settings import REGISTRIES

# Group that declares a setting, and the setting's name, to its first place.
_Known = dict[tuple[type[BaseModel] | None, str], Setting]

DOCUMENT = CONFIG_DIR.parent / "docs" / "reference" / "settings.md"
SCHEMA = CONFIG_DIR / "deployment.schema.json"
HEAD = """# Settings

Every setting of a deployment. Generated from the models by `python -m scripts.write_settings_reference`:
change descriptions there (`configs/deployment.py` composes them), not here.

A deployment is one YAML file; settings that it does not set have their defaults. `parley config --config
FILE` prints the effective deployment with the same descriptions, and with `--all` the settings of the engines
that it names too. Editors that support YAML schemas complete and check a file that begins with

```yaml
# yaml-language-server: $schema=deployment.schema.json
```

and the path of that schema (`parley config --schema` prints it). An unknown name is refused with a list of
the known ones. Values in no table are constants of the program; the reason for each is given where it is
used. Secrets come from the environment only.

`extends: embedded` (or another shipped deployment, or the path of a file, relative to this one) takes
what the file leaves out from there:

* Mappings are merged, at every depth. Any other value replaces that of the extended deployment: a list as a
  whole, and `null` too (`speaking: {fallback: null}` removes the fallbacks).
* An engine with another `name` brings none of the settings of the engine that it replaces.
* A relative path starts at the folder of the file that gives it. What no file gives has its default.
* The extended file may extend another one. Files that extend each other are refused.
"""


def written() -> dict[Path, str]:
    """Return the files with their current content."""
    return {DOCUMENT: _document(), SCHEMA: json.dumps(schema(), indent=1, ensure_ascii=False) + "\n"}


def schema() -> dict[str, Any]:
    """Return the JSON schema of a deployment's file."""
    known = Deployment.model_json_schema()
    title = {"$schema": "https://json-schema.org/draft/2020-12/schema", **known}
    title["properties"] = {"name": title["properties"].pop("name"), **title["properties"]}
    return title


def _document() -> str:
    single = [setting for setting in settings_of(Deployment) if setting.group is None]
    lines = [HEAD, f"{_count()}\n", *_table(single)]
    known: _Known = {}
    for setting in settings_of(Deployment):
        if setting.group is not None:
            lines += _section(setting, 2, known)
    lines += _engines()
    return "\n".join(lines).rstrip() + "\n"


def _count() -> str:
    """Return the number of settings."""
    settings = [*settings_of(Deployment)]
    most, least = (sum(1 for _ in each(settings)) for each in (leaves, shared_once))
    return (
        f"There are {least} settings. Groups that stand in several places, such as the limits of tenants, "
        f"count once; with each place counted there are {most}."
    )


def _section(setting: Setting, level: int, known: _Known) -> Iterator[str]:
    yield f"\n{'#' * level} `{setting.path}`\n"
    about = described(setting.group) if setting.group is not None else ""
    says = [about, setting.description if setting.description != about else ""]
    yield " ".join(_sentence(text) for text in says if text) + "\n"
    inner = list(below(setting))
    own, repeated = _parted(setting, [one for one in inner if one.group is None], known)
    yield from _table(own)
    for place, names in repeated.items():
        listed = ", ".join(f"`{name}`" for name in names)
        yield f"{chr(10) if own else ''}As in `{place}`: {listed}."
    for one in inner:
        if one.group is not None:
            yield from _section(one, min(level + 1, 4), known)


def _parted(
    group: Setting, settings: Iterable[Setting], known: _Known
) -> tuple[list[Setting], dict[str, list[str]]]:
    """Return the settings of a group that are new, and by place the names of those that another place has."""
    own: list[Setting] = []
    repeated: dict[str, list[str]] = {}
    for one in settings:
        first = known.setdefault((owner(group.group, one.name) if group.group else None, one.name), one)
        if first is one or first.default != one.default:
            own.append(one)
        else:
            repeated.setdefault(first.path.rpartition(".")[0], []).append(one.name)
    return own, repeated


def _sentence(text: str) -> str:
    text = text[0].upper() + text[1:]
    return text if text.endswith((".", ":", "?", "!")) else f"{text}."


def _table(settings: list[Setting]) -> Iterator[str]:
    if not settings:
        return
    yield "| setting | default | meaning |\n|---|---|---|"
    for one in settings:
        # The kind is left out where the default shows it.
        kind = one.kind if "`" in one.kind and not has_texts_by_name(one) else ""
        facts = "; ".join(fact for fact in (kind, one.bounds) if fact)
        meaning = f"{one.description} ({facts})" if one.description and facts else one.description or facts
        yield f"| `{one.name}` | {_default(one)} | {meaning.replace('|', chr(92) + '|')} |"


def _default(setting: Setting) -> str:
    if setting.is_required:
        return "required"
    value = plain(setting.default)
    if isinstance(value, Mapping) and set(value) == {"name", "settings"}:
        return f"`{value['name']}`"
    if has_texts_by_name(setting):
        return "<br>".join(f"`{name}`: {text}" for name, text in value.items())
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    if isinstance(value, int | float) and setting.unit:
        return f"{value:,} {setting.unit}"
    return f"`{json.dumps(value, ensure_ascii=False).strip(chr(34))}`"


def _engines() -> Iterator[str]:
    yield "\n## Engines\n"
    yield "What a `name` can be, and the packages (`pip install -e '.[EXTRA]'`) that it needs.\n"
    yield "| place | name | what | extra |\n|---|---|---|---|"
    for place, registries in REGISTRIES.items():
        for name, summary, extra in sorted(row for registry in registries for row in _rows(registry)):
            yield f"| `{place}` | `{name}` | {summary} | {extra} |"


def _rows(registry: Registry[Any]) -> Iterator[tuple[str, str, str]]:
    for name in registry.own_names():
        row = registry.row(name)
        yield name, row.summary, row.extra or ""


if __name__ == "__main__":
    for path, text in written().items():
        path.write_text(text, encoding="utf-8")
    print(_count())
