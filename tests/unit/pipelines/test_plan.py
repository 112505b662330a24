import asyncio
import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import psutil
import pytest
import soundfile
from aiohttp import ClientSession
from loguru import logger

from parley.configs.deployment import Bot, Choice, Deployment, Duplex, Hearing, Speaking, Thinking
from parley.configs.load import load_deployment
from parley.core.errors import ConfigError, ModelFileError
from parley.core.pinned_models import PINNED_MODELS
from parley.core.tuning import tuned
from parley.models.echo.webrtc import WebRtcEchoSettings
from parley.models.llm.documents import DocumentLlmSettings
from parley.models.stt.moonshine_tiny import MoonshineTinySettings
from parley.models.stt.pocketsphinx import PocketsphinxSettings
from parley.pipelines.engines.engines import Engines
from parley.pipelines.engines.plan import plan
from parley.processors.dialogue.services import Documents, DocumentsSettings
from parley.serving.gateway.settings import ServerTuning
from parley.turn_taking.clarification import AskBackTuning
from parley.turn_taking.endpointing.endpointer import EndpointTuning
from tests import human_speech
from tests.tiny_whisper import install_whisper


@contextmanager
def warnings_logged() -> Iterator[list[str]]:
    lines: list[str] = []
    sink = logger.add(lambda message: lines.append(message.record["message"]), level="WARNING")
    try:
        yield lines
    finally:
        logger.remove(sink)


def test_the_default_needs_nothing_from_outside():
    planned = plan(Deployment())
    assert not planned.answering.guarded


@pytest.mark.parametrize("deployment", ["embedded", "claude"])
def test_the_embedded_recogniser_is_moonshine_tiny(deployment: str, monkeypatch: pytest.MonkeyPatch):
    human_speech.moonshine_tiny()
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not-used")
    with warnings_logged() as lines:
        planned = plan(load_deployment(deployment))
    assert isinstance(planned.stt, MoonshineTinySettings)
    assert planned.hearing.endpoint.heard_for_fillers == ()
    assert lines == []


@pytest.mark.parametrize("deployment", [Deployment(), load_deployment("embedded")])
def test_without_its_weights_pocketsphinx_listens_and_one_line_tells_so(
    deployment: Deployment, tmp_path: Path
):
    with warnings_logged() as lines:
        planned = plan(deployment.model_copy(update={"models_dir": tmp_path}))
    assert isinstance(planned.stt, PocketsphinxSettings)
    assert planned.hearing.stt.name == "pocketsphinx"
    (line,) = lines
    assert line.startswith("using pocketsphinx as the recogniser instead of moonshine_tiny: ")
    assert line.endswith("run `make models ARGS=moonshine_tiny`")


def test_an_altered_weight_has_pocketsphinx_listen(tmp_path: Path):
    model = PINNED_MODELS["moonshine_tiny"]
    folder = tmp_path / model.folder
    folder.mkdir(parents=True)
    for name in model.files:
        (folder / name).write_bytes(b"altered")
    with warnings_logged() as lines:
        planned = plan(Deployment(models_dir=tmp_path))
    assert isinstance(planned.stt, PocketsphinxSettings)
    assert len(lines) == 1 and "altered" in lines[0]


def test_a_recogniser_that_was_chosen_without_a_fallback_is_not_replaced(tmp_path: Path):
    chosen = Hearing(stt=Choice(name="moonshine_tiny"))
    with pytest.raises(ModelFileError, match="moonshine_tiny"):
        plan(Deployment(models_dir=tmp_path, hearing=chosen))


def after_soniox(fallback: str, **settings: object) -> Deployment:
    chosen = Choice(name=fallback, settings=settings)
    return Deployment(hearing=Hearing(stt=Choice(name="soniox"), fallback=chosen))


