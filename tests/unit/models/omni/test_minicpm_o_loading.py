"""Transformers loads a model directory, with the code in it, in a process that has torch.

``MINICPM_O_PYTHON`` names another environment, such as that of ``requirements/minicpm_o.txt``.
"""

import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.core.errors import EngineError
from parley.models.omni import Preparation
from parley.models.omni.minicpm_o.engine import MiniCpmOHost
from parley.models.omni.minicpm_o.settings import MiniCpmOSettings
from tests.fakes.minicpm_duplex import TELL
from tests.fakes.minicpm_model import write_model

LOUD = np.full(16_000, 0.2, np.float32)
PYTHON = os.environ.get("MINICPM_O_PYTHON", "")
if not PYTHON:
    pytest.importorskip("torch")
    pytest.importorskip("transformers")


@pytest.fixture(autouse=True)
def own_cache(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Redirect the cache: the code of a model is copied before it is run."""
    monkeypatch.setenv("HF_MODULES_CACHE", str(tmp_path / "modules"))
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")


def host(folder: Path, edition: str, **more: Any) -> MiniCpmOHost:
    model = write_model(folder / edition, edition=edition)
    settings = MiniCpmOSettings(
        model=str(model),
        python=PYTHON,
        device="cpu",
        dtype="bfloat16",
        load_timeout_s=120,
        **more,
    )
    return MiniCpmOHost(settings)


@pytest.mark.parametrize("edition", ["server", "hub"])
def test_a_model_of_either_edition_is_loaded_and_speaks(tmp_path: Path, edition: str) -> None:
    made = host(tmp_path, edition, sees=False)
    engine = made.open_engine()
    for conversation in range(2):
        engine.prepare(Preparation(TELL, llm_ref_audio=LOUD, settings={"tts_temperature": 0.5}))
        for _ in range(4):
            engine.prefill(LOUD)
            result = engine.generate()
            engine.finalize()
        engine.cleanup()
        facts = json.loads(result.text)
        assert facts["weights"] == "torch.bfloat16 cpu sdpa" and facts["init_vision"] is False
        assert facts["tts_temperature"] == 0.5 and facts["config"]["sliding_window_mode"] == "basic"
        # The cache of the conversation before was released: the first one followed that of the warm-up.
        assert facts["model_resets"] == conversation + 1
        assert len(result.audio) == 24_000 and np.abs(result.audio).max() > 0.2
    made.close()


def test_a_model_without_a_duplex_mode_is_said(tmp_path: Path) -> None:
    with pytest.raises(EngineError, match="no duplex mode"):
        host(tmp_path, "chat")


def test_a_directory_that_is_no_model_is_said(tmp_path: Path) -> None:
    settings = MiniCpmOSettings(
        model=str(tmp_path / "nowhere"), python=PYTHON, device="cpu", load_timeout_s=120
    )
    with pytest.raises(EngineError, match="does not load"):
        MiniCpmOHost(settings)
