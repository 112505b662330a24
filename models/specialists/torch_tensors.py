"""Read the tensors of a file that PyTorch 1.x saved, without PyTorch and without running its code.

The format is a sequence of pickles: a magic number, the version of the protocol, the system's sizes, the
saved object, the keys of the storages; then each storage with its number of values (``torch.serialization``,
``_legacy_save``). The saved object refers to storages by persistent ids. Only the classes of tensors and
ordered dictionaries are accepted, so that a file cannot call anything else; its owner has checked the hash of
the file.
"""

import pickle
import struct
from collections import OrderedDict
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from parley.core.errors import EngineError

MAGIC = 0x1950A86A20F9469CFC6C
ENGINE = "torch file"
_VALUES: dict[str, np.dtype[Any]] = {
    "FloatStorage": np.dtype("<f4"),
    "LongStorage": np.dtype("<i8"),
    "DoubleStorage": np.dtype("<f8"),
}


class _Storage:
    """Values of one or more tensors; filled after the object that refers to them was read."""

    def __init__(self, kind: str) -> None:
        self.dtype = _VALUES[kind]
        self.values = np.zeros(0, self.dtype)


class _Tensor:
    """Reference to a part of a storage."""

    def __init__(self, storage: _Storage, offset: int, size: Sequence[int], stride: Sequence[int]) -> None:
        self.storage, self.offset, self.size, self.stride = storage, offset, size, stride

    def array(self) -> np.ndarray:
        """Return the values in their shape."""
        step = self.storage.dtype.itemsize
        count = 1 + sum((length - 1) * stride for length, stride in zip(self.size, self.stride, strict=True))
        if min(self.size, default=1) < 1 or self.offset < 0 or self.offset + count > len(self.storage.values):
            raise ValueError("a tensor reaches beyond its storage")
        return np.lib.stride_tricks.as_strided(
            self.storage.values[self.offset :], self.size, [stride * step for stride in self.stride]
        ).copy()


def _tensor(
    storage: _Storage, offset: int, size: Sequence[int], stride: Sequence[int], *_: object
) -> _Tensor:
    return _Tensor(storage, offset, size, stride)


class _Reader(pickle.Unpickler):
    def __init__(self, file: BinaryIO) -> None:
        super().__init__(file)
        self.storages: dict[str, _Storage] = {}

    def find_class(self, module: str, name: str) -> Any:
        allowed: dict[tuple[str, str], Callable[..., Any] | str] = {
            ("collections", "OrderedDict"): OrderedDict,
            ("torch._utils", "_rebuild_tensor_v2"): _tensor,
            ("torch._utils", "_rebuild_tensor"): _tensor,
            **{("torch", kind): kind for kind in _VALUES},
        }
        if (module, name) not in allowed:
            raise pickle.UnpicklingError(f"{module}.{name} is no part of a tensor")
        return allowed[module, name]

    def persistent_load(self, pid: Any) -> _Storage:
        _, kind, key, *_ = pid
        return self.storages.setdefault(key, _Storage(kind))


def read_tensors(path: Path, entry: str) -> dict[str, np.ndarray]:
    """Return the tensors of one entry of a saved dictionary, by name.

    Args:
        path: the file.
        entry: key of the dictionary that holds the tensors.

    Raises:
        EngineError: the file cannot be read, or holds something else.
    """
    try:
        with path.open("rb") as file:
            header = _Reader(file)
            if header.load() != MAGIC:
                raise ValueError("not a file of tensors")
            _Reader(file).load()
            _Reader(file).load()
            reader = _Reader(file)
            saved = reader.load()
            for key in _Reader(file).load():
                (count,) = struct.unpack("<q", file.read(8))
                storage = reader.storages[key]
                data = file.read(count * storage.dtype.itemsize)
                storage.values = np.frombuffer(data, storage.dtype)
        return {name: tensor.array() for name, tensor in saved[entry].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError, EOFError, IndexError) as error:
        raise EngineError(f"{path.name} does not load: {error}", engine=ENGINE, retryable=False) from error
    except (pickle.UnpicklingError, struct.error) as error:
        raise EngineError(f"{path.name} does not load: {error}", engine=ENGINE, retryable=False) from error
