"""Arguments that the make targets pass on. Nothing is run: make prints its commands."""

import os
import re
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# Variables that a make that runs these tests passes to its children.
OF_MAKE = ("MAKEFLAGS", "MAKEOVERRIDES", "MFLAGS", "MAKELEVEL", "PORT", "ARGS")


def last_command(*arguments: str) -> list[str]:
    environment = {name: value for name, value in os.environ.items() if name not in OF_MAKE}
    done = subprocess.run(
        ["make", "--dry-run", *arguments],
        cwd=ROOT, env=environment, capture_output=True, text=True, check=True,
    )  # fmt: skip
    return done.stdout.splitlines()[-1].split()


@pytest.mark.parametrize(
    ("arguments", "passed_on"),
    [
        ([], []),
        (["PORT=7861"], ["--port", "7861"]),
        (["ARGS=--config mine.yaml"], ["--config", "mine.yaml"]),
        (["PORT=7861", "ARGS=--mode text"], ["--port", "7861", "--mode", "text"]),
    ],
)
def test_run_passes_on_what_was_said_and_leaves_the_rest_to_the_deployment(
    arguments: list[str], passed_on: list[str]
):
    assert last_command("run", *arguments) == [".venv/bin/python", "bot.py", *passed_on]


def test_the_help_names_every_target():
    text = (ROOT / "Makefile").read_text(encoding="utf-8")
    [phony] = re.findall(r"^\.PHONY: (.*)$", text, re.MULTILINE)
    assert sorted(re.findall(r"^# make ([\w-]+)", text, re.MULTILINE)) == sorted(phony.split())


def test_models_passes_its_arguments_on():
    assert last_command("models", "ARGS=whisper")[-4:] == ["-m", "parley", "models", "whisper"]
