"""Memory of a conversation's keys and values, computed from a model's configuration. Pure.

A token has a key and a value of ``head_dim`` numbers in each key-value head of each layer. A context has
spare room after its tokens (``growable_cache``), which counts. Layers with a window or a recurrent state need
less, so the figure is an upper bound for them.
"""

from typing import Any

# Least spare room of a context.
ROOM_TOKENS = 256


def token_bytes(config: Any, *, number_bytes: int) -> int:
    """Return the bytes of the keys and values of one token.

    Args:
        config: configuration of the language model, as transformers names its fields.
        number_bytes: of one number of the cache.
    """
    heads = config.num_attention_heads
    kv_heads = getattr(config, "num_key_value_heads", None) or heads
    head_dim = getattr(config, "head_dim", None) or config.hidden_size // heads
    return int(2 * config.num_hidden_layers * kv_heads * head_dim * number_bytes)


def with_room(tokens: int) -> int:
    """Return the tokens for which a context of ``tokens`` may have allocated memory."""
    return tokens + max(ROOM_TOKENS, tokens // 4)
