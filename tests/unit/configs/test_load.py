import subprocess
import sys
from pathlib import Path

import pytest
import yaml

from parley.configs.load import CONFIG_DIR, PROJECT_DIR, known_deployments, load_deployment, read_yaml
from parley.core.errors import ConfigError


def write(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "deployment.yaml"
    path.write_text(text)
    return path


@pytest.mark.parametrize("name", known_deployments())
def test_every_shipped_deployment_is_valid(name: str):
    assert load_deployment(name).name == name


def test_only_the_demo_extracts_facts():
    extracting = {name for name in known_deployments() if load_deployment(name).remembering.extract_facts}
    assert extracting == {"embedded"}


def test_the_named_deployments_are_shipped():
    assert {"embedded", "claude", "cloud", "selfhost", "local"} <= set(known_deployments())


def test_an_unknown_deployment_lists_the_known_ones():
    with pytest.raises(ConfigError, match="no deployment 'nothing' .known: claude, cloud, embedded"):
        load_deployment("nothing")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        (
            "colour: red",
            "unknown field 'colour' .known: bot, desk, duplex, extends, hearing, models_dir, name, "
            "observers, operations, phone, prices, privacy, r",
        ),
        (
            "bot: {nmae: x}",
            "unknown field 'bot.nmae' .known: disclosure, greeting, greeting_again, greeting_interruptible, "
            "idle, idle_timeout_ms, knowledge, language, name, r",
        ),
        (
            "hearing: {endpoint: {min_ms: 1}}",
            "unknown field 'hearing.endpoint.min_ms' .known: kind, patience, timer_ms",
        ),
        ("thinking: {tools: [{nmae: x}]}", "unknown field 'thinking.tools.0.nmae' .known: name, settings"),
        ("server: {port: 99999}", "server.port: Input should be less than"),
        ("hearing: {stt: {}}", "hearing.stt.name: Field required"),
        ("thinking: {llm: documents}", "thinking.llm: write {name: documents}"),
        ("bot:", "bot: the section is empty: give it a setting, or leave it out .known: disclosure, "),
        ("server: 7860", "server: expected a section with settings, not 7860 .known: "),
        (
            "bot: {name: a}\nbot: {name: b}",
            "deployment.yaml: line 2: the key 'bot' is there already, in line 1",
        ),
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
    with pytest.raises(ConfigError) as raised:
        load_deployment(tmp_path / "no.yaml")
    assert str(raised.value) == f"cannot read {tmp_path / 'no.yaml'}: No such file or directory"


def test_no_secret_stands_in_a_shipped_deployment():
    for path in CONFIG_DIR.glob("*.yaml"):
        assert "api_key:" not in path.read_text()


@pytest.mark.parametrize("name", known_deployments())
def test_folders_of_a_shipped_deployment_count_from_the_project(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    for source in (name, CONFIG_DIR / f"{name}.yaml"):
        loaded = load_deployment(source)
        assert loaded.bot.knowledge == PROJECT_DIR / "knowledge"
        assert loaded.models_dir == PROJECT_DIR / "models-cache"


def test_folders_of_a_users_deployment_count_from_its_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write(tmp_path, "models_dir: weights\nbot: {knowledge: papers}")
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    loaded = load_deployment("../deployment.yaml")
    assert loaded.bot.knowledge == tmp_path / "papers"
    assert loaded.models_dir == tmp_path / "weights"


def test_folders_that_a_users_deployment_leaves_out_are_the_projects(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.chdir(tmp_path)
    loaded = load_deployment(write(tmp_path, "bot: {name: Ada}"))
    assert loaded.bot.knowledge == PROJECT_DIR / "knowledge"
    assert loaded.models_dir == PROJECT_DIR / "models-cache"


def test_an_absolute_folder_stays(tmp_path: Path):
    loaded = load_deployment(write(tmp_path, "models_dir: /srv/weights"))
    assert loaded.models_dir == Path("/srv/weights")


def test_reading_the_command_line_imports_no_pipecat():
    code = (
        "import bot, sys; from parley.command.bot_line import build_parser; build_parser().format_help(); "
        "print('pipecat' in sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=PROJECT_DIR, capture_output=True, text=True, check=True
    )
    assert (done.stdout, done.stderr) == ("False\n", "")


def test_words_of_yaml_that_older_loaders_take_for_booleans_are_words(tmp_path: Path):
    path = tmp_path / "words.yaml"
    path.write_text(
        "name: no\nthinking: {speculation: {on: off}}\n"
        "remembering: {extract_facts: true}\nhearing: {echo_mode: on}\n"
    )
    deployment = load_deployment(path)
    assert (deployment.name, deployment.thinking.speculation.on) == ("no", "off")
    assert (deployment.remembering.extract_facts, deployment.hearing.echo_mode) == (True, "on")


def test_a_deployment_that_is_read_and_written_again_means_the_same(tmp_path: Path):
    first = write(tmp_path, "thinking: {speculation: {on: off}}\nhearing: {echo_mode: on}\n")
    second = tmp_path / "again.yaml"
    second.write_text(yaml.safe_dump(read_yaml(first)))
    assert load_deployment(second) == load_deployment(first)
