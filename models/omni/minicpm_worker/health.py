"""What a worker of a MiniCPM-o server says of itself: the body of its ``GET /health``, and what it means.

JSON <-> a typed value; nothing is asked here. Its ``status`` is about the model (``healthy``, ``error``,
``initializing``), its ``worker_status`` about what it does. A worker whose model is gone may still call
itself idle there: it is idle when both say so.
"""

from pydantic import BaseModel, ConfigDict, ValidationError

from core.errors import PeerError

IDLE = "idle"
TAKEN = frozenset({"busy_chat", "busy_half_duplex", "duplex_active", "duplex_paused"})


class Health(BaseModel):
    """One answer. What else the server says is left out.

    Attributes:
        status: of the model.
        worker_status: of the worker, in its own words.
        model_loaded: whether it can answer anybody.
        gpu_id: of its device.
        current_session_id: of whoever has it: a date, and the id that they connected with.
        avg_inference_time_ms: of its requests so far.
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
        """What it does: ``idle``, ``loading``, ``error``, or one of ``TAKEN``."""
        if self.status == "initializing" or self.worker_status == "loading":
            return "loading"
        if self.status != "healthy" or not self.model_loaded:
            return "error"
        return self.worker_status if self.worker_status in (IDLE, *TAKEN) else "error"

    @property
    def is_idle(self) -> bool:
        """Whether a conversation may begin."""
        return self.state == IDLE


def parse_health(data: bytes) -> Health:
    """An answer.

    Raises:
        PeerError: it is none.
    """
    try:
        return Health.model_validate_json(data)
    except ValidationError as error:
        raise PeerError("a health that cannot be read") from error
