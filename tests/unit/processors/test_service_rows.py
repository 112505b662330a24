import asyncio
import subprocess
import sys
from collections.abc import Callable
from importlib.util import find_spec
from typing import Any

import aiohttp
import pytest
from pipecat.processors.frame_processor import FrameProcessor

from parley.core.errors import ConfigError
from parley.core.registry import Registry
from parley.models.stt import recogniser_traits
from parley.processors.dialogue.services import LLM_SERVICES, AnthropicSettings, sees_pictures
from parley.processors.perception.services import STT_SERVICES, answer_deadline_s
from parley.processors.service_rows import ServiceRow, Shared
from parley.processors.speech.services import TTS_SERVICES
from tests.fakes.scripted_llm import ScriptedLanguageModel

REQUIRED: dict[str, dict[str, Any]] = {
    "openai_compatible": {"base_url": "http://localhost:1/v1", "model": "m"},
    "vllm": {"model": "m"},
    "ollama": {"model": "m"},
    "groq": {"model": "m"},
    "worker": {"url": "ws://127.0.0.1:1"},
    "cartesia": {"voice": "v"},
    "openai_speech": {"base_url": "http://localhost:1/v1", "model": "m", "voice": "v"},
    "xtts": {"voice": "v"},
}
ALL = [(registry, name) for registry in (STT_SERVICES, LLM_SERVICES, TTS_SERVICES) for name in registry]
KEYED = [(registry, name) for registry, name in ALL if registry.row(name).env]
EXTRAS = [(registry, name) for registry, name in ALL if registry.row(name).extra]
VENDORS = (
    "anthropic",
    "openai",
    "deepgram",
    "moonshine_voice",
    "kokoro_onnx",
    "faster_whisper",
    "piper",
    "supertonic",
    "xllamacpp",
    "pipecat",
)


def create(registry: Registry[ServiceRow[Any]], name: str, **fields: Any) -> ServiceRow[Any]:
    row: Any = registry.factory(name)
    return registry.create(name, row.settings_type(**REQUIRED.get(name, {}), **fields))


def ids(rows: list[tuple[Registry[ServiceRow[Any]], str]]) -> list[str]:
    return [name for _, name in rows]


