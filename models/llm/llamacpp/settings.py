"""Settings of a GGUF language model, and the endpoint where it is served. Imports no engine."""

import mmap
import struct
from dataclasses import dataclass
from pathlib import Path

from pydantic import Field

from parley.core.errors import ConfigError, ModelFileError
from parley.core.files import MODELS_DIR
from parley.core.installation import fetch_command
from parley.core.strict_model import StrictModel

ENGINE = "llamacpp"
MAGIC = b"GGUF"
_TEMPLATE_KEY = b"tokenizer.chat_template"
_STRING_TYPE = 8
# Metadata come first in the file. The largest vocabularies take 20 MB.
_METADATA_BYTES = 64 * 1024 * 1024


@dataclass(frozen=True, slots=True)
class ServerAddress:
    """Address of a running server.

    Attributes:
        base_url: up to and including ``/v1``.
        key: bearer token that the server requires.
        uses_tools: the model's chat template supports tools.
        context_tokens: context of each conversation: the requested size, or less where the model was made for
            less.
    """

    base_url: str
    key: str
    uses_tools: bool
    context_tokens: int

    def most_tokens(self, max_tokens: int) -> int:
        """Return the longest dialogue that leaves room for an answer, of ``max_tokens`` or half of the
        context.
        """
        return self.context_tokens - min(max_tokens, self.context_tokens // 2)


class LlamaCppSettings(StrictModel):
    """Model file, and bounds of its conversations."""

    model: Path = Field(
        default=Path("qwen2.5-1.5b-instruct-q4_k_m.gguf"),
        description="GGUF file: a path, or a name under models_dir/llamacpp",
    )
    chat_template: Path | None = Field(
        default=None, description="Jinja file to use instead of the chat template in the model's file"
    )
    conversations: int = Field(
        default=2, ge=1, le=64, description="answers generated at the same time; further ones wait for a slot"
    )
    context_tokens: int = Field(
        default=4_096,
        ge=256,
        le=1_048_576,
        description="longest dialogue including its answer; older turns are summarised before the limit is "
        "reached",
    )
    cpu_threads: int = Field(default=2, ge=1, le=256, description="threads of the model")
    prompt_cache_mib: int = Field(
        default=512,
        ge=0,
        le=1_048_576,
        description="memory for the cached prompts of conversations that hold no slot at the moment",
    )
    load_timeout_s: float = Field(default=120, gt=0, le=600, description="longest time to load the file")
    models_dir: Path = Field(default=MODELS_DIR, description="folder where 'make models' puts files")

    @property
    def file(self) -> Path:
        """Path of the model's file: as named, if it exists, else below the models folder."""
        return self.model if self.model.is_file() else self.models_dir / ENGINE / self.model

    def check(self) -> None:
        """Check the files, as ``core.files.Checked`` requires.

        Raises:
            ModelFileError: the file does not exist.
            ConfigError: it is not a GGUF file, or there is no chat template.
        """
        file = self.file
        if not file.is_file():
            raise ModelFileError(
                f"{ENGINE!r} needs {file}, which does not exist: run `{fetch_command(ENGINE)}`, or "
                "name your own GGUF file in `model`"
            )
        with file.open("rb") as opened:
            if opened.read(len(MAGIC)) != MAGIC:
                raise ConfigError(f"{ENGINE!r} cannot read {file}: it is not a GGUF file")
        if self.chat_template is not None:
            if not self.chat_template.is_file():
                raise ModelFileError(f"{ENGINE!r} needs {self.chat_template}, which does not exist")
        elif not has_chat_template(file):
            # llama.cpp would assume ChatML, and a model that was not trained on it never ends its answers.
            raise ConfigError(
                f"{ENGINE!r} cannot hold a dialogue with {file}: the file has no chat template; name one in "
                "`chat_template`, or use a model made for dialogue"
            )


def has_chat_template(file: Path) -> bool:
    """Return whether the metadata of a GGUF file have a chat template."""
    # A key is its length and its text; then the type of the value and, for a string, its length.
    key = struct.pack("<Q", len(_TEMPLATE_KEY)) + _TEMPLATE_KEY + struct.pack("<I", _STRING_TYPE)
    with file.open("rb") as opened, mmap.mmap(opened.fileno(), 0, access=mmap.ACCESS_READ) as content:
        at = content.find(key, 0, _METADATA_BYTES)
        if at < 0 or at + len(key) + 8 > len(content):
            return False
        (length,) = struct.unpack_from("<Q", content, at + len(key))
    return bool(length)
