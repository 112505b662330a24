"""``parley init``: a deployment to start from."""

import re
import sys
from pathlib import Path

import pytest

from parley.command.main import main
from parley.configs.load import PROJECT_DIR, load_deployment
from parley.core.installation import parley_command, pip_command


def test_the_written_deployment_is_the_embedded_one_with_a_name(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert main(["init"]) == 0
    start = f"{sys.executable} -m parley serve --config parley.yaml"
    assert start in capsys.readouterr().out and start in Path("parley.yaml").read_text()
    made, embedded = load_deployment("parley.yaml"), load_deployment("embedded")
    assert (made.name, made.bot.knowledge) == ("mine", PROJECT_DIR / "knowledge")
    assert made.hearing == embedded.hearing and made.speaking == embedded.speaking


def test_every_suggestion_in_it_can_be_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(tmp_path)
    main(["init"])
    path = tmp_path / "parley.yaml"
    # A line of a suggestion has the form of a setting; the others are sentences.
    suggested = re.sub(r"(?m)^( *)# ((?:  )*[a-z_]+:(?: .*)?)$", r"\1\2", path.read_text())
    path.write_text(suggested)
    made = load_deployment("parley.yaml")
    assert made.bot.knowledge == tmp_path / "documents"
    assert made.thinking.llm.name == "anthropic" and made.thinking.fallback is not None
    assert made.server.port == 7_860 and "endpoint" in made.hearing.model_fields_set


def test_a_file_that_is_there_is_left_as_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parley.yaml").write_text("name: precious\n")
    assert main(["init"]) == 2
    assert capsys.readouterr().err == "parley init: parley.yaml exists already; it is left as it is\n"
    assert (tmp_path / "parley.yaml").read_text() == "name: precious\n"


def test_an_installation_from_a_checkout_is_named_elsewhere(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.chdir(PROJECT_DIR)
    assert pip_command("anthropic") == "pip install -e '.[anthropic]'"
    monkeypatch.chdir(tmp_path)
    assert pip_command("anthropic") == f"pip install -e '{PROJECT_DIR}[anthropic]'"
    assert parley_command() == f"{sys.executable} -m parley"
