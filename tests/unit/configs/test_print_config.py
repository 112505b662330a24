"""The printed form of a deployment has the deployment's meaning."""

from functools import partial
from pathlib import Path

import pytest

from parley.command.bot_line import build_parser
from parley.command.flags import check_flags
from parley.command.run import print_config
from parley.configs.load import known_deployments, load_deployment
from parley.configs.print_config import as_yaml
from parley.core.errors import ConfigError
from parley.pipelines.engines.settings import effective_settings


@pytest.mark.parametrize("with_engines", [False, True])
@pytest.mark.parametrize("name", known_deployments())
def test_a_printed_deployment_loads_as_the_same(name: str, with_engines: bool, tmp_path: Path):
    deployment = load_deployment(name)
    engine_settings = partial(effective_settings, deployment)
    path = tmp_path / "printed.yaml"
    path.write_text(as_yaml(deployment, engine_settings=engine_settings if with_engines else None))
    assert load_deployment(path) == deployment


def test_a_printed_setting_has_its_meaning_unit_bounds_and_default(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text("server: {drain_s: 5}\n")
    printed = as_yaml(load_deployment(path))
    start = printed.index("\n  drain_s: 5")
    comment = " ".join(line.strip(" #") for line in printed[:start].splitlines()[-6:])
    assert "time for which a stopping server lets running calls continue" in comment
    assert comment.endswith("(s; 0 to 3,600; default 20.0)")


def test_no_password_is_printed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PARLEY_STORE_URL", "postgresql://parley:hunter2@db.example/parley")
    printed = as_yaml(load_deployment("embedded"))
    assert "hunter2" not in printed
    assert "parley:***@db.example" in printed


def test_settings_of_engines_are_printed_where_they_are_wanted():
    deployment = load_deployment("claude")
    printed = as_yaml(deployment, engine_settings=partial(effective_settings, deployment))
    assert "\n      model: claude-haiku-4-5\n" in printed
    assert "\n      #max_tokens: " in printed


def test_settings_of_specialists_are_printed_too(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text("hearing: {specialists: [{name: prosody}]}\n")
    deployment = load_deployment(path)
    assert "- name: prosody\n" in as_yaml(deployment, engine_settings=partial(effective_settings, deployment))


def test_what_is_left_out_is_printed_with_a_mark(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text("hearing: {endpoint: {patience: 0.7}, ask_back: null}\n")
    lines = as_yaml(load_deployment(path)).splitlines()
    given = {"hearing:", "  endpoint:", "    patience: 0.7", "  ask_back: null"}
    assert given | {"    #timer_ms: 800", "#phone: null"} <= set(lines)


def test_texts_by_name_are_printed_below_each_other(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text('desk: {phrases: {offer: "Shall I fetch an adviser?"}}\ntiers: {phrases: {}}\n')
    deployment = load_deployment(path)
    printed = as_yaml(deployment)
    assert {
        "  phrases:",
        '    # default "Shall I fetch a colleague?"',
        '    offer: "Shall I fetch an adviser?"',
        '    #joined: "You are now connected to a colleague."',
        "  phrases: {}",
        '    #go_unseen: "All right, I see nothing any more."',
    } <= set(printed.splitlines())
    path.write_text(printed)
    assert load_deployment(path) == deployment


def test_words_and_numbers_in_text_stay_text(tmp_path: Path):
    path = tmp_path / "mine.yaml"
    path.write_text(
        "name: '007'\nbot: {name: 'no', greeting: \"Say: \\\"hi\\\" # now\"}\nphone: {person_key: '0'}\n"
    )
    deployment = load_deployment(path)
    path.write_text(as_yaml(deployment))
    assert load_deployment(path) == deployment


def test_the_command_prints_yaml_and_ends(capsys: pytest.CaptureFixture[str]):
    assert print_config(load_deployment("embedded"), with_engines=False) == 0
    assert "\nname: embedded\n" in capsys.readouterr().out


def test_a_flag_that_would_be_ignored_is_refused():
    with pytest.raises(ConfigError, match="--all can only be used with --print-config"):
        check_flags(build_parser().parse_args(["--all"]))
