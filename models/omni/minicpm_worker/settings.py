"""Settings of a conversation with a MiniCPM-o server, wherever it runs."""

from pathlib import Path

from pydantic import Field

from parley.core.strict_model import StrictModel
from parley.models.omni.minicpm_o.settings import SamplingSettings


class RemoteConversationSettings(StrictModel):
    """Settings of every conversation with one server."""

    ca_file: Path | None = Field(
        None, description="PEM file of the authority that signed the server's certificate"
    )
    sampling: SamplingSettings = SamplingSettings()
    sees: bool = Field(True, description="false: no pictures are sent")
    frames_per_unit: int = Field(
        1,
        ge=1,
        le=8,
        description="expected pictures per unit, from which the end of the context is estimated",
    )
    context_tokens: int = Field(
        8_192, ge=1_024, le=65_536, description="size of the context of the server's model"
    )
    voice: Path | None = Field(
        None, description="WAV with the voice to imitate when the caller's side supplies none"
    )
    history_chars: int = Field(
        2_000, ge=0, le=20_000, description="characters of the earlier conversation that a new context gets"
    )
    connect_timeout_s: float = Field(5, gt=0, le=60, description="longest wait for a connection")
    prepare_timeout_s: float = Field(20, gt=0, le=600, description="longest time to prepare a conversation")
    unit_timeout_s: float = Field(5, gt=0, le=60, description="longest wait for a result")


class PooledSettings(RemoteConversationSettings):
    """Settings for a worker of a pool, where another one can take over."""

    unit_timeout_s: float = Field(
        2.5, gt=0, le=60, description="longest wait for a result; a worker that exceeds it has hung"
    )
