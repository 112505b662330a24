"""A server: it loads the engines of a deployment once, before the first call, and serves until a signal."""

import socket
from typing import TYPE_CHECKING

from parley.command.banner import banner
from parley.command.gateway import gateway
from parley.command.interpreter import settle
from parley.command.listener import address_of, claim_port
from parley.core.errors import ConfigError
from parley.pipelines.modes import CASCADE
from parley.runtime import event_loop
from parley.runtime.heap import bound_heap, without_collection
from parley.runtime.stall_monitor import Stall, StallMonitor
from parley.serving.gateway.auth.admin_token import AdminToken, operator_token

if TYPE_CHECKING:
    from parley.configs.deployment import Deployment
    from parley.serving.gateway.replays.jobs import ReplayJobs


def serve(deployment: "Deployment", *, mode: str = CASCADE) -> int:
    """Serve the page until a signal ends it; ``mode`` holds for callers who request none."""
    check_server(deployment, mode)
    token = operator_token(deployment.operations.data_dir)
    # Bounded before anything large is loaded.
    bound_heap()
    listener = claim_port(deployment.server.host, deployment.server.port)
    return event_loop.run(_serve(deployment, listener, mode, token))


def check_server(deployment: "Deployment", mode: str) -> None:
    """Check the settings of a server.

    Raises:
        ConfigError: telephone calls cannot be held in this mode, or strangers would reach the server without
            its settings allowing it.
    """
    from parley.serving.gateway.auth.exposure import check_exposure

    check_phone(deployment, mode)
    public_url = None if deployment.phone is None else deployment.phone.public_url
    check_exposure(deployment.server, public_url=public_url)


def check_phone(deployment: "Deployment", mode: str) -> None:
    """Raise ConfigError when the deployment's telephone calls cannot be held in a server of this mode."""
    if deployment.phone is not None:
        try:
            deployment.phone.check_mode(mode)
        except ValueError as error:
            raise ConfigError(f"phone: {error}") from error


async def _serve(deployment: "Deployment", listener: socket.socket, mode: str, token: AdminToken) -> int:
    from parley.pipelines.engines.engines import Engines
    from parley.pipelines.sessions import open_conversations
    from parley.serving.gateway.auth.exposure import describe_exposure
    from parley.telemetry.stall_log import StallLog

    with without_collection():
        loaded = await Engines.load(deployment, duplex=True)
    log, metrics = StallLog(), loaded.metrics

    def on_stall(stall: Stall) -> None:
        log(stall)
        metrics.stalled(stall)

    stalls = StallMonitor(on_stall)
    async with (
        loaded as engines,
        open_conversations(deployment, engines.answering) as conversations,
        gateway(
            engines, conversations, mode=mode, token=token, stalls=stalls, replays=_replays(deployment)
        ) as server,
    ):
        host, port = listener.getsockname()[:2]
        address = address_of(host, port)
        # Measured before other processes load, which would slow the measurement.
        await engines.measure_hearing()
        engines.host_front_end()
        engines.stand_by()
        engines.host_specialists()
        settle()
        public_url = None if deployment.phone is None else deployment.phone.public_url
        exposure = describe_exposure(deployment.server, public_url=public_url)
        print(banner(engines.describe(), address, token, exposure), flush=True)
        # Loading blocked the loop while there was no call; stalls count from here on.
        async with stalls:
            await server.serve(sockets=[listener])
    return 0


def _replays(deployment: "Deployment") -> "ReplayJobs":
    """Return the replays of recorded calls with a deployment as it was loaded; engines complete theirs."""
    from parley.configs.load import STORE_URL_ENV
    from parley.configs.print_config import as_yaml
    from parley.serving.gateway.replays.jobs import ReplayJobs

    # It is printed without its password.
    secrets = {STORE_URL_ENV: deployment.remembering.store.url}
    return ReplayJobs(lambda: as_yaml(deployment), secrets=secrets)
