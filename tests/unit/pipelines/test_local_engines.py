"""Local recognisers and voices whose files or packages are missing."""

import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from parley.configs.deployment import Choice, Deployment, Hearing, Speaking
from parley.core.errors import ConfigError
from parley.pipelines.engines.plan import plan


def with_ears(name: str, models_dir: Path) -> Deployment:
    return Deployment(models_dir=models_dir, hearing=Hearing(stt=Choice(name=name)))


def with_voice(name: str, models_dir: Path) -> Deployment:
    return Deployment(models_dir=models_dir, speaking=Speaking(tts=Choice(name=name)))


# Name, stage, package, and a deployment that chooses the engine.
LOCAL: list[tuple[str, str, str, Callable[[str, Path], Deployment]]] = [
    ("moonshine", "stt", "moonshine_voice", with_ears),
    ("whisper", "stt", "faster_whisper", with_ears),
    ("kokoro", "tts", "kokoro_onnx", with_voice),
    ("piper", "tts", "piper", with_voice),
    ("supertonic", "tts", "supertonic", with_voice),
]


@pytest.mark.parametrize(("name", "stage", "package", "choosing"), LOCAL)
def test_missing_files_are_found_in_the_deployments_folder_before_anything_is_loaded(
    name: str, stage: str, package: str, choosing: Callable[[str, Path], Deployment], tmp_path: Path
):
    pytest.importorskip(package, reason="the package is looked for first")
    with pytest.raises(ConfigError, match="make models") as caught:
        plan(choosing(name, tmp_path))
    assert str(tmp_path / name) in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(("name", "stage", "package", "choosing"), LOCAL)
def test_a_missing_package_is_named_with_its_extra(
    name: str,
    stage: str,
    package: str,
    choosing: Callable[[str, Path], Deployment],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
):
    monkeypatch.delitem(sys.modules, f"parley.models.{stage}.{name}", raising=False)
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(ConfigError, match=rf"pip install -e '\.\[{name}\]'"):
        plan(choosing(name, tmp_path))
