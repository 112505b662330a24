"""The systems under comparison: how each is started, as a process of its own (``evals.serving_process``)."""

import sys
from contextlib import AbstractAsyncContextManager
from pathlib import Path

from evals.serving_process import Server, free_port, started


def command(system: str, config: Path, port: int) -> list[str]:
    """The command line of a system: ``parley`` or ``stock``."""
    program = ["bot.py"] if system == "parley" else ["-m", "evals.latency.stock"]
    return [sys.executable, *program, "--config", str(config), "--port", str(port)]


def running(system: str, config: Path, log: Path) -> AbstractAsyncContextManager[Server]:
    """A system on a free port; stopped at the end. Its log begins anew.

    Entering raises PeerError when it ended or did not get healthy in time, with its last line of output.
    """
    log.unlink(missing_ok=True)
    port = free_port()
    # What is said in a measurement does not belong among people's conversations.
    store = {"PARLEY_STORE_URL": f"sqlite:///{log.parent.resolve()}/sessions.db"}
    return started(command(system, config, port), port, log, environment=store)
