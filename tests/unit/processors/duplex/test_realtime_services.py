import subprocess
import sys
from typing import Any

import pytest

from parley.configs.deployment import Choice, Deployment, Duplex
from parley.core.errors import ConfigError
from parley.pipelines.engines.plan import plan, plan_omni, plan_realtime
from parley.pipelines.stages.service import Beginning, beginning
from parley.processors.duplex.services import REALTIME_SERVICES, Opening, RealtimeRow, TurnSource
from parley.processors.service_rows import ServiceRow

NAMES = REALTIME_SERVICES.names()
KEYS = {
    "openai_realtime": ("OPENAI_API_KEY",),
    "openai_live": ("OPENAI_API_KEY",),
    "gemini_live": ("GOOGLE_API_KEY",),
    "nova_sonic": ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"),
    "ultravox": ("ULTRAVOX_API_KEY",),
}
# Packages that Pipecat imports for them.
PACKAGES = {"gemini_live": "google.genai", "nova_sonic": "aws_sdk_bedrock_runtime"}


def create(name: str, **fields: Any) -> RealtimeRow[Any]:
    row: Any = REALTIME_SERVICES.factory(name)
    made: ServiceRow[Any] = REALTIME_SERVICES.create(name, row.settings_type(**fields))
    assert isinstance(made, RealtimeRow)
    return made


