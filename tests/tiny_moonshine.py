"""A Moonshine model of a few kilobytes that the real library loads and runs.

The files have the layout of a streaming model, and their graphs only count: every ``FRAMES_PER_TOKEN`` loud
frames (20 ms each) become the next token of a fixed sentence. Lines, look-ahead and word times are the
library's own work.
"""

import json
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
from onnx import TensorProto, helper, numpy_helper

FRAME_SAMPLES = 320
FRAMES_PER_TOKEN = 10
# Mean magnitude of a frame, of full scale.
LOUD = 0.01
DIM = 4
TOKENS = ("<unk>", "<s>", "</s>", "▁What", "▁is", "▁your", "▁P", "IN", "?")
FIRST_TOKEN = 3
END_TOKEN = 2
CONFIG = {
    "encoder_dim": DIM,
    "decoder_dim": DIM,
    "depth": 1,
    "nheads": 1,
    "head_dim": DIM,
    "vocab_size": len(TOKENS),
    "bos_id": 1,
    "eos_id": END_TOKEN,
    "frame_len": 80,
    "total_lookahead": 4,
    "d_model_frontend": 2,
    "c1": 2,
    "c2": 2,
    "max_seq_len": 448,
}


def install_moonshine(models_dir: Path, *, word_times: bool = False) -> Path:
    """Write the files of the default model where ``make models`` would; return their folder."""
    from parley.models.stt.moonshine import MoonshineSettings

    folder = MoonshineSettings(models_dir=models_dir).files()[0].parent
    write_moonshine(folder, word_times=word_times)
    return folder


def write_moonshine(folder: Path, *, word_times: bool = False) -> None:
    """Write the model's files into a folder.

    Args:
        folder: folder of the files; it is created.
        word_times: include the decoder that outputs its attention, from which word times are read.
    """
    folder.mkdir(parents=True, exist_ok=True)
    _frontend(folder)
    _save(
        folder / "encoder.ort",
        [helper.make_node("MatMul", ["features", "w"], ["encoded"])],
        {"features": (TensorProto.FLOAT, [1, "frames", DIM])},
        {"encoded": (TensorProto.FLOAT, [1, "frames", DIM])},
        {"w": np.eye(DIM, dtype=np.float32)},
    )
    _save(
        folder / "adapter.ort",
        [
            helper.make_node("Cast", ["pos_offset"], ["offset"], to=TensorProto.FLOAT),
            helper.make_node("Mul", ["offset", "nothing"], ["shift"]),
            helper.make_node("MatMul", ["encoded", "w"], ["projected"]),
            helper.make_node("Add", ["projected", "shift"], ["memory"]),
        ],
        {"encoded": (TensorProto.FLOAT, [1, "frames", DIM]), "pos_offset": (TensorProto.INT64, [1])},
        {"memory": (TensorProto.FLOAT, [1, "frames", DIM])},
        {"w": np.eye(DIM, dtype=np.float32), "nothing": np.zeros(1, np.float32)},
    )
    cross = (TensorProto.FLOAT, [1, 1, 1, "frames", DIM])
    _save(
        folder / "cross_kv.ort",
        [
            helper.make_node("Unsqueeze", ["memory", "axes"], ["k_cross"]),
            helper.make_node("Neg", ["k_cross"], ["v_cross"]),
        ],
        {"memory": (TensorProto.FLOAT, [1, "frames", DIM])},
        {"k_cross": cross, "v_cross": cross},
        {"axes": np.array([0, 1], np.int64)},
    )
    _decoder(folder / "decoder_kv.ort", attention=False)
    if word_times:
        _decoder(folder / "decoder_kv_with_attention.ort", attention=True)
    (folder / "streaming_config.json").write_text(json.dumps(CONFIG))
    pieces = [token.encode() for token in TOKENS]
    (folder / "tokenizer.bin").write_bytes(b"".join(bytes([len(piece)]) + piece for piece in pieces))


def _frontend(folder: Path) -> None:
    state = {
        "sample_buffer": (TensorProto.FLOAT, [1, 79]),
        "sample_len": (TensorProto.INT64, [1]),
        "conv1_buffer": (TensorProto.FLOAT, [1, CONFIG["d_model_frontend"], 4]),
        "conv2_buffer": (TensorProto.FLOAT, [1, CONFIG["c1"], 4]),
        "frame_count": (TensorProto.INT64, [1]),
    }
    nodes = [
        helper.make_node("Reshape", ["audio_chunk", "shape"], ["framed"]),
        helper.make_node("Abs", ["framed"], ["loud"]),
        helper.make_node("MatMul", ["loud", "frontend_weight"], ["features"]),
        *(helper.make_node("Identity", [name], [f"{name}_out"]) for name in state),
    ]
    weight = (TensorProto.FLOAT, [FRAME_SAMPLES, DIM])
    _save(
        folder / "frontend.model.ort",
        nodes,
        {"audio_chunk": (TensorProto.FLOAT, [1, "samples"]), **state, "frontend_weight": weight},
        {
            "features": (TensorProto.FLOAT, [1, "frames", DIM]),
            **{f"{name}_out": kind for name, kind in state.items()},
        },
        {"shape": np.array([1, -1, FRAME_SAMPLES], np.int64)},
    )
    constant = numpy_helper.from_array(np.full((FRAME_SAMPLES, DIM), 1 / FRAME_SAMPLES, np.float32), "value")
    _save(
        folder / "frontend.weights.ort",
        [helper.make_node("Constant", [], ["frontend_weight"], value=constant)],
        {},
        {"frontend_weight": weight},
        {},
    )


