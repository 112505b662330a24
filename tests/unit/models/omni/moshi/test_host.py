"""Loading of the model, and refused settings."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file

from parley.core.errors import ConfigError, EngineError
from parley.models.omni import OMNI, Preparation
from parley.models.omni.moshi.host import MoshiHost, Weights
from parley.models.omni.moshi.settings import MoshiSettings
from tests.unit.models.omni.moshi.conftest import settings


@pytest.fixture
def copied(folder: Path, tmp_path: Path) -> Path:
    """Copy the model, to damage the copy."""
    for file in folder.iterdir():
        (tmp_path / file.name).write_bytes(file.read_bytes())
    return tmp_path


def changed(folder: Path, **values: object) -> None:
    path = folder / "config.json"
    path.write_text(json.dumps(json.loads(path.read_text()) | values))


def test_the_weights_are_those_of_the_file(folder: Path, weights: Weights) -> None:
    state = load_file(folder / "model.safetensors")
    assert torch.equal(weights.model.decoder.lm_head.weight, state["decoder.lm_head.weight"])
    first = weights.codec.encoder.encoder_seanet.layers[0].conv.weight
    assert torch.equal(first, state["audio_encoder.encoder.layers.0.conv.weight"])


def test_the_codec_keeps_its_precision(folder: Path, weights: Weights) -> None:
    halved = Weights(settings(folder, dtype="bfloat16"))
    assert halved.model.decoder.lm_head.weight.dtype is torch.bfloat16
    exact = dict(weights.codec.named_parameters())
    assert all(torch.equal(part, exact[name]) for name, part in halved.codec.named_parameters())


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
def test_half_precision_speaks(folder: Path, dtype: str) -> None:
    engine = MoshiHost(settings(folder, dtype=dtype)).open_engine()
    engine.prepare(Preparation())
    for _ in range(3):
        engine.prefill(np.zeros(1_920, np.float32))
        assert engine.generate().kv_tokens
        engine.finalize()


def test_a_directory_that_is_not_there_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="/no/such/moshi, which does not exist"):
        MoshiHost(MoshiSettings(model="/no/such/moshi"))


def test_a_device_that_is_not_there_is_a_configuration_error(folder: Path) -> None:
    with pytest.raises(ConfigError, match="cuda:99"):
        MoshiHost(settings(folder, device="cuda:99"))


def test_another_kind_of_model_is_refused(copied: Path) -> None:
    changed(copied, model_type="llama")
    with pytest.raises(EngineError, match="is not a Moshi model: llama"):
        MoshiHost(settings(copied))


def test_weights_that_are_missing_are_not_made_up(copied: Path) -> None:
    state = load_file(copied / "model.safetensors")
    del state["depth_decoder.lm_heads.weight"]
    save_file(state, copied / "model.safetensors", {"format": "pt"})
    with pytest.raises(EngineError, match=r"lacks 1 weights, among them depth_decoder\.lm_heads\.weight"):
        MoshiHost(settings(copied))


def test_weights_that_cannot_be_read_are_an_engines_error(copied: Path) -> None:
    (copied / "model.safetensors").write_bytes(b"no weights")
    with pytest.raises(EngineError, match="cannot load") as caught:
        MoshiHost(settings(copied))
    assert not caught.value.retryable


def test_a_model_without_a_tokenizer_is_an_engines_error(copied: Path) -> None:
    for file in copied.glob("tokenizer*"):
        file.unlink()
    with pytest.raises(EngineError, match="cannot load the tokenizer"):
        MoshiHost(settings(copied))


def test_a_codec_of_other_frames_is_refused(copied: Path) -> None:
    codec = json.loads((copied / "config.json").read_text())["audio_encoder_config"]
    changed(copied, audio_encoder_config=codec | {"sampling_rate": 48_000})
    with pytest.raises(EngineError, match="is not 80 ms"):
        MoshiHost(settings(copied))


def test_a_codec_that_looks_ahead_is_refused(copied: Path) -> None:
    codec = json.loads((copied / "config.json").read_text())["audio_encoder_config"]
    changed(copied, audio_encoder_config=codec | {"use_causal_conv": False})
    with pytest.raises(EngineError, match="not causal"):
        MoshiHost(settings(copied))


def test_tokens_that_the_vocabulary_lacks_are_refused(folder: Path) -> None:
    with pytest.raises(ConfigError, match="no text token 500"):
        MoshiHost(settings(folder, text_padding_id=500))


def test_without_its_packages_the_rest_works_and_it_says_what_it_needs() -> None:
    program = """
import sys
sys.modules["torch"] = sys.modules["transformers"] = None
import parley.configs.deployment, parley.pipelines, parley.models.omni.moshi.settings
from parley.core.errors import ConfigError
from parley.models.omni import OMNI, Preparation
try:
    OMNI.create("moshi")
except ConfigError as error:
    print(error)
"""
    found = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=120)
    assert "omni engine 'moshi' needs the extra 'moshi'" in found.stdout, found.stderr


def test_the_registry_knows_it(folder: Path) -> None:
    assert isinstance(OMNI.create("moshi", settings(folder)), MoshiHost)
