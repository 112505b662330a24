"""The reference of settings agrees with the models."""

import json
from pathlib import Path

import pytest

from parley.configs.deployment import Deployment
from parley.configs.describe import leaves, settings_of, shared_once
from parley.configs.load import CONFIG_DIR, known_deployments, load_deployment
from parley.core.errors import ConfigError
from scripts.write_settings_reference import DOCUMENT, SCHEMA, schema, written


@pytest.mark.parametrize("path", [DOCUMENT, SCHEMA], ids=lambda path: path.name)
def test_a_written_file_is_current(path: Path):
    assert path.read_text(encoding="utf-8") == written()[path], "python -m scripts.write_settings_reference"


def test_every_setting_is_described():
    assert [setting.path for setting in leaves(settings_of(Deployment)) if not setting.description] == []


def test_a_group_that_stands_in_several_places_counts_once():
    counted = {setting.path for setting in shared_once(settings_of(Deployment))}
    assert "server.tenants.named.limits.storage_mb" in counted
    assert not {"server.tenants.each.storage_mb", "server.tenants.others.storage_mb"} & counted
    # Of two groups with a common base, that base's fields.
    assert {
        "tiers.offers[].after_s",
        "tiers.offers[].to",
    } <= counted and "desk.offers[].after_s" not in counted


@pytest.mark.parametrize(
    "settings",
    [
        "bot: {idle: {growth_percent: 120}}",
        "desk: {again_s: 10}",
        "duplex: {queue_again_s: 10}",
        "hearing: {barge_in: {protected_yields_to_stop: false}}",
        "recording: {frame_ms: 500}",
        "remembering: {conversation: {compaction: {keep_turns: 3}}}",
        "server: {conversations: {hung_ms: 900}}",
        "thinking: {guard: {waiting: {give_up_ms: 9000}}}",
        "thinking: {speculation: {guesses: 1}}",
        "thinking: {vision: {longest_px: 800}}",
        "workers: {shared: {poll_s: 2}}",
    ],
)
def test_a_setting_that_is_a_constant_now_is_refused_with_the_known_ones(tmp_path: Path, settings: str):
    path = tmp_path / "old.yaml"
    path.write_text(f"name: old\nextends: embedded\n{settings}\n")
    with pytest.raises(ConfigError, match=r"unknown field .*known: "):
        load_deployment(str(path))


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
