"""Networks of a few nodes, for engines whose weights are one ONNX file."""

from pathlib import Path

import onnx
from onnx import NodeProto, ValueInfoProto, helper


def save_network(
    path: Path, nodes: list[NodeProto], inputs: list[ValueInfoProto], outputs: list[ValueInfoProto]
) -> None:
    """Write a network without constants."""
    graph = helper.make_graph(nodes, path.stem, inputs, outputs)
    # Versions that every onnxruntime of ours reads.
    onnx.save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), path)
