"""Settings of a worker process: its name, its address, its engine, its deadlines."""

from pydantic import Field

from parley.core.strict_model import StrictModel
from parley.telemetry.settings import TraceSettings


class WorkerServerSettings(StrictModel):
    """Settings of one worker process."""

    name: str = Field(
        "worker", min_length=1, max_length=100, description="name of the worker, signed in every token for it"
    )
    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(22_400, ge=0, le=65_535)
    secret_env: str = Field(
        "PARLEY_WORKER_SECRET",
        description="environment variable with the secret that clients of the worker share",
    )
    lease_ms: int = Field(
        6_000,
        ge=300,
        le=600_000,
        description="time after which a lease that is not renewed ends; pings renew it three times in this "
        "time",
    )
    open_ms: int = Field(
        5_000, ge=100, le=60_000, description="time for a new socket to send its first request"
    )
    prepare_ms: int = Field(60_000, ge=100, le=600_000, description="longest time to prepare a conversation")
    unit_ms: int | None = Field(
        None,
        ge=50,
        le=600_000,
        description="longest time to process a unit; null: two units, at least half a second",
    )
    streams: int = Field(
        8, ge=1, le=1_000, description="concurrent conversations of an engine that takes several"
    )
    call_ms: int = Field(
        10_000, ge=50, le=600_000, description="longest call of such an engine without a sign of life"
    )
    waiting_bytes: int = Field(
        4_194_304,
        ge=65_536,
        le=67_108_864,
        description="unread speech of one conversation (87 s at 24 kHz); an engine call that produces more "
        "fails",
    )
    cleanup_ms: int = Field(10_000, ge=100, le=600_000, description="longest time to clean up")
    grace_ms: int = Field(
        5_000, ge=0, le=600_000, description="time for an overdue call to return; then the process ends"
    )
    pause_ms: int = Field(60_000, ge=1_000, le=600_000, description="longest pause")
    state_ms: int = Field(250, ge=20, le=60_000, description="interval at which watchers receive the state")
    strangers: int = Field(
        64, ge=1, le=10_000, description="sockets at a time that have not sent their first request"
    )
    watchers: int = Field(16, ge=1, le=1_000, description="watchers at a time")
    waiting_messages: int = Field(
        8,
        ge=1,
        le=1_000,
        description="unprocessed messages of one conversation; a client that sends faster has to wait",
    )
    drain_ms: int = Field(
        60_000,
        ge=0,
        le=86_400_000,
        description="time for which a worker that was asked to stop lets its conversation continue",
    )
    traces: TraceSettings | None = Field(
        None,
        description="spans of the requests that a client traces, sent to a collector of OpenTelemetry; null: "
        "none. A pool gives its own to the workers that it starts",
    )
