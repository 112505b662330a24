"""Randomly initialised networks with the inputs and outputs of turn-1-mini and turn-1, far smaller."""

from pathlib import Path

import numpy as np
from onnx import TensorProto, helper

from tests.tiny_networks import save_network

STEP, FRAMES, FRAME = 2_560, 8, 320
WIDTH, KEYS = 6, 16
# Inputs with the prefix ``state_``, outputs with ``new_state_``.
STATES: dict[str, list[int]] = {
    "audio": [1, FRAME],
    "conv1": [1, 1, WIDTH],
    "conv2": [1, 1, WIDTH],
    "k": [1, KEYS, WIDTH],
    "v": [1, KEYS, WIDTH],
    "k_valid": [1, KEYS],
    "h6": [1, 1, WIDTH],
}


def save_turn_1_mini(path: Path, *, seed: int = 0, without: str | None = None) -> Path:
    """Write a causal network of one step: frames, two convolutions, attention over ``KEYS`` frames before.

    Args:
        path: of the file.
        seed: seed of the weights.
        without: name of an output to omit.
    """
    random = np.random.default_rng(seed)

    def weights(rows: int, columns: int, scale: float = 1.0) -> np.ndarray:
        return random.normal(0.0, scale / np.sqrt(rows), (rows, columns)).astype(np.float32)

    # A frame attends to the keys before its step and those of its step up to itself.
    hidden = np.triu(np.full((FRAMES, FRAMES), -1e4, np.float32), 1)
    constants: dict[str, np.ndarray] = {
        "frame_weights": weights(2 * FRAME, WIDTH, 8.0),
        "keys_weights": weights(WIDTH, WIDTH),
        "values_weights": weights(WIDTH, WIDTH),
        "queries_weights": weights(WIDTH, WIDTH),
        "head_weights": weights(WIDTH, 1, 3.0),
        "memory_weights": weights(WIDTH, 1),
        "hidden": hidden[None],
        "ones": np.ones((1, FRAMES), np.float32),
        "minus": np.array(1e4, np.float32),
        "to_frames": np.array([1, FRAMES, FRAME], np.int64),
        "to_past": np.array([1, 1, FRAME], np.int64),
        "to_line": np.array([FRAMES], np.int64),
        "to_keys": np.array([1, 1, KEYS], np.int64),
        "to_past_audio": np.array([1, FRAME], np.int64),
        "axis": np.array([1], np.int64),
        "zero": np.array([0], np.int64),
        "last": np.array([-1], np.int64),
        "last_keys": np.array([-KEYS], np.int64),
        "end": np.array([2**31], np.int64),
        "before_keys": np.array([KEYS + FRAMES], np.int64),
    }
    nodes = [
        helper.make_node("Reshape", ["audio", "to_frames"], ["frames"]),
        helper.make_node("Reshape", ["state_audio", "to_past"], ["past"]),
        *_shifted("frames", "past", "frames_before"),
        helper.make_node("Concat", ["frames_before", "frames"], ["windows"], axis=2),
        helper.make_node("MatMul", ["windows", "frame_weights"], ["frame_sums"]),
        helper.make_node("Tanh", ["frame_sums"], ["features"]),
        helper.make_node("Slice", ["frames", "last", "end", "axis"], ["last_frame"]),
        helper.make_node("Reshape", ["last_frame", "to_past_audio"], ["new_state_audio"]),
    ]
    for number, source in ((1, "features"), (2, "conv1_out")):
        name = f"conv{number}"
        constants[f"{name}_now"], constants[f"{name}_before"] = weights(WIDTH, WIDTH), weights(WIDTH, WIDTH)
        nodes += [
            *_shifted(source, f"state_{name}", f"{name}_shifted"),
            helper.make_node("MatMul", [source, f"{name}_now"], [f"{name}_a"]),
            helper.make_node("MatMul", [f"{name}_shifted", f"{name}_before"], [f"{name}_b"]),
            helper.make_node("Add", [f"{name}_a", f"{name}_b"], [f"{name}_sum"]),
            helper.make_node("Tanh", [f"{name}_sum"], [f"{name}_out"]),
            helper.make_node("Slice", [source, "last", "end", "axis"], [f"new_state_{name}"]),
        ]
    for name, of in (("k", "keys"), ("v", "values")):
        nodes += [
            helper.make_node("MatMul", ["conv2_out", f"{of}_weights"], [f"{name}_now"]),
            helper.make_node("Concat", [f"state_{name}", f"{name}_now"], [f"{name}_all"], axis=1),
            helper.make_node("Slice", [f"{name}_all", "last_keys", "end", "axis"], [f"new_state_{name}"]),
        ]
    nodes += [
        helper.make_node("Concat", ["state_k_valid", "ones"], ["valid_all"], axis=1),
        helper.make_node("Slice", ["valid_all", "last_keys", "end", "axis"], ["new_state_k_valid"]),
        # 0 where a key is valid, -1e4 where there is none yet.
        helper.make_node("Mul", ["state_k_valid", "minus"], ["valid_scaled"]),
        helper.make_node("Sub", ["valid_scaled", "minus"], ["absent"]),
        helper.make_node("Reshape", ["absent", "to_keys"], ["absent_keys"]),
        helper.make_node("Expand", ["absent_keys", "mask_shape"], ["absent_mask"]),
        helper.make_node("Concat", ["absent_mask", "hidden"], ["mask"], axis=2),
        helper.make_node("MatMul", ["conv2_out", "queries_weights"], ["queries"]),
        helper.make_node("Transpose", ["k_all"], ["keys"], perm=[0, 2, 1]),
        helper.make_node("MatMul", ["queries", "keys"], ["scores"]),
        helper.make_node("Add", ["scores", "mask"], ["masked"]),
        helper.make_node("Softmax", ["masked"], ["attention"], axis=-1),
        helper.make_node("MatMul", ["attention", "v_all"], ["attended"]),
        helper.make_node("Add", ["attended", "conv2_out"], ["h"]),
        helper.make_node("Slice", ["h", "last", "end", "axis"], ["new_state_h6"]),
        helper.make_node("MatMul", ["h", "head_weights"], ["logits_now"]),
        helper.make_node("MatMul", ["state_h6", "memory_weights"], ["logits_before"]),
        helper.make_node("Add", ["logits_now", "logits_before"], ["logits"]),
        helper.make_node("Sigmoid", ["logits"], ["probabilities"]),
        helper.make_node("Reshape", ["probabilities", "to_line"], ["probs"]),
    ]
    constants["mask_shape"] = np.array([1, FRAMES, KEYS], np.int64)
    floats = TensorProto.FLOAT
    inputs = [helper.make_tensor_value_info("audio", floats, [1, STEP])] + [
        helper.make_tensor_value_info(f"state_{name}", floats, shape) for name, shape in STATES.items()
    ]
    # The order differs from that of the inputs: they are paired by name.
    outputs = [
        helper.make_tensor_value_info(f"new_state_{name}", floats, shape)
        for name, shape in reversed(STATES.items())
        if name != without
    ]
    outputs.append(helper.make_tensor_value_info("probs", floats, [FRAMES]))
    return save_network(path, nodes, inputs, outputs, constants)


