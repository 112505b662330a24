"""Voices of which a caller chooses one: their names, their plan, and which of them speaks."""

from collections.abc import Callable
from typing import Any, cast

import pytest
from pydantic import ValidationError

from parley.configs.deployment import Deployment
from parley.core.call_choices import NO_VOICES, ChoiceField, VoiceNames
from parley.core.call_events import VoiceChosen
from parley.core.errors import ConfigError
from parley.core.usage import Stage
from parley.models.stt import Transcript
from parley.models.tts import SpeechPiece
from parley.pipelines.call import Call, LiveCall
from parley.pipelines.engines.engines import Engines
from parley.pipelines.engines.llm_runtime import AnsweringPlan, LlmRuntime
from parley.pipelines.engines.loading import Executors, Loaded, create_chosen_voices
from parley.pipelines.engines.plan import plan
from parley.pipelines.stages.call_voice import CallVoice
from parley.processors.dialogue.services import Documents, DocumentsSettings, LlmRow
from parley.processors.perception.engine_stt import transcript_from_fields
from parley.processors.speech.engine_tts import EngineTtsService
from parley.runtime.loop_clock import LoopClock
from parley.session_store.conversation import Conversation
from parley.telemetry.engine_names import EngineNames
from tests.fakes.executor import InlineExecutor
from tests.fakes.scripted_llm import ScriptedLanguageModel, ScriptedRow
from tests.fakes.stt import ScriptedStt
from tests.fakes.tts import ToneTts
from tests.fakes.vad import EnergyVad
from tests.in_place_engine import InPlaceEngine

RMS: dict[str, Any] = {"rms": {"name": "flite", "settings": {"voice": "rms"}}}


def deployment(*, tts: str = "flite", **speaking: Any) -> Deployment:
    return Deployment.model_validate({"speaking": {"tts": {"name": tts}, **speaking}})


def test_a_wrong_setting_of_a_voice_is_refused_at_the_start():
    with pytest.raises(ConfigError, match=r"speaking\.voices\.anna"):
        plan(deployment(voices={"anna": {"name": "flite", "settings": {"voice": "anna"}}}))


def test_a_service_has_no_further_voices():
    with pytest.raises(ConfigError, match="'xtts' of speaking.tts is a service"):
        plan(
            Deployment.model_validate(
                {"speaking": {"tts": {"name": "xtts", "settings": {"voice": "Ana"}}, "voices": RMS}}
            )
        )


@pytest.mark.parametrize("name", ["parley", "", "Two Words", "a" * 33])
def test_a_name_that_no_voice_can_have_is_refused(name: str):
    with pytest.raises(ValidationError):
        deployment(voices={name: {"name": "flite"}})


def engines_of(chosen: Deployment, own: ToneTts, row: LlmRow, **more: Any) -> Engines:
    answering = LlmRuntime(chosen, AnsweringPlan(row, None, False), ScriptedLanguageModel(["Hi."]))
    ears = InPlaceEngine[Transcript](ScriptedStt(), transcript_from_fields)
    inline = InlineExecutor()
    loaded = Loaded(EnergyVad(), None, ears, own, answering, **more)
    return Engines(chosen, loaded, Executors(inline, inline, inline))


async def spoken(synthesize: Callable[..., bool]) -> int:
    """Return the bytes of a word."""
    pieces: list[SpeechPiece] = []
    assert synthesize("Hello.", lambda piece: pieces.append(piece) is None)
    return sum(len(piece.pcm) for piece in pieces)


async def test_a_call_speaks_with_the_voice_that_its_caller_has_chosen():
    chosen, own = deployment(voices=RMS), ToneTts()
    voices = await create_chosen_voices(chosen, plan(chosen), own)
    engines = engines_of(chosen, own, ScriptedRow(("Yes.",)), chosen_voices=voices)
    rms = engines.voice_named("rms")
    assert rms is not None and await spoken(rms.synthesize) > 0 and own.clauses == []
    assert engines.voice_named("parley") is engines.voice_named("") is own
    offer = engines.choices_of("cascade")
    assert offer.voices == ("parley", "rms")
    assert offer.fields == {ChoiceField.VOICE, ChoiceField.PRESET, ChoiceField.INSTRUCTIONS}
    # This process was started without full duplex.
    assert engines.choices_of("duplex").fields == frozenset()
    voices["rms"].phrases.warm()
    greeting = chosen.bot.greeting
    assert engines.kept_speech(greeting) is None and engines.kept_speech(greeting, voice="rms")


async def test_metrics_prices_and_evidence_of_a_call_name_the_engine_of_its_voice():
    engines = engines_of(deployment(tts="hibari", voices=RMS), ToneTts(), ScriptedRow(("Yes.",)))
    named = [engines.names("cascade", voice=voice)[Stage.TTS] for voice in ("", "parley", "rms")]
    assert named == ["hibari", "hibari", "flite"]


async def test_answers_from_documents_follow_no_text():
    chosen = deployment()
    engines = engines_of(chosen, ToneTts(), Documents(DocumentsSettings()))
    assert engines.choices_of("cascade").fields == frozenset()


async def test_the_client_of_a_call_may_choose_another_voice_after_the_call_has_begun():
    chosen, own = deployment(tts="hibari", voices=RMS, voice_aliases={"marin": "rms"}), ToneTts()
    voices = await create_chosen_voices(chosen, plan(chosen), own)
    engines = engines_of(chosen, own, ScriptedRow(("Yes.",)), chosen_voices=voices)
    assert engines.choices_of("cascade").voice_names == VoiceNames(("parley", "rms"), {"marin": "rms"})
    # Nothing speaks there whose voice could be chosen.
    assert engines.choices_of("duplex").voice_names == NO_VOICES
    voices["rms"].phrases.warm()
    greeting = chosen.bot.greeting
    call = Call(cast(Conversation, None), "webrtc", LiveCall(LoopClock()))
    names = EngineNames(call.events, engines.names("cascade"), engine_of=engines.voice_engine)
    voice, service = CallVoice(engines, call), await engines.build_tts(call.events)
    assert isinstance(service, EngineTtsService)
    said = []
    for name in ("", "rms", "parley"):
        if name:
            call.events.publish(VoiceChosen(0, name))
        # A synthesis for the next reply, run in place.
        own.clauses.clear()
        service.prepare("Yes.")
        said.append((own.clauses == ["Yes."], names[Stage.TTS], voice.kept(greeting) is not None))
    assert said == [(True, "hibari", False), (False, "flite", True), (True, "hibari", False)]
    service.forget_prepared()


@pytest.mark.parametrize(
    ("aliases", "fault"),
    [
        ({"marin": "slt"}, "'marin' names 'slt', which is not in voices"),
        ({"rms": "parley"}, "'rms' is the name of a voice"),
        ({"parley": "rms"}, "'parley' is the name of a voice"),
    ],
)
def test_an_alias_of_a_voice_names_one_of_the_deployment_and_takes_no_name_of_one(
    aliases: dict[str, str], fault: str
):
    with pytest.raises(ValidationError, match=fault):
        deployment(voices=RMS, voice_aliases=aliases)
    assert deployment(voices=RMS, voice_aliases={"en-US/Ava": "parley"}).speaking.voice_aliases
