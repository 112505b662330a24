"""Edits of an encoded network: they change its speed and its outputs, and none of its weights."""

from collections import Counter
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper

from parley.models.pipecat_data import pipecat_file
from parley.models.turn.onnx_graph import with_fusable_gelu, with_output
from tests.tiny_networks import save_network

SMART_TURN = pipecat_file("audio", "turn", "smart_turn", "data", "smart-turn-v3.2-cpu.onnx")


def operations(network: bytes, optimized: Path) -> Counter[str]:
    """Return the operations that ONNX Runtime runs for a network."""
    options = onnxruntime.SessionOptions()
    options.optimized_model_filepath = str(optimized)
    options.log_severity_level = 3
    onnxruntime.InferenceSession(network, options, providers=["CPUExecutionProvider"])
    return Counter(node.op_type for node in onnx.load(optimized).graph.node)


def gelu(folder: Path, *, more_uses: bool = False) -> bytes:
    """Return a network of one GELU in PyTorch's order.

    With ``more_uses`` the half product is an output as well.
    """
    shape = [4]
    values = {"root": 2.0**0.5, "one": 1.0, "half": 0.5}
    nodes = [
        helper.make_node("Div", ["x", "root"], ["scaled"]),
        helper.make_node("Erf", ["scaled"], ["erf"]),
        helper.make_node("Add", ["erf", "one"], ["raised"]),
        helper.make_node("Mul", ["half", "raised"], ["share"]),
        helper.make_node("Mul", ["x", "share"], ["y"]),
        helper.make_node("Neg", ["share" if more_uses else "y"], ["z"]),
    ]
    outputs = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("y", "z")]
    path = folder / "gelu.onnx"
    save_network(path, nodes, [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)], outputs)
    model = onnx.load(path)
    model.graph.initializer.extend(
        onnx.numpy_helper.from_array(np.array(value, np.float32), name) for name, value in values.items()
    )
    content: bytes = model.SerializeToString()
    return content


def run(network: bytes, x: np.ndarray) -> list[np.ndarray]:
    session = onnxruntime.InferenceSession(network, providers=["CPUExecutionProvider"])
    return [np.asarray(value) for value in session.run(None, {"x": x})]


def test_a_gelu_becomes_one_operation_with_the_same_numbers(tmp_path: Path) -> None:
    network = gelu(tmp_path)
    edited = with_fusable_gelu(network)
    onnx.checker.check_model(onnx.load_from_string(edited))
    assert operations(network, tmp_path / "a.onnx")["Gelu"] == 0
    assert operations(edited, tmp_path / "b.onnx")["Gelu"] == 1
    x = np.array([-3.0, -0.1, 0.0, 2.7], np.float32)
    for before, after in zip(run(network, x), run(edited, x), strict=True):
        assert np.allclose(before, after, rtol=1e-6, atol=0)


def test_a_product_with_another_use_stays_as_it_is(tmp_path: Path) -> None:
    network = gelu(tmp_path, more_uses=True)
    assert onnx.load_from_string(with_fusable_gelu(network)) == onnx.load_from_string(network)


def test_a_product_that_is_an_output_stays_as_it_is(tmp_path: Path) -> None:
    network = with_output(gelu(tmp_path), "share")
    x = np.ones(4, np.float32)
    before, after = run(network, x), run(with_fusable_gelu(network), x)
    assert len(before) == 3 and all(map(np.array_equal, before, after))


def test_smart_turn_runs_its_layers_with_fused_gelus(tmp_path: Path) -> None:
    found = operations(with_fusable_gelu(SMART_TURN.read_bytes()), tmp_path / "fused.onnx")
    assert found["BiasGelu"] == 4


@pytest.mark.parametrize(
    "content", [b"\xff", b"\x0b", b"\x3a\x05ab", b"\x80" * 11, b"\x3a\x04\x0a\x7f\x01\x01"]
)
def test_what_is_no_encoded_model_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError):
        with_fusable_gelu(content)
