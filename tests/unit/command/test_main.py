"""The command ``parley``: names, help and the options that it shares with ``bot.py`` and ``runner.py``."""

import argparse
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from parley.command import bot_line, runner_line
from parley.command.main import SUBCOMMANDS, main

ROOT = Path(__file__).resolve().parents[3]


class Given(BaseException):
    """Raised with the parser when a command reads its options."""


def parser_of(name: str, monkeypatch: pytest.MonkeyPatch) -> argparse.ArgumentParser:
    def given(parser: argparse.ArgumentParser, *_: object) -> None:
        raise Given(parser)

    monkeypatch.setattr(argparse.ArgumentParser, "parse_args", given)
    with pytest.raises(Given) as raised:
        main([name])
    parser: argparse.ArgumentParser = raised.value.args[0]
    return parser


def helps(parser: argparse.ArgumentParser) -> dict[str, str | None]:
    """Return the meaning of each option."""
    return {each.option_strings[-1]: each.help for each in parser._actions if each.option_strings}


def test_help_imports_nothing_that_a_command_needs():
    code = (
        "import sys; from parley.command.main import build_parser; print(build_parser().format_help());"
        "print(*{'pydantic', 'numpy', 'pipecat', 'onnxruntime', 'fastapi'} & sys.modules.keys())"
    )
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    *lines, imported = done.stdout.splitlines()
    assert imported == ""
    assert [line.split()[0] for line in lines if line.split()[:1] and line.split()[0] in SUBCOMMANDS] == list(
        SUBCOMMANDS
    )


@pytest.mark.parametrize("name", SUBCOMMANDS)
def test_every_command_exists_and_explains_itself(name: str, monkeypatch: pytest.MonkeyPatch):
    module, _, function = SUBCOMMANDS[name].target.partition(":")
    assert callable(getattr(import_module(module), function))
    parser = parser_of(name, monkeypatch)
    assert parser.prog == f"parley {name}"
    assert parser.description and all(helps(parser).values())


@pytest.mark.parametrize("name", ["serve", "text", "worker"])
def test_an_option_means_what_it_means_for_the_scripts(name: str, monkeypatch: pytest.MonkeyPatch):
    script = runner_line if name == "worker" else bot_line
    known = helps(script.build_parser())
    own = helps(parser_of(name, monkeypatch))
    # ``parley serve`` has no mode for text, so that it does not explain it.
    own.pop("--mode", None)
    assert own.items() <= known.items()


def test_an_unknown_command_is_refused_with_the_known_ones(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as ended:
        main(["sing"])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert "usage: parley COMMAND" in error and "'sing'" in error and "'serve'" in error


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["serve", "--config", "nothing"], "parley serve: there is no deployment 'nothing'"),
        (["call", "--transport", "file"], "parley call: --transport file needs --input WAV and --output WAV"),
        (["call", "--input", "x.wav"], "parley call: --input can only be used with --transport file"),
        (["check", "--config", "nothing"], "parley check: there is no deployment 'nothing'"),
        (["config", "--config", "nothing"], "parley config: there is no deployment 'nothing'"),
        (["eval", "nothing"], "parley eval: there is no measurement 'nothing'"),
        (["eval", "no.thing"], "parley eval: there is no measurement 'no.thing'"),
        (["worker", "--engine", "flite"], "parley worker: a worker needs a secret"),
    ],
)
def test_a_mistake_is_one_line_and_status_2(
    arguments: list[str], says: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("PARLEY_WORKER_SECRET", raising=False)
    assert main(arguments) == 2
    [line] = capsys.readouterr().err.splitlines()
    assert line.startswith(says)


def test_the_schema_is_the_shipped_one(capsys: pytest.CaptureFixture[str]):
    assert main(["config", "--schema"]) == 0
    assert capsys.readouterr().out == (ROOT / "configs" / "deployment.schema.json").read_text()


def test_config_prints_what_bot_py_prints(capsys: pytest.CaptureFixture[str]):
    assert main(["config", "--config", "claude", "--all"]) == 0
    printed = capsys.readouterr().out
    assert bot_line.main(["--config", "claude", "--print-config", "--all"]) == 0
    assert capsys.readouterr().out == printed


def test_an_evaluation_gets_its_own_options():
    command = [sys.executable, "-m", "parley", "eval", "bench.sequencer", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    assert "--events" in done.stdout