def test_a_service_has_an_embedded_recogniser_after_it(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SONIOX_API_KEY", "key")
    planned = plan(after_soniox("pocketsphinx"))
    assert planned.hearing.stt.name == "soniox"
    assert planned.stt_fallback is not None
    name, settings = planned.stt_fallback
    assert name == "pocketsphinx" and isinstance(settings, PocketsphinxSettings)
    assert plan(Deployment(hearing=Hearing(stt=Choice(name="soniox")))).stt_fallback is None


def test_workers_have_an_embedded_recogniser_after_them():
    chosen = {
        "hearing": {"stt": {"name": "pool"}, "fallback": {"name": "pocketsphinx"}},
        "workers": {"workers": [{"name": "ears", "url": "ws://127.0.0.1:1"}]},
    }
    planned = plan(Deployment.model_validate(chosen))
    assert planned.stt_fallback is not None and planned.stt_fallback[0] == "pocketsphinx"


@pytest.mark.parametrize(
    ("deployment", "message"),
    [
        (after_soniox("deepgram"), "hearing.fallback: 'deepgram' is a service"),
        (after_soniox("worker", url="ws://127.0.0.1:1"), "hearing.fallback: a recogniser in a worker"),
        (after_soniox("ears"), "ears"),
    ],
)
def test_what_cannot_take_over_from_a_service_is_refused(
    deployment: Deployment, message: str, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("SONIOX_API_KEY", "key")
    monkeypatch.setenv("PARLEY_WORKER_SECRET", "a secret of some length")
    with pytest.raises(ConfigError, match=message):
        plan(deployment)


def test_a_specialist_without_its_weights_is_missing_and_one_line_says_so(tmp_path: Path):
    hearing = Hearing(
        stt=Choice(name="pocketsphinx"), specialists=(Choice(name="vision"), Choice(name="prosody"))
    )
    with warnings_logged() as lines:
        planned = plan(Deployment(models_dir=tmp_path, hearing=hearing))
    assert [name for name, _ in planned.specialists] == ["prosody"]
    (line,) = lines
    assert line.startswith("calls do without the specialist vision: ")
    assert line.endswith("run `make models ARGS=vision`")


@pytest.mark.parametrize(
    ("hearing", "below", "lost_below"),
    [
        ({}, 0.6, 0.5),
        ({"ask_back": {}}, 0.6, 0.5),
        ({"ask_back": {"below": 0.7}}, 0.7, 0.5),
        ({"ask_back": {"below": 0.3}}, 0.3, 0.3),
        ({"stt": {"name": "pocketsphinx"}, "ask_back": {}}, 0.4, 0.0),
    ],
)
def test_what_is_doubtful_is_the_recognisers_unless_the_deployment_says(
    hearing: dict[str, Any], below: float, lost_below: float
):
    human_speech.moonshine_tiny()
    planned = plan(Deployment(hearing=Hearing.model_validate(hearing))).hearing.ask_back
    assert planned is not None
    used = tuned(AskBackTuning, planned)
    assert (used.below, used.lost_below) == (below, lost_below)


@pytest.mark.parametrize("hearing", [{"ask_back": None}, {"stt": {"name": "pocketsphinx"}}])
def test_a_deployment_or_its_recogniser_asks_nothing_back(hearing: dict[str, Any]):
    human_speech.moonshine_tiny()
    assert plan(Deployment(hearing=Hearing.model_validate(hearing))).hearing.ask_back is None


@pytest.mark.parametrize(("name", "suppresses"), [("pocketsphinx", True), ("whisper", False)])
def test_noise_is_suppressed_where_the_recogniser_wants_it(name: str, suppresses: bool, tmp_path: Path):
    install_whisper(tmp_path)
    hearing = Hearing(stt=Choice(name=name))
    planned = plan(Deployment(models_dir=tmp_path, hearing=hearing)).echo
    assert isinstance(planned, WebRtcEchoSettings)
    assert planned.noise_suppression is suppresses
    assert planned.echo_cancellation


def test_a_deployment_may_suppress_noise_for_any_recogniser(tmp_path: Path):
    install_whisper(tmp_path)
    echo = Choice(name="webrtc", settings={"noise_suppression": True})
    planned = plan(Deployment(models_dir=tmp_path, hearing=Hearing(stt=Choice(name="whisper"), echo=echo)))
    assert isinstance(planned.echo, WebRtcEchoSettings) and planned.echo.noise_suppression


@pytest.mark.parametrize(
    ("endpoint", "expected"),
    [(EndpointTuning(), ("them",)), (EndpointTuning(heard_for_fillers=("hum",)), ("hum",))],
)
def test_fillers_are_those_of_the_recogniser_unless_the_deployment_has_its_own(
    endpoint: EndpointTuning, expected: tuple[str, ...]
):
    planned = plan(Deployment(hearing=Hearing(stt=Choice(name="pocketsphinx"), endpoint=endpoint)))
    assert planned.hearing.endpoint.heard_for_fillers == expected


@pytest.mark.parametrize(("max_calls", "decoders"), [(1, 64), (32, 64), (300, 300), (10_000, 10_000)])
def test_every_call_has_a_decoder(max_calls: int, decoders: int):
    hearing = Hearing(stt=Choice(name="pocketsphinx"))
    planned = plan(Deployment(hearing=hearing, server=ServerTuning(max_calls=max_calls, admission="off")))
    assert isinstance(planned.stt, PocketsphinxSettings)
    assert planned.stt.max_decoders == decoders


@pytest.mark.parametrize(("processes", "is_enough"), [(1, False), (2, True)])
def test_fewer_decoders_than_calls_are_refused(processes: int, is_enough: bool):
    choice = Choice(name="pocketsphinx", settings={"max_decoders": 16})
    deployment = Deployment(
        hearing=Hearing(stt=choice, stt_processes=processes), server=ServerTuning(max_calls=32)
    )
    if is_enough:
        plan(deployment)
    else:
        with pytest.raises(ConfigError, match="hearing.stt: max_decoders 16 .* server.max_calls 32"):
            plan(deployment)


def test_an_unknown_engine_lists_engines_and_services():
    with pytest.raises(
        ConfigError,
        match="hearing.stt: unknown engine 'ears' .known: deepgram, groq, kyutai, mistral, moonshine",
    ):
        plan(Deployment(hearing=Hearing(stt=Choice(name="ears"))))


def test_an_unknown_setting_of_an_engine_lists_the_known_ones():
    choice = Choice(name="flite", settings={"pitch": 3})
    with pytest.raises(
        ConfigError, match=r"speaking.tts \(flite\): unknown field 'pitch' .known: gain_percent"
    ):
        plan(Deployment(speaking=Speaking(tts=choice)))


@pytest.mark.parametrize(
    ("deployment", "message"),
    [
        (Deployment(hearing=Hearing(stt=Choice(name="os:getcwd"))), "posix:getcwd takes no 'settings'"),
        (Deployment(hearing=Hearing(stt=Choice(name="decimal:Decimal"))), "takes no 'settings'"),
        (Deployment(hearing=Hearing(stt=Choice(name="decimal:Decimals"))), "cannot be imported"),
        (
            Deployment(thinking=Thinking(llm=Choice(name="parley.models.llm.documents:DocumentLlm"))),
            "thinking.llm: 'parley.models.llm.documents:DocumentLlm' is no row of a service",
        ),
        (
            Deployment(thinking=Thinking(fallback=Choice(name="parley.models.llm.documents:DocumentLlm"))),
            "thinking.fallback: unknown engine",
        ),
    ],
)
def test_an_engine_of_ones_own_that_does_not_fit_is_refused(deployment: Deployment, message: str):
    with pytest.raises(ConfigError, match=message):
        plan(deployment)


def test_a_full_duplex_engine_of_ones_own_is_no_realtime_service():
    own = Choice(name="parley.models.omni.two_tier.engine:TwoTierHost")
    planned = plan(Deployment(duplex=Duplex(engine=own, fallback=(own,))), duplex=True)
    assert [name for name, _ in planned.omni] == [own.name, own.name]


def test_a_missing_documents_folder_is_named():
    with pytest.raises(ConfigError, match="bot.knowledge: there is no folder 'nowhere'"):
        plan(Deployment(bot=Bot(knowledge=Path("nowhere"))))


def test_a_missing_key_names_its_variable(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("ANTHROPIC_API_KEY", raising=False)
    with pytest.raises(ConfigError, match="ANTHROPIC_API_KEY"):
        plan(Deployment(thinking=Thinking(llm=Choice(name="anthropic"))))


def test_a_missing_extra_is_named(monkeypatch: pytest.MonkeyPatch):
    # The state where it is not installed.
    monkeypatch.setitem(sys.modules, "deepgram", None)
    with pytest.raises(ConfigError, match=r"pip install -e '.\[deepgram\]'"):
        plan(Deployment(hearing=Hearing(stt=Choice(name="deepgram"))))


def test_a_fallback_stands_after_another_model(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "k")
    thinking = Thinking(llm=Choice(name="anthropic"), fallback=Choice(name="documents"))
    planned = plan(Deployment(thinking=thinking))
    assert planned.answering.guarded
    assert planned.answering.documents is not None


def test_an_unknown_fallback_is_refused(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ConfigError, match="thinking.fallback: unknown engine 'oracle'"):
        plan(Deployment(thinking=Thinking(fallback=Choice(name="oracle"))))


@pytest.mark.parametrize(
    "behind", [None, Choice(name="documents", settings={"threshold": 0.9, "max_words": 9})]
)
def test_the_settings_of_documents_stand_with_the_model_that_answers(behind: Choice | None):
    chosen = {"threshold": 0.4, "piece_timeout_ms": 700}
    planned = plan(
        Deployment(thinking=Thinking(llm=Choice(name="documents", settings=chosen), fallback=behind))
    )
    row, documents = planned.answering.row, planned.answering.documents
    assert isinstance(row, Documents)
    assert row.settings == DocumentsSettings(piece_timeout_ms=700)
    assert isinstance(documents, DocumentLlmSettings)
    assert documents.threshold == 0.4
    assert documents.max_words == (9 if behind else 45)
    assert not planned.answering.guarded


def test_the_settings_of_documents_stand_with_the_fallback():
    thinking = Thinking(
        llm=Choice(name="vllm", settings={"model": "m"}),
        fallback=Choice(name="documents", settings={"threshold": 0.4}),
    )
    documents = plan(Deployment(thinking=thinking)).answering.documents
    assert isinstance(documents, DocumentLlmSettings)
    assert documents.threshold == 0.4


def test_an_unknown_setting_of_documents_lists_those_of_the_service_and_of_the_engine():
    with pytest.raises(
        ConfigError,
        match=r"thinking.llm \(documents\): unknown field 'colour' .known: .*piece_timeout_ms, threshold",
    ):
        plan(Deployment(thinking=Thinking(llm=Choice(name="documents", settings={"colour": "red"}))))


def test_a_wrong_setting_of_documents_is_placed_with_the_model_that_answers():
    with pytest.raises(ConfigError, match=r"thinking.llm \(documents\): threshold: Input should be less"):
        plan(Deployment(thinking=Thinking(llm=Choice(name="documents", settings={"threshold": 3}))))


@pytest.mark.parametrize("field", ["llm_voice", "tts_voice"])
@pytest.mark.parametrize(("content", "message"), [(None, "No such file"), (b"RIFF", "not an audio file")])
def test_a_reference_voice_that_cannot_be_read_is_said_before_the_first_call(
    tmp_path: Path, field: str, content: bytes | None, message: str
):
    voice = tmp_path / "voice.wav"
    if content is not None:
        voice.write_bytes(content)
    with pytest.raises(ConfigError, match=rf"duplex.{field}: .*voice.wav: {message}"):
        plan(Deployment(duplex=Duplex.model_validate({field: voice})), duplex=True)


def test_reference_voices_are_read_once_at_the_rate_of_the_engines(tmp_path: Path):
    voice = tmp_path / "voice.wav"
    soundfile.write(voice, np.full((24_000, 2), 0.25, np.float32), 24_000)
    planned = plan(Deployment(bot=Bot(system_prompt="Be kind."), duplex=Duplex(llm_voice=voice)), duplex=True)
    read = planned.preparation
    assert read.system_prompt == "Be kind." and read.tts_ref_audio is None
    assert read.llm_ref_audio is not None and read.llm_ref_audio.shape == (16_000,)
    assert np.abs(read.llm_ref_audio[2_000:-2_000] - 0.25).max() < 0.01


async def test_what_was_loaded_is_closed_when_another_engine_fails():
    noticed: list[dict[str, Any]] = []
    # A tracker of multiprocessing stays to the end of the process.
    before = psutil.Process().children()
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: noticed.append(context))
    deployment = Deployment(
        # It loads at once, because it reads no documents.
        thinking=Thinking(llm=Choice(name="vllm", settings={"model": "m"})),
        speaking=Speaking(tts=Choice(name="espeak", settings={"voice": "martian"})),
    )
    with pytest.raises(ConfigError, match="martian"):
        await Engines.load(deployment)
    gc.collect()
    assert noticed == []
    assert not [one for one in gc.get_objects() if type(one) is ClientSession and not one.closed]
    assert [child for child in psutil.Process().children() if child not in before] == []


def test_stop_words_are_listened_for_only_where_voices_over_the_bot_are_weighed():
    listens = {"stop_words": {"name": "pocketsphinx"}}
    assert plan(Deployment.model_validate({"name": "a", "hearing": listens})).commands is not None
    any_voice_cuts = {**listens, "barge_in": None}
    assert plan(Deployment.model_validate({"name": "a", "hearing": any_voice_cuts})).commands is None
    assert plan(Deployment.model_validate({"name": "a"})).commands is None


@pytest.mark.parametrize(
    ("bot", "thinking", "expected"),
    [
        (Bot(), Thinking(), True),
        (Bot(), Thinking(llm=Choice(name="anthropic"), fallback=Choice(name="documents")), True),
        # A service that answers knows no example bank.
        (Bot(), Thinking(llm=Choice(name="anthropic")), False),
        (Bot(knowledge=Path("docs")), Thinking(llm=Choice(name="anthropic")), True),
    ],
    ids=["documents answer", "documents are the fallback", "examples", "own documents"],
)
def test_the_recogniser_expects_the_words_of_documents_that_callers_ask_about(
    bot: Bot, thinking: Thinking, expected: bool, monkeypatch: pytest.MonkeyPatch
):
    human_speech.moonshine_tiny()
    monkeypatch.setenv("ANTHROPIC_API_KEY", "not-used")
    stt = plan(Deployment(bot=bot, thinking=thinking)).stt
    assert isinstance(stt, MoonshineTinySettings)
    assert (stt.documents is not None) == expected


def second_opinion(**hearing: Any) -> Deployment:
    given = {"second_opinion": {"name": "pocketsphinx"}, **hearing}
    return Deployment.model_validate({"name": "a", "hearing": given})


def test_a_second_opinion_is_planned_with_the_settings_of_its_engine():
    human_speech.moonshine_tiny()
    assert isinstance(plan(second_opinion()).second_opinion, PocketsphinxSettings)
    assert plan(Deployment(name="a")).second_opinion is None


@pytest.mark.parametrize(
    ("hearing", "reason"),
    [
        ({"ask_back": None}, "hearing.ask_back says which utterances are doubtful"),
        ({"stt": {"name": "pocketsphinx"}}, "hearing.ask_back says which utterances are doubtful"),
        ({"second_opinion": {"name": "martian"}}, "martian"),
        ({"second_opinion": {"name": "pocketsphinx", "settings": {"colour": 1}}}, "colour"),
        (
            {"second_opinion": {"name": "worker", "settings": {"url": "ws://127.0.0.1:1/"}}},
            "a recogniser in a worker",
        ),
    ],
)
def test_a_second_opinion_that_would_never_be_asked_or_cannot_hear_is_refused(
    hearing: dict[str, Any], reason: str, monkeypatch: pytest.MonkeyPatch
):
    human_speech.moonshine_tiny()
    monkeypatch.setenv("PARLEY_WORKER_SECRET", "a" * 16)
    with pytest.raises(ConfigError, match=reason):
        plan(second_opinion(**hearing))


def test_a_second_opinion_after_a_service_is_refused(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("DEEPGRAM_API_KEY", "key")
    with pytest.raises(ConfigError, match="is a service"):
        plan(second_opinion(stt={"name": "deepgram"}))


def test_a_fallback_that_is_never_doubtful_has_no_second_opinion(tmp_path: Path):
    deployment = second_opinion().model_copy(update={"models_dir": tmp_path})
    with warnings_logged() as lines:
        assert plan(deployment).second_opinion is None
    assert "hearing.second_opinion is not used: no utterance of pocketsphinx is doubtful" in lines
