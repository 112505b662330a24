"""The door to private members of the engines' libraries.

Nothing else in this folder touches a private member of a library, which ``scripts/check_foreign_members.py``
checks. The libraries are no packages of Parley's own environment: a missing member fails where it is used.
"""

from typing import Any, TypeVar

Model = TypeVar("Model")


def attention_of(model: Any) -> str:
    """Return the name of the attention that a model of transformers computes with; there is no getter."""
    name: str = model.config._attn_implementation
    return name


def keep_exact(model: type[Model], *parts: str) -> type[Model]:
    """Return a class of models of transformers of which these parts are float32, whatever the others are.

    They are named by an attribute of the class; ``from_pretrained`` has no argument for them.
    """
    return type(f"Exact{model.__name__}", (model,), {"_keep_in_fp32_modules_strict": parts})


def begin_vocoder_turn(duplex: Any) -> None:
    """Have the vocoder of MiniCPM-o forget a turn that has ended. Its own code does so in one place only."""
    duplex._reset_token2wav_for_new_turn()
