"""Contract of all engines whose weights are one file."""

from collections.abc import Callable
from pathlib import Path

import pytest

from parley.core.errors import EngineError
from parley.models.turn.smart_turn import SmartTurn
from parley.models.vad.silero import SileroVad

ENGINES: dict[str, Callable[[Path], object]] = {
    "silero": lambda weights: SileroVad(weights=weights),
    "smart_turn": lambda weights: SmartTurn(weights=weights),
}


@pytest.mark.parametrize("content", [b"", b"not a network", bytes(64)])
@pytest.mark.parametrize("engine", list(ENGINES))
def test_a_corrupt_file_is_an_engine_error(engine: str, content: bytes, tmp_path: Path) -> None:
    weights = tmp_path / "weights.onnx"
    weights.write_bytes(content)
    with pytest.raises(EngineError, match=r"cannot load weights\.onnx") as caught:
        ENGINES[engine](weights)
    assert not caught.value.retryable
