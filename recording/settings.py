"""Settings of the recording of calls."""

from pathlib import Path

from pydantic import Field

from parley.core.strict_model import StrictModel


class S3Settings(StrictModel):
    """Bucket of S3, or of a server that speaks its protocol, to which recordings of finished calls move.

    Credentials are in AWS's own environment variables (``AWS_ACCESS_KEY_ID``, ``AWS_SECRET_ACCESS_KEY``), or
    come from the role of the machine.
    """

    bucket: str = Field(pattern=r"^[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]$", description="name of the bucket")
    prefix: str = Field(
        "",
        pattern=r"^([A-Za-z0-9_.=-]+(/[A-Za-z0-9_.=-]+)*)?$",
        description="beginning of the names of the objects, without a slash at its ends",
    )
    endpoint: str | None = Field(
        None,
        pattern=r"^https?://[^/]+$",
        description="address of another server than AWS's, such as ``https://s3.example.org``",
    )
    region: str = Field("us-east-1", min_length=1, description="region of the bucket")


class RecordingSettings(StrictModel):
    """Recording of every call: both voices, pictures of the camera, and a timeline."""

    enabled: bool = Field(False, description="record every call; check the law of your callers' places first")
    folder: Path = Field(
        Path("data"),
        description="recordings are in its folder ``sessions``, by session and call "
        "(docs/explanation/recording.md)",
    )
    encrypted: bool = Field(
        False,
        description="encrypt the recordings on the disk with the first key of the environment variable "
        "``PARLEY_RECORDING_KEYS`` (docs/how-to/recordings_at_rest.md)",
    )
    s3: S3Settings | None = Field(
        None,
        description="recordings of finished calls move there (docs/how-to/recordings_at_rest.md)",
    )
    announcement: str = Field(
        "",
        description="phrase that is spoken first in every call, such as 'This call is recorded.'; nothing is "
        "recorded before the caller has heard all of it; empty: recorded from the beginning",
    )
    merged: bool = Field(True, description="write a stereo WAV of each call when it is over")
    retention_days: float | None = Field(
        None, gt=0, description="recordings of sessions that were last used earlier are removed; null: never"
    )
    max_storage_gb: float | None = Field(
        None,
        gt=0,
        description="the least recently used sessions' recordings are removed above this; null: no bound",
    )
    max_replay_mb: float = Field(
        200.0,
        ge=0,
        le=10_000,
        description="longest recording that a client may upload of its own recorded call, in millions of "
        "bytes (docs/reference/chat_sockets.md); 0: none is accepted",
    )
    min_free_gb: float = Field(
        1.0, ge=0, description="below this much free space on the disk nothing is recorded; calls go on"
    )


class RecordingTuning(RecordingSettings):
    """Settings, completed by values that no deployment sets."""

    # Pictures of a call are for looking at, in a film of one picture a second; more cost disk alone.
    frame_ms: int = Field(
        1_000, ge=100, le=60_000, description="least interval between two recorded pictures of the camera"
    )
