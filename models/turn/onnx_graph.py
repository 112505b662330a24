"""Edits of an ONNX network in its encoded form, so that no ONNX package is needed at run time.

``with_output`` makes a value of the graph one of its outputs. ``with_fusable_gelu`` writes GELU in the order
that ONNX Runtime recognises as one operation. Neither changes a number that the network computes.

The encoding is Protocol Buffers'; all fields of a graph that are read here are length-delimited.
"""

from collections import Counter
from collections.abc import Iterator

# Fields of ONNX messages (onnx.proto3).
_MODEL_GRAPH = 7
_GRAPH_NODE, _GRAPH_INITIALIZER, _GRAPH_OUTPUT = 1, 5, 12
_VALUE_NAME = 1
_NODE_INPUT, _NODE_OUTPUT, _NODE_OPERATION = 1, 2, 4
_TENSOR_NAME, _TENSOR_CONTENT = 8, 9
# 0.5 as a little-endian float32.
_HALF = b"\x00\x00\x00\x3f"
# Wire types.
_VARINT, _LENGTH_DELIMITED = 0, 2
_FIXED_SIZES = {1: 8, 5: 4}


def with_output(network: bytes, name: str) -> bytes:
    """Return the network with this value of its graph as one more output.

    Two concatenated protocol buffers are one, in which the graphs are merged and their outputs are one list
    (the encoding's "last one wins, messages are merged"). Parsing is therefore not needed.
    """
    return network + _field(_MODEL_GRAPH, _field(_GRAPH_OUTPUT, _field(_VALUE_NAME, name.encode())))


def with_fusable_gelu(network: bytes) -> bytes:
    """Return the network with each ``x * (0.5 * e)`` as ``(x * e) * 0.5``.

    PyTorch's exporter writes GELU in the first order; ONNX Runtime fuses the second into one operation.
    Multiplying by 0.5 rounds nothing, so both give the same numbers. Unchanged when there is none.

    Raises:
        ValueError: not an encoded model.
    """
    fields = list(_fields(network))
    others = b"".join(raw for number, _, raw in fields if number != _MODEL_GRAPH)
    graph = b"".join(content for number, content, _ in fields if number == _MODEL_GRAPH)
    return others + _field(_MODEL_GRAPH, _reordered(graph)) if graph else network


def _reordered(graph: bytes) -> bytes:
    fields = list(_fields(graph))
    halves = {
        tensor[_TENSOR_NAME][0]
        for number, content, _ in fields
        if number == _GRAPH_INITIALIZER
        and (tensor := _by_number(content)).get(_TENSOR_CONTENT) == [_HALF]
        and _TENSOR_NAME in tensor
    }
    nodes = {
        place: _by_number(content)
        for place, (number, content, _) in enumerate(fields)
        if number == _GRAPH_NODE
    }
    uses = Counter(name for node in nodes.values() for name in node.get(_NODE_INPUT, ()))
    uses.update(
        _by_number(content)[_VALUE_NAME][0] for number, content, _ in fields if number == _GRAPH_OUTPUT
    )
    products = {place: node for place, node in nodes.items() if node.get(_NODE_OPERATION) == [b"Mul"]}
    # Products of a value and 0.5 that have one use: (place, the value, 0.5), by the product's name.
    halved = {
        node[_NODE_OUTPUT][0]: (place, other, factor)
        for place, node in products.items()
        for factor, other in _both_orders(node[_NODE_INPUT])
        if factor in halves and other not in halves and uses[node[_NODE_OUTPUT][0]] == 1
    }
    inputs: dict[int, list[bytes]] = {}
    for place, node in products.items():
        for factor, other in _both_orders(node[_NODE_INPUT]):
            inner, factor_of_half, half = halved.get(factor, (place, b"", b""))
            if inner not in inputs and place not in inputs and inner != place:
                inputs[inner], inputs[place] = [other, factor_of_half], [factor, half]
    return b"".join(
        _field(number, _with_inputs(content, inputs[place])) if place in inputs else raw
        for place, (number, content, raw) in enumerate(fields)
    )


def _both_orders(inputs: list[bytes]) -> tuple[list[bytes], list[bytes]]:
    return inputs, inputs[::-1]


def _with_inputs(node: bytes, inputs: list[bytes]) -> bytes:
    others = b"".join(raw for number, _, raw in _fields(node) if number != _NODE_INPUT)
    return b"".join(_field(_NODE_INPUT, name) for name in inputs) + others


def _by_number(message: bytes) -> dict[int, list[bytes]]:
    found: dict[int, list[bytes]] = {}
    for number, content, _ in _fields(message):
        found.setdefault(number, []).append(content)
    return found


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """Yield the number, the content and the whole encoding of each field.

    The content of a field that is not length-delimited is its encoded value.

    Raises:
        ValueError: not an encoded message.
    """
    at = 0
    while at < len(message):
        start = at
        key, at = _read_varint(message, at)
        wire_type = key & 7
        if wire_type == _VARINT:
            content_start = at
            _, at = _read_varint(message, at)
        elif wire_type == _LENGTH_DELIMITED:
            size, content_start = _read_varint(message, at)
            at = content_start + size
        elif wire_type in _FIXED_SIZES:
            content_start, at = at, at + _FIXED_SIZES[wire_type]
        else:
            raise ValueError(f"unknown wire type {wire_type}")
        if at > len(message):
            raise ValueError("the message ends inside of a field")
        yield key >> 3, message[content_start:at], message[start:at]


def _read_varint(message: bytes, at: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(message):
            raise ValueError("the message ends inside of a number")
        byte = message[at]
        at += 1
        value |= (byte & 127) << shift
        if byte < 128:
            return value, at
    raise ValueError("a number has more than 64 bits")


def _field(number: int, content: bytes) -> bytes:
    return _varint(number << 3 | _LENGTH_DELIMITED) + _varint(len(content)) + content


def _varint(value: int) -> bytes:
    written = bytearray()
    while value > 127:
        written.append(value & 127 | 128)
        value >>= 7
    return bytes((*written, value))
