"""Bounds of the public edge."""

from pydantic import BaseModel, ConfigDict, Field


class ServerSettings(BaseModel):
    """Where the server listens and what it takes in."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="address to listen on; 0.0.0.0 for a container")
    port: int = Field(7860, ge=0, le=65_535)
    max_calls: int = Field(32, ge=1, le=10_000, description="conversations at a time in this process")
    max_body_bytes: int = Field(200_000, ge=1_000, le=10_000_000, description="larger request bodies get 413")
    body_s: float = Field(
        10.0, gt=0, le=600, description="a request body that takes longer to arrive gets 408"
    )
    start_body_bytes: int = Field(
        4_096, ge=2, le=100_000, description="what POST /start may keep for its offer; more gets 413"
    )
    start_expire_s: float = Field(
        120.0, gt=0, le=86_400, description="a started session without a call is forgotten after this"
    )
    vanish_ms: int = Field(
        3_500, ge=1_000, le=60_000, description="quiet time after which a peer counts as gone"
    )
    drain_s: float = Field(
        5.0, ge=0, le=600, description="how long a stopping server lets running calls go on"
    )
    hang_up_s: float = Field(
        3.0, gt=0, le=60, description="how long ending one call may take, then it is cut"
    )
    stop_requests_s: int = Field(
        2, ge=0, le=600, description="how long a stopping server waits for requests in flight, before drain_s"
    )
    eval_socket: bool = Field(
        True, description="serve /ws, which only Pipecat's evaluation tool (pipecat eval run) can use"
    )
    socket_open_s: float = Field(
        10.0, gt=0, le=600, description="a socket on /ws that has not said eval-connect by then is closed"
    )
    admin_token_env: str = Field(
        "PARLEY_ADMIN_TOKEN",
        description="variable with the operator's token for listing and importing sessions; while it is not "
        "set they are open to this machine, on a loopback address only",
    )
    ice_servers: tuple[str, ...] = Field((), description="STUN and TURN urls for browsers behind NAT")
    allowed_origins: tuple[str, ...] = Field(
        (), description="pages of other origins that may open calls; the server's own page always may"
    )
    allowed_hosts: tuple[str, ...] = Field(
        (),
        description="names, without port, by which this server may be called, besides localhost, 127.0.0.1 "
        "and [::1]; when empty: no other on a loopback address, any on another address",
    )
