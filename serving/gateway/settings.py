"""Settings and bounds of the public edge."""

import ipaddress
from typing import Literal

from pydantic import Field, field_validator

from parley.core.strict_model import StrictModel
from parley.runtime.conversation_settings import ConversationProcessSettings
from parley.serving.gateway.auth.client_settings import ClientsSettings
from parley.serving.gateway.auth.tenant_settings import TenantsSettings
from parley.serving.gateway.webrtc.turn_settings import TurnSettings
from parley.serving.scheduler.call_queue import CallQueueSettings

# Variables of the environment: the operator's token, and the keys, separated by commas, of applications whose
# users may begin calls (docs/how-to/operations.md).
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
    port: int = Field(7860, ge=0, le=65_535, description="port to listen on; 0: a free one")
    max_calls: int = Field(32, ge=1, le=10_000, description="concurrent conversations in this process")
    admission: Literal["auto", "off"] = Field(
        "auto",
        description="auto: as many conversations as this machine has been measured to answer in time, at "
        "most max_calls; off: max_calls alone, for measurements",
    )
    queue: CallQueueSettings | None = Field(
        CallQueueSettings(),
        description="queue for callers when no line is free or the machine is at capacity; null: they are "
        "refused",
    )
    max_connections: int | None = Field(
        None,
        ge=1,
        le=1_000_000,
        description="concurrent HTTP requests and sockets: half of them per address, and the last quarter "
        "only for clients with a credential; more get 503, except /health and /ready. null: as the "
        "descriptor limit allows, at most 8,192. Connections without a request are closed to make room",
    )
    sessions_per_minute: int = Field(
        60,
        ge=1,
        le=100_000,
        description="new sessions of one client address, by POST /api/sessions or by a call that names no "
        "session. This many at once, refilled over a minute; more get 429",
    )
    drain_s: float = Field(
        20.0,
        ge=0,
        le=3_600,
        description="time for which a stopping server lets running calls continue while it refuses new "
        "ones. The sum of drain_s and goodbye_s has to be less than the time after which the process is "
        "killed: Kubernetes 30 s, systemd 90 s, Docker 10 s",
    )
    goodbye_s: float = Field(
        8.0,
        ge=0,
        le=60,
        description="longest goodbye of a stopping server (bot.shutdown_phrase), after drain_s",
    )
    keep_alive_s: int = Field(
        75,
        ge=1,
        le=3_600,
        description="time for which an HTTP connection without a request stays open. It has to be longer "
        "than that of the proxy in front of this server (nginx and most load balancers: 60 s), or some "
        "requests arrive while their connection is being closed",
    )
    ice_servers: tuple[str, ...] = Field((), description="STUN URLs for browsers behind NAT")
    turn: TurnSettings | None = Field(
        None, description="TURN server for browsers that no other path reaches; null: there is none"
    )
    allowed_origins: tuple[str, ...] = Field(
        (), description="origins of other pages that may open calls; the server's own pages always may"
    )
    allowed_hosts: tuple[str, ...] = Field(
        (),
        description="host names, without port, accepted in addition to localhost, 127.0.0.1 and [::1]. "
        "Empty: no others on a loopback address, any on another address",
    )
    trusted_proxies: tuple[str, ...] = Field(
        (),
        description="addresses and networks (10.0.0.0/8) of proxies in front of this server; "
        "X-Forwarded-For is believed only from them",
    )
    clients: ClientsSettings = Field(
        ClientsSettings(), description="rights and limits of clients, by credential"
    )
    tenants: TenantsSettings | None = Field(
        None, description="accounts with limits over all processes with one session store; null: none"
    )
    conversations: ConversationProcessSettings = Field(
        ConversationProcessSettings(), description="process that holds the conversations of phone calls"
    )
    max_share_days: float = Field(
        30.0,
        ge=0,
        le=366,
        description="longest time for which a link to a recorded session opens; 0: no links are made. Links "
        "that exist keep their time",
    )
    open: bool = Field(
        False,
        description="true: every client that reaches the server may begin calls, at the deployment's "
        "expense. Otherwise a server that others can reach (an address that is not loopback, "
        "phone.public_url, allowed_hosts, trusted_proxies) does not start without keys",
    )

    @field_validator("trusted_proxies")
    @classmethod
    def _are_networks(cls, proxies: tuple[str, ...]) -> tuple[str, ...]:
        for proxy in proxies:
            ipaddress.ip_network(proxy)
        return proxies


