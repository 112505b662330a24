"""Process that holds the conversations of a server, and all that is served but the streams of phone calls.

Started by ``command.media_process`` with the numbers of three descriptors: the listening socket, the socket
over which connections are handed over, and that of the messages. It is the server of ``command.server``
otherwise. Signals of a process group are handled by its parent, which asks it to stop. When the parent dies,
so does this process.
"""

import asyncio
import signal
import socket
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from parley.command.log import configure_log
from parley.core.errors import AgentError, EngineError
from parley.core.media import pcm16_to_float
from parley.protocols.kept_streams import APOLOGY, FILLER
from parley.protocols.twilio_media import RATE_HZ
from parley.runtime import event_loop
from parley.runtime.heap import bound_heap, without_collection
from parley.runtime.parent_death import die_with_the_parent
from parley.runtime.process_exit import exit_process
from parley.transports.keeping.media_link import MediaLink

if TYPE_CHECKING:
    from parley.configs.deployment import Deployment
    from parley.pipelines.engines.engines import Engines
    from parley.serving.gateway.http.server import GatewayServer


def main(arguments: list[str]) -> int:
    """Serve until the media process asks to stop; return the exit status."""
    die_with_the_parent()
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    listener, door, link = (inherited_socket(int(each)) for each in arguments)
    bound_heap()
    return event_loop.run(_serve(listener, MediaLink(link, door)))


def inherited_socket(descriptor: int) -> socket.socket:
    """Return a socket that this process has inherited, and its own children do not.

    uvloop closes no inheritable descriptor in a child. One that outlived this process would hide its end from
    the media process.
    """
    connection = socket.socket(fileno=descriptor)
    connection.set_inheritable(False)
    return connection


async def _serve(listener: socket.socket, link: MediaLink) -> int:
    facts = await link.load()
    reading = asyncio.create_task(link.run(), name="conversations.link")
    try:
        await _serve_calls(listener, link, facts)
    except AgentError as error:
        link.fail(error)
        await link.flush()
        return 1
    except Exception as error:
        # The boundary of the process: its parent is notified of any error.
        link.fail(EngineError(f"{type(error).__name__}: {error}", engine="conversations", retryable=False))
        await link.flush()
        raise
    finally:
        reading.cancel()
        await asyncio.gather(reading, return_exceptions=True)
    return 0


async def _serve_calls(listener: socket.socket, link: MediaLink, facts: Mapping[str, Any]) -> None:
    from parley.command.server import run_server
    from parley.serving.gateway.auth.admin_token import operator_token

    configure_log(int(facts["verbosity"]))
    deployment = await asyncio.to_thread(_read, str(facts["config"]))
    if deployment.telemetry.log_format == "json":
        configure_log(int(facts["verbosity"]), as_json=True)
    beginning = list[asyncio.Task[None]]()

    def on_ready(engines: "Engines", server: "GatewayServer") -> None:
        work = _take_calls(link, deployment, engines, server)
        beginning.append(asyncio.create_task(work, name="conversations.begin"))

    token = operator_token(deployment.operations.data_dir)
    try:
        await run_server(deployment, listener, str(facts["mode"]), token, media_link=link, on_ready=on_ready)
    finally:
        for task in beginning:
            task.cancel()
        await asyncio.gather(*beginning, return_exceptions=True)
        await link.close()


async def _take_calls(
    link: MediaLink, deployment: "Deployment", engines: "Engines", server: "GatewayServer"
) -> None:
    """Report that this process takes calls, when it does; then prepare the clauses of a gap."""
    phone = deployment.phone
    assert phone is not None
    await server.is_serving.wait()
    link.serve(line=phone.line, on_stop=server.stop)
    link.prepare(await asyncio.to_thread(_clauses, engines))


def _read(config: str) -> "Deployment":
    """Return the deployment of a configuration.

    Raises:
        ConfigError: it is wrong.
    """
    from parley.configs.load import load_deployment

    with without_collection(), tempfile.TemporaryDirectory(prefix="parley-conversations-") as folder:
        path = Path(folder) / "config.yaml"
        path.touch(mode=0o600)
        path.write_text(config)
        return load_deployment(path)


def _clauses(engines: "Engines") -> dict[str, bytes]:
    """Return the clauses that the media process says without this one, mu-law at 8 kHz.

    A voice that is a service says none: it would be asked at the start of every process.
    """
    from parley.pipelines.engines.speech_trial import spoken_pcm

    phone, voice = engines.deployment.phone, engines.voice
    if phone is None or phone.reconnect is None or voice is None:
        return {}
    said = {FILLER: engines.deployment.thinking.guard.waiting.filler, APOLOGY: phone.reconnect.apology}
    return {
        name: _at_level(spoken_pcm(voice, text, RATE_HZ), phone.line.level_dbm0)
        for name, text in said.items()
        if text
    }


def _at_level(pcm: bytes, level_dbm0: float | None) -> bytes:
    """Return speech as mu-law, as loud as the bot is on the line."""
    from parley.audio import g711
    from parley.audio.speech_level import SpeechLevel, active_level_dbm0

    if level_dbm0 is not None:
        known = active_level_dbm0(pcm16_to_float(pcm), RATE_HZ)
        pcm = SpeechLevel(level_dbm0, rate_hz=RATE_HZ, expected_dbm0=known).apply(pcm)
    return g711.encode(np.frombuffer(pcm, "<i2").astype(np.int16), g711.Law.MU)


if __name__ == "__main__":
    exit_process(main(sys.argv[1:]))
