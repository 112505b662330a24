"""Decoding of a NeMo model that knows how sure it is."""

from typing import Any


def confidences(*, words: bool) -> dict[str, Any]:
    """Return the settings for the probability of each token, and of each word where ``words`` is true."""
    return {
        "preserve_frame_confidence": True,
        "preserve_token_confidence": True,
        "preserve_word_confidence": words,
        "exclude_blank": True,
        "aggregation": "mean",
        "method_cfg": {"name": "max_prob", "alpha": 1.0},
    }


def change_decoding(model: Any, decoding: Any) -> None:
    """Give a model other settings of its decoding; a hybrid one decodes as a transducer."""
    if hasattr(model, "cur_decoder"):
        model.change_decoding_strategy(decoding, decoder_type="rnnt")
    else:
        model.change_decoding_strategy(decoding)