def _decoder(path: Path, *, attention: bool) -> None:
    """Write the decoder: a token of the sentence for every ``FRAMES_PER_TOKEN`` loud frames, then the end."""
    own = (TensorProto.FLOAT, [1, 1, 1, "cached", DIM])
    grown = (TensorProto.FLOAT, [1, 1, 1, "known", DIM])
    cross = (TensorProto.FLOAT, [1, 1, 1, "frames", DIM])
    nodes = [
        # Positions of the requested tokens: those in the cache come before them.
        helper.make_node("Shape", ["token"], ["count"], start=1, end=2),
        helper.make_node("Shape", ["k_self"], ["cached_count"], start=3, end=4),
        helper.make_node("Squeeze", ["count"], ["count_scalar"]),
        helper.make_node("Range", ["zero", "count_scalar", "one"], ["offsets"]),
        helper.make_node("Add", ["offsets", "cached_count"], ["steps"]),
        # Every feature of a frame is its mean magnitude.
        helper.make_node("Slice", ["out_k_cross", "zeros", "ones", "axis_dim"], ["level"]),
        helper.make_node("Reshape", ["level", "flat"], ["levels_of_frames"]),
        helper.make_node("Greater", ["levels_of_frames", "loud"], ["is_loud"]),
        helper.make_node("Cast", ["is_loud"], ["loud_frames"], to=TensorProto.INT64),
        helper.make_node("ReduceSum", ["loud_frames", "zeros"], ["loud_count"], keepdims=1),
        helper.make_node("Div", ["loud_count", "frames_per_token"], ["heard"]),
        helper.make_node("Less", ["steps", "heard"], ["speaks"]),
        helper.make_node("Mod", ["steps", "sentence"], ["place"]),
        helper.make_node("Add", ["place", "first"], ["word"]),
        helper.make_node("Where", ["speaks", "word", "end"], ["next"]),
        helper.make_node("OneHot", ["next", "vocabulary", "levels"], ["flat_logits"]),
        helper.make_node("Unsqueeze", ["flat_logits", "axis"], ["logits"]),
        helper.make_node("Concat", ["kv_start", "count", "kv_end"], ["kv_shape"], axis=0),
        helper.make_node("ConstantOfShape", ["kv_shape"], ["fresh"]),
        helper.make_node("Concat", ["k_self", "fresh"], ["out_k_self"], axis=3),
        helper.make_node("Concat", ["v_self", "fresh"], ["out_v_self"], axis=3),
        # The other cross input must be used, or the converter drops it.
        helper.make_node("Shape", ["out_v_cross"], ["unused"]),
    ]
    outputs = {
        "logits": (TensorProto.FLOAT, [1, "tokens", len(TOKENS)]),
        "out_k_self": grown,
        "out_v_self": grown,
    }
    if attention:
        # Token n attends to the frames that it was counted from.
        nodes += [
            helper.make_node("CumSum", ["loud_frames", "zero"], ["loud_before"]),
            helper.make_node("Div", ["loud_before", "frames_per_token"], ["owner"]),
            helper.make_node("Unsqueeze", ["steps", "axis_last"], ["step_column"]),
            helper.make_node("Equal", ["step_column", "owner"], ["looks"]),
            helper.make_node("Cast", ["looks"], ["look_weights"], to=TensorProto.FLOAT),
            helper.make_node("Unsqueeze", ["look_weights", "axes_front"], ["cross_attentions.0"]),
        ]
        outputs["cross_attentions.0"] = (TensorProto.FLOAT, [1, 1, "tokens", "frames"])
    _save(
        path,
        nodes,
        {
            "token": (TensorProto.INT64, [1, "tokens"]),
            "k_self": own,
            "v_self": own,
            "out_k_cross": cross,
            "out_v_cross": cross,
        },
        outputs,
        {
            "zero": np.array(0, np.int64),
            "one": np.array(1, np.int64),
            "frames_per_token": np.array([FRAMES_PER_TOKEN], np.int64),
            "sentence": np.array([len(TOKENS) - FIRST_TOKEN], np.int64),
            "first": np.array([FIRST_TOKEN], np.int64),
            "end": np.array([END_TOKEN], np.int64),
            "vocabulary": np.array([len(TOKENS)], np.int64),
            "levels": np.array([0.0, 5.0], np.float32),
            "zeros": np.array([0], np.int64),
            "ones": np.array([1], np.int64),
            "axis_dim": np.array([4], np.int64),
            "flat": np.array([-1], np.int64),
            "loud": np.array(LOUD, np.float32),
            "axis": np.array([0], np.int64),
            "axis_last": np.array([1], np.int64),
            "axes_front": np.array([0, 1], np.int64),
            "kv_start": np.array([1, 1, 1], np.int64),
            "kv_end": np.array([DIM], np.int64),
        },
    )


def _save(
    path: Path,
    nodes: list[onnx.NodeProto],
    inputs: dict[str, tuple[int, list[int | str]]],
    outputs: dict[str, tuple[int, list[int | str]]],
    constants: dict[str, np.ndarray],
) -> None:
    """Write a graph in ONNX Runtime's own format, the only one that the library reads."""
    used = {name for node in nodes for name in node.input}
    graph = helper.make_graph(
        nodes,
        path.stem,
        [helper.make_tensor_value_info(name, *kind) for name, kind in inputs.items()],
        [helper.make_tensor_value_info(name, *kind) for name, kind in outputs.items()],
        [numpy_helper.from_array(value, name) for name, value in constants.items() if name in used],
    )
    # Versions that the library's ONNX Runtime (1.23) supports.
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=9)
    onnx.checker.check_model(model)
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(path)
    options.add_session_config_entry("session.save_model_format", "ORT")
    options.graph_optimization_level = onnxruntime.GraphOptimizationLevel.ORT_DISABLE_ALL
    onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])
