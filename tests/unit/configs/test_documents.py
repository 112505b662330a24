"""Documents: each deployment in them is valid, and each name in their code exists."""

import re
import typing
from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from parley.configs.deployment import Deployment
from parley.configs.load import parse_settings, parse_yaml

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"```yaml\n(.*?)```", re.DOTALL)
NAMES = ("README.md", "CONTRIBUTING.md", "SECURITY.md")
DOCUMENTS = (
    *(ROOT / name for name in NAMES),
    *sorted((ROOT / "docs").glob("**/*.md")),
    *sorted((ROOT / "research").glob("**/*.md")),
)
FENCED = re.compile(r"```.*?```", re.DOTALL)
INLINE = re.compile(r"`([^`]+)`")
# Matches ``hearing.stt``; not ``bot.py``, which is a file.
SETTING = re.compile(rf"({'|'.join(Deployment.model_fields)})((?:\.[a-z_0-9]+)+)(?!\w)")
FILES = {"bot.py", "operations.py", "recording.json"}
FOLDERS = (
    "audio changes command configs contracts core docs evals examples knowledge language models pipelines "
    "presets processors protocols recording requirements research runtime scripts sequencer serving "
    "session_store telemetry tests transports turn_taking web"
).split()
PATH = re.compile(rf"(?:{'|'.join(FOLDERS)})/[\w./*-]*")


def examples() -> list[tuple[str, str]]:
    """Return (document, text) of each block that is a part of a deployment."""
    found = []
    for document in DOCUMENTS:
        for text in BLOCK.findall(document.read_text(encoding="utf-8")):
            data = yaml.safe_load(text)
            if isinstance(data, dict) and data.keys() <= Deployment.model_fields.keys():
                found.append((str(document.relative_to(ROOT)), text))
    return found


@pytest.mark.parametrize(("document", "text"), examples())
def test_an_example_of_the_documents_is_taken(document: str, text: str) -> None:
    parse_settings(Deployment, parse_yaml(text, where=document), where=document)


def test_the_examples_of_the_documents_are_found() -> None:
    assert "docs/how-to/tools.md" in {document for document, _ in examples()}


def named(document: Path) -> Iterator[str]:
    """Yield the names that a document's text marks as code."""
    for span in INLINE.findall(FENCED.sub("", document.read_text(encoding="utf-8"))):
        yield " ".join(span.split())


def models_of(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from models_of(argument)


def is_setting(model: type[BaseModel], names: list[str]) -> bool:
    field = model.model_fields.get(names[0])
    if field is None:
        return False
    if len(names) == 1:
        return True
    # The settings of an engine are a mapping, which its row checks.
    below = list(models_of(field.annotation))
    return any(is_setting(one, names[1:]) for one in below) or (not below and "dict" in str(field.annotation))


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda document: str(document.relative_to(ROOT)))
def test_what_a_document_names_is_there(document: Path) -> None:
    missing = []
    for name in named(document):
        setting = SETTING.match(name)
        if setting is not None and setting[0] not in FILES:
            if not is_setting(Deployment, [setting[1], *setting[2][1:].split(".")]):
                missing.append(name)
        if PATH.fullmatch(name) and not list(ROOT.glob(name.rstrip("/"))):
            missing.append(name)
    assert missing == []
