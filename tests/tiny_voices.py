"""Tiny files of Kokoro, Piper and Supertonic: networks with the real inputs and outputs that speak tones.

Each phoneme lasts a random number of frames and is a tone of a random pitch; spaces, stress marks, marks of
punctuation and padding are silent. Supertonic's characters do the same. Random values come from a fixed seed.
The package ``onnx`` is needed for building only.
"""

import json
from pathlib import Path

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper
from onnx.onnx_pb import NodeProto, ValueInfoProto

KOKORO_VOICES = ("af_heart", "bm_george")
KOKORO_RATE_HZ = 24_000
KOKORO_FRAME_SAMPLES = 600
PIPER_RATE_HZ = 22_050
PIPER_FRAME_SAMPLES = 256
PIPER_VOICE = "en_US-lessac-medium"
SUPERTONIC_VOICES = ("F1", "M1")
SUPERTONIC_RATE_HZ = 44_100
# Two chunks are a frame of the latent, of 20 ms.
SUPERTONIC_CHUNK_SAMPLES = 441
_STRESS = "ˈˌ"
_PAD_FRAMES = 8


def write_kokoro(models_dir: Path, *, durations: bool = False, silent: bool = False) -> Path:
    """Write the two files of ``make models kokoro`` below ``models_dir``; return their folder.

    durations: use the names and the second output of newer exports, which report frames per token.
    silent: every token is silence.
    """
    from kokoro_onnx.config import DEFAULT_VOCAB

    folder = models_dir / "kokoro"
    folder.mkdir(parents=True)
    tokens = "input_ids" if durations else "tokens"
    inputs = [
        helper.make_tensor_value_info(tokens, TensorProto.INT64, [1, "tokens"]),
        helper.make_tensor_value_info("style", TensorProto.FLOAT, [1, 256]),
        helper.make_tensor_value_info("speed", TensorProto.FLOAT, [1]),
    ]
    outputs = [
        helper.make_tensor_value_info("waveform" if durations else "audio", TensorProto.FLOAT, ["samples"])
    ]
    if durations:
        outputs.append(helper.make_tensor_value_info("duration", TensorProto.INT64, ["tokens"]))
    symbols = {number: symbol for symbol, number in DEFAULT_VOCAB.items()}
    constants, nodes = _tones(
        symbols,
        ids=tokens,
        frame_samples=KOKORO_FRAME_SAMPLES,
        rate_hz=KOKORO_RATE_HZ,
        base_frames=2,
        audio=outputs[0].name,
        frames="duration" if durations else "frames",
        silent=silent,
    )
    # Slower speech is longer; the style moves the pitch.
    constants["one"] = np.array([1.0], dtype=np.float32)
    nodes = [
        helper.make_node("Div", ["one", "speed"], ["stretch"]),
        helper.make_node("ReduceMean", ["style"], ["style_mean"], axes=[0, 1], keepdims=0),
        helper.make_node("Add", ["one", "style_mean"], ["pitch"]),
        *nodes,
    ]
    _save(folder / "kokoro-v1.0.onnx", nodes, constants, inputs, outputs)
    random = np.random.default_rng(7)
    with (folder / "voices-v1.0.bin").open("wb") as file:
        np.savez(file, **{name: random.random((510, 1, 256), dtype=np.float32) for name in KOKORO_VOICES})
    return folder


