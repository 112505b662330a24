"""Settings and bounds of the public edge."""

import ipaddress
from typing import Literal

from pydantic import Field, field_validator

from core.strict_model import StrictModel
from serving.gateway.client_settings import ClientsSettings
from serving.scheduler.call_queue import CallQueueSettings

# Variables of the environment: the operator's token, and the keys, separated by commas, of applications whose
# users may begin calls (docs/operations.md).
ADMIN_TOKEN_ENV = "PARLEY_ADMIN_TOKEN"
CALL_KEYS_ENV = "PARLEY_CALL_KEYS"
# A socket that sends a longer message is closed (1009). A second of audio and a picture in base64 are some
# 400 kB.
MAX_SOCKET_BYTES = 4_000_000
# Addresses that are counted; the one not seen for longest is evicted.
COUNTED_CLIENTS = 10_000


class ServerSettings(StrictModel):
    """Address and limits of the server."""

    host: str = Field("127.0.0.1", description="address to listen on; 0.0.0.0 for a container")
    port: int = Field(7860, ge=0, le=65_535, description="port to listen on; 0: one that is free")
    max_calls: int = Field(32, ge=1, le=10_000, description="conversations at a time in this process")
    admission: Literal["auto", "off"] = Field(
        "auto",
        description="auto: no more conversations than this machine was seen to answer in time, at most "
        "max_calls; off: max_calls alone, for measurements",
    )
    queue: CallQueueSettings | None = Field(
        CallQueueSettings(),
        description="callers for whom there is no line, or whom the machine could not answer, wait for one; "
        "null: they are refused",
    )
    max_connections: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="HTTP requests and sockets under way at a time, half of them of one address, the last "
        "quarter only of clients with a credential; more get 503, but for /health and /ready. None: as the "
        "descriptor limit allows, at most 8,192. Connections without a request make room for others",
    )
    sessions_per_minute: int = Field(
        60,
        ge=1,
        le=100_000,
        description="new sessions of one client address, by POST /api/sessions or by a call that names none; "
        "so many at once, and so many come back in a minute; more get 429",
    )
    jitter_buffer: bool = Field(
        False,
        description="keep a browser's packets back as aiortc does, 60 to 80 ms, for a listener that needs an "
        "even stream; a recogniser does not",
    )
    drain_s: float = Field(
        20.0,
        ge=0,
        le=3_600,
        description="how long a stopping server lets running calls go on, and refuses new ones. With "
        "goodbye_s less than what stops it waits before it kills: Kubernetes 30 s, systemd 90 s, Docker 10 s",
    )
    goodbye_s: float = Field(
        8.0,
        ge=0,
        le=60,
        description="how long the goodbye of a stopping server (bot.shutdown_phrase) may take after drain_s",
    )
    keep_alive_s: int = Field(
        75,
        ge=1,
        le=3_600,
        description="an HTTP connection without a request is kept open so long: longer than whoever is in "
        "front keeps it (nginx and most balancers: 60 s), or some requests meet a connection being closed",
    )
    ice_servers: tuple[str, ...] = Field((), description="STUN urls for browsers behind NAT")
    allowed_origins: tuple[str, ...] = Field(
        (), description="pages of other origins that may open calls; the server's own page always may"
    )
    allowed_hosts: tuple[str, ...] = Field(
        (),
        description="names, without port, by which this server may be called, besides localhost, 127.0.0.1 "
        "and [::1]; when empty: no other on a loopback address, any on another address",
    )
    trusted_proxies: tuple[str, ...] = Field(
        (),
        description="addresses and networks (10.0.0.0/8) of proxies in front of this server: from them, and "
        "from nobody else, X-Forwarded-For says who the client is",
    )
    clients: ClientsSettings = Field(ClientsSettings(), description="what clients may do, by credential")
    open: bool = Field(
        False,
        description="true: everybody who reaches the server may begin calls, at the deployment's expense. "
        "Without it a server that others can reach (an address that is not loopback, phone.public_url, "
        "allowed_hosts, trusted_proxies) does not start without keys",
    )

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        for proxy in proxies:
            ipaddress.ip_network(proxy)
        return proxies


class ServerTuning(ServerSettings):
    """Settings, completed by values that no deployment sets."""

    max_body_bytes: int = Field(200_000, ge=1_000, le=10_000_000, description="larger request bodies get 413")
    max_head_bytes: int = Field(
        16_384, ge=1_024, le=1_000_000, description="a longer request head gets 431, one of 100 headers 400"
    )
    head_s: float = Field(
        10.0, gt=0, le=600, description="a request head that takes longer to arrive gets 408"
    )
    body_s: float = Field(
        10.0,
        gt=0,
        le=600,
        description="a request body that takes longer to arrive gets 408; of an import, each piece of it",
    )
    max_import_bytes: int = Field(
        64 * 1024 * 1024, ge=1_000, le=10_000_000_000, description="larger exports get 413 when imported"
    )
    max_import_line_bytes: int = Field(
        1024 * 1024,
        ge=1_000,
        le=200_000_000,
        description="an import with a longer line gets 400; a line is one event, so this is "
        "an event's payload and some 40 kB for what stands beside the payload",
    )
    max_typed_turns: int = Field(
        64, ge=1, le=10_000, description="typed turns under way, those that wait too; more get 503"
    )
    max_waiting_turns: int = Field(
        4,
        ge=0,
        le=1_000,
        description="typed turns of one session that may wait for the one being answered; more get 429",
    )
    max_followers: int = Field(
        256, ge=1, le=100_000, description="readers of /events at a time; more get 503"
    )
    max_session_followers: int = Field(
        16, ge=1, le=100_000, description="readers of the /events of one session at a time; more get 429"
    )
    reader_stall_s: float = Field(
        30.0,
        gt=0,
        le=3_600,
        description="a connection whose reader takes nothing in of an answer for so long is closed",
    )
    max_client_reads: int = Field(
        8,
        ge=1,
        le=1_000,
        description="timelines, exports and prompts that one client address may have under way; more get 429",
    )
    read_bytes_per_s: int = Field(
        4_000_000,
        ge=10_000,
        le=10_000_000_000,
        description="of timelines, exports and events, to one client address after a burst; what is over it "
        "waits",
    )
    start_expire_s: float = Field(
        120.0, gt=0, le=86_400, description="a started session without a call is forgotten after this"
    )
    hang_up_s: float = Field(
        3.0, gt=0, le=60, description="how long ending one call may take, then it is cut"
    )
    stop_requests_s: int = Field(
        2, ge=0, le=600, description="how long a stopping server waits for requests in flight, behind drain_s"
    )
    eval_socket: bool = Field(
        True, description="serve /ws, which only Pipecat's evaluation tool (pipecat eval run) can use"
    )
    socket_open_s: float = Field(
        10.0, gt=0, le=600, description="a socket on /ws that has not said eval-connect by then is closed"
    )