def test_importing_the_registries_imports_no_vendor():
    code = (
        "import sys\n"
        "from parley.processors.dialogue.services import LLM_SERVICES\n"
        "from parley.processors.perception.services import STT_SERVICES\n"
        "from parley.processors.speech.services import TTS_SERVICES\n"
        "[rows.factory(name) for rows in (LLM_SERVICES, STT_SERVICES, TTS_SERVICES) for name in rows]\n"
        "print(sorted({name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert not [vendor for vendor in VENDORS if f"'{vendor}'" in done.stdout]


@pytest.mark.parametrize(("registry", "name"), ALL, ids=ids(ALL))
def test_settings_hold_no_secret(registry: Registry[ServiceRow[Any]], name: str):
    fields = create(registry, name).settings.model_dump()
    assert not [
        field for field in fields if "key" in field and not field.endswith("_env") and field != "keyterms"
    ]


@pytest.mark.parametrize(("registry", "name"), ALL, ids=ids(ALL))
def test_a_row_knows_its_name_and_extra(registry: Registry[ServiceRow[Any]], name: str):
    row = create(registry, name)
    assert row.name == name
    assert registry.row(name).extra in (row.extra, None)


@pytest.mark.parametrize(("registry", "name"), KEYED, ids=ids(KEYED))
def test_a_missing_key_is_named(
    registry: Registry[ServiceRow[Any]], name: str, monkeypatch: pytest.MonkeyPatch
):
    row = create(registry, name)
    (variable,) = registry.row(name).env
    monkeypatch.delenv(variable, raising=False)
    if row.package is not None and find_spec(row.package) is None:
        pytest.skip(f"{row.package} is not installed: the row asks for it first")
    with pytest.raises(ConfigError, match=variable):
        row.check()
    with pytest.raises(ConfigError, match=variable):
        row.build()
    monkeypatch.setenv(variable, "k")
    row.check()


@pytest.mark.parametrize(("registry", "name"), EXTRAS, ids=ids(EXTRAS))
def test_a_missing_package_is_named_with_its_extra(registry: Registry[ServiceRow[Any]], name: str):
    class Uninstalled(type(create(registry, name))):  # type: ignore[misc]
        package = "a_package_that_nobody_installed"

    with pytest.raises(ConfigError, match=rf"pip install -e '\.\[{registry.row(name).extra}\]'"):
        Uninstalled(create(registry, name).settings).check()


def test_an_unknown_service_lists_the_known_ones():
    with pytest.raises(ConfigError, match="deepgram, groq, kyutai, mistral, soniox"):
        STT_SERVICES.factory("ears")


@pytest.mark.parametrize(
    ("registry", "name", "what"),
    [
        (LLM_SERVICES, "documents", "model"),
        (STT_SERVICES, "groq", "HTTP"),
        (TTS_SERVICES, "openai_speech", "HTTP"),
        (TTS_SERVICES, "xtts", "HTTP"),
    ],
)
def test_a_row_that_needs_something_shared_says_so(
    registry: Registry[ServiceRow[Any]], name: str, what: str, monkeypatch: pytest.MonkeyPatch
):
    for variable in registry.row(name).env:
        monkeypatch.setenv(variable, "k")
    with pytest.raises(ConfigError, match=what):
        create(registry, name).build()


@pytest.mark.parametrize(
    ("registry", "name"),
    [
        *((STT_SERVICES, name) for name in ("deepgram", "soniox", "kyutai", "groq", "mistral")),
        *(
            (LLM_SERVICES, name)
            for name in ("documents", "anthropic", "openai_compatible", "vllm", "ollama", "groq")
        ),
        *((TTS_SERVICES, name) for name in ("cartesia", "openai_speech", "xtts")),
    ],
)
async def test_a_service_is_built_for_the_installed_pipecat(
    registry: Registry[ServiceRow[Any]], name: str, monkeypatch: pytest.MonkeyPatch
):
    if name == "deepgram":
        pytest.importorskip("deepgram", reason="needs the extra 'deepgram'")
    for variable in registry.row(name).env:
        monkeypatch.setenv(variable, "k")
    async with aiohttp.ClientSession() as http:
        shared = Shared(language_model=ScriptedLanguageModel(["Hi."]), http=http)
        service = create(registry, name).build(shared)
        assert isinstance(service, FrameProcessor)
        await asyncio.sleep(0)


def test_only_a_recogniser_that_answers_whole_voices_has_no_partial_texts():
    without = [
        name for name in STT_SERVICES if not recogniser_traits(create(STT_SERVICES, name)).has_partials
    ]
    assert without == ["groq"]
    assert answer_deadline_s(create(STT_SERVICES, "groq")) == 10.0


def test_presets_differ_in_address_and_key_only():
    addresses = {name: create(LLM_SERVICES, name).settings.base_url for name in ("vllm", "ollama", "groq")}
    assert addresses == {
        "vllm": "http://localhost:8000/v1",
        "ollama": "http://localhost:11434/v1",
        "groq": "https://api.groq.com/openai/v1",
    }
    assert create(LLM_SERVICES, "groq").settings.api_key_env == "GROQ_API_KEY"
    assert create(LLM_SERVICES, "vllm").settings.api_key_env is None


def test_claude_caches_its_prompt_by_default():
    assert AnthropicSettings().prompt_caching


def test_checks_open_no_connection(monkeypatch: pytest.MonkeyPatch, no_network: Callable[[], int]):
    for registry, name in KEYED:
        for variable in registry.row(name).env:
            monkeypatch.setenv(variable, "k")
        row = create(registry, name)
        if row.package is None or find_spec(row.package) is not None:
            row.check()
    assert no_network() == 0


@pytest.fixture
def no_network(monkeypatch: pytest.MonkeyPatch) -> Callable[[], int]:
    import socket

    attempts: list[object] = []
    monkeypatch.setattr(socket.socket, "connect", lambda self, address: attempts.append(address))
    return lambda: len(attempts)


@pytest.mark.parametrize("name", list(LLM_SERVICES))
def test_a_row_states_whether_its_model_sees(name: str):
    assert sees_pictures(create(LLM_SERVICES, name)) == (name == "anthropic")  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["openai_compatible", "vllm", "ollama", "groq"])
def test_a_model_of_an_openai_compatible_server_sees_where_the_settings_say_so(name: str):
    assert sees_pictures(create(LLM_SERVICES, name, sees=True))  # type: ignore[arg-type]