def write_piper(
    models_dir: Path,
    *,
    voice: str = PIPER_VOICE,
    durations: bool = False,
    silent: bool = False,
    speakers: tuple[str, ...] = (),
    rate_hz: int = PIPER_RATE_HZ,
    phoneme_type: str = "espeak",
) -> Path:
    """Write the two files of a Piper voice below ``models_dir``; return their folder.

    durations: like a voice patched by ``patch_voice_with_alignment``, which reports frames per phoneme.
    silent: every phoneme is silence.
    speakers: names of the speakers of a voice that has several.
    """
    from piper.phoneme_ids import DEFAULT_PHONEME_ID_MAP

    folder = models_dir / "piper"
    folder.mkdir(parents=True, exist_ok=True)
    inputs = [
        helper.make_tensor_value_info("input", TensorProto.INT64, [1, "phonemes"]),
        helper.make_tensor_value_info("input_lengths", TensorProto.INT64, [1]),
        helper.make_tensor_value_info("scales", TensorProto.FLOAT, [3]),
    ]
    outputs = [helper.make_tensor_value_info("output", TensorProto.FLOAT, [1, 1, 1, "samples"])]
    if durations:
        outputs.append(helper.make_tensor_value_info("w_ceil", TensorProto.FLOAT, [1, 1, "phonemes"]))
    symbols = {ids[0]: symbol for symbol, ids in DEFAULT_PHONEME_ID_MAP.items()}
    constants, nodes = _tones(
        symbols,
        ids="input",
        frame_samples=PIPER_FRAME_SAMPLES,
        rate_hz=rate_hz,
        base_frames=4,
        audio="flat",
        frames="frames",
        silent=silent,
    )
    constants["length_at"] = np.array([1], dtype=np.int64)
    constants["audio_shape"] = np.array([1, 1, 1, -1], dtype=np.int64)
    nodes = [
        helper.make_node("Gather", ["scales", "length_at"], ["stretch"], axis=0),
        *_piper_pitch(constants, inputs, speakers),
        *nodes,
        helper.make_node("Reshape", ["flat", "audio_shape"], ["output"]),
    ]
    if durations:
        constants["frames_shape"] = np.array([1, 1, -1], dtype=np.int64)
        nodes += [
            helper.make_node("Cast", ["frames"], ["frames_float"], to=TensorProto.FLOAT),
            helper.make_node("Reshape", ["frames_float", "frames_shape"], ["w_ceil"]),
        ]
    _save(folder / f"{voice}.onnx", nodes, constants, inputs, outputs)
    description = {
        "audio": {"sample_rate": rate_hz},
        "espeak": {"voice": "en-us"},
        "phoneme_type": phoneme_type,
        "inference": {"noise_scale": 0.667, "length_scale": 1, "noise_w": 0.8},
        "num_symbols": 256,
        "num_speakers": max(1, len(speakers)),
        "speaker_id_map": {name: number for number, name in enumerate(speakers)},
        "phoneme_id_map": DEFAULT_PHONEME_ID_MAP,
    }
    (folder / f"{voice}.onnx.json").write_text(json.dumps(description), encoding="utf-8")
    return folder


def write_supertonic(models_dir: Path, *, model: str = "supertonic-3", silent: bool = False) -> Path:
    """Write the files of a Supertonic model below ``models_dir``; return their folder.

    It knows the characters of ASCII and those that accented Latin letters are composed of.

    silent: every character is silence.
    """
    folder = models_dir / "supertonic" / model
    (folder / "onnx").mkdir(parents=True)
    (folder / "voice_styles").mkdir()
    known = [*range(0x20, 0x7F), *range(0x300, 0x370)]
    indexer = [-1] * 0x400
    for number, code in enumerate(known):
        indexer[code] = number
    description = {
        "ae": {"sample_rate": SUPERTONIC_RATE_HZ, "base_chunk_size": SUPERTONIC_CHUNK_SAMPLES},
        "ttl": {"latent_dim": 1, "chunk_compress_factor": 2},
    }
    random = np.random.default_rng(5)
    styles = {
        voice: {
            name: {"dims": dims, "data": (0.2 * random.random(dims)).tolist()}
            for name, dims in (("style_ttl", [1, 2, 4]), ("style_dp", [1, 2, 2]))
        }
        for voice in SUPERTONIC_VOICES
    }
    files: dict[str, object] = {"onnx/unicode_indexer.json": indexer, "onnx/tts.json": description}
    files |= {f"voice_styles/{voice}.json": style for voice, style in styles.items()}
    for name, content in files.items():
        (folder / name).write_text(json.dumps(content), encoding="utf-8")
    heard = np.array([chr(code).isalnum() for code in known])
    table = {
        "seconds": np.where(heard, random.uniform(0.05, 0.09, len(known)), 0.03).astype(np.float32),
        "loudness": np.where(heard & (not silent), 0.5, 0.0).astype(np.float32),
        "hertz": random.uniform(300, 900, len(known)).astype(np.float32),
    }
    _save_readers(folder / "onnx", table)
    _save_estimator(folder / "onnx")
    _save_vocoder(folder / "onnx")
    return folder


