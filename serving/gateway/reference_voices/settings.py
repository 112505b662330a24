"""Bounds of reference voices."""

from pydantic import Field

from parley.core.strict_model import StrictModel


class VoiceTuning(StrictModel):
    """Upload, decoding and storage of reference voices."""

    max_voices: int = Field(
        100, ge=0, le=100_000, description="reference voices kept; a further upload gets 409"
    )
    max_total_bytes: int = Field(
        200_000_000,
        ge=0,
        le=10**12,
        description="total size of the kept files; a further upload gets 409; 60 s are 1.9 MB",
    )
    max_upload_bytes: int = Field(
        8 * 1024 * 1024, ge=1_000, le=100_000_000, description="largest file; more gets 413"
    )
    min_ms: int = Field(200, ge=0, le=10_000, description="shortest usable recording; less gets 400")
    max_s: float = Field(60.0, gt=0, le=3_600, description="longest recording; more gets 413")
    decodes: int = Field(2, ge=1, le=64, description="recordings decoded at a time; more get 503")
    decode_s: float = Field(
        10.0,
        gt=0,
        le=600,
        description="longest time to decode a recording, in wall-clock and in processor time",
    )
    decode_memory_bytes: int = Field(
        # 300 MB are enough for 2 s of every format; the rest is for the index of a long file.
        512 * 1024 * 1024,
        ge=200_000_000,
        le=64 * 1024**3,
        description="address space of the decoding process (not on macOS)",
    )
