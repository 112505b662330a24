"""Randomly initialised language models in GGUF files, made with the package ``gguf``."""

from pathlib import Path

import gguf
import numpy as np

CHATML = (
    "{% for message in messages %}<|im_start|>{{ message['role'] }}\n{{ message['content'] }}<|im_end|>\n"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
# Calls are written and read as Hermes models do.
CHATML_TOOLS = (
    "{% if tools %}<|im_start|>system\nYou may call one or more functions. They are within <tools></tools>:\n"
    "<tools>{% for tool in tools %}\n{{ tool | tojson }}{% endfor %}\n</tools>\nFor each call, return a json "
    'object within <tool_call></tool_call>:\n<tool_call>\n{"name": <function-name>, "arguments": '
    "<args-json-object>}\n</tool_call><|im_end|>\n{% endif %}{% for message in messages %}<|im_start|>"
    "{{ message['role'] }}\n{{ message['content'] }}{% for call in message.tool_calls or [] %}\n<tool_call>\n"
    '{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}\n</tool_call>'
    "{% endfor %}<|im_end|>\n{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
SPECIAL = ("<|im_start|>", "<|im_end|>")


def save_tiny_gguf(
    path: Path,
    *,
    template: str | None = CHATML,
    layers: int = 2,
    width: int = 64,
    context_tokens: int = 32_768,
    seed: int = 0,
) -> Path:
    """Write a Llama whose tokens are bytes. It never ends an answer by itself.

    Args:
        path: of the file.
        template: the chat template; None for a file without one.
        layers: number of layers; more are slower.
        width: width of the network, a multiple of 64.
        context_tokens: context length that the file declares.
        seed: seed of the weights.
    """
    random = np.random.default_rng(seed)
    tokens = [*_byte_tokens(), "th", *SPECIAL]
    start, end = len(tokens) - 2, len(tokens) - 1
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_name(path.stem)
    writer.add_context_length(context_tokens)
    writer.add_embedding_length(width)
    writer.add_block_count(layers)
    writer.add_feed_forward_length(2 * width)
    writer.add_head_count(width // 32)
    writer.add_head_count_kv(width // 32)
    writer.add_rope_dimension_count(32)
    writer.add_layer_norm_rms_eps(1e-5)
    writer.add_vocab_size(len(tokens))
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(tokens)
    normal, control = gguf.TokenType.NORMAL, gguf.TokenType.CONTROL
    writer.add_token_types([*[normal] * start, control, control])
    writer.add_token_merges(["t h"])
    writer.add_bos_token_id(start)
    writer.add_eos_token_id(end)
    writer.add_add_bos_token(False)
    if template is not None:
        writer.add_chat_template(template)

    def add(name: str, *shape: int) -> None:
        writer.add_tensor(name, random.normal(0.0, 0.3, shape).astype(np.float32))

    add("token_embd.weight", len(tokens), width)
    # Answers are printable ASCII: the logits of all other tokens are 0, far below the 40 likeliest.
    head = random.normal(0.0, 0.3, (len(tokens), width)).astype(np.float32)
    head[[token for token, text in enumerate(tokens) if len(text) > 1 or not text.isascii()]] = 0.0
    writer.add_tensor("output.weight", head)
    norms = ["output_norm", *(f"blk.{n}.{norm}" for n in range(layers) for norm in ("attn_norm", "ffn_norm"))]
    for norm in norms:
        writer.add_tensor(f"{norm}.weight", np.ones(width, np.float32))
    for layer in range(layers):
        for part in ("attn_q", "attn_k", "attn_v", "attn_output"):
            add(f"blk.{layer}.{part}.weight", width, width)
        add(f"blk.{layer}.ffn_gate.weight", 2 * width, width)
        add(f"blk.{layer}.ffn_up.weight", 2 * width, width)
        add(f"blk.{layer}.ffn_down.weight", width, 2 * width)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _byte_tokens() -> list[str]:
    """Return the 256 bytes as GPT-2's tokenizer writes them.

    Printable ones are themselves, the others begin at 256.
    """
    printable = {*range(33, 127), *range(161, 173), *range(174, 256)}
    others = iter(range(256, 512))
    return [chr(byte) if byte in printable else chr(next(others)) for byte in range(256)]