def _save_readers(folder: Path, table: dict[str, np.ndarray]) -> None:
    """Write the duration predictor and the text encoder, which look characters up; the style scales both."""
    value, node = helper.make_tensor_value_info, helper.make_node
    ids = value("text_ids", TensorProto.INT64, [1, "characters"])
    mask = value("text_mask", TensorProto.FLOAT, [1, 1, "characters"])
    scale = [
        node("ReduceMean", ["style"], ["mean"], axes=[0, 1, 2], keepdims=0),
        node("Add", ["one", "mean"], ["scale"]),
    ]
    constants = {"one": np.array([1.0], dtype=np.float32), "flat": np.array([-1], dtype=np.int64)}
    _save(
        folder / "duration_predictor.onnx",
        [
            node("Identity", ["style_dp"], ["style"]),
            *scale,
            node("Gather", ["seconds", "text_ids"], ["each"], axis=0),
            node("Mul", ["each", "text_mask"], ["masked"]),
            node("ReduceSum", ["masked"], ["total"], keepdims=0),
            node("Mul", ["total", "scale"], ["duration"]),
        ],
        {**constants, "seconds": table["seconds"]},
        [ids, value("style_dp", TensorProto.FLOAT, [1, 2, 2]), mask],
        [value("duration", TensorProto.FLOAT, [1])],
    )
    _save(
        folder / "text_encoder.onnx",
        [
            node("Identity", ["style_ttl"], ["style"]),
            *scale,
            *(node("Gather", [name, "text_ids"], [f"{name}_of"], axis=0) for name in table),
            node("Mul", ["hertz_of", "scale"], ["pitch"]),
            node("Concat", ["loudness_of", "pitch", "seconds_of"], ["rows"], axis=0),
            node("Reshape", ["rows", "shape"], ["text_emb"]),
        ],
        {**constants, **table, "shape": np.array([1, 3, -1], dtype=np.int64)},
        [ids, value("style_ttl", TensorProto.FLOAT, [1, 2, 4]), mask],
        [value("text_emb", TensorProto.FLOAT, [1, 3, "characters"])],
    )


