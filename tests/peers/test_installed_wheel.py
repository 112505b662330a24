"""The wheel, installed in an environment of its own: a server from an empty folder holds a browser call."""

import os
import re
import subprocess
import sys
import sysconfig
import venv
import wave
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from playwright.async_api import expect

from tests.peers.server import free_port
from tests.peers.test_browser import (
    LISTEN,
    QUESTION_AT_MS,
    RATE_HZ,
    chromium,
    say,
    silence,
    visit,
)
from tests.wheel import build_wheel

__all__ = ["chromium"]
pytestmark = pytest.mark.packages


@pytest.fixture(scope="module")
def parley(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the installed command ``parley``."""
    wheel = build_wheel(tmp_path_factory.mktemp("wheel"))
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, with_pip=False, symlinks=True)
    python = folder / "bin" / "python"
    pip = (sys.executable, "-m", "pip", "--python", str(python), "install", "--quiet", "--no-deps")
    subprocess.run([*pip, "--no-index", str(wheel)], check=True, timeout=120)
    # Parley's dependencies are those of the environment of the tests.
    own = sysconfig.get_path("purelib", vars={"base": str(folder)})
    (Path(own) / "dependencies.pth").write_text(sysconfig.get_path("purelib") + "\n")
    return folder / "bin" / "parley"


def environment() -> dict[str, str]:
    return {
        name: value for name, value in os.environ.items() if not name.startswith(("PYTHONPATH", "PARLEY_"))
    }


def run(parley: Path, *arguments: str, folder: Path) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [parley, *arguments], cwd=folder, env=environment(), capture_output=True, text=True, timeout=90
    )


@contextmanager
def serving(parley: Path, folder: Path) -> Iterator[str]:
    """Run a server of the deployment in ``folder``; yield its address."""
    command = [parley, "serve", "--config", "parley.yaml", "--port", str(free_port())]
    with (folder / "log.txt").open("wb") as log:
        process = subprocess.Popen(
            command, cwd=folder, env=environment(), stdout=subprocess.PIPE, stderr=log, text=True
        )
    try:
        assert process.stdout is not None
        first = process.stdout.readline()
        assert first.startswith("Parley is ready: "), (folder / "log.txt").read_text()
        yield first.split()[-1]
    finally:
        process.terminate()
        try:
            process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait(timeout=5)


def microphone(path: Path) -> Path:
    with wave.open(str(path), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(RATE_HZ)
        question = say("What are your opening hours on Saturday?")
        file.writeframes(silence(QUESTION_AT_MS) + question + silence(60_000))
    return path


async def test_a_server_from_an_empty_folder_holds_a_browser_call(
    parley: Path, chromium: str, tmp_path: Path
):
    folder = tmp_path / "empty"
    folder.mkdir()
    made = run(parley, "init", folder=folder)
    assert made.returncode == 0, made.stderr
    # How many callers a machine can answer is not what this is about, and the tests do other work on it.
    with (folder / "parley.yaml").open("a") as file:
        file.write(
            '\nserver: {admission: "off", drain_s: 0, goodbye_s: 0}\nhearing: {spare_processes: false}\n'
        )
    checked = run(parley, "check", "--config", "parley.yaml", folder=folder)
    assert (checked.returncode, checked.stdout) == (0, "mine: nothing is missing\n"), checked.stderr

    flags = (
        "--use-fake-ui-for-media-stream",
        f"--use-file-for-fake-audio-capture={microphone(tmp_path / 'microphone.wav')}%noloop",
    )
    with serving(parley, folder) as address:
        async with visit(chromium, address, *flags) as person:
            await person.part("talk").click()
            await person.state("listening", "speaking")
            await person.page.evaluate(LISTEN)
            said = person.page.locator('[data-role="user-turn"][data-final="true"]')
            # The recogniser without downloads understands little of it; that it listens is enough here.
            await expect(said.first).to_have_text(re.compile(r"You:\s*\w+"))
            await person.type("What are your opening hours on Saturday?")
            await person.answered("ten until two")
            heard = await person.page.evaluate("window.heard")
    assert max(sample["rms"] for sample in heard) > 0.01
    assert person.complaints == []
    # What is written is here, and not among the installed packages.
    assert (folder / "data" / "operator_token").is_file()
    assert (folder / "sessions" / "sessions.db").is_file()
    [packages] = parley.parents[1].glob("lib/python*/site-packages")
    assert not [name for name in ("data", "sessions", "models-cache") if (packages / name).exists()]
    assert not [name for name in ("data", "sessions") if (packages / "parley" / name).exists()]


def test_the_installed_command_knows_its_version_and_writes_no_traceback(parley: Path, tmp_path: Path):
    assert run(parley, "--version", folder=tmp_path).stdout == "parley 0.2.0\n"
    refused = run(parley, "serve", "--config", "nothing", folder=tmp_path)
    assert refused.returncode == 2
    assert refused.stderr.startswith("parley serve: there is no deployment 'nothing'")


def test_a_missing_extra_is_installed_by_the_names_of_its_packages(parley: Path, tmp_path: Path):
    (tmp_path / "own.yaml").write_text("duplex: {engine: {name: gemini_live}}\n")
    checked = run(parley, "check", "--config", "own.yaml", folder=tmp_path)
    assert checked.returncode == 2
    assert "pip install 'pipecat-ai[google]" in checked.stderr, checked.stderr


def test_a_typed_conversation_by_the_module(parley: Path, tmp_path: Path):
    done = subprocess.run(
        [parley.with_name("python"), "-m", "parley", "text"],
        cwd=tmp_path,
        env=environment(),
        input="What are your opening hours on Saturday?\n",
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    assert "ten until two" in done.stdout
