"""Health of a worker of a MiniCPM-o server: the body of its ``GET /health``.

Converts JSON to a typed value, without I/O. ``status`` is about the model (``healthy``, ``error``,
``initializing``), ``worker_status`` about its activity. A worker whose model is gone may still report itself
idle in the latter: it is idle only when both agree.
"""

from pydantic import BaseModel, ConfigDict, ValidationError

from parley.core.errors import PeerError

IDLE = "idle"
TAKEN = frozenset({"busy_chat", "busy_half_duplex", "duplex_active", "duplex_paused"})


class Health(BaseModel):
    """Answer to ``GET /health``. Other fields of the server are ignored.

    Attributes:
        status: state of the model.
        worker_status: state of the worker, in its own terms.
        model_loaded: the worker can answer requests.
        gpu_id: id of its device.
        current_session_id: session that uses it: a date, and the id of the connection.
        avg_inference_time_ms: mean over its requests so far.
    """

    model_config = ConfigDict(frozen=True, extra="ignore")

    status: str
    worker_status: str
    model_loaded: bool
    gpu_id: int | None = None
    current_session_id: str | None = None
    total_requests: int = 0
    avg_inference_time_ms: float = 0.0

    @property
    def state(self) -> str:
        """Combined state: ``idle``, ``loading``, ``error``, or one of ``TAKEN``."""
        if self.status == "initializing" or self.worker_status == "loading":
            return "loading"
        if self.status != "healthy" or not self.model_loaded:
            return "error"
        return self.worker_status if self.worker_status in (IDLE, *TAKEN) else "error"

    @property
    def is_idle(self) -> bool:
        """True when a conversation may begin."""
        return self.state == IDLE


def parse_health(data: bytes) -> Health:
    """Return the health in a response body.

    Raises:
        PeerError: the body is not a valid health.
    """
    try:
        return Health.model_validate_json(data)
    except ValidationError as error:
        raise PeerError("unreadable health report") from error
