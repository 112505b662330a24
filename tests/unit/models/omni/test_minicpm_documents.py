"""The configurations in docs/how-to/minicpm_o.md are valid, and its environment is pinned."""

import re
from pathlib import Path

import pytest
import yaml
from pydantic import BaseModel

from parley.models.omni import OMNI
from parley.models.omni.minicpm_o.settings import MiniCpmOSettings
from parley.models.omni.minicpm_worker.engine import MiniCpmWorkerSettings

ROOT = Path(__file__).parents[4]
DOCUMENT = ROOT / "docs/how-to/minicpm_o.md"
EXAMPLES = re.findall(r"```yaml\n# (\w+)\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
SETTINGS: dict[str, type[BaseModel]] = {
    "minicpm_o": MiniCpmOSettings,
    "minicpm_worker": MiniCpmWorkerSettings,
}


def test_there_is_an_example_of_each() -> None:
    assert [name for name, _ in EXAMPLES] == list(SETTINGS) and set(SETTINGS) <= set(OMNI)


@pytest.mark.parametrize(("name", "text"), EXAMPLES)
def test_an_example_is_read(name: str, text: str) -> None:
    fields = yaml.safe_load(text)
    assert SETTINGS[name].model_validate(fields).model_fields_set == set(fields)


def test_every_package_of_the_workers_environment_is_pinned() -> None:
    lines = (ROOT / "requirements/minicpm_o.txt").read_text().splitlines()
    packages = [line for line in lines if line and not line.startswith("#")]
    assert all(re.fullmatch(r"[\w.-]+==[\w.]+", package) for package in packages)
    assert {"transformers==4.51.0", "torch==2.8.0", "minicpmo-utils==1.0.7"} <= set(packages)