class ServerTuning(ServerSettings):
    """Settings, completed by values that no deployment sets."""

    max_body_bytes: int = Field(
        200_000, ge=1_000, le=10_000_000, description="longest request body; more gets 413"
    )
    max_picture_body_bytes: int = Field(
        4_000_000,
        ge=1_000,
        le=100_000_000,
        description="longest body of a typed turn with pictures; more gets 413. Its length must be declared",
    )
    max_picture_bodies: int = Field(
        16, ge=1, le=1_000, description="typed turns with pictures at the same time; more get 503"
    )
    max_head_bytes: int = Field(
        16_384,
        ge=1_024,
        le=1_000_000,
        description="longest request head; more gets 431, and a head of 100 headers 400",
    )
    head_s: float = Field(
        10.0, gt=0, le=600, description="longest time for a request head to arrive; more gets 408"
    )
    body_s: float = Field(
        10.0,
        gt=0,
        le=600,
        description="longest time for a request body to arrive, or for each piece of an import; more gets "
        "408",
    )
    max_import_bytes: int = Field(
        64 * 1024 * 1024,
        ge=1_000,
        le=10_000_000_000,
        description="longest export that can be imported; more gets 413",
    )
    max_import_line_bytes: int = Field(
        1024 * 1024,
        ge=1_000,
        le=200_000_000,
        description="longest line of an import; more gets 400. A line is one event: its payload and about "
        "40 kB for everything else",
    )
    max_typed_turns: int = Field(
        64, ge=1, le=10_000, description="typed turns in progress, including waiting ones; more get 503"
    )
    max_waiting_turns: int = Field(
        4,
        ge=0,
        le=1_000,
        description="typed turns of one session that may wait for the one in progress; more get 429",
    )
    audio_jobs: int = Field(
        2,
        ge=1,
        le=64,
        description="requests of /v1/audio/speech and /v1/audio/transcriptions at the same time, one of each "
        "client; more get 503, and 429 of one client",
    )
    audio_job_s: float = Field(
        120.0,
        gt=0,
        le=3_600,
        description="longest time in which a transcript is made, or in which speech is made and taken",
    )
    max_recording_bytes: int = Field(
        25_000_000,
        ge=1_000,
        le=1_000_000_000,
        description="longest body of a recording to transcribe; more gets 413",
    )
    max_recording_s: float = Field(
        600.0, gt=0, le=3_600, description="longest recording to transcribe; more gets 413"
    )
    upload_s: float = Field(
        60.0, gt=0, le=3_600, description="longest time for a recording to arrive; more gets 408"
    )
    max_followers: int = Field(
        256, ge=1, le=100_000, description="concurrent readers of /events; more get 503"
    )
    max_session_followers: int = Field(
        16, ge=1, le=100_000, description="concurrent readers of the /events of one session; more get 429"
    )
    reader_stall_s: float = Field(
        30.0,
        gt=0,
        le=3_600,
        description="time after which a connection is closed if its reader takes nothing of a response",
    )
    max_client_reads: int = Field(
        8,
        ge=1,
        le=1_000,
        description="concurrent timelines, exports and prompts of one client address; more get 429",
    )
    read_bytes_per_s: int = Field(
        4_000_000,
        ge=10_000,
        le=10_000_000_000,
        description="rate of timelines, exports and events to one client address after a burst; the rest "
        "waits",
    )
    start_expire_s: float = Field(
        120.0, gt=0, le=86_400, description="time after which a started session without a call is forgotten"
    )
    hang_up_s: float = Field(3.0, gt=0, le=60, description="time to end a call, after which it is cut")
    stop_requests_s: int = Field(
        2, ge=0, le=600, description="longest wait of a stopping server for requests in flight, after drain_s"
    )
    eval_socket: bool = Field(
        True,
        description="serve /ws to Pipecat's WebSocket clients and its evaluation tool (pipecat eval run)",
    )
    socket_open_s: float = Field(
        10.0,
        gt=0,
        le=600,
        description="time within which a socket on /ws has to send its first message, or it is closed",
    )
