"""Settings of a gateway's workers, and of how it watches them."""

from typing import Any, Literal

from pydantic import Field, ValidationError, model_validator

from parley.core.strict_model import StrictModel
from parley.models.omni.minicpm_worker.settings import PooledSettings
from parley.serving.scheduler.eta import EtaSettings
from parley.serving.scheduler.scheduler import SchedulerSettings

# Worker of the MiniCPM-o server, which uses that server's protocol and not the worker link.
MINICPM_SERVER = "minicpm_o_server"
_SCHEMES = {True: ("http://", "https://"), False: ("ws://", "wss://")}


class RayPlacement(StrictModel):
    """Resources of a Ray cluster that the process of a worker takes; they choose its node."""

    num_cpus: float = Field(0.0, ge=0, le=10_000, description="processors of the node")
    num_gpus: float = Field(0.0, ge=0, le=10_000, description="GPUs of the node, which the process sees")
    resources: dict[str, float] = Field(
        default_factory=dict, description="resources by the names that ``ray start --resources`` gave them"
    )


class WorkerSpec(StrictModel):
    """Worker: an external one at ``url``, or one that is started here."""

    name: str = Field(min_length=1, max_length=100, description="name of the worker, as in its tokens")
    url: str | None = Field(
        None, pattern=r"^(ws|http)s?://[^/\s]+", description="address of a worker that is already running"
    )
    engine: str | None = Field(None, description="engine of a worker that is started here")
    kind: Literal["omni", "stt", "tts", "llm", "minicpm_o_server"] | None = Field(
        None,
        description="kind of the engine, where engines of several kinds have the same name; "
        "minicpm_o_server: ``url`` is the http:// or https:// address of a worker of a MiniCPM-o server",
    )
    settings: dict[str, Any] = Field(
        default_factory=dict,
        description="settings of the engine, or of the conversations of a minicpm_o_server",
    )
    limits: dict[str, Any] = Field(default_factory=dict, description="limits of the worker")
    python: str | None = Field(
        None,
        description="Python executable of the worker's environment; null: the one that runs this process",
    )
    kv_bytes: int | None = Field(
        None,
        ge=1,
        description="memory for caches; null: what the worker of a language model reports; for others only "
        "the number of slots counts",
    )
    ray: RayPlacement | None = Field(
        None,
        description="start it on a node of the Ray cluster of ``shared.ray`` that has these resources; null: "
        "on this machine",
    )

    @model_validator(mode="after")
    def _is_one_of_both(self) -> "WorkerSpec":
        if (self.url is None) == (self.engine is None):
            raise ValueError("expected either url or engine")
        if self.url is None:
            if self.is_minicpm_server:
                raise ValueError(f"kind {MINICPM_SERVER}: expected a url; such a worker is not started here")
            return self
        if self.ray is not None:
            raise ValueError("ray applies only to a worker that is started")
        if self.limits or self.python or (not self.is_minicpm_server and (self.settings or self.kind)):
            raise ValueError("settings, limits, kind and python apply only to a worker that is started here")
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


class RaySettings(StrictModel):
    """Ray cluster that holds the shared line and places workers."""

    address: str = Field(
        "auto",
        pattern=r"^(auto|[^/:\s]+:\d{1,5})$",
        description="host and port of the cluster's head; auto: the cluster of which this machine is a node",
    )
    namespace: str = Field(
        "parley", pattern=r"^[A-Za-z0-9_.-]{1,64}$", description="namespace of the actors in the cluster"
    )
    python: str | None = Field(
        None,
        description="Python executable of an environment with Parley and Ray; null: the one that runs this "
        "process",
    )


class SharedPoolSettings(StrictModel):
    """Line and leases that several gateways share, in the PostgreSQL database of the sessions or in Ray."""

    name: str = Field(
        "default",
        pattern=r"^[A-Za-z0-9_.-]{1,64}$",
        description="gateways with the same name and database or cluster share one line",
    )
    ray: RaySettings | None = Field(
        None, description="hold the line in a Ray cluster; null: in the database of the sessions"
    )
    lease_s: float = Field(
        6.0,
        ge=0.3,
        le=600,
        description="time without a sign of life after which a gateway has lost its places in the line, and "
        "the slots of its conversations are free",
    )

    @property
    def poll_s(self) -> float:
        """Interval of the signs of life, and of looks for news of which no notification came.

        Several in each lease, so that one that is late or lost costs no place in the line.
        """
        return min(1.0, self.lease_s / 6)


class PoolSettings(StrictModel):
    """Workers of a gateway."""

    workers: tuple[WorkerSpec, ...] = Field(
        (),
        max_length=1_000,
        description="workers of this deployment; empty: every engine runs in this process",
    )
    shared: SharedPoolSettings | None = Field(
        None,
        description="share line and leases with the other gateways of a database or a Ray cluster; null: "
        "this gateway has its own",
    )

    @model_validator(mode="after")
    def _names_differ(self) -> "PoolSettings":
        names = [worker.name for worker in self.workers]
        if twice := sorted({name for name in names if names.count(name) > 1}):
            raise ValueError(f"several workers have the same name: {', '.join(twice)}")
        placed = [worker.name for worker in self.workers if worker.ray is not None]
        if placed and (self.shared is None or self.shared.ray is None):
            raise ValueError(f"{', '.join(placed)}: ray needs the cluster of shared.ray")
        return self


class PoolTuning(PoolSettings):
    """Settings, completed by values that no deployment sets."""

    load_ms: int = Field(
        600_000,
        ge=1_000,
        le=3_600_000,
        description="time without a report after which a worker that is loading its engine is killed",
    )
    scheduler: SchedulerSettings = SchedulerSettings()
    eta: EtaSettings = EtaSettings()
    secret_env: str = Field(
        "PARLEY_WORKER_SECRET",
        description="environment variable with the secret shared with the workers; one is generated if all "
        "workers are started here",
    )
    health_ms: int = Field(
        500, ge=50, le=60_000, description="interval between two health probes of a MiniCPM-o server's worker"
    )
    silent_ms: int = Field(
        1_000, ge=100, le=60_000, description="time without a report after which a worker is suspect"
    )
    dead_ms: int = Field(
        5_000,
        ge=200,
        le=600_000,
        description="further time after which the worker is lost; one that was started here is killed",
    )
    load_estimate_ms: int = Field(
        60_000,
        ge=0,
        le=3_600_000,
        description="estimated time of a load, for the waiting time shown to callers",
    )
    connect_ms: int = Field(2_000, ge=50, le=60_000, description="longest wait for a socket to connect")
    retry_ms: int = Field(
        250,
        ge=10,
        le=60_000,
        description="first pause before a worker that ended is retried; doubles each time",
    )
    longest_retry_ms: int = Field(10_000, ge=10, le=600_000)
    token_s: int = Field(30, ge=1, le=600, description="time within which a lease has to be taken up")
    close_ms: int = Field(
        5_000, ge=100, le=600_000, description="time after which a worker that was asked to stop is killed"
    )

    @model_validator(mode="after")
    def _ordered(self) -> "PoolTuning":
        if self.dead_ms <= self.silent_ms:
            raise ValueError("expected silent_ms < dead_ms")
        if self.scheduler.silent_ms is not None:
            raise ValueError("scheduler.silent_ms: must not be set, because the pool knows who is waiting")
        return self
