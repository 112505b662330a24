"""The reference of settings agrees with the models."""

import json
from pathlib import Path

import pytest

from parley.configs.deployment import Deployment
from parley.configs.describe import leaves, settings_of
from parley.configs.load import CONFIG_DIR, known_deployments
from scripts.write_settings_reference import DOCUMENT, SCHEMA, schema, written


@pytest.mark.parametrize("path", [DOCUMENT, SCHEMA], ids=lambda path: path.name)
def test_a_written_file_is_current(path: Path):
    assert path.read_text(encoding="utf-8") == written()[path], "python -m scripts.write_settings_reference"


def test_every_setting_is_described():
    assert [setting.path for setting in leaves(settings_of(Deployment)) if not setting.description] == []


@pytest.mark.parametrize("name", known_deployments())
def test_a_shipped_deployment_names_the_schema_for_editors(name: str):
    first = (CONFIG_DIR / f"{name}.yaml").read_text().splitlines()[0]
    assert first == f"# yaml-language-server: $schema={SCHEMA.name}"


def test_the_schema_refuses_unknown_fields_and_knows_bounds():
    server = schema()["$defs"]["ServerSettings"]
    assert server["additionalProperties"] is False
    port = server["properties"]["port"]
    assert (port["minimum"], port["maximum"], port["default"]) == (0, 65_535, 7_860)


def test_the_schema_is_json_that_an_editor_reads():
    assert json.loads(SCHEMA.read_text())["properties"].keys() == Deployment.model_fields.keys()


def test_the_default_of_a_setting_is_that_of_its_place():
    places = {setting.path: setting.default for setting in leaves(settings_of(Deployment))}
    turns = "server.clients.{}.turns_per_minute"
    assert [places[turns.format(kind)] for kind in ("anonymous", "key", "user")] == [240, 2_400, 60]
