"""Access to private members of the engines' libraries, and to the state of MiniCPM-o's own code.

No other module in this folder touches a private member of a library, which
``scripts/check_foreign_members.py`` checks. The libraries are not packages of Parley's own environment: a
missing member fails where it is used.
"""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, TypeVar

Model = TypeVar("Model")


def attention_of(model: Any) -> str:
    """Return the name of the attention implementation of a transformers model; there is no public getter."""
    name: str = model.config._attn_implementation
    return name


def keep_exact(model: type[Model], *parts: str) -> type[Model]:
    """Return a class of transformers models of which these parts stay in float32, whatever the others use.

    The parts are named by an attribute of the class; ``from_pretrained`` has no argument for them.
    """
    return type(f"Exact{model.__name__}", (model,), {"_keep_in_fp32_modules_strict": parts})


def weigh_listening(duplex: Any) -> None:
    """Make MiniCPM-o's listen_prob_scale and listen_top_k act on listening, not on the end of a text."""
    if hasattr(duplex, "listen_token_id") and hasattr(duplex.decoder, "listen_id"):
        duplex.decoder.listen_id = duplex.listen_token_id


@contextmanager
def listening(duplex: Any) -> Iterator[None]:
    """Make MiniCPM-o listen, in the edition that has no argument for it.

    Does what the other edition does with such an argument. The open turn is ended in the context and its
    vocoder state is reset, which the library's code does in one place only. Then the unit is treated as one
    of those at the beginning, in which the model only listens.
    """
    if not duplex.current_turn_ended:
        duplex.decoder.feed(duplex.decoder.embed_token(duplex.turn_eos_token_id))
        duplex.current_turn_ended = True
        duplex._reset_token2wav_for_new_turn()
    count, duplex.force_listen_count = duplex.force_listen_count, sys.maxsize
    try:
        yield
    finally:
        duplex.force_listen_count = count
