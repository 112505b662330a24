import shutil
from pathlib import Path

import pytest

from parley.configs.deployment import Choice, Deployment, Hearing, Speaking, Thinking
from parley.configs.load import load_deployment
from parley.models.stt.moonshine import MoonshineSettings
from parley.models.stt.whisper import WhisperSettings
from parley.pipelines.engines.engines import Engines
from parley.pipelines.engines.plan import plan
from parley.processors.perception.engine_stt import EngineSttService
from tests.tiny_moonshine import install_moonshine
from tests.tiny_whisper import install_whisper


@pytest.mark.parametrize(
    ("deployment", "expected"), [("local", MoonshineSettings), ("selfhost", WhisperSettings)]
)
def test_the_deployments_that_name_one_find_the_files_that_make_models_brings(
    deployment: str, expected: type, tmp_path: Path
):
    install_moonshine(tmp_path)
    install_whisper(tmp_path)
    chosen = load_deployment(deployment)
    # The later stages have tests of their own.
    chosen = chosen.model_copy(
        update={"models_dir": tmp_path, "speaking": Speaking(), "thinking": Thinking()}
    )
    planned = plan(chosen)
    assert isinstance(planned.stt, expected)
    assert planned.stt.models_dir == tmp_path


@pytest.mark.parametrize("name", ["moonshine", "whisper"])
async def test_a_recogniser_is_loaded_once_for_all_calls(name: str, tmp_path: Path):
    install_moonshine(tmp_path)
    install_whisper(tmp_path)
    deployment = Deployment(models_dir=tmp_path, hearing=Hearing(stt=Choice(name=name)))
    async with await Engines.load(deployment) as engines:
        # An engine that loaded per call would look for the files now.
        shutil.rmtree(tmp_path / name)
        calls = [await engines.build_stt() for _ in range(2)]
        assert all(isinstance(call, EngineSttService) for call in calls)
        assert engines.describe()["stt"] == name
