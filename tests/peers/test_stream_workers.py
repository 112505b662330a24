"""Workers with recognisers and voices, started by the command.

The tests cover their packages, and workers that are killed, stopped and drained.
"""

import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from parley.core.errors import EngineError
from parley.models.stt.hosted.engine import WorkerStt, WorkerSttSettings
from parley.models.tts import SpeechPiece
from parley.models.tts.fallback import FallbackTts
from parley.models.tts.flite import FliteTts
from parley.models.tts.hosted.engine import WorkerTts, WorkerTtsSettings
from tests.fakes.worker import SECRET, shared_secret
from tests.listening import understand
from tests.tiny_voices import write_kokoro
from tests.voices import say, silence
from tests.worker_process import Worker, worker_process

ROOT = Path(__file__).parents[2]
# The modules of requirements/worker.txt, which is tested below.
WORKER_MODULES = (
    "loguru", "numpy", "pydantic", "yaml", "websockets",
    "annotated_types", "pydantic_core", "typing_inspection", "typing_extensions",
)  # fmt: skip
# Modules of an environment that was made of requirements/kokoro.lock, with their requirements.
KOKORO_MODULES = (
    "kokoro_onnx", "onnxruntime", "phonemizer", "espeakng_loader", "joblib", "dlinfo", "cloudpickle",
    "flatbuffers", "attr", "attrs", "google", "packaging",
)  # fmt: skip
QUESTION = silence(200) + say("what is your pin") + silence(200)
CLAUSE = "The monthly fee is five dollars."
# The deadline of a request of these tests; a worker that has just started may take longer to answer at all.
WITHIN_S = 1.5
PATIENCE = {"open_timeout_s": 10, "request_timeout_s": WITHIN_S}


@contextmanager
def started(
    *arguments: str, modules: tuple[str, ...] = (), python: str = sys.executable, port: str = "0"
) -> Iterator[Worker]:
    """Start a worker by its command, in an environment with only these modules and the worker's own."""
    sparse = ["-m", "tests.fakes.sparse_environment", ",".join((*WORKER_MODULES, *modules))]
    command = [python, *sparse, "runner.py", "--role", "worker", "--port", port, "--print-url", *arguments]
    with worker_process(command, {**os.environ, "PARLEY_WORKER_SECRET": SECRET}) as worker:
        yield worker


def ears(url: str) -> WorkerStt:
    return WorkerStt(WorkerSttSettings(url=url, secret_env=shared_secret(), **PATIENCE))


def mouth(url: str) -> WorkerTts:
    return WorkerTts(WorkerTtsSettings(url=url, secret_env=shared_secret(), **PATIENCE))


def listener(pieces: list[bytes]):
    def sink(piece: SpeechPiece) -> bool:
        pieces.append(piece.pcm)
        return True

    return sink


@pytest.mark.paired
def test_flite_is_hosted_in_an_environment_with_the_workers_packages_alone() -> None:
    with started("--engine", "flite") as (process, url):
        hosted, pieces = mouth(url), list[bytes]()
        assert hosted.rate_hz == 16_000
        assert hosted.synthesize(CLAUSE, listener(pieces))
        assert len(b"".join(pieces)) > 16_000
        hosted.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


@pytest.mark.paired
def test_pocketsphinx_is_hosted_with_its_package_alone() -> None:
    arguments = ("--set", "common_words=500", "--set", "cache_dir=out/test-cache", "--limit", "streams=2")
    with started("--engine", "pocketsphinx", *arguments, modules=("pocketsphinx",)) as (process, url):
        stream = ears(url).open_stream()
        heard = understand(stream, QUESTION)
        assert heard.final and heard.text and heard.words
        stream.close()
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


@pytest.mark.paired
def test_kokoro_is_hosted_with_its_packages_which_no_one_else_needs(tmp_path: Path) -> None:
    write_kokoro(tmp_path)
    arguments = ("--engine", "kokoro", "--set", f"models_dir={tmp_path}")
    with started(*arguments, modules=KOKORO_MODULES) as (process, url):
        # The other side needs none of them: it speaks in an environment with only the worker's own few.
        program = (
            "import os, sys\n"
            "from parley.models.tts.hosted.engine import WorkerTts, WorkerTtsSettings\n"
            "pieces = []\n"
            f"voice = WorkerTts(WorkerTtsSettings(url={url!r}))\n"
            f"spoken = voice.synthesize({CLAUSE!r}, lambda piece: pieces.append(piece) or True)\n"
            "print(spoken, voice.rate_hz, sum(len(piece.pcm) for piece in pieces) > 20_000)\n"
            "print(' '.join(word.text for piece in pieces for word in piece.words))\n"
            "print(sorted({'kokoro_onnx', 'phonemizer', 'onnxruntime'} & set(sys.modules)))\n"
        )
        script = tmp_path / "caller.py"
        script.write_text(program)
        sparse = [
            sys.executable,
            "-m",
            "tests.fakes.sparse_environment",
            ",".join(WORKER_MODULES),
            str(script),
        ]
        said = subprocess.run(
            sparse,
            cwd=ROOT,
            env={**os.environ, "PARLEY_WORKER_SECRET": SECRET},
            capture_output=True,
            text=True,
            timeout=60,
        )
        assert said.stdout.splitlines() == ["True 24000 True", CLAUSE, "[]"], said.stderr
        process.send_signal(signal.SIGTERM)
        assert process.wait(10) == 0


