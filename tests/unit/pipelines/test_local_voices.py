import shutil
from pathlib import Path

import pytest

from parley.configs.load import load_deployment
from parley.models.stt import Transcript
from parley.models.tts import TTS
from parley.pipelines.engines.choices import engine_or_service
from parley.pipelines.engines.engines import Engines
from parley.pipelines.engines.llm_runtime import AnsweringPlan, LlmRuntime
from parley.pipelines.engines.loading import Executors, Loaded
from parley.processors.dialogue.services import Documents, DocumentsSettings
from parley.processors.perception.engine_stt import transcript_from_fields
from parley.processors.speech.engine_tts import EngineTtsService
from parley.processors.speech.services import TTS_SERVICES
from tests.fakes.executor import InlineExecutor
from tests.fakes.scripted_llm import ScriptedLanguageModel
from tests.fakes.stt import ScriptedStt
from tests.fakes.vad import EnergyVad
from tests.in_place_engine import InPlaceEngine


async def test_the_local_deployment_loads_its_voice_once_for_all_calls(tmp_path: Path):
    for package in ("kokoro_onnx", "onnx"):
        pytest.importorskip(package)
    from tests.tiny_voices import write_kokoro

    folder = write_kokoro(tmp_path)
    deployment = load_deployment("local")
    choice = deployment.speaking.tts
    settings = engine_or_service(TTS, TTS_SERVICES, choice, {"models_dir": tmp_path}, where="speaking.tts")
    voice = TTS.create(choice.name, settings)
    answering = LlmRuntime(
        deployment, AnsweringPlan(Documents(DocumentsSettings()), None, False), ScriptedLanguageModel(["Hi."])
    )
    inline = InlineExecutor()
    loaded = Loaded(
        EnergyVad(), None, InPlaceEngine[Transcript](ScriptedStt(), transcript_from_fields), voice, answering
    )
    engines = Engines(deployment, loaded, Executors(inline, inline, inline))
    # An engine that loaded per call would look for the files now.
    shutil.rmtree(folder)
    calls = [await engines.build_tts() for _ in range(2)]
    assert all(isinstance(call, EngineTtsService) for call in calls)
    assert engines.output_rate_hz == voice.rate_hz == 24_000
