"""Memory that a conversation may come to need on its worker, in bytes. Pure.

What is reserved is the most: a cache that has to be moved or thrown away in the middle of a call is heard.
"""

from pydantic import BaseModel, ConfigDict, Field


class KvBudget(BaseModel):
    """What a model's cache takes."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    bytes_per_token: int = Field(ge=0, description="keys and values of every layer")
    encoder_bytes: int = Field(0, ge=0, description="caches of audio and vision encoders, for a conversation")
    tts_bytes: int = Field(0, ge=0, description="cache of its speech decoder, for a conversation")

    def bytes_of(self, context_tokens: int) -> int:
        """A conversation with a context of at most so many tokens."""
        return context_tokens * self.bytes_per_token + self.encoder_bytes + self.tts_bytes


def kv_bytes_per_token(*, layers: int, kv_heads: int, head_dim: int, element_bytes: int = 2) -> int:
    """Keys and values of one token in a transformer with grouped queries."""
    return 2 * layers * kv_heads * head_dim * element_bytes
