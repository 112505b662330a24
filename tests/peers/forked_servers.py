"""Servers that are forked from a process which has imported the product.

A server is started hundreds of times in the tests, and importing its modules takes two fifths of the
processor time of a start. The process from which servers are forked imports them once; it runs nothing else,
so that a forked server begins as ``python bot.py`` does after its imports. Tests of the start itself run the
command.
"""

import asyncio
import multiprocessing
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path

# Modules of a server of the embedded deployment that accepts calls; many are imported by these.
IMPORTED = [
    "uvloop",
    # FastAPI imports it with the first route.
    "pydantic.v1",
    "parley.command.bot_line",
    "parley.command.server",
    "parley.command.gateway",
    "parley.pipelines.dispatch",
    "parley.pipelines.engines.engines",
    "parley.pipelines.human_tier",
    "parley.pipelines.openai_audio",
    "parley.pipelines.phone.relay",
    "parley.pipelines.sessions",
    "parley.pipelines.sockets.client_tools",
    "parley.serving.gateway.app",
    "parley.serving.gateway.http.server",
    "parley.telemetry.stall_log",
    "parley.transports.webrtc.signaling",
    "parley.models.echo.webrtc",
    "parley.models.keyword_spotting.pocketsphinx",
    "parley.models.specialists.prosody",
    "parley.models.stt.moonshine_tiny",
    "parley.models.tts.espeak",
    "parley.models.tts.flite",
    "parley.models.tts.hibari",
    "parley.language.english",
    "hibari.dsp",
    "hibari.g2p.oov",
    "safetensors.numpy",
    "tokenizers",
]

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(IMPORTED)


class ForkedServer:
    """A running command line of ``bot.py``; its standard output is dropped.

    Attributes:
        pid: of its process.
    """

    def __init__(
        self, arguments: Sequence[str], folder: Path, variables: Mapping[str, str], log: Path | None
    ) -> None:
        self._process = _context.Process(
            target=_serve, args=(list(arguments), str(folder), dict(variables), log and str(log))
        )
        self._process.start()
        assert self._process.pid is not None
        self.pid = self._process.pid

    @property
    def returncode(self) -> int | None:
        """Exit status; negative after a signal; None while it runs."""
        return self._process.exitcode

    def terminate(self) -> None:
        self._process.terminate()

    def kill(self) -> None:
        self._process.kill()

    def join(self, within_s: float) -> int | None:
        """Wait for its end, blocking; return the exit status, None when it still runs."""
        self._process.join(within_s)
        return self._process.exitcode

    async def wait(self) -> int | None:
        """Wait until the process has ended; return its exit status."""
        loop, ended = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._process.sentinel, ended.set)
        try:
            await ended.wait()
        finally:
            loop.remove_reader(self._process.sentinel)
        self._process.join()
        return self._process.exitcode


def _serve(arguments: list[str], folder: str, variables: dict[str, str], log: str | None) -> None:
    for stream, path in ((1, os.devnull), (2, log)):
        if path is not None:
            file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
            os.dup2(file, stream)
            os.close(file)
    os.chdir(folder)
    os.environ.clear()
    os.environ.update(variables)
    sys.argv = ["bot.py", *arguments]
    from parley.command.bot_line import main
    from parley.runtime.process_exit import exit_process

    exit_process(main())