def _save_estimator(folder: Path) -> None:
    """Write the vector estimator: each step goes its share of the way from the noise to the speech."""
    value, node = helper.make_tensor_value_info, helper.make_node
    integers = {
        "zero": 0, "step": 1, "axis": 0, "first": [0], "two": [2], "three": [3], "frames_at": [2],
        "flat": [-1], "column": [-1, 1], "row": [1, -1], "sum_axis": [1],
    }  # fmt: skip
    constants = {name: np.array(number, dtype=np.int64) for name, number in integers.items()}
    constants["one"] = np.array([1.0], dtype=np.float32)
    nodes = [
        node("Slice", ["text_emb", "first", "two", "sum_axis"], ["speech"]),
        node("Slice", ["text_emb", "two", "three", "sum_axis"], ["seconds"]),
        # The character of each frame: the number of characters that ended before it.
        node("Reshape", ["seconds", "flat"], ["seconds_flat"]),
        node("CumSum", ["seconds_flat", "axis"], ["ends"]),
        node("ReduceSum", ["seconds_flat"], ["total"], keepdims=0),
        node("Shape", ["noisy_latent"], ["shape"]),
        node("Gather", ["shape", "frames_at"], ["count_list"]),
        node("Squeeze", ["count_list"], ["count"]),
        node("Cast", ["count"], ["count_float"], to=TensorProto.FLOAT),
        node("Div", ["ends", "total"], ["shares"]),
        node("Mul", ["shares", "count_float"], ["end_frames"]),
        node("Range", ["zero", "count", "step"], ["frame"]),
        node("Cast", ["frame"], ["frame_float"], to=TensorProto.FLOAT),
        node("Reshape", ["frame_float", "column"], ["frame_column"]),
        node("Reshape", ["end_frames", "row"], ["end_row"]),
        node("GreaterOrEqual", ["frame_column", "end_row"], ["over"]),
        node("Cast", ["over"], ["over_count"], to=TensorProto.INT64),
        node("ReduceSum", ["over_count", "sum_axis"], ["character_of"], keepdims=0),
        node("Gather", ["speech", "character_of"], ["target"], axis=2),
        node("Sub", ["total_step", "current_step"], ["steps_left"]),
        node("Div", ["one", "steps_left"], ["share"]),
        node("Sub", ["one", "share"], ["rest"]),
        node("Mul", ["noisy_latent", "rest"], ["noise"]),
        node("Mul", ["target", "share"], ["added"]),
        node("Add", ["noise", "added"], ["moved"]),
        node("Mul", ["moved", "latent_mask"], ["denoised_latent"]),
    ]
    latent = [1, 2, "frames"]
    inputs = [
        value("noisy_latent", TensorProto.FLOAT, latent),
        value("text_emb", TensorProto.FLOAT, [1, 3, "characters"]),
        value("style_ttl", TensorProto.FLOAT, [1, 2, 4]),
        value("latent_mask", TensorProto.FLOAT, [1, 1, "frames"]),
        value("text_mask", TensorProto.FLOAT, [1, 1, "characters"]),
        value("current_step", TensorProto.FLOAT, [1]),
        value("total_step", TensorProto.FLOAT, [1]),
    ]
    outputs = [value("denoised_latent", TensorProto.FLOAT, latent)]
    _save(folder / "vector_estimator.onnx", nodes, constants, inputs, outputs)


def _save_vocoder(folder: Path) -> None:
    """Write the vocoder: a frame of the latent is a loudness and a pitch, and becomes a tone."""
    value, node = helper.make_tensor_value_info, helper.make_node
    samples = np.arange(2 * SUPERTONIC_CHUNK_SAMPLES, dtype=np.float32)
    constants = {
        "second": samples[None, :] / SUPERTONIC_RATE_HZ * np.float32(2 * np.pi),
        "column": np.array([-1, 1], dtype=np.int64),
        "row": np.array([1, -1], dtype=np.int64),
    }
    nodes = [
        node("Split", ["latent"], ["loudness", "pitch"], axis=1),
        node("Reshape", ["loudness", "column"], ["loudness_column"]),
        node("Reshape", ["pitch", "column"], ["pitch_column"]),
        node("Mul", ["pitch_column", "second"], ["phase"]),
        node("Sin", ["phase"], ["sine"]),
        node("Mul", ["sine", "loudness_column"], ["framed"]),
        node("Reshape", ["framed", "row"], ["wav_tts"]),
    ]
    inputs = [value("latent", TensorProto.FLOAT, [1, 2, "frames"])]
    _save(
        folder / "vocoder.onnx",
        nodes,
        constants,
        inputs,
        [value("wav_tts", TensorProto.FLOAT, [1, "samples"])],
    )


def _piper_pitch(
    constants: dict[str, np.ndarray], inputs: list[ValueInfoProto], speakers: tuple[str, ...]
) -> list[NodeProto]:
    """Return the nodes of the pitch: one pitch, or one for each speaker."""
    if not speakers:
        constants["pitch"] = np.array([1.0], dtype=np.float32)
        return []
    inputs.append(helper.make_tensor_value_info("sid", TensorProto.INT64, [1]))
    constants["pitches"] = 1.0 + np.arange(len(speakers), dtype=np.float32)
    return [helper.make_node("Gather", ["pitches", "sid"], ["pitch"], axis=0)]


