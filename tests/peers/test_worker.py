"""Worker processes that are killed, stopped or hang, and that the command starts."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.core.errors import EngineError
from parley.models.omni import Preparation
from parley.models.omni.hosted.engine import HostedOmniSettings, WorkerOmniEngine, WorkerOmniHost
from tests.fakes.worker import SECRET, SECRET_ENV
from tests.peers.minicpm_server import minicpm_server

QUIET = np.zeros(1_280, np.float32)
ROOT = Path(__file__).parents[2]


Started = tuple[subprocess.Popen[str], HostedOmniSettings]


@contextmanager
def process(script: dict[str, Any] | None = None, **limits: Any) -> Iterator[Started]:
    """Start a worker in a process of its own, around a scripted engine."""
    arguments = ["0", SECRET, json.dumps(script or {}), json.dumps(limits)]
    started = subprocess.Popen(
        [sys.executable, "-m", "tests.fakes.worker", *arguments], cwd=ROOT, stdout=subprocess.PIPE, text=True
    )
    try:
        assert started.stdout is not None
        port = int(started.stdout.readline())
        os.environ[SECRET_ENV] = SECRET
        yield (
            started,
            HostedOmniSettings(url=f"ws://127.0.0.1:{port}", secret_env=SECRET_ENV, unit_timeout_s=2),
        )
    finally:
        started.kill()
        started.wait(10)


def unit(engine: Any) -> None:
    engine.prefill(QUIET)
    engine.generate()
    engine.finalize()


def test_a_worker_that_is_killed_is_known_at_once() -> None:
    with process({"cost_ms": 60_000}) as (worker, settings):
        engine = WorkerOmniHost(settings.model_copy(update={"unit_timeout_s": 30})).open_engine()
        engine.prepare(Preparation())
        engine.prefill(QUIET)
        assert isinstance(engine, WorkerOmniEngine) and engine._link is not None
        link, before = engine._link, engine._link.asked

        async def kill() -> None:
            async with asyncio.timeout(60):
                while link.asked == before:  # noqa: ASYNC110 (another thread asks)
                    await asyncio.sleep(0.001)
            worker.send_signal(signal.SIGKILL)

        async def asked() -> None:
            killing = asyncio.create_task(kill())
            with pytest.raises(EngineError, match="the connection to the worker is lost"):
                await asyncio.to_thread(engine.generate)
            await killing

        asyncio.run(asked())
        engine.cleanup()


def test_a_worker_that_is_stopped_is_given_up_at_the_deadline() -> None:
    with process() as (worker, settings):
        engine = WorkerOmniHost(settings).open_engine()
        engine.prepare(Preparation())
        unit(engine)
        worker.send_signal(signal.SIGSTOP)
        with pytest.raises(EngineError, match="in time"):
            unit(engine)
        engine.cleanup()
        worker.send_signal(signal.SIGCONT)


def test_a_call_that_hangs_in_native_code_ends_the_process() -> None:
    with process({"hangs_in_native_code_at": 1}, unit_ms=300, grace_ms=200) as (worker, settings):
        engine = WorkerOmniHost(settings).open_engine()
        engine.prepare(Preparation())
        unit(engine)
        engine.prefill(QUIET)
        with pytest.raises(EngineError, match="hung|lost"):
            engine.generate()
        engine.cleanup()
        assert worker.wait(5) == 4


# The command.


def command(*arguments: str, **environment: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "runner.py", *arguments],
        cwd=ROOT,
        env={**os.environ, **environment},
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )


def test_the_command_hosts_an_engine_and_drains_when_it_is_told_to() -> None:
    with minicpm_server() as server:
        started = command(
            "--role", "worker", "--engine", "minicpm_worker", "--set", f"url={server.url}", "--port", "0",
            PARLEY_WORKER_SECRET=SECRET,
        )  # fmt: skip
        try:
            assert started.stderr is not None
            line = started.stderr.readline()
            while "listening on" not in line:
                assert line, "it ended"
                line = started.stderr.readline()
            os.environ[SECRET_ENV] = SECRET
            settings = HostedOmniSettings(url=line.split()[-1], secret_env=SECRET_ENV)
            engine = WorkerOmniHost(settings).open_engine()
            assert (engine.unit_ms, engine.output_rate_hz) == (1_000, 24_000)
            engine.prepare(Preparation("Be kind."))
            engine.prefill(np.zeros(16_000, np.float32))
            engine.generate()
            engine.finalize()
            started.send_signal(signal.SIGTERM)
            engine.cleanup()
            assert started.wait(10) == 0
        finally:
            started.kill()
            started.communicate(timeout=10)


def test_a_worker_ends_when_a_caller_who_started_it_is_gone() -> None:
    started = subprocess.Popen(
        [sys.executable, "runner.py", "--role", "worker", "--engine", "minicpm_worker", "--print-url",
         "--set", "url=ws://127.0.0.1:9", "--port", "0"],
        cwd=ROOT,
        env={**os.environ, "PARLEY_WORKER_SECRET": SECRET},
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )  # fmt: skip
    assert started.stdout is not None and started.stdin is not None
    assert started.stdout.readline().startswith("ws://127.0.0.1:")
    # A killed parent leaves a closed stdin.
    started.stdin.close()
    assert started.wait(5) == 0
    started.stdout.close()


@pytest.mark.parametrize(
    ("arguments", "secret", "message"),
    [
        (
            ("--engine", "moshi"),
            "",
            "characters in the environment variable PARLEY_WORKER_SECRET",
        ),
        (("--engine", "moshi"), "short", "at least 16 characters"),
        (
            ("--engine", "ears"),
            SECRET,
            "--engine: a worker cannot host 'ears' (known: espeak, flite, hibari, kokoro,",
        ),
        (("--engine", "two_tier"), SECRET, "a worker cannot host 'two_tier'"),
        (("--engine", "minicpm_worker"), SECRET, "url: Field required"),
        (("--engine", "minicpm_worker", "--set", "url"), SECRET, "'url': expected NAME=VALUE"),
        (("--engine", "minicpm_worker", "--set", "url=["), SECRET, "the value of 'url=[' is not YAML"),
        (("--engine", "minicpm_worker", "--set", "colour=red"), SECRET, "unknown field 'colour'"),
        (("--engine", "moshi", "--limit", "lease_ms=1"), SECRET, "lease_ms: Input should be greater"),
    ],
)
def test_a_command_that_is_wrong_gets_one_line(arguments: tuple[str, ...], secret: str, message: str) -> None:
    started = command("--role", "worker", *arguments, PARLEY_WORKER_SECRET=secret)
    _, errors = started.communicate(timeout=30)
    assert started.returncode == 2
    assert message in errors and errors.count("\n") == 1 and "Traceback" not in errors
