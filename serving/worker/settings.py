"""Settings of a worker process: its name, its address, its engine, its deadlines."""

from pydantic import Field

from core.strict_model import StrictModel


class WorkerServerSettings(StrictModel):
    """Settings of one worker process."""

    name: str = Field("worker", min_length=1, max_length=100, description="signed in every token for it")
    host: str = Field("127.0.0.1", description="address to listen on")
    port: int = Field(22_400, ge=0, le=65_535)
    secret_env: str = Field(
        "PARLEY_WORKER_SECRET", description="environment variable that holds what lets others speak to it"
    )
    lease_ms: int = Field(
        6_000, ge=300, le=600_000, description="a lease that is not renewed ends; pings renew it three times"
    )
    open_ms: int = Field(5_000, ge=100, le=60_000, description="a socket that has not said what it wants")
    prepare_ms: int = Field(60_000, ge=100, le=600_000, description="longest beginning of a conversation")
    unit_ms: int | None = Field(
        None, ge=50, le=600_000, description="longest call of a unit; None: two units, half a second at least"
    )
    streams: int = Field(
        8, ge=1, le=1_000, description="conversations at a time of an engine that takes several"
    )
    call_ms: int = Field(
        10_000, ge=50, le=600_000, description="of such an engine: longest call without a sign of it"
    )
    waiting_bytes: int = Field(
        4_194_304,
        ge=65_536,
        le=67_108_864,
        description="speech of one conversation that nobody takes (87 s at 24 kHz); what makes more fails",
    )
    cleanup_ms: int = Field(10_000, ge=100, le=600_000, description="longest cleaning up")
    grace_ms: int = Field(
        5_000, ge=0, le=600_000, description="an overdue call may still return; then the process ends"
    )
    pause_ms: int = Field(60_000, ge=1_000, le=600_000, description="nobody pauses for longer")
    state_ms: int = Field(250, ge=20, le=60_000, description="whoever watches is told so often")
    strangers: int = Field(
        64, ge=1, le=10_000, description="sockets at a time that have not said yet what they want"
    )
    watchers: int = Field(16, ge=1, le=1_000, description="at a time")
    waiting_messages: int = Field(
        8, ge=1, le=1_000, description="of one conversation; who sends faster has to wait"
    )
    drain_ms: int = Field(
        60_000, ge=0, le=86_400_000, description="a worker that is told to end lets its conversation go on"
    )