def with_keys(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if name in PACKAGES:
        pytest.importorskip(PACKAGES[name])
    for key in KEYS[name]:
        monkeypatch.setenv(key, "a key")


def deployment(*names: str, **settings: Any) -> Deployment:
    first, *behind = (Choice(name=name) for name in names)
    engine = Choice(name=first.name, settings=settings)
    return Deployment(duplex=Duplex(engine=engine, fallback=tuple(behind)))


def test_importing_the_rows_imports_no_vendor():
    code = (
        "import sys\n"
        "from parley.processors.duplex.services import REALTIME_SERVICES as rows\n"
        "[rows.factory(name) for name in rows.names()]\n"
        "print(sorted({name.split('.')[0] for name in sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    for vendor in ("openai", "google", "aws_sdk_bedrock_runtime", "websockets"):
        assert f"'{vendor}'" not in done.stdout


@pytest.mark.parametrize("name", NAMES)
def test_settings_hold_no_secret(name: str):
    row = create(name)
    assert row.name == name
    assert not [field for field in row.settings.model_dump() if "key" in field and not field.endswith("_env")]


@pytest.mark.parametrize("name", NAMES)
def test_a_missing_key_is_named(name: str, monkeypatch: pytest.MonkeyPatch):
    with_keys(name, monkeypatch)
    monkeypatch.delenv(KEYS[name][0])
    with pytest.raises(ConfigError, match=f"'{name}' needs its key .* {KEYS[name][0]}"):
        create(name).check()


@pytest.mark.parametrize("name", PACKAGES)
def test_a_missing_package_names_what_to_install(name: str, monkeypatch: pytest.MonkeyPatch):
    for key in KEYS[name]:
        monkeypatch.setenv(key, "a key")
    extra = create(name).extra
    assert extra

    class Uninstalled(type(create(name))):  # type: ignore[misc]
        package = "a_package_that_is_not_installed"
        least_python = (3, 11)

    with pytest.raises(ConfigError, match=f"'{name}' needs .*extra '{extra}'"):
        Uninstalled(create(name).settings).check()


def test_nova_sonic_is_refused_with_the_reason(monkeypatch: pytest.MonkeyPatch):
    for key in KEYS["nova_sonic"]:
        monkeypatch.setenv(key, "a key")
    reason = r"Python 3\.12 or newer, and this is Python 3\.11"
    if sys.version_info >= (3, 12):
        reason = "needs the extra 'nova-sonic'"
    with pytest.raises(ConfigError, match=reason):
        plan_realtime(deployment("nova_sonic"))


@pytest.mark.parametrize("name", NAMES)
async def test_a_service_is_built_with_the_instructions_of_the_deployment(
    name: str, monkeypatch: pytest.MonkeyPatch
):
    with_keys(name, monkeypatch)
    row = create(name)
    row.check()
    service: Any = row.build(system_instruction="Be brief.")
    if name == "ultravox":
        assert service._params.system_prompt == "Be brief."
    else:
        assert service._settings.system_instruction == "Be brief."
    # The row's claim about turns agrees with the service's own.
    recommended = service.service_metadata_frame().user_turn_strategies
    assert (recommended is None) == (row.turns is TurnSource.VOICE)
    if recommended is not None:
        assert recommended.enable_interruptions == (row.turns is TurnSource.SERVICE)


def test_openai_is_asked_for_turns_by_what_is_said(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "a key")
    row = create("openai_realtime", turn_detection="semantic_vad", eagerness="low", voice="cedar")
    service: Any = row.build()
    audio = service._settings.session_properties.audio
    assert audio.input.turn_detection.eagerness == "low"
    assert audio.input.turn_detection.interrupt_response
    assert audio.output.voice == "cedar"


def test_a_deployment_names_a_service_in_place_of_an_engine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "a key")
    planned = plan(deployment("openai_realtime", voice="cedar"), duplex=True)
    assert planned.realtime is not None
    assert planned.realtime.settings.voice == "cedar"
    assert planned.omni == ()


def test_a_deployment_with_an_engine_has_no_service():
    assert plan_realtime(deployment("two_tier")) is None
    assert len(plan_omni(deployment("two_tier"))) == 1


def test_no_one_wants_a_key_for_a_service_where_no_full_duplex_is_wanted(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("OPENAI_API_KEY", raising=False)
    assert plan(deployment("openai_realtime")).realtime is None


def test_an_unknown_engine_lists_engines_and_services():
    with pytest.raises(
        ConfigError, match="duplex.engine: unknown engine 'ears' .known: .*openai_live, .*two"
    ):
        plan(deployment("ears"), duplex=True)


def test_an_unknown_setting_lists_the_known_ones():
    with pytest.raises(ConfigError, match=r"duplex.engine \(openai_realtime\): unknown field 'colour'"):
        plan_realtime(deployment("openai_realtime", colour="red"))


@pytest.mark.parametrize("names", [("two_tier", "openai_realtime"), ("openai_realtime", "two_tier")])
def test_a_service_takes_over_from_no_engine_and_no_engine_from_it(
    names: tuple[str, str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OPENAI_API_KEY", "a key")
    with pytest.raises(ConfigError, match=r"duplex.fallback.*'openai_realtime' is a realtime service"):
        plan(deployment(*names), duplex=True)


def test_the_cascade_takes_over_from_a_service_and_from_no_engine(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("OPENAI_API_KEY", "a key")
    assert plan_realtime(deployment("openai_realtime", "cascade")) is not None
    with pytest.raises(ConfigError, match=r"unknown omni engine 'cascade'"):
        plan(deployment("two_tier", "cascade"), duplex=True)


SAID = (("user", "Hello."), ("assistant", "Good day."))


def begin(opening: Opening, greeting: str = "Hi.") -> Beginning:
    return beginning(opening, prompt="Be brief.", greeting=greeting, history=SAID)


@pytest.mark.parametrize("opening", [Opening.CONTEXT, Opening.ANSWERED_CONTEXT])
def test_a_context_begins_with_what_was_said_and_ends_with_the_greeting(opening: Opening):
    start = begin(opening)
    assert start.instructions == "Be brief."
    assert [message["role"] for message in start.messages] == ["user", "assistant", "developer"]
    assert start.messages[-1]["content"].endswith("Hi.")
    assert start.is_sent and start.greets


def test_a_context_without_a_greeting_is_what_was_said():
    start = begin(Opening.CONTEXT, greeting="")
    assert [message["content"] for message in start.messages] == ["Hello.", "Good day."]
    assert start.is_sent and not start.greets


def test_a_context_that_would_be_answered_is_not_sent_where_no_one_wants_a_greeting():
    start = begin(Opening.ANSWERED_CONTEXT, greeting="")
    assert not start.is_sent and not start.greets and not start.messages
    assert start.instructions.startswith("Be brief.\n\n")
    assert start.instructions.endswith("user: Hello.\nassistant: Good day.")


def test_a_service_without_contexts_reads_all_of_it_in_its_instructions():
    start = begin(Opening.INSTRUCTIONS)
    assert not start.is_sent and start.greets
    assert "assistant: Good day." in start.instructions
    assert start.instructions.endswith("Hi.")


def test_a_new_conversation_has_the_prompt_alone():
    start = beginning(Opening.INSTRUCTIONS, prompt="Be brief.", greeting="", history=())
    assert start == Beginning("Be brief.", (), is_sent=False, greets=False)