def save_turn_1(path: Path, *, samples: int | str = "samples", seed: int = 0) -> Path:
    """Write a network with the interface of ``models.turn.turn_1.Turn1``: a probability of the whole audio.

    Args:
        path: of the file.
        samples: a fixed number of samples, or the name of a free dimension.
        seed: seed of the weights.
    """
    weights = np.random.default_rng(seed).normal(0.0, 1.0, (1, 1, FRAME)).astype(np.float32)
    nodes = [
        helper.make_node("Unsqueeze", ["audio", "axis"], ["channel"]),
        helper.make_node(
            "Conv", ["channel", "weights"], ["frames"], kernel_shape=[FRAME], pads=[FRAME, 0], strides=[FRAME]
        ),
        helper.make_node("Tanh", ["frames"], ["bounded"]),
        helper.make_node("ReduceMean", ["bounded"], ["mean"], keepdims=0),
        helper.make_node("Sigmoid", ["mean"], ["probability"]),
    ]
    audio = helper.make_tensor_value_info("audio", TensorProto.FLOAT, [1, samples])
    probability = helper.make_tensor_value_info("probability", TensorProto.FLOAT, [])
    constants = {"weights": weights, "axis": np.array([1], np.int64)}
    return save_network(path, nodes, [audio], [probability], constants)


def _shifted(source: str, before: str, name: str) -> list:
    """Return nodes that shift the frames by one: the last frame of the step before comes first."""
    return [
        helper.make_node("Concat", [before, source], [f"{name}_all"], axis=1),
        helper.make_node("Slice", [f"{name}_all", "zero", "last", "axis"], [name]),
    ]
