"""Server whose phone calls outlive the process that holds their conversations (ADR 0023).

This process has the listening socket and the streams; ``command.conversation_process`` is its child. The
first signal stops the child in order, a second one at once.
"""

import asyncio
import os
import signal
import socket
import sys
from typing import TYPE_CHECKING, Any

from parley.core.tuning import tuned
from parley.runtime import event_loop
from parley.runtime.conversation_settings import ConversationProcessTuning
from parley.runtime.engine_hosting.supervisor import child_environment
from parley.transports.keeping.media_process import MediaProcess

if TYPE_CHECKING:
    from parley.configs.deployment import Deployment

CHILD = (sys.executable, "-P", "-m", "parley.command.conversation_process")
SIGNALS = (signal.SIGINT, signal.SIGTERM)
# Time in addition to that of the calls: the records of their ends, and the engines.
END_S = 15.0


def keep_streams(deployment: "Deployment", listener: socket.socket, *, mode: str, verbosity: int) -> int:
    """Serve until a signal, after which this process ends by that signal; return the exit status.

    Args:
        deployment: the deployment.
        listener: listening socket.
        mode: mode of callers who request none.
        verbosity: of the log.

    Raises:
        AgentError: the conversation process does not start.
    """
    received = event_loop.run(_keep(deployment, listener, {"mode": mode, "verbosity": verbosity}))
    signal.raise_signal(received)
    return 0


async def _keep(deployment: "Deployment", listener: socket.socket, facts: dict[str, Any]) -> signal.Signals:
    from parley.configs.load import STORE_URL_ENV
    from parley.configs.print_config import as_yaml
    from parley.serving.gateway.settings import ServerTuning
    from parley.transports.registry import TRANSPORTS

    server = tuned(ServerTuning, deployment.server)
    modules = {name: value for name, value in child_environment().items() if name == "PYTHONPATH"}
    # The configuration is printed without its password.
    store = {STORE_URL_ENV: deployment.remembering.store.url}
    media_process = MediaProcess(
        CHILD,
        {"config": as_yaml(deployment), **facts},
        environment=dict(os.environ) | modules | store,
        listener=listener,
        line=None if deployment.phone is None else deployment.phone.line,
        protocol_of=TRANSPORTS.create,
        settings=tuned(ConversationProcessTuning, deployment.server.conversations).model_copy(
            update={"filler": deployment.thinking.guard.waiting.filler}
        ),
        stop_s=server.drain_s + server.goodbye_s + 2 * server.hang_up_s + server.stop_requests_s + END_S,
    )
    stopping, received = asyncio.Event(), list[signal.Signals]()

    def on_signal(number: signal.Signals) -> None:
        if stopping.is_set():
            media_process.kill()
        received.append(number)
        stopping.set()

    loop = asyncio.get_running_loop()
    try:
        # Until it serves, a signal ends this process, and the child with it.
        await media_process.start()
        for number in SIGNALS:
            loop.add_signal_handler(number, on_signal, number)
        await media_process.run(stopping)
    finally:
        for number in SIGNALS:
            loop.remove_signal_handler(number)
        await media_process.close()
    return received[0]
