"""What the documents show of a deployment is one."""

import re
from pathlib import Path

import pytest
import yaml

from configs.deployment import Deployment
from configs.load import parse_settings

ROOT = Path(__file__).parents[3]
BLOCK = re.compile(r"```yaml\n(.*?)```", re.DOTALL)


def examples() -> list[tuple[str, str]]:
    """(document, text) of each block that is a part of a deployment."""
    found = []
    for document in (ROOT / "README.md", *sorted((ROOT / "docs").glob("**/*.md"))):
        for text in BLOCK.findall(document.read_text(encoding="utf-8")):
            data = yaml.safe_load(text)
            if isinstance(data, dict) and data.keys() <= Deployment.model_fields.keys():
                found.append((str(document.relative_to(ROOT)), text))
    return found


@pytest.mark.parametrize(("document", "text"), examples())
def test_an_example_of_the_documents_is_taken(document: str, text: str) -> None:
    parse_settings(Deployment, yaml.safe_load(text), where=document)


def test_there_are_examples() -> None:
    assert len(examples()) >= 5
