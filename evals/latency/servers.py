"""Start of the systems under comparison, each in a process of its own (``evals.serving_process``)."""

import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from parley.evals.serving_process import Server, free_port, started


def command(system: str, config: Path, port: int) -> list[str]:
    """Return the command line of a system: ``parley`` or ``stock``."""
    program = ["bot.py"] if system == "parley" else ["-m", "parley.evals.latency.stock"]
    return [sys.executable, *program, "--config", str(config), "--port", str(port)]


def running(system: str, config: Path, log: Path) -> AbstractAsyncContextManager[Server]:
    """Run a system on a free port until the end of the context. Its log begins anew.

    Entering raises PeerError, with the last line of output, when it ended or did not get healthy in time.
    """
    log.unlink(missing_ok=True)
    port = free_port()
    # Sessions of a measurement are stored apart from the sessions of real users.
    store = {"PARLEY_STORE_URL": f"sqlite:///{log.parent.resolve()}/sessions.db"}
    return started(command(system, config, port), port, log, environment=store)
