"""The example package, installed as its README says: found by its entry point in a call and in a worker."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
import soundfile

from parley.models.stt.hosted.engine import WorkerStt, WorkerSttSettings
from tests.fakes.worker import OPENED_WITHIN_S, SECRET, told_secret
from tests.voices import say, silence

ROOT = Path(__file__).resolve().parents[2]
PHRASE = "what are your opening hours on saturday"


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Variables of a process that finds the installed package."""
    folder = tmp_path_factory.mktemp("installed")
    # A copy, because building leaves files next to the sources.
    package = shutil.copytree(ROOT / "examples" / "parrot", tmp_path_factory.mktemp("example") / "parrot")
    pip = (
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--no-deps",
        "--no-build-isolation",
        "--no-index",
    )
    subprocess.run([*pip, "--target", str(folder), str(package)], check=True, timeout=120)
    return {**os.environ, "PYTHONPATH": str(folder), "PARLEY_WORKER_SECRET": SECRET}


def test_a_call_uses_the_recogniser_of_the_package(environment: dict[str, str], tmp_path: Path) -> None:
    deployment = tmp_path / "parrot.yaml"
    deployment.write_text(
        f'name: parrot\nhearing:\n  stt: {{name: parrot, settings: {{phrase: "{PHRASE}"}}}}\n'
    )
    question = tmp_path / "question.wav"
    soundfile.write(
        question,
        memoryview(silence(300) + say("good morning") + silence(300)).cast("h"),
        16_000,
        format="WAV",
    )
    call = (sys.executable, "bot.py", "--config", str(deployment), "--transport", "file")
    done = subprocess.run(
        [*call, "--input", str(question), "--output", str(tmp_path / "call.wav")],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        timeout=90,
    )
    assert done.returncode == 0, done.stderr
    turn = json.loads((tmp_path / "call.json").read_text())["turns"][-1]
    assert turn["user_text"].lower().rstrip("?.") == PHRASE
    assert "ten until two" in turn["bot_text"]


@pytest.mark.parametrize(
    ("engine", "message"),
    [
        (("parrot",), ""),
        (("parley_parrot:ParrotStt", "--kind", "stt"), ""),
        (("parley_parrot:ParrotStt",), "'parley_parrot:ParrotStt' needs --kind (known: omni, stt, tts, llm)"),
        (("parley_parrot:Cockatoo", "--kind", "stt"), "cannot be imported"),
        (("parrot", "--set", "pitch=1"), "unknown field"),
    ],
)
def test_a_worker_hosts_it_by_name_and_by_target(
    environment: dict[str, str], engine: tuple[str, ...], message: str
) -> None:
    command = (
        sys.executable,
        "runner.py",
        "--role",
        "worker",
        "--port",
        "0",
        "--print-url",
        "--engine",
        *engine,
    )
    pipe = subprocess.PIPE
    # A worker that prints its address ends with its standard input.
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdin=pipe, stdout=pipe, stderr=pipe, text=True
    )
    try:
        assert process.stdout is not None and process.stderr is not None
        if message:
            _, error = process.communicate(timeout=30)
            assert (process.returncode, message in error) == (2, True), error
            return
        settings = {"url": process.stdout.readline().strip(), "secret_env": told_secret()}
        hosted = WorkerStt(WorkerSttSettings.model_validate({**settings, "open_timeout_s": OPENED_WITHIN_S}))
        stream = hosted.open_stream()
        stream.start()
        stream.feed(silence(100))
        assert stream.finish().text == "hello"
        stream.close()
    finally:
        process.kill()
        process.communicate(timeout=10)
