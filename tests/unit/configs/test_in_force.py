"""Settings in force as rows: the values of the deployment, their defaults, and no secret."""

from functools import partial
from pathlib import Path

import pytest

from parley.configs.in_force import HIDDEN, SettingInForce, settings_in_force
from parley.configs.load import known_deployments, load_deployment
from parley.pipelines.engines.settings import effective_settings


def rows_of(path: Path | str) -> dict[str, SettingInForce]:
    deployment = load_deployment(path)
    rows = settings_in_force(deployment, engine_settings=partial(effective_settings, deployment))
    by_path = {row.path: row for row in rows}
    assert len(by_path) == len(rows)
    return by_path


@pytest.mark.parametrize("name", known_deployments())
def test_the_rows_of_every_deployment_go_down_to_single_values(name: str):
    assert {"server.drain_s", "thinking.llm.name", "remembering.store.url"} <= rows_of(name).keys()


def test_a_value_of_the_deployment_stands_with_its_default(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text("server: {drain_s: 5}\nthinking: {llm: {name: anthropic, settings: {max_tokens: 77}}}\n")
    rows = rows_of(path)
    drain = rows["server.drain_s"]
    assert (drain.value, drain.default, drain.is_given) == ("5.0", "20.0", True)
    assert "time for which a stopping server" in drain.meaning
    left_out = rows["server.max_calls"]
    assert (left_out.default, left_out.is_given) == ("", False)
    assert (rows["thinking.llm.name"].value, rows["thinking.llm.name"].default) == ("anthropic", "documents")
    assert rows["thinking.llm.settings.max_tokens"].value == "77"


def test_no_secret_is_shown(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PARLEY_STORE_URL", "postgresql://parley:hunter2@db.example/parley")
    path = tmp_path / "mine.yaml"
    path.write_text(
        "thinking:\n  tools:\n    - name: webhook\n      settings: {url: 'https://a.example', "
        "tool: {name: look, description: d, parameters: {type: object}}, headers: {x-key: hunter3}}\n"
    )
    deployment = load_deployment(path)
    for find in (None, partial(effective_settings, deployment)):
        rows = settings_in_force(deployment, engine_settings=find)
        assert not [row for row in rows if "hunter" in row.value + row.default]
        assert [row for row in rows if "headers" in row.path and HIDDEN in row.value]
        [url] = [row for row in rows if row.path == "remembering.store.url"]
        assert "parley:***@db.example" in url.value
