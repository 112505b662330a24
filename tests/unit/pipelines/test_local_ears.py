import shutil
import sys
from pathlib import Path

import pytest

from configs.deployment import Choice, Deployment, Hearing, Speaking, Thinking
from configs.load import load_deployment
from core.errors import ConfigError
from models.stt.moonshine import MoonshineSettings
from models.stt.whisper import WhisperSettings
from pipelines.engines import Engines, plan
from processors.perception.engine_stt import EngineSttService
from tests.tiny_moonshine import install_moonshine
from tests.tiny_whisper import install_whisper

PACKAGES = {"moonshine": "moonshine_voice", "whisper": "faster_whisper"}


def with_ears(name: str, models_dir: Path) -> Deployment:
    return Deployment(models_dir=models_dir, hearing=Hearing(stt=Choice(name=name)))


@pytest.mark.parametrize("name", PACKAGES)
def test_missing_files_of_a_recogniser_are_found_in_the_deployments_folder_before_anything_is_loaded(
    name: str, tmp_path: Path
):
    with pytest.raises(ConfigError, match="make models") as caught:
        plan(with_ears(name, tmp_path))
    assert str(tmp_path / name) in str(caught.value)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("name", PACKAGES)
def test_a_missing_package_of_a_recogniser_is_named_with_its_extra(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delitem(sys.modules, f"models.stt.{name}", raising=False)
    monkeypatch.setitem(sys.modules, PACKAGES[name], None)
    with pytest.raises(ConfigError, match=rf"pip install -e '\.\[{name}\]'"):
        plan(with_ears(name, tmp_path))


@pytest.mark.parametrize(
    ("deployment", "expected"), [("local", MoonshineSettings), ("selfhost", WhisperSettings)]
)
def test_the_deployments_that_name_one_find_the_files_that_make_models_brings(
    deployment: str, expected: type, tmp_path: Path
):
    install_moonshine(tmp_path)
    install_whisper(tmp_path)
    chosen = load_deployment(deployment)
    # The stages behind it have tests of their own.
    chosen = chosen.model_copy(
        update={"models_dir": tmp_path, "speaking": Speaking(), "thinking": Thinking()}
    )
    planned = plan(chosen)
    assert isinstance(planned.stt, expected)
    assert planned.stt.models_dir == tmp_path


@pytest.mark.parametrize("name", PACKAGES)
async def test_a_recogniser_is_loaded_once_for_all_calls(name: str, tmp_path: Path):
    install_moonshine(tmp_path)
    install_whisper(tmp_path)
    async with await Engines.load(with_ears(name, tmp_path)) as engines:
        # Whoever loaded per call would look for the files now.
        shutil.rmtree(tmp_path / name)
        calls = [await engines.build_stt() for _ in range(2)]
        assert all(isinstance(call, EngineSttService) for call in calls)
        assert engines.describe()["stt"] == name
