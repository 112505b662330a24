from pathlib import Path

import pytest

from configs.load import CONFIG_DIR, known_deployments, load_deployment
from core.errors import ConfigError


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "deployment.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", known_deployments())
def test_every_shipped_deployment_is_valid(name: str):
    assert load_deployment(name).name == name


def test_the_named_deployments_are_shipped():
    assert {"embedded", "claude", "cloud", "selfhost", "local"} <= set(known_deployments())


def test_an_unknown_deployment_lists_the_known_ones():
    with pytest.raises(ConfigError, match="no deployment 'nothing' .known: claude, cloud, embedded"):
        load_deployment("nothing")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("colour: red", "unknown field 'colour' .known: bot, hearing, models_dir, name, server"),
        ("bot: {nmae: x}", "unknown field 'bot.nmae' .known: greeting, knowledge, name, system_prompt"),
        ("hearing: {endpoint: {min_ms: 1}}", "unknown field 'hearing.endpoint.min_ms' .known: complete_prob"),
        ("server: {port: 99999}", "server.port: Input should be less than"),
        ("hearing: {stt: {}}", "hearing.stt.name: Field required"),
        ("- a\n- b", "must hold a mapping"),
        ("a: [1, 2", "is not YAML"),
    ],
)
def test_a_fault_says_where_it_is_and_what_would_be_right(tmp_path: Path, text: str, says: str):
    with pytest.raises(ConfigError, match=says) as raised:
        load_deployment(write(tmp_path, text))
    assert "\n" not in str(raised.value)


def test_an_empty_file_is_the_default_deployment(tmp_path: Path):
    assert load_deployment(write(tmp_path, "")).thinking.llm.name == "documents"


def test_a_missing_file_is_said(tmp_path: Path):
    with pytest.raises(ConfigError, match="cannot read"):
        load_deployment(tmp_path / "no.yaml")


def test_no_secret_stands_in_a_shipped_deployment():
    for path in CONFIG_DIR.glob("*.yaml"):
        assert "api_key:" not in path.read_text()
