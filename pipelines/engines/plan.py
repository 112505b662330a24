"""Checked plan of a deployment: every choice resolved, nothing loaded.

``plan`` finds everything that would stop a call (unknown names, wrong settings, missing keys, files,
packages) before the server says that it is ready.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
from loguru import logger
from pydantic import BaseModel

from parley.audio.wav import decode_wav
from parley.configs.deployment import Choice, Deployment, Hearing, Speaking
from parley.configs.load import parse_settings
from parley.core.errors import ConfigError, MediaError, ModelFileError
from parley.core.media import pcm16_to_float
from parley.core.tuning import tuned
from parley.models.echo import ECHO
from parley.models.keyword_spotting import COMMANDS
from parley.models.omni import OMNI, VOICE_RATE_HZ, Preparation
from parley.models.omni.two_tier.engine import TwoTierSettings, TwoTierTuning
from parley.models.specialists import SPECIALISTS
from parley.models.stt import STT, RecogniserTraits, recogniser_traits
from parley.models.stt.hosted.engine import WorkerSttSettings
from parley.models.tts import TTS
from parley.models.turn import TURN
from parley.models.vad import VAD
from parley.pipelines.engines.choices import engine_or_service, engine_settings, service_row
from parley.pipelines.engines.document_search import answers_from_documents
from parley.pipelines.engines.llm_runtime import AnsweringPlan, plan_answering
from parley.pipelines.modes import CASCADE
from parley.processors.duplex.services import REALTIME_SERVICES, RealtimeRow
from parley.processors.perception.services import STT_SERVICES
from parley.processors.service_rows import ServiceRow
from parley.processors.speech.services import TTS_SERVICES
from parley.runtime.observers import OBSERVERS
from parley.serving.pool.omni import PoolOmniSettings
from parley.serving.pool.streams import PoolSttSettings, PoolTtsSettings
from parley.turn_taking.clarification import AskBackTuning
from parley.turn_taking.endpointing.endpointer import EndpointTuning

INPUT_RATE_HZ = 16_000
# Name in place of an engine's: a worker of this deployment.
POOL = "pool"
# The engine whose words a recogniser and a language model of the deployment give.
TWO_TIER = "two_tier"
Pooled = TypeVar("Pooled", PoolOmniSettings, PoolSttSettings, PoolTtsSettings)
# A recogniser that has decoders has one for each call, and at least this number: an evaluation without a
# server holds some calls too. Each is built when it is needed.
LEAST_DECODERS = 64


@dataclass(frozen=True)
class Plan:
    """Checked choices of a deployment; nothing is loaded.

    Attributes:
        hearing: settings of the deployment with the recogniser in use: its fallback where files are missing.
        vad: settings of the voice activity detector.
        echo: settings of the echo canceller, or None when no call uses one.
        turn: settings of the completeness model, or None when it is switched off.
        stt: settings of an embedded recogniser, or the row of a service.
        commands: settings of the command spotter, or None when stop words are not spotted.
        tts: settings of an embedded voice, or the row of a service.
        chosen_voices: names of the voices that a caller may choose, each with its engine and settings.
        fallback_voices: names of the voices after ``tts``, in order, with settings or rows; embedded ones
            after an embedded one.
        answering: plan of the language model.
        stt_fallback: name and settings of the embedded recogniser after a service, or None.
        second_opinion: settings of the recogniser that hears doubtful utterances again, or None.
        omni: names and settings of full-duplex engines, the preferred one first; empty when none is required.
        realtime: the row of a full-duplex service in their place, or None.
        preparation: beginning of a conversation with an engine, with its reference voices.
        observers: names and settings of the observers of every call.
        specialists: names and settings of the specialists of the voice.
    """

    hearing: Hearing
    vad: BaseModel
    echo: BaseModel | None
    turn: BaseModel | None
    stt: BaseModel | ServiceRow[Any]
    commands: BaseModel | None
    tts: BaseModel | ServiceRow[Any]
    fallback_voices: tuple[tuple[str, BaseModel | ServiceRow[Any]], ...]
    answering: AnsweringPlan
    stt_fallback: tuple[str, BaseModel] | None = None
    second_opinion: BaseModel | None = None
    omni: tuple[tuple[str, BaseModel], ...] = ()
    realtime: RealtimeRow[Any] | None = None
    preparation: Preparation = Preparation()
    observers: tuple[tuple[str, BaseModel], ...] = ()
    specialists: tuple[tuple[str, BaseModel], ...] = ()
    chosen_voices: tuple[tuple[str, str, BaseModel], ...] = ()


def plan(deployment: Deployment, *, duplex: bool = False) -> Plan:
    """Resolve every choice of a deployment.

    Args:
        deployment: the deployment.
        duplex: full-duplex calls are required.

    Raises:
        ConfigError: an unknown name or field, a missing folder, key, file or package.
    """
    if duplex:
        _check_privacy(deployment)
    knowledge = deployment.bot.knowledge
    given: dict[str, Any] = {"models_dir": deployment.models_dir}
    heard = {**given, "max_decoders": max(LEAST_DECODERS, deployment.server.max_calls)}
    if knowledge.is_dir() and answers_from_documents(deployment):
        heard["documents"] = knowledge
    speaking = deployment.speaking
    tts: BaseModel | ServiceRow[Any]
    if speaking.tts.name == POOL:
        tts = _plan_pool(deployment, speaking.tts, PoolTtsSettings, where="speaking.tts")
    else:
        tts = engine_or_service(TTS, TTS_SERVICES, speaking.tts, given, where="speaking.tts", others=(POOL,))
    asked_stt = deployment.hearing.stt
    hearing, stt = _plan_recogniser(deployment, heard)
    deployment = deployment.model_copy(update={"hearing": hearing})
    stt_fallback = _plan_recogniser_after(hearing, stt, heard)
    embedded = stt if stt_fallback is None else stt_fallback[1]
    decoders = getattr(embedded, "max_decoders", None)
    if decoders is not None and decoders * hearing.stt_processes < deployment.server.max_calls:
        raise ConfigError(
            f"hearing.stt: max_decoders {decoders} in {hearing.stt_processes} process(es) is less than "
            f"server.max_calls {deployment.server.max_calls}: a caller who was let in would not be heard; "
            "leave it out for as many as there are calls"
        )
    return Plan(
        hearing=hearing,
        vad=engine_settings(VAD, hearing.vad, {}, where="hearing.vad"),
        echo=_plan_echo(hearing, recogniser_traits(stt)),
        turn=engine_settings(TURN, hearing.turn, {}, where="hearing.turn") if hearing.turn else None,
        stt=stt,
        commands=(
            engine_settings(COMMANDS, hearing.stop_words, {}, where="hearing.stop_words")
            if hearing.stop_words and hearing.barge_in
            else None
        ),
        tts=tts,
        fallback_voices=_plan_fallback_voices(speaking, tts, given),
        chosen_voices=_plan_chosen_voices(speaking, tts, given),
        answering=plan_answering(deployment),
        stt_fallback=stt_fallback,
        second_opinion=_plan_second_opinion(hearing, stt, given, is_fallback=hearing.stt != asked_stt),
        # First: its message for an unknown name lists both kinds.
        realtime=plan_realtime(deployment) if duplex else None,
        omni=plan_omni(deployment) if duplex else (),
        preparation=plan_preparation(deployment) if duplex else Preparation(),
        observers=tuple(
            (choice.name, engine_settings(OBSERVERS, choice, {}, where=f"observers.{place}"))
            for place, choice in enumerate(deployment.observers)
        ),
        specialists=_plan_specialists(hearing, given),
    )


def _check_privacy(deployment: Deployment) -> None:
    """Check that the words of a full-duplex call can be redacted.

    Raises:
        ConfigError: an engine hears the caller itself and says words that no language model gives it.
    """
    engines = (deployment.duplex.engine, *deployment.duplex.fallback)
    others = [each.name for each in engines if each.name != TWO_TIER]
    if others and (deployment.privacy.redacts or deployment.privacy.pause is not None):
        raise ConfigError(
            f"privacy: {others[0]!r} of duplex hears the caller itself and speaks by itself, so its words "
            "cannot be redacted; use two_tier or a cascade, or leave privacy out"
        )


def _plan_fallback_voices(
    speaking: Speaking, tts: BaseModel | ServiceRow[Any], given: Mapping[str, Any]
) -> tuple[tuple[str, BaseModel | ServiceRow[Any]], ...]:
    """Return the voices after the first one.

    Raises:
        ConfigError: as ``engine_or_service``; a service after an embedded voice.
    """
    planned: list[tuple[str, BaseModel | ServiceRow[Any]]] = []
    before, is_hosted = speaking.tts.name, isinstance(tts, ServiceRow)
    for place, choice in enumerate(speaking.fallback):
        where = f"speaking.fallback.{place}"
        chosen = engine_or_service(TTS, TTS_SERVICES, choice, given, where=where)
        if isinstance(chosen, ServiceRow) and not is_hosted:
            raise ConfigError(
                f"{where}: {choice.name!r} is a service, and {before!r} before it an embedded voice, which "
                "only another embedded one replaces; put the services first"
            )
        before, is_hosted = choice.name, isinstance(chosen, ServiceRow)
        planned.append((choice.name, chosen))
    return tuple(planned)


def _plan_chosen_voices(
    speaking: Speaking, tts: BaseModel | ServiceRow[Any], given: Mapping[str, Any]
) -> tuple[tuple[str, str, BaseModel], ...]:
    """Return name, engine and settings of the voices that a caller may choose.

    Raises:
        ConfigError: as ``engine_settings``; the deployment's own voice is a service.
    """
    if speaking.voices and isinstance(tts, ServiceRow):
        raise ConfigError(
            f"speaking.voices: {speaking.tts.name!r} of speaking.tts is a service; a caller chooses among "
            "embedded voices only, so use an embedded one in speaking.tts, or leave speaking.voices out"
        )
    return tuple(
        (name, choice.name, engine_settings(TTS, choice, given, where=f"speaking.voices.{name}"))
        for name, choice in speaking.voices.items()
    )


def _plan_specialists(hearing: Hearing, given: Mapping[str, Any]) -> tuple[tuple[str, BaseModel], ...]:
    """Return names and settings of the specialists; one without its files is missing, which is logged.

    Raises:
        ConfigError: an unknown name or field, or a wrong value.
    """
    planned = []
    for place, choice in enumerate(hearing.specialists):
        where = f"hearing.specialists.{place}"
        try:
            planned.append((choice.name, engine_settings(SPECIALISTS, choice, given, where=where)))
        except ModelFileError as error:
            logger.warning(f"calls do without the specialist {choice.name}: {error}")
    return tuple(planned)


def plan_realtime(deployment: Deployment) -> RealtimeRow[Any] | None:
    """Return the checked full-duplex service that a deployment names; None when it names an engine.

    Raises:
        ConfigError: an unknown name or field, a wrong value, a missing key or package; a service with a
            fallback, or as one.
    """
    duplex = deployment.duplex
    for place, choice in enumerate(duplex.fallback):
        if choice.name in REALTIME_SERVICES:
            raise ConfigError(
                f"duplex.fallback.{place}: {choice.name!r} is a realtime service, which takes over from no "
                "engine in this version"
            )
    if duplex.engine.name not in REALTIME_SERVICES:
        if duplex.engine.name not in OMNI and duplex.engine.name != POOL:
            known = tuple(sorted((*OMNI.names(), POOL, *REALTIME_SERVICES.names())))
            raise ConfigError(f"duplex.engine: unknown engine {duplex.engine.name!r}", known=known)
        return None
    if duplex.fallback and duplex.fallback != (Choice(name=CASCADE),):
        raise ConfigError(
            f"duplex.fallback: {duplex.engine.name!r} is a realtime service; only {CASCADE!r} alone, without "
            "settings, takes over from one"
        )
    row = service_row(REALTIME_SERVICES, duplex.engine, where="duplex.engine")
    assert isinstance(row, RealtimeRow)
    return row


def plan_omni(deployment: Deployment) -> tuple[tuple[str, BaseModel], ...]:
    """Return name and checked settings of a deployment's full-duplex engines; empty for a service.

    Raises:
        ConfigError: an unknown name or field, a wrong value.
    """
    duplex = deployment.duplex
    if duplex.engine.name in REALTIME_SERVICES:
        return ()
    wheres = ("duplex.engine", *(f"duplex.fallback.{place}" for place in range(len(duplex.fallback))))
    return tuple(
        (choice.name, _plan_omni(deployment, choice, where=where))
        for choice, where in zip((duplex.engine, *duplex.fallback), wheres, strict=True)
    )


def _plan_omni(deployment: Deployment, choice: Choice, *, where: str) -> BaseModel:
    if choice.name != POOL:
        settings = engine_settings(OMNI, choice, {}, where=where)
        if isinstance(settings, TwoTierSettings):
            policy = {"policy": deployment.duplex_policy(), "language": deployment.bot.language}
            return tuned(TwoTierTuning, settings).model_copy(update=policy)
        return settings
    return _plan_pool(deployment, choice, PoolOmniSettings, where=where)


def _plan_pool(deployment: Deployment, choice: Choice, model: type[Pooled], *, where: str) -> Pooled:
    """Return the settings of engines in workers of this deployment.

    Raises:
        ConfigError: there are no workers, or none of a given name; a wrong value.
    """
    if not deployment.workers.workers:
        raise ConfigError(
            f"{where}: {POOL!r} means workers of this deployment, and workers.workers names none"
        )
    settings = parse_settings(model, choice.settings, where=f"{where} ({POOL})")
    known = tuple(spec.name for spec in deployment.workers.workers)
    for name in getattr(settings, "workers", ()):
        if name not in known:
            raise ConfigError(f"{where}: no worker is named {name!r}", known=known)
    return settings


def plan_preparation(deployment: Deployment) -> Preparation:
    """Return the beginning of a conversation with a full-duplex engine, without its history.

    Raises:
        ConfigError: a reference voice cannot be read, or is not audio.
    """
    duplex = deployment.duplex
    return Preparation(
        deployment.bot.system_prompt,
        llm_ref_audio=_reference_voice("duplex.llm_voice", duplex.llm_voice),
        tts_ref_audio=_reference_voice("duplex.tts_voice", duplex.tts_voice),
    )


def _reference_voice(where: str, path: Path | None) -> np.ndarray | None:
    if path is None:
        return None
    try:
        return pcm16_to_float(decode_wav(path.read_bytes(), rate_hz=VOICE_RATE_HZ))
    except OSError as error:
        raise ConfigError(f"{where}: {path}: {error.strerror}") from error
    except MediaError as error:
        raise ConfigError(f"{where}: {path}: {error}") from error


def _plan_recogniser(
    deployment: Deployment, given: Mapping[str, Any]
) -> tuple[Hearing, BaseModel | ServiceRow[Any]]:
    """Resolve the recogniser; return the deployment's hearing settings with it, and its own settings.

    Raises:
        ConfigError: see ``plan``; a file of it is missing or altered, and there is no fallback.
    """
    hearing = deployment.hearing
    stt: BaseModel | ServiceRow[Any]
    if hearing.stt.name == POOL:
        stt = _plan_pool(deployment, hearing.stt, PoolSttSettings, where="hearing.stt")
    else:
        try:
            stt = engine_or_service(
                STT, STT_SERVICES, hearing.stt, given, where="hearing.stt", others=(POOL,)
            )
        except ModelFileError as error:
            if hearing.fallback is None or hearing.fallback.name == hearing.stt.name:
                raise
            logger.warning(
                f"using {hearing.fallback.name} as the recogniser instead of {hearing.stt.name}: {error}"
            )
            stt = engine_settings(STT, hearing.fallback, given, where="hearing.fallback")
            hearing = hearing.model_copy(update={"stt": hearing.fallback})
    return _with_traits(hearing, recogniser_traits(stt)), stt


def _plan_recogniser_after(
    hearing: Hearing, stt: BaseModel | ServiceRow[Any], given: Mapping[str, Any]
) -> tuple[str, BaseModel] | None:
    """Return the embedded recogniser after a service or after workers; None where there is none.

    Raises:
        ConfigError: it is no embedded recogniser, or a file or package of it is missing.
    """
    fallback = hearing.fallback
    if fallback is None or not isinstance(stt, ServiceRow | PoolSttSettings | WorkerSttSettings):
        return None
    if fallback.name not in STT and fallback.name in STT_SERVICES:
        raise ConfigError(
            f"hearing.fallback: {fallback.name!r} is a service; only an embedded recogniser takes over from "
            "another",
            known=STT.names(),
        )
    settings = engine_settings(STT, fallback, given, where="hearing.fallback")
    if isinstance(settings, WorkerSttSettings):
        raise ConfigError(
            "hearing.fallback: a recogniser in a worker takes over from no other in this version",
            known=STT.names(),
        )
    return fallback.name, settings


def _plan_second_opinion(
    hearing: Hearing, stt: BaseModel | ServiceRow[Any], given: Mapping[str, Any], *, is_fallback: bool
) -> BaseModel | None:
    """Return the settings of the recogniser that hears doubtful utterances again; None where there is none.

    Args:
        hearing: settings with the recogniser in use.
        stt: settings of that recogniser.
        given: values that the deployment gives every engine.
        is_fallback: the recogniser in use is a fallback, whose confidence the deployment did not choose.

    Raises:
        ConfigError: no utterance can be doubtful, the engine is none that hears here, or as
            ``engine_settings``.
    """
    chosen, where = hearing.second_opinion, "hearing.second_opinion"
    if chosen is None:
        return None
    if isinstance(stt, ServiceRow):
        raise ConfigError(f"{where}: {hearing.stt.name!r} of hearing.stt is a service; use an embedded one")
    settings = engine_settings(STT, chosen, given, where=where)
    if isinstance(settings, WorkerSttSettings):
        raise ConfigError(f"{where}: a recogniser in a worker gives none in this version", known=STT.names())
    if hearing.ask_back is not None:
        return settings
    if is_fallback:
        logger.warning(f"{where} is not used: no utterance of {hearing.stt.name} is doubtful")
        return None
    raise ConfigError(
        f"{where}: hearing.ask_back says which utterances are doubtful, and is null; set it, or leave "
        "this out"
    )


def _with_traits(hearing: Hearing, traits: RecogniserTraits) -> Hearing:
    """Return the hearing settings, with the recogniser's traits where the deployment leaves them open."""
    update: dict[str, object] = {}
    endpoint = tuned(EndpointTuning, hearing.endpoint)
    if "heard_for_fillers" not in endpoint.model_fields_set:
        update["endpoint"] = endpoint.model_copy(update={"heard_for_fillers": traits.heard_for_fillers})
    if traits.doubtful_below is not None:
        doubt = {"below": traits.doubtful_below, "lost_below": traits.lost_below}
        if "ask_back" not in hearing.model_fields_set:
            update["ask_back"] = AskBackTuning.model_validate(doubt)
        elif hearing.ask_back is not None:
            asking = tuned(AskBackTuning, hearing.ask_back)
            given = asking.model_fields_set
            below = asking.below if "below" in given else traits.doubtful_below
            # A deployment that asks back less than the recogniser's figures suggest does so for lost turns
            # too.
            doubt["lost_below"] = min(traits.lost_below, below)
            unsaid = {name: value for name, value in doubt.items() if name not in given}
            update["ask_back"] = asking.model_copy(update=unsaid)
    return hearing.model_copy(update=update)


def _plan_echo(hearing: Hearing, traits: RecogniserTraits) -> BaseModel | None:
    if hearing.echo is None:
        if hearing.echo_mode == "on":
            raise ConfigError("hearing.echo_mode is on, but hearing.echo names no echo canceller")
        return None
    suppression = {"noise_suppression": traits.wants_noise_suppression}
    settings = engine_settings(ECHO, hearing.echo, suppression, where="hearing.echo")
    return None if hearing.echo_mode == "off" else settings
