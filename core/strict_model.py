"""The base of settings and messages whose fields are known."""

from pydantic import BaseModel, ConfigDict


class StrictModel(BaseModel):
    """Values that do not change; a field that is not known is refused."""

    model_config = ConfigDict(frozen=True, extra="forbid")
