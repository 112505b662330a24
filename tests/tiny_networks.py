"""Networks of a few nodes, for engines whose weights are one ONNX file."""

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import onnx
from onnx import NodeProto, ValueInfoProto, helper, numpy_helper


def save_network(
    path: Path,
    nodes: list[NodeProto],
    inputs: list[ValueInfoProto],
    outputs: list[ValueInfoProto],
    constants: Mapping[str, np.ndarray] | None = None,
) -> Path:
    """Write a network and return its path.

    Args:
        path: of the file.
        nodes: nodes in the order in which they run.
        inputs: inputs of the network.
        outputs: outputs of the network.
        constants: weights and other arrays that nodes name.
    """
    weights = [numpy_helper.from_array(array, name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, path.stem, inputs, outputs, weights)
    # Versions that every supported onnxruntime reads.
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
    return path