def test_what_a_worker_needs_is_what_its_requirements_say() -> None:
    lines = (ROOT / "requirements" / "worker.txt").read_text().splitlines()
    named = {line.partition("==")[0].lower().replace("-", "_") for line in lines if "==" in line}
    assert {"yaml" if name == "pyyaml" else name for name in named} == set(WORKER_MODULES)
    # The versions are those of the bot: both ends of the link are the same code.
    bot = (ROOT / "requirements" / "run.lock").read_text().lower().replace("_", "-").splitlines()
    assert all(line.lower().replace("_", "-") in bot for line in lines if "==" in line)


@pytest.mark.parametrize("package", ["kokoro-onnx", "phonemizer", "nemo-toolkit", "torch"])
def test_the_bots_environment_has_no_package_of_an_engine_in_a_worker(package: str) -> None:
    lines = (ROOT / "requirements" / "run.lock").read_text().splitlines()
    assert package not in {line.partition("==")[0] for line in lines}


# Workers that are killed, stopped, started again


@pytest.mark.paired
def test_a_voice_that_is_killed_is_replaced_by_the_one_after_it_and_comes_back() -> None:
    with started("--engine", "flite") as (process, url):
        hosted = mouth(url)
        both = FallbackTts(hosted, FliteTts())
        assert both.synthesize(CLAUSE, listener([]))
        process.send_signal(signal.SIGKILL)
        process.wait(5)
        pieces = list[bytes]()
        assert both.synthesize(CLAUSE, listener(pieces))
        assert len(b"".join(pieces)) > 16_000
        with pytest.raises(EngineError) as refused:
            hosted.synthesize(CLAUSE, listener([]))
        # The end of the process is noticed, not the deadline.
        assert "in time" not in str(refused.value)
    port = url.rpartition(":")[2]
    with started("--engine", "flite", port=port):
        deadline_s = time.monotonic() + 10
        while True:
            try:
                assert hosted.synthesize(CLAUSE, listener([]))
                break
            except EngineError:
                # The worker is left alone for as long as ``rest_ms`` has grown to.
                assert time.monotonic() < deadline_s
                time.sleep(0.05)
        hosted.close()


@pytest.mark.paired
def test_a_voice_that_is_stopped_in_a_clause_is_given_up_at_the_deadline_and_then_at_once() -> None:
    with started("--engine", "flite") as (process, url):
        hosted = mouth(url)
        both = FallbackTts(hosted, FliteTts())
        assert both.synthesize(CLAUSE, listener([]))
        process.send_signal(signal.SIGSTOP)
        pieces = list[bytes]()
        assert both.synthesize(CLAUSE, listener(pieces)) and pieces
        # The next clauses do not wait for the worker.
        with pytest.raises(EngineError) as refused:
            hosted.synthesize(CLAUSE, listener([]))
        assert "in time" not in str(refused.value)
        assert both.synthesize(CLAUSE, listener([]))
        process.send_signal(signal.SIGCONT)


@pytest.mark.paired
def test_a_recogniser_that_is_killed_or_stopped_is_known_within_its_deadline() -> None:
    arguments = ("--engine", "pocketsphinx", "--set", "common_words=500", "--set", "cache_dir=out/test-cache")
    for sent, reason in ((signal.SIGKILL, "is lost"), (signal.SIGSTOP, "in time")):
        with started(*arguments, modules=("pocketsphinx",)) as (process, url):
            stream = ears(url).open_stream()
            stream.start()
            stream.feed(silence(20))
            process.send_signal(sent)
            with pytest.raises(EngineError, match=reason):
                while True:
                    stream.feed(silence(20))
            process.send_signal(signal.SIGCONT)
            stream.close()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--engine", "flite", "--kind", "stt"), "a worker cannot host 'flite' (known: moonshine"),
        (("--engine", "worker"), "a worker cannot host 'worker'"),
        (("--engine", "flite", "--set", "voice=nobody"), "voice: "),
        (("--engine", "flite", "--limit", "streams=0"), "streams: Input should be greater"),
    ],
)
def test_a_command_that_is_wrong_gets_one_line(arguments: tuple[str, ...], message: str) -> None:
    done = subprocess.run(
        [sys.executable, "runner.py", "--role", "worker", *arguments],
        cwd=ROOT,
        env={**os.environ, "PARLEY_WORKER_SECRET": SECRET},
        capture_output=True,
        text=True,
        timeout=30,
    )
    assert done.returncode == 2
    assert message in done.stderr and done.stderr.count("\n") == 1
