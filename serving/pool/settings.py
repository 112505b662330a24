"""Settings of a gateway's workers, and of how it watches them."""

from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from core.strict_model import StrictModel
from models.omni.minicpm_worker.settings import PooledSettings
from serving.scheduler.eta import EtaSettings
from serving.scheduler.scheduler import SchedulerSettings

# Worker of the MiniCPM-o server, which uses that server's protocol and not the worker link.
MINICPM_SERVER = "minicpm_o_server"
_SCHEMES = {True: ("http://", "https://"), False: ("ws://", "wss://")}


class WorkerSpec(StrictModel):
    """Worker: an external one at ``url``, or one that is started here."""

    name: str = Field(min_length=1, max_length=100, description="of the worker, as its tokens say it")
    url: str | None = Field(None, pattern=r"^(ws|http)s?://[^/\s]+", description="of one that runs already")
    engine: str | None = Field(None, description="of one that is started here")
    kind: Literal["omni", "stt", "tts", "llm", "minicpm_o_server"] | None = Field(
        None,
        description="of its engine, where several kinds have one of that name; minicpm_o_server: url is that "
        "of a worker of a MiniCPM-o server, http:// or https://",
    )
    settings: dict[str, Any] = Field(
        default_factory=dict, description="of its engine; of conversations with a minicpm_o_server"
    )
    limits: dict[str, Any] = Field(default_factory=dict, description="of the worker")
    python: str | None = Field(None, description="executable of its environment; None: this one")
    kv_bytes: int | None = Field(None, ge=1, description="of memory for caches; None: its places alone count")

    @model_validator(mode="after")
    def _is_one_of_both(self) -> "WorkerSpec":
        if (self.url is None) == (self.engine is None):
            raise ValueError("expected either url or engine")
        if self.url is None:
            if self.is_minicpm_server:
                raise ValueError(
                    f"kind {MINICPM_SERVER}: expected its url; such a worker is not started here"
                )
            return self
        if self.limits or self.python or (not self.is_minicpm_server and (self.settings or self.kind)):
            raise ValueError("settings, limits, kind and python are of a worker that is started here")
        schemes = _SCHEMES[self.is_minicpm_server]
        if not self.url.startswith(schemes):
            raise ValueError(f"url: expected {' or '.join(schemes)}")
        if self.is_minicpm_server:
            self.conversation()
        return self

    @property
    def is_minicpm_server(self) -> bool:
        """True for a worker that is polled for its health and has no leases."""
        return self.kind == MINICPM_SERVER

    def conversation(self) -> PooledSettings:
        """Return the settings of conversations with a worker of a MiniCPM-o server.

        Raises:
            ValueError: an unknown setting, or one out of range.
        """
        try:
            return PooledSettings.model_validate(self.settings)
        except ValidationError as error:
            faults = []
            for fault in error.errors():
                place = ".".join(("settings", *map(str, fault["loc"])))
                faults.append(f"{place}: {fault['msg']}")
            known = ", ".join(PooledSettings.model_fields)
            raise ValueError(f"{'; '.join(faults)} (known settings: {known})") from error


class PoolSettings(StrictModel):
    """Workers of a gateway."""

    workers: tuple[WorkerSpec, ...] = Field((), max_length=1_000, description="none: every engine is here")

    @model_validator(mode="after")
    def _names_differ(self) -> "PoolSettings":
        names = [worker.name for worker in self.workers]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"workers of the same name: {', '.join(twice)}")
        return self


class PoolTuning(PoolSettings):
    """Settings, completed by values that no deployment sets."""

    load_ms: int = Field(
        600_000,
        ge=1_000,
        le=3_600_000,
        description="a worker that loads its engine, and says nothing for so long, is killed",
    )
    scheduler: SchedulerSettings = SchedulerSettings()
    eta: EtaSettings = EtaSettings()
    secret_env: str = Field(
        "PARLEY_WORKER_SECRET",
        description="environment variable with what the workers know too; one is made up where all are "
        "started here",
    )
    health_ms: int = Field(
        500, ge=50, le=60_000, description="between two questions to a worker of a MiniCPM-o server"
    )
    silent_ms: int = Field(
        1_000, ge=100, le=60_000, description="a worker that says nothing for so long is suspect"
    )
    dead_ms: int = Field(
        5_000, ge=200, le=600_000, description="and behind so long gone: one that was started here is killed"
    )
    load_estimate_ms: int = Field(
        60_000, ge=0, le=3_600_000, description="how long a load is likely to take, for those who wait"
    )
    connect_ms: int = Field(2_000, ge=50, le=60_000, description="longest wait for a socket")
    retry_ms: int = Field(250, ge=10, le=60_000, description="first wait behind a worker that ended; doubles")
    longest_retry_ms: int = Field(10_000, ge=10, le=600_000)
    token_s: int = Field(30, ge=1, le=600, description="a lease is taken within this")
    close_ms: int = Field(
        5_000, ge=100, le=600_000, description="a worker that is told to end is killed then"
    )

    @model_validator(mode="after")
    def _ordered(self) -> "PoolTuning":
        if self.dead_ms <= self.silent_ms:
            raise ValueError("expected silent_ms < dead_ms")
        if self.scheduler.silent_ms is not None:
            raise ValueError("scheduler.silent_ms: who waits here is known to be there")
        return self
