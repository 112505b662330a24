"""Worker process: hosts one engine for other processes by the worker link (docs/how-to/workers.md).

It loads the engine and reports that it is ready. It then serves one conversation at a time, or as many
streams as the engine takes (recognisers, voices, language models). It runs in any Python environment that has
the engine's packages: this module imports neither Pipecat nor a web framework. SIGTERM and Ctrl-C drain it; a
second signal ends it at once.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

from loguru import logger

from parley.command.exit_status import EXIT_USAGE
from parley.command.log import configure_log
from parley.command.worker_options import HOSTED, KINDS, KNOWN
from parley.configs.engines import checked_settings
from parley.configs.load import parse_settings
from parley.core.errors import ConfigError
from parley.core.registry import is_target
from parley.core.yaml_text import named_values
from parley.protocols.worker_tokens import LEAST_SECRET_BYTES
from parley.runtime.event_loop import run_asyncio
from parley.runtime.interrupts import EXIT_INTERRUPTED
from parley.runtime.worker_secret import secret_in
from parley.serving.worker.hosting import Hosted, HostedOmni, Load
from parley.serving.worker.server import WorkerServer
from parley.serving.worker.settings import WorkerServerSettings
from parley.serving.worker.streams import HOSTING
from parley.telemetry.trace_export import TraceExport
from parley.telemetry.worker_traces import WorkerTraces

MEANING = (
    "Exit status: 0 after a requested stop, 2 when the command or a setting is wrong, 3 when "
    "the engine does not load, 4 when a call of the engine does not return, 5 when the "
    "worker can open no conversation, 130 when interrupted twice."
)


def serve_engine(given: argparse.Namespace, *, program: str) -> int:
    """Host the engine until a signal or the end of the process that started this one.

    Args:
        given: the options of ``worker_options``.
        program: name of the command, which begins the line of an error.

    Returns:
        The exit status (``MEANING``).
    """
    host, port = given.host or "127.0.0.1", 22_400 if given.port is None else given.port
    # Failed handshakes of foreign clients are not worth a log line.
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    # INFO: the address at which it listens, conversations, failures. Values of variables stay out of it.
    configure_log(1)
    try:
        limits = {"name": given.name, "host": host, "port": port, **named_values(given.limit)}
        settings = parse_settings(WorkerServerSettings, limits, where="--limit")
        secret = _secret(settings)
        kind = _kind(given.engine, given.kind)
        load = _load(kind, given.engine, named_values(given.set), settings)
        with _traces(settings, given.engine) as traces:
            server = WorkerServer(settings, load=load, secret=secret, kind=kind, traces=traces)
            status = run_asyncio(_run(server, prints_url=given.print_url))
    except ConfigError as error:
        print(f"{program}: {error}", file=sys.stderr)
        return EXIT_USAGE
    except OSError as error:
        print(f"{program}: it cannot listen on {host}:{port}: {error.strerror}", file=sys.stderr)
        return EXIT_USAGE
    return status


@contextmanager
def _traces(settings: WorkerServerSettings, engine: str) -> Iterator[WorkerTraces | None]:
    """Yield the spans of the process, which are sent until the end of the block; None without traces.

    Raises:
        ConfigError: the packages of traces are missing, or the variable with their headers.
    """
    if settings.traces is None:
        yield None
        return
    export = TraceExport(settings.traces)
    try:
        yield WorkerTraces(export.tracer, worker=settings.name, engine=engine)
    finally:
        export.close()


async def _run(server: WorkerServer, *, prints_url: bool) -> int:
    loop = asyncio.get_running_loop()
    signals = 0

    def on_signal() -> None:
        nonlocal signals
        signals += 1
        if signals > 1:
            os._exit(EXIT_INTERRUPTED)
        server.drain()

    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, on_signal)
    settings = server.settings

    def until_alone() -> None:
        while os.read(0, 4_096):
            pass
        loop.call_soon_threadsafe(server.end)

    def on_listening(port: int) -> None:
        url = f"ws://{settings.host}:{port}"
        logger.info(f"{settings.name}: listening on {url}")
        if prints_url:
            print(url, flush=True)
            # The parent process holds the other end. When the parent is gone, nothing else would end this
            # process.
            threading.Thread(target=until_alone, name="parent", daemon=True).start()

    return await server.run(on_listening=on_listening)


def _kind(name: str, given: str | None) -> str:
    if is_target(name):
        if given is None:
            raise ConfigError(f"--engine: {name!r} needs --kind", known=tuple(KINDS))
        return given
    kinds = [kind for kind, names in HOSTED.items() if name in names and given in (None, kind)]
    if not kinds:
        known = KNOWN if given is None else HOSTED[given]
        raise ConfigError(f"--engine: a worker cannot host {name!r}", known=known)
    if len(kinds) > 1:
        raise ConfigError(
            f"--engine: several kinds have an engine {name!r}: choose one with --kind", known=tuple(kinds)
        )
    return kinds[0]


def _load(kind: str, name: str, settings: dict[str, Any], limits: WorkerServerSettings) -> Load:
    checked = checked_settings(KINDS[kind], name, settings, where="--engine")
    return partial(_hosted, kind, name, checked, limits.streams)


def _hosted(kind: str, name: str, settings: Any, streams: int) -> Hosted:
    engine = KINDS[kind].create(name, settings)
    return HostedOmni(engine, name) if kind == "omni" else HOSTING[kind](engine, name, streams=streams)


def _secret(settings: WorkerServerSettings) -> bytes:
    secret = secret_in(settings.secret_env)
    if not secret:
        raise ConfigError(
            f"a worker needs a secret of at least {LEAST_SECRET_BYTES} characters in the environment "
            f"variable {settings.secret_env}; every process that has the secret may use the worker"
        )
    return secret
