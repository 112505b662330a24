"""A Moshi of half a megabyte that transformers loads and runs: real layers of the real kinds, few and narrow.

Its weights are random, so its input and output are meaningless; its frame rate, its sample rate, its ratios
and its delays are the true ones. The loading code is that of the real one.
"""

from dataclasses import dataclass
from pathlib import Path

import torch
from tokenizers import Tokenizer, models, pre_tokenizers
from transformers import MoshiConfig, MoshiForConditionalGeneration, PreTrainedTokenizerFast
from transformers.utils import logging as transformers_logging

CODEBOOKS = 4
CODES = 64
SPECIAL = ("<unk>", "<s>", "</s>", "<pad>")
PIECES = (
    *SPECIAL,
    *("▁hello", "▁yes", "▁no", "▁we", "▁are", "▁open", "▁to", "day", "ing", "ly", ",", ".", "?"),
    *(f"<0x{byte:02X}>" for byte in "é€".encode()),
)


@dataclass(frozen=True, slots=True)
class TinyMoshi:
    """Parameters of a tiny model.

    Attributes:
        seed: of its weights.
        window: positions that it attends to.
        gain: of its voice. With 0 its audio is silent.
        is_wordless: true when no text token is likelier than another, so that the first one, which is no
            word, is drawn.
    """

    seed: int = 0
    window: int = 40
    gain: float = 0.05
    is_wordless: bool = False


def install_tiny_moshi(folder: Path, tiny: TinyMoshi | None = None) -> Path:
    """Write the model to a folder.

    Args:
        folder: created.
        tiny: its parameters.

    Returns:
        The folder.
    """
    tiny = tiny or TinyMoshi()
    config = MoshiConfig(
        vocab_size=len(PIECES),
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=4,
        ffn_dim=64,
        num_codebooks=CODEBOOKS,
        audio_vocab_size=CODES,
        sliding_window=tiny.window,
        max_position_embeddings=tiny.window,
        # With less, its steps hardly depend on the input.
        initializer_range=0.2,
        audio_encoder_config={
            "model_type": "mimi",
            "sampling_rate": 24_000,
            "upsampling_ratios": [8, 6, 5, 4],
            "hidden_size": 32,
            "num_filters": 4,
            "codebook_size": CODES,
            "codebook_dim": 16,
            "vector_quantization_hidden_dimension": 16,
            "num_quantizers": 2 * CODEBOOKS,
            "upsample_groups": 32,
            "num_hidden_layers": 2,
            "intermediate_size": 64,
            "num_attention_heads": 4,
            "num_key_value_heads": 4,
            # Short, so that a stream of some seconds is longer.
            "sliding_window": 20,
            "layer_scale_initial_scale": 0.5,
        },
        depth_decoder_config={
            "hidden_size": 16,
            "num_hidden_layers": 2,
            "num_attention_heads": 2,
            "ffn_dim": 32,
            "sliding_window": CODEBOOKS,
            "max_position_embeddings": CODEBOOKS + 1,
        },
    )
    # The random state of the process is not affected.
    with torch.random.fork_rng(devices=[]), torch.no_grad():
        torch.manual_seed(tiny.seed)
        model = MoshiForConditionalGeneration(config)
        for name, buffer in model.named_buffers():
            if name.endswith("embed_sum"):
                buffer.normal_()
        loudness = model.audio_encoder.decoder.decoder_seanet.layers[-1].conv
        loudness.weight.mul_(tiny.gain)
        loudness.bias.mul_(tiny.gain)
        if tiny.is_wordless:
            model.decoder.lm_head.weight.zero_()
    # Its progress bar would appear between the lines of a test or a report.
    transformers_logging.disable_progress_bar()
    model.save_pretrained(folder)
    vocabulary = {piece: token for token, piece in enumerate(PIECES)}
    words = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    words.pre_tokenizer = pre_tokenizers.Metaspace()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=words,
        unk_token="<unk>",
        bos_token="<s>",
        eos_token="</s>",
        pad_token="<pad>",
    )
    tokenizer.save_pretrained(folder)
    return folder
