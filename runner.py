"""Command line for one process of a deployment: the gateway for callers, or a worker that hosts an engine.

``python runner.py --role gateway --config NAME`` serves every surface (pages, calls, sockets, operators) and
starts the workers that the deployment names; ``all`` does the same, for a deployment on one machine.

``python runner.py --role worker --engine moshi --port 22400`` loads the engine and reports that it is ready.
It then serves one conversation at a time, or as many streams as the engine takes (recognisers, voices,
language models), by the worker link (docs/how-to/workers.md). It runs in any Python environment that has the
engine's packages: this module imports neither Pipecat nor a web framework for it. SIGTERM and Ctrl-C drain
it; a second signal ends it at once.
"""

import argparse
import asyncio
import logging
import os
import signal
import sys
import threading
from collections.abc import Mapping
from functools import partial
from typing import Any

# Set before numpy is loaded, as in ``bot.py``: the gateway forks too, and idle threads of OpenBLAS spin for
# some 40 ms after each product.
os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")

from loguru import logger

from parley.configs.engines import checked_settings
from parley.configs.load import parse_settings
from parley.core.errors import ConfigError
from parley.core.registry import Registry, is_target
from parley.core.yaml_text import parse_yaml_value
from parley.models.llm.kv import CAUSAL
from parley.models.omni import OMNI
from parley.models.stt import STT
from parley.models.tts import TTS
from parley.protocols.worker_tokens import LEAST_SECRET_BYTES
from parley.runtime.process_exit import exit_process
from parley.runtime.worker_secret import secret_in
from parley.serving.worker.hosting import Hosted, HostedOmni, Load
from parley.serving.worker.server import WorkerServer
from parley.serving.worker.settings import WorkerServerSettings
from parley.serving.worker.streams import HOSTING

EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
KINDS: Mapping[str, Registry[Any]] = {"omni": OMNI, "stt": STT, "tts": TTS, "llm": CAUSAL}
# The two-tier engine has its large tier in the bot's process, and a worker does not host another worker.
_NOT_HOSTED = ("two_tier", "worker")
HOSTED: Mapping[str, tuple[str, ...]] = {
    kind: tuple(name for name in registry.names() if name not in _NOT_HOSTED)
    for kind, registry in KINDS.items()
}
KNOWN = tuple(sorted({name for names in HOSTED.values() for name in names}))


def build_parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    parser = argparse.ArgumentParser(
        prog="runner.py",
        description="Run one process of a deployment.",
        epilog="Exit status: 0 after a requested stop, 2 when the command or a setting is wrong, 3 when "
        "the engine does not load, 4 when a call of the engine does not return, 5 when the "
        "worker can open no conversation, 130 when interrupted twice.",
    )
    parser.add_argument(
        "--role",
        choices=("all", "gateway", "worker"),
        required=True,
        help="gateway: serve callers and start the deployment's workers; all: the same, on one machine; "
        "worker: host an engine for other processes",
    )
    parser.add_argument("--config", help="gateway: a YAML file or a deployment's name (default: embedded)")
    parser.add_argument(
        "--mode", choices=("cascade", "duplex"), help="gateway: mode for callers who request none"
    )
    parser.add_argument("-v", "--verbose", action="count", default=0, help="gateway: log more")
    parser.add_argument("--engine", help=f"engine to host, one of: {', '.join(KNOWN)}")
    parser.add_argument(
        "--kind",
        choices=tuple(KINDS),
        help="kind of the engine, where several kinds have an engine of that name",
    )
    parser.add_argument(
        "--set",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="setting of the engine, with a YAML value; may be repeated",
    )
    parser.add_argument("--name", default="worker", help="name of the worker, as in its tokens")
    parser.add_argument("--host", help="address to listen on (default: 127.0.0.1, or the deployment's)")
    parser.add_argument("--port", type=int, help="port to listen on (default: 22400, or the deployment's)")
    parser.add_argument(
        "--limit",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="deadline or bound of the worker, such as lease_ms=6000; may be repeated",
    )
    parser.add_argument(
        "--print-url",
        action="store_true",
        help="print the worker's address to standard output, for the process that started it",
    )
    return parser


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    given = build_parser().parse_args(arguments)
    try:
        _check_flags(given)
    except ConfigError as error:
        print(f"runner.py: {error}", file=sys.stderr)
        return EXIT_USAGE
    if given.role != "worker":
        return _serve_callers(given)
    host, port = given.host or "127.0.0.1", 22_400 if given.port is None else given.port
    # Failed handshakes of foreign clients are not worth a log line.
    logging.getLogger("websockets").setLevel(logging.CRITICAL)
    try:
        limits = {"name": given.name, "host": host, "port": port, **_pairs(given.limit)}
        settings = parse_settings(WorkerServerSettings, limits, where="--limit")
        secret = _secret(settings)
        kind = _kind(given.engine, given.kind)
        load = _load(kind, given.engine, _pairs(given.set), settings)
        server = WorkerServer(settings, load=load, secret=secret, kind=kind)
        status = asyncio.run(_run(server, prints_url=given.print_url))
    except ConfigError as error:
        print(f"runner.py: {error}", file=sys.stderr)
        return EXIT_USAGE
    except OSError as error:
        print(f"runner.py: it cannot listen on {host}:{port}: {error.strerror}", file=sys.stderr)
        return EXIT_USAGE
    return status


def _check_flags(given: argparse.Namespace) -> None:
    """Refuse flags that would be ignored.

    Raises:
        ConfigError: flags do not belong together, or one is missing.
    """
    of_worker = {"--engine": given.engine, "--set": given.set, "--limit": given.limit}
    of_worker["--print-url"] = given.print_url
    of_gateway = {"--config": given.config, "--mode": given.mode, "-v": given.verbose}
    others = of_gateway if given.role == "worker" else of_worker
    wrong = [name for name, value in others.items() if value]
    if wrong:
        raise ConfigError(f"{' and '.join(wrong)} cannot be used with --role {given.role}")
    if given.role == "worker" and not given.engine:
        raise ConfigError("--role worker needs --engine", known=KNOWN)


def _serve_callers(given: argparse.Namespace) -> int:
    """Run the gateway as ``bot.py`` does, with all that the deployment names. A worker never imports it."""
    from bot import main as serve

    flags = {"--config": given.config, "--mode": given.mode, "--host": given.host, "--port": given.port}
    arguments = [part for name, value in flags.items() if value is not None for part in (name, str(value))]
    return serve([*arguments, *["-v"] * given.verbose])


async def _run(server: WorkerServer, *, prints_url: bool) -> int:
    loop = asyncio.get_running_loop()
    told = 0

    def on_signal() -> None:
        nonlocal told
        told += 1
        if told > 1:
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
        raise ConfigError(f"--engine: {name!r} is nothing that a worker hosts", known=known)
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


def _pairs(given: list[str]) -> dict[str, Any]:
    pairs: dict[str, Any] = {}
    for each in given:
        name, equals, value = each.partition("=")
        if not equals or not name:
            raise ConfigError(f"{each!r}: expected NAME=VALUE")
        pairs[name] = parse_yaml_value(value, where=f"the value of {each!r}")
    return pairs


def _secret(settings: WorkerServerSettings) -> bytes:
    secret = secret_in(settings.secret_env)
    if not secret:
        raise ConfigError(
            f"a worker needs a secret of at least {LEAST_SECRET_BYTES} characters in the environment "
            f"variable {settings.secret_env}; every process that has the secret may use the worker"
        )
    return secret


if __name__ == "__main__":
    exit_process(main())
