"""A Parley worker around an engine of a test: in a thread, or in a process that can be killed.

``python -m tests.fakes.worker PORT SECRET SCRIPT`` is the latter; SCRIPT is JSON for ``OmniScript``, with
``hangs_in_native_code_at``: a unit whose call cannot be stopped.
"""

import asyncio
import json
import os
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import Any

from parley.models.omni import OmniHost, UnitResult
from parley.models.omni.hosted.engine import HostedOmniSettings, WorkerOmniHost
from parley.models.stt import SpeechToText
from parley.models.stt.hosted.engine import WorkerStt, WorkerSttSettings
from parley.models.tts import TextToSpeech
from parley.models.tts.hosted.engine import WorkerTts, WorkerTtsSettings
from parley.serving.worker.hosting import HostedOmni, Load
from parley.serving.worker.server import WorkerServer
from parley.serving.worker.settings import WorkerServerSettings
from parley.serving.worker.streams import HostedRecogniser, HostedVoice
from parley.telemetry.worker_traces import WorkerTraces
from tests.fakes.omni import OmniScript, ScriptedOmni, ScriptedOmniHost

SECRET = "a secret of the tests, long enough"
SECRET_ENV = "PARLEY_TEST_WORKER_SECRET"
STARTED_WITHIN_S = 10
# Worker and host share one interpreter here, and a model that is being loaded can block it for a second.
OPENED_WITHIN_S = 10


def shared_secret() -> str:
    """Set the environment variable that holds the secret, and return its name."""
    os.environ[SECRET_ENV] = SECRET
    return SECRET_ENV


@dataclass
class Served:
    """A worker that runs in a thread."""

    server: WorkerServer
    loop: asyncio.AbstractEventLoop

    @property
    def url(self) -> str:
        """The URL of the worker."""
        return f"ws://127.0.0.1:{self.server.port}"

    def settings(self, **more: Any) -> HostedOmniSettings:
        """Return settings of a host that connects to it."""
        given = {"url": self.url, "secret_env": shared_secret(), "open_timeout_s": OPENED_WITHIN_S}
        return HostedOmniSettings.model_validate(given | more)


def load_of(host: OmniHost) -> Load:
    """Return a loader that loads an existing host."""
    return lambda: HostedOmni(host, "scripted")


@contextmanager
def worker(host: OmniHost | Load, *, tracing: WorkerTraces | None = None, **limits: Any) -> Iterator[Served]:
    """Run a worker in a thread of its own until the block ends."""
    load = host if callable(host) else load_of(host)
    settings = WorkerServerSettings.model_validate({"port": 0, **limits})
    server = WorkerServer(settings, load=load, secret=SECRET.encode(), traces=tracing)
    started, loops = threading.Event(), []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        await server.run(on_listening=lambda _port: started.set())

    thread = threading.Thread(target=lambda: asyncio.run(serve()), name="worker", daemon=True)
    thread.start()
    assert started.wait(STARTED_WITHIN_S)
    try:
        yield Served(server, loops[0])
    finally:
        # A worker that has ended by itself has closed its loop.
        with suppress(RuntimeError):
            loops[0].call_soon_threadsafe(server.end)
        thread.join(STARTED_WITHIN_S)
        assert not thread.is_alive()


class HostedHost(WorkerOmniHost):
    """Omni host that is connected to a worker in a thread."""

    def __init__(self, host: OmniHost) -> None:
        self._worker = worker(host)
        served = self._worker.__enter__()
        super().__init__(served.settings())

    def close(self) -> None:
        self._worker.__exit__(None, None, None)


class HostedStt(WorkerStt):
    """Recogniser that is connected to a worker in a thread."""

    def __init__(self, engine: SpeechToText, *, streams: int = 64) -> None:
        self._worker = worker(lambda: HostedRecogniser(engine, "scripted", streams=streams))
        self.served = self._worker.__enter__()
        super().__init__(
            WorkerSttSettings(url=self.served.url, secret_env=shared_secret(), open_timeout_s=OPENED_WITHIN_S)
        )

    def close(self) -> None:
        self._worker.__exit__(None, None, None)


class HostedTts(WorkerTts):
    """Voice that is connected to a worker in a thread."""

    def __init__(self, engine: TextToSpeech, *, streams: int = 64) -> None:
        self._worker = worker(lambda: HostedVoice(engine, "scripted", streams=streams))
        self.served = self._worker.__enter__()
        super().__init__(
            WorkerTtsSettings(url=self.served.url, secret_env=shared_secret(), open_timeout_s=OPENED_WITHIN_S)
        )

    def close(self) -> None:
        super().close()
        self._worker.__exit__(None, None, None)


class _Native(ScriptedOmni):
    """Engine whose call does not return and cannot be stopped."""

    hangs_at = -1

    def generate(self, *, force_listen: bool = False) -> UnitResult:
        if self.units == self.hangs_at:
            time.sleep(3_600)
        return super().generate(force_listen=force_listen)


def main() -> int:
    """Run a worker in this process."""
    port, secret = int(sys.argv[1]), sys.argv[2]
    script, limits = json.loads(sys.argv[3]), json.loads(sys.argv[4])
    native_at = script.pop("hangs_in_native_code_at", None)
    host = ScriptedOmniHost(OmniScript(**script))

    class Host(ScriptedOmniHost):
        def open_engine(self) -> ScriptedOmni:
            engine = _Native(host.script)
            engine.hangs_at = -1 if native_at is None else native_at
            return engine

    settings = WorkerServerSettings.model_validate({"port": port, **limits})
    server = WorkerServer(settings, load=load_of(Host()), secret=secret.encode())
    status = asyncio.run(server.run(on_listening=lambda port: print(port, flush=True)))
    os._exit(status)


if __name__ == "__main__":
    main()
