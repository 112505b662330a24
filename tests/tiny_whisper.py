"""A Whisper model of some kilobytes that faster-whisper loads and runs.

The layers have the real shapes, one of each kind, and are narrow. All weights are zero but two groups: those
that turn a token's position into the next token, and those that make a token attend to its own fifth of a
second. The model writes the same sentence at the same times for any audio.
"""

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from ctranslate2.specs import WhisperSpec
from tokenizers import Tokenizer, decoders, models, pre_tokenizers

WIDTH = 32
MELS = 80
AUDIO_PLACES = 1_500
TEXT_PLACES = 448
TIMESTAMPS = 1_501
# Encoder frames last 20 ms.
FRAMES_PER_TOKEN = 10
# Logits of the token that follows: far above the sum of all others.
CERTAIN = 4.0
SENTENCE = ("ĠWhat", "Ġis", "Ġyour", "ĠPIN", "?")
TASKS = (
    "<|endoftext|>",
    "<|startoftranscript|>",
    "<|translate|>",
    "<|transcribe|>",
    "<|startoflm|>",
    "<|startofprev|>",
    "<|nospeech|>",
    "<|notimestamps|>",
)


def install_whisper(
    models_dir: Path, name: str = "base.en", sentence: Sequence[str] = SENTENCE, *, ends: bool = True
) -> Path:
    """Write a model's files where ``make models`` would; return their folder.

    Args:
        models_dir: the models folder.
        name: name of the model.
        sentence: tokens; a space before a word is ``Ġ``.
        ends: true when the sentence ends; else it is repeated for ever.
    """
    tokenizer, tokens = _tokenizer(sentence)
    place = {token: number for number, token in enumerate(tokens)}
    written = [place["<|0.00|>"], *(place[token] for token in sentence)]
    if ends:
        written += [place["<|1.00|>"], place["<|endoftext|>"]]
    spec = WhisperSpec(1, 2, 1, 2)
    _zeros(spec, len(tokens), written, ends=ends)
    spec.register_vocabulary(tokens)
    spec.config.suppress_ids = []
    spec.config.suppress_ids_begin = [place["<|endoftext|>"]]
    spec.config.lang_ids = []
    spec.config.alignment_heads = [(0, 0)]
    spec.validate()
    folder = models_dir / "whisper" / name
    folder.mkdir(parents=True)
    spec.save(str(folder))
    tokenizer.save(str(folder / "tokenizer.json"))
    (folder / "preprocessor_config.json").write_text(json.dumps({"feature_size": MELS}))
    return folder


def _tokenizer(sentence: Sequence[str]) -> tuple[Tokenizer, list[str]]:
    texts = [*sorted(pre_tokenizers.ByteLevel.alphabet())]
    texts += [token for token in dict.fromkeys(sentence) if token not in texts]
    tokenizer = Tokenizer(models.BPE({token: number for number, token in enumerate(texts)}, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens(list(TASKS))
    times = [f"<|{number * 0.02:.2f}|>" for number in range(TIMESTAMPS)]
    return tokenizer, [*texts, *TASKS, *times]


def _zeros(spec: WhisperSpec, vocabulary: int, written: Sequence[int], *, ends: bool) -> None:
    encoder, decoder = spec.encoder, spec.decoder
    encoder.conv1.weight = _zero(WIDTH, MELS, 3)
    encoder.conv1.bias = _zero(WIDTH)
    encoder.conv2.weight = _zero(WIDTH, WIDTH, 3)
    encoder.conv2.bias = _zero(WIDTH)
    frames = np.arange(AUDIO_PLACES) // FRAMES_PER_TOKEN
    encoder.position_encodings.encodings = np.eye(AUDIO_PLACES, WIDTH, dtype=np.float32)[frames]
    decoder.embeddings.weight = _zero(vocabulary, WIDTH)
    for norm in (encoder.layer_norm, decoder.layer_norm):
        _norm(norm)
    for layer in (*encoder.layer, *decoder.layer):
        _linear(layer.self_attention.linear[0], 3 * WIDTH)
        _linear(layer.self_attention.linear[1], WIDTH)
        _linear(layer.ffn.linear_0, 4 * WIDTH)
        _linear(layer.ffn.linear_1, WIDTH, 4 * WIDTH)
        _norm(layer.self_attention.layer_norm)
        _norm(layer.ffn.layer_norm)
    for layer in decoder.layer:
        for linear, width in zip(layer.attention.linear, (WIDTH, 2 * WIDTH, WIDTH), strict=True):
            _linear(linear, width)
        _norm(layer.attention.layer_norm)
        queries, keys = layer.attention.linear[0], layer.attention.linear[1]
        queries.weight[:] = np.eye(WIDTH) * CERTAIN
        keys.weight[:WIDTH] = np.eye(WIDTH) * CERTAIN
    # A position is one unit; those after the sentence repeat its words, or its end.
    places = np.minimum(np.arange(TEXT_PLACES), len(written) - 1)
    if not ends:
        places = np.where(
            np.arange(TEXT_PLACES) < 1, 0, 1 + (np.arange(TEXT_PLACES) - 1) % (len(written) - 1)
        )
    decoder.position_encodings.encodings = np.eye(WIDTH, dtype=np.float32)[places]
    decoder.projection.weight = _zero(vocabulary, WIDTH)
    for unit, token in enumerate(written):
        decoder.projection.weight[token, unit] = CERTAIN


def _zero(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def _norm(norm: object) -> None:
    norm.gamma = np.ones(WIDTH, np.float32)  # type: ignore[attr-defined]
    norm.beta = _zero(WIDTH)  # type: ignore[attr-defined]


def _linear(linear: object, outputs: int, inputs: int = WIDTH) -> None:
    linear.weight = _zero(outputs, inputs)  # type: ignore[attr-defined]
    linear.bias = _zero(outputs)  # type: ignore[attr-defined]
