"""A Qwen3 of a hundred kilobytes that transformers loads and runs: real layers, few and narrow, random.

Its output is meaningless. Its tokenizer is one of bytes, so every text has tokens. Its chat template is
ChatML as in Qwen3: an empty thought precedes an answer without thinking, and does not precede older answers.
"""

from pathlib import Path

import torch
from tokenizers import Tokenizer, decoders, models, pre_tokenizers
from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM
from transformers.utils import logging as transformers_logging

SPECIAL = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
TEMPLATE = (
    "{% for message in messages %}"
    "<|im_start|>{{ message.role }}\n{{ message.content }}<|im_end|>\n"
    "{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n"
    "{% if not enable_thinking | default(true) %}<think>\n\n</think>\n\n{% endif %}{% endif %}"
)


def install_tiny_qwen3(
    folder: Path,
    *,
    seed: int = 0,
    layers: int = 2,
    width: int = 32,
    heads: int = 4,
    is_ascii: bool = False,
    window: int | None = None,
) -> Path:
    """Write the model to a folder.

    Args:
        folder: created.
        seed: of its weights.
        layers: number of layers.
        width: of each layer.
        heads: of each layer; half as many have keys and values.
        window: positions that its second half of layers attends to. None for all.
        is_ascii: true when it reads and writes no other characters, so that its output consists of whole
            ones.

    Returns:
        The folder.
    """
    transformers_logging.disable_progress_bar()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    if is_ascii:
        # In the byte-level alphabet: a space and the end of a line.
        alphabet = [piece for piece in alphabet if piece.isascii() or piece in "\u0120\u010a"]
    vocabulary = {piece: place for place, piece in enumerate((*SPECIAL, *alphabet))}
    inner = Tokenizer(models.BPE(vocab=vocabulary, merges=[]))
    inner.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)
    inner.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=inner, eos_token="<|im_end|>", pad_token="<|endoftext|>"
    )
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    config = Qwen3Config(
        vocab_size=len(vocabulary),
        hidden_size=width,
        intermediate_size=2 * width,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=heads // 2,
        head_dim=width // heads,
        max_position_embeddings=65_536,
        eos_token_id=vocabulary["<|im_end|>"],
        bos_token_id=None,
        use_sliding_window=window is not None,
        sliding_window=window,
        max_window_layers=layers // 2,
        pad_token_id=vocabulary["<|endoftext|>"],
    )
    torch.manual_seed(seed)
    Qwen3ForCausalLM(config).save_pretrained(folder)
    return folder
