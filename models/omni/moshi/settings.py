"""Settings of Moshi: loading, and a conversation. Imports neither torch nor transformers."""

from pathlib import Path
from typing import ClassVar, Literal

from huggingface_hub import try_to_load_from_cache
from huggingface_hub.errors import HFValidationError
from pydantic import Field

from parley.core.errors import ConfigError
from parley.core.strict_model import StrictModel

ENGINE = "moshi"
CONFIG_FILE = "config.json"


class MoshiConversationSettings(StrictModel):
    """Settings of one conversation; ``Preparation.settings`` may set each of them.

    The temperatures and ranks are those that the makers of the model publish for it.
    """

    text_temperature: float = Field(
        0.7, ge=0, le=5, description="sampling temperature of the inner monologue; 0: the likeliest token"
    )
    text_top_k: int = Field(25, ge=1, le=100_000, description="likeliest text tokens to sample from")
    audio_temperature: float = Field(
        0.8, ge=0, le=5, description="sampling temperature of the audio codes; 0: the likeliest code"
    )
    audio_top_k: int = Field(250, ge=1, le=100_000, description="likeliest audio codes to sample from")
    seed: int | None = Field(
        None, ge=0, lt=2**63, description="seed of the sampling; null: different samples each time"
    )
    speech_dbfs: float = Field(-50.0, ge=-120, le=0, description="level above which a unit counts as speech")
    hangover_units: int = Field(
        6,
        ge=1,
        le=125,
        description="consecutive units with neither words nor sound after which speech has ended",
    )


class MoshiSettings(StrictModel):
    """Weights, device, and bound of the conversations that share them.

    Attributes:
        engine: registry name of the engine, for messages.
    """

    engine: ClassVar[str] = ENGINE
    model: str = Field(
        "kmhf/hf-moshika",
        min_length=1,
        description="a directory, or the id of a model in this machine's hub cache",
    )
    device: str = Field(
        "auto", pattern=r"^(auto|cpu|cuda(:\d+)?)$", description="auto: CUDA if there is a GPU"
    )
    dtype: Literal["auto", "float32", "bfloat16", "float16"] = Field(
        "auto",
        description="number format of the transformers; auto: bfloat16 on CUDA, float32 elsewhere. The "
        "codec is float32",
    )
    threads: int | None = Field(
        None,
        ge=1,
        le=256,
        description="threads of torch on the CPU, for the whole process; null: torch's default",
    )
    sessions: int | None = Field(1, ge=1, description="concurrent conversations; null: unlimited")
    window_units: int | None = Field(
        None,
        ge=2,
        description="units that the model attends to; null, or more than the model's own number: the "
        "model's own. With the published model each unit takes 512 KiB of memory in bfloat16, and 3,000 "
        "units 1.5 GiB",
    )
    text_padding_id: int = Field(3, ge=0, description="text token for silence")
    text_end_of_padding_id: int = Field(0, ge=0, description="text token before the start of a word")
    talk: MoshiConversationSettings = MoshiConversationSettings()

    def check(self) -> None:
        """Check that the files exist, as ``core.files.Checked`` requires."""
        self.path()

    def path(self) -> Path:
        """Return the directory of the files.

        Raises:
            ConfigError: there is no such directory, and no such model in the hub's cache.
        """
        folder = Path(self.model).expanduser()
        if folder.is_dir():
            if not (folder / CONFIG_FILE).is_file():
                raise ConfigError(f"{self.engine!r} needs {folder / CONFIG_FILE}, which does not exist")
            return folder
        try:
            cached = try_to_load_from_cache(self.model, CONFIG_FILE)
        except HFValidationError:
            raise ConfigError(f"{self.engine!r} needs the directory {folder}, which does not exist") from None
        if not isinstance(cached, str):
            raise ConfigError(
                f"{self.engine!r} needs {self.model}, which is neither a directory nor in the hub's cache: "
                f"run `hf download {self.model}`"
            )
        return Path(cached).parent
