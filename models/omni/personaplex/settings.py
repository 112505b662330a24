"""Settings of PersonaPlex. Imports neither torch nor transformers."""

from typing import ClassVar

from pydantic import Field

from parley.models.omni.moshi.settings import MoshiSettings

ENGINE = "personaplex"


class PersonaPlexSettings(MoshiSettings):
    """Weights, device, and the codes and bounds of the prompt.

    The codes are those with which the makers trained the model and which their server uses
    (github.com/NVIDIA/personaplex, moshi/moshi/models/lm.py).
    """

    engine: ClassVar[str] = ENGINE

    model: str = Field(
        min_length=1,
        description="a directory, or the id of a model in this machine's hub cache, with the weights in "
        "transformers' format",
    )
    silence_codes: tuple[int, ...] = Field(
        (948, 243, 1178, 546, 1736, 1030, 1978, 2008),
        min_length=1,
        description="codes of the bot's stream in the role and the pauses: silence",
    )
    tone_codes: tuple[int, ...] = Field(
        (430, 1268, 381, 1611, 1095, 1495, 56, 472),
        min_length=1,
        description="codes of the caller's stream in the whole prompt: a tone of 440 Hz",
    )
    pause_units: int = Field(
        6, ge=0, le=125, description="units of silence after the voice, and after the role"
    )
    voice_lufs: float = Field(
        -24.0, ge=-60, le=-5, description="loudness to which the reference voice is brought"
    )
    max_prompt_units: int = Field(
        500,
        ge=1,
        description="longest prompt: a unit for each 80 ms of the voice, each text token of the role, and "
        "the pauses. That many units of the window are kept for it",
    )
