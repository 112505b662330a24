"""Tensors of a file of PyTorch 1.x, read without PyTorch."""

import pickle
from pathlib import Path

import numpy as np
import pytest

from parley.core.errors import EngineError
from parley.models.specialists.torch_tensors import MAGIC, read_tensors

torch = pytest.importorskip("torch")


def saved(path: Path, entry: object) -> Path:
    torch.save({"step": 3, "weights": entry}, path, _use_new_zipfile_serialization=False)
    return path


def test_tensors_come_back_in_their_shapes(tmp_path: Path):
    whole = torch.arange(24, dtype=torch.float32).reshape(4, 6)
    # A part and a transposed one share the values of the whole.
    tensors = {"whole": whole, "part": whole[1:, 2:], "turned": whole.T, "numbers": torch.arange(3)}
    found = read_tensors(saved(tmp_path / "file.pt", tensors), "weights")
    assert found.keys() == tensors.keys()
    for name, tensor in tensors.items():
        np.testing.assert_array_equal(found[name], tensor.numpy())


@pytest.mark.parametrize("size", [0, 1, 50, -1])
def test_a_file_that_is_cut_off_is_refused(tmp_path: Path, size: int):
    path = saved(tmp_path / "file.pt", {"a": torch.zeros(100)})
    path.write_bytes(path.read_bytes()[:size])
    with pytest.raises(EngineError):
        read_tensors(path, "weights")


def test_a_file_runs_no_code(tmp_path: Path):
    class Calls:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return eval, ("__import__('pathlib').Path('called').touch()",)

    path = tmp_path / "file.pt"
    path.write_bytes(pickle.dumps(MAGIC) + pickle.dumps(1001) + pickle.dumps({}) + pickle.dumps(Calls()))
    with pytest.raises(EngineError, match="no part of a tensor"):
        read_tensors(path, "weights")
    assert not Path("called").exists()


@pytest.mark.parametrize("entry", [[1, 2], {"a": 1}], ids=["a list", "a number"])
def test_something_else_than_tensors_is_refused(tmp_path: Path, entry: object):
    with pytest.raises(EngineError):
        read_tensors(saved(tmp_path / "file.pt", entry), "weights")


def test_a_missing_file_and_a_missing_entry_are_refused(tmp_path: Path):
    with pytest.raises(EngineError):
        read_tensors(tmp_path / "none.pt", "weights")
    with pytest.raises(EngineError):
        read_tensors(saved(tmp_path / "file.pt", {}), "others")
