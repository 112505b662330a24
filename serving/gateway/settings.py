"""Bounds of the public edge."""

from pydantic import BaseModel, ConfigDict, Field


class ServerSettings(BaseModel):
    """Where the server listens and what it takes in."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    host: str = Field("127.0.0.1", description="address to listen on; 0.0.0.0 for a container")
    port: int = Field(7860, ge=0, le=65_535)
    max_calls: int = Field(32, ge=1, le=10_000, description="conversations at a time in this process")
    max_body_bytes: int = Field(200_000, ge=1_000, le=10_000_000, description="larger request bodies get 413")
    vanish_ms: int = Field(
        3_500, ge=1_000, le=60_000, description="quiet time after which a peer counts as gone"
    )
    drain_s: float = Field(5.0, ge=0, le=600, description="how long a stopping server waits for calls to end")
    ice_servers: tuple[str, ...] = Field((), description="STUN and TURN urls for browsers behind NAT")
    allowed_origins: tuple[str, ...] = Field(
        (), description="pages of other origins that may open calls; the server's own page always may"
    )