def _tones(
    symbols: dict[int, str],
    *,
    ids: str,
    frame_samples: int,
    rate_hz: int,
    base_frames: int,
    audio: str,
    frames: str,
    silent: bool,
) -> tuple[dict[str, np.ndarray], list[NodeProto]]:
    """Return the common nodes: ``ids``, ``stretch``, ``pitch`` to ``frames`` (per id), ``audio`` (flat)."""
    random = np.random.default_rng(11)
    count = max(symbols) + 1
    lasting = np.zeros(count, dtype=np.float32)
    loudness = np.zeros(count, dtype=np.float32)
    for number, symbol in symbols.items():
        heard = symbol.isalnum() and symbol not in _STRESS
        lasting[number] = base_frames + random.integers(0, base_frames) if heard else base_frames // 2
        loudness[number] = 0.0 if silent or not heard else 0.5
    # The symbols that begin and end a sequence are silent: number 0 pads in both models, "^" and "$" are
    # Piper's.
    for number, symbol in {0: "_", **symbols}.items():
        if symbol in ("^", "$") or (number == 0 and base_frames == 2):
            lasting[number] = _PAD_FRAMES * base_frames
        elif number == 0:
            lasting[number] = 1
    constants = {
        "lasting": lasting,
        "loudness": loudness,
        "hertz": random.uniform(300, 900, count).astype(np.float32),
        "second": np.arange(frame_samples, dtype=np.float32)[None, :] / rate_hz * np.float32(2 * np.pi),
        "flat_shape": np.array([-1], dtype=np.int64),
        "column": np.array([-1, 1], dtype=np.int64),
        "row": np.array([1, -1], dtype=np.int64),
        "zero": np.array(0, dtype=np.int64),
        "step": np.array(1, dtype=np.int64),
        "axis": np.array(0, dtype=np.int64),
        "sum_axis": np.array([1], dtype=np.int64),
    }
    node = helper.make_node
    nodes = [
        node("Reshape", [ids, "flat_shape"], ["ids_flat"]),
        node("Gather", ["lasting", "ids_flat"], ["lasting_of"], axis=0),
        node("Mul", ["lasting_of", "stretch"], ["stretched"]),
        node("Ceil", ["stretched"], ["whole"]),
        node("Cast", ["whole"], [frames], to=TensorProto.INT64),
        # The token of each frame: the number of tokens that ended before it.
        node("CumSum", [frames, "axis"], ["ends"]),
        node("ReduceSum", [frames], ["total"], keepdims=0),
        node("Range", ["zero", "total", "step"], ["frame"]),
        node("Reshape", ["frame", "column"], ["frame_column"]),
        node("Reshape", ["ends", "row"], ["ends_row"]),
        node("GreaterOrEqual", ["frame_column", "ends_row"], ["over"]),
        node("Cast", ["over"], ["over_count"], to=TensorProto.INT64),
        node("ReduceSum", ["over_count", "sum_axis"], ["token_of"], keepdims=0),
        node("Gather", ["ids_flat", "token_of"], ["id_of"], axis=0),
        node("Gather", ["hertz", "id_of"], ["hertz_of"], axis=0),
        node("Gather", ["loudness", "id_of"], ["loudness_of"], axis=0),
        node("Mul", ["hertz_of", "pitch"], ["pitched"]),
        node("Reshape", ["pitched", "column"], ["pitched_column"]),
        node("Reshape", ["loudness_of", "column"], ["loudness_column"]),
        node("Mul", ["pitched_column", "second"], ["phase"]),
        node("Sin", ["phase"], ["sine"]),
        node("Mul", ["sine", "loudness_column"], ["framed"]),
        node("Reshape", ["framed", "flat_shape"], [audio]),
    ]
    return constants, nodes


def _save(
    path: Path,
    nodes: list[NodeProto],
    constants: dict[str, np.ndarray],
    inputs: list[ValueInfoProto],
    outputs: list[ValueInfoProto],
) -> None:
    initializers = [numpy_helper.from_array(value, name) for name, value in constants.items()]
    graph = helper.make_graph(nodes, "tones", inputs, outputs, initializers)
    # Old enough for every onnxruntime that the engines allow.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8)
    onnx.checker.check_model(model)
    path.write_bytes(model.SerializeToString())
