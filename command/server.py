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
    from collections.abc import Callable

    from parley.configs.deployment import Deployment
    from parley.pipelines.engines.engines import Engines
    from parley.serving.gateway.http.server import GatewayServer
    from parley.serving.gateway.replays.jobs import ReplayJobs
    from parley.transports.keeping.media_link import MediaLink


def serve(deployment: "Deployment", *, mode: str = CASCADE, verbosity: int = 0) -> int:
    """Serve the page until a signal ends it.

    Args:
        deployment: the deployment.
        mode: mode of callers who request none.
        verbosity: of the log of a conversation process.
    """
    check_server(deployment, mode)
    token = operator_token(deployment.operations.data_dir)
    listener = claim_port(deployment.server.host, deployment.server.port)
    if deployment.server.conversations.own_process:
        from parley.command.media_process import keep_streams

        return keep_streams(deployment, listener, mode=mode, verbosity=verbosity)
    # Bounded before anything large is loaded.
    bound_heap()
    return event_loop.run(run_server(deployment, listener, mode, token))


def check_server(deployment: "Deployment", mode: str) -> None:
    """Check the settings of a server.

    Raises:
        ConfigError: telephone calls cannot be held in this mode, strangers would reach the server without
            its settings allowing it, or there are no calls that a process of their own could keep.
    """
    from parley.serving.gateway.auth.exposure import check_exposure

    check_phone(deployment, mode)
    check_conversations(deployment)
    public_url = None if deployment.phone is None else deployment.phone.public_url
    check_exposure(deployment.server, public_url=public_url)


def check_phone(deployment: "Deployment", mode: str) -> None:
    """Raise ConfigError when the deployment's telephone calls cannot be held in a server of this mode."""
    if deployment.phone is not None:
        try:
            deployment.phone.check_mode(mode)
        except ValueError as error:
            raise ConfigError(f"phone: {error}") from error


def check_conversations(deployment: "Deployment") -> None:
    """Raise ConfigError when a process for conversations is wanted that could not take up any call."""
    from parley.transports.registry import TRANSPORTS

    phone = deployment.phone
    networks = () if phone is None or phone.reconnect is None else phone.carriers
    keeps = any(TRANSPORTS.row(network).capabilities.goes_on for network in networks)
    if deployment.server.conversations.own_process and not keeps:
        raise ConfigError(
            "server.conversations.own_process: needs phone calls of Twilio (phone.carriers) and "
            "phone.reconnect, by which a new process finds the session of a call"
        )


async def run_server(
    deployment: "Deployment",
    listener: socket.socket,
    mode: str,
    token: AdminToken,
    *,
    media_link: "MediaLink | None" = None,
    on_ready: "Callable[[Engines, GatewayServer], None] | None" = None,
) -> int:
    """Load the engines and serve until a signal; return the exit status.

    Args:
        deployment: the deployment.
        listener: listening socket.
        mode: mode of callers who request none.
        token: token of the operator.
        media_link: process that keeps the streams of phone calls; None: this process has them.
        on_ready: called before the first connection is accepted; must not block.
    """
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
            *(engines, conversations),
            mode=mode,
            token=token,
            stalls=stalls,
            replays=_replays(deployment),
            media_link=media_link,
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
        if on_ready is not None:
            on_ready(engines, server)
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
