"""Settings of the recording of calls."""

from pathlib import Path

from pydantic import Field

from parley.core.strict_model import StrictModel


class RecordingSettings(StrictModel):
    """Recording of every call: both voices, pictures of the camera, and a timeline."""

    enabled: bool = Field(False, description="record every call; check the law of your callers' places first")
    folder: Path = Field(
        Path("data"),
        description="recordings are in its folder ``sessions``, by session and call "
        "(docs/explanation/recording.md)",
    )
    merged: bool = Field(True, description="write a stereo WAV of each call when it is over")
    frame_ms: int = Field(
        1_000, ge=100, le=60_000, description="least interval between two recorded pictures of the camera"
    )
    min_free_gb: float = Field(
        1.0, ge=0, description="below this much free space on the disk nothing is recorded; calls go on"
    )
