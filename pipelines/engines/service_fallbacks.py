"""Services and workers that have a fallback: their circuit breakers, and the engines after them.

A breaker belongs to a row and not to a call: when a service has failed in one call, no other waits for it.
"""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import dataclass
from functools import partial
from typing import Any

from loguru import logger
from pydantic import BaseModel

from parley.configs.engines import settings_model
from parley.core.errors import AgentError, EngineError
from parley.core.failover import CircuitBreaker
from parley.core.registry import Registry
from parley.models.stt import Transcript, recogniser_traits
from parley.models.tts import TTS, TextToSpeech
from parley.models.tts.fallback import at_rate, chain_of
from parley.processors.perception.engine_stt import EngineSttService
from parley.processors.perception.failover_stt import FailoverSttService
from parley.processors.perception.failover_utterances import FailoverUtterances
from parley.processors.perception.services import answer_deadline_s
from parley.processors.service_rows import ServiceRow, Shared
from parley.processors.speech.failover_tts import FailoverTtsService
from parley.processors.speech.failover_voice import COOL_DOWN_MS, LONGEST_COOL_DOWN_MS
from parley.processors.speech.service_voice import ServiceVoice
from parley.processors.speech.services import audio_deadlines
from parley.runtime.engine_pool import EnginePool
from parley.runtime.event_stream import CallEvents
from parley.runtime.utterances import UtteranceEngine

# Pipecat's own default; cloud voices send it without resampling.
CLOUD_VOICE_RATE_HZ = 24_000
# Voices that every installation on Debian can have, for the words with which a call ends. The second one
# speaks many languages.
LAST_ENGLISH, LAST = "flite", "espeak"


@dataclass(frozen=True)
class ServiceVoices:
    """Service voices of a deployment, and the embedded one after them.

    Attributes:
        rows: rows of the service voices, the preferred one first.
        breakers: their circuit breakers.
        embedded: embedded voices, loaded, in order.
        last_name: name of the first embedded voice.
        speaks_on: the embedded voices are named by the deployment, and go on with a call. Otherwise they only
            say that the call cannot go on.
    """

    rows: tuple[ServiceRow[Any], ...]
    breakers: tuple[CircuitBreaker, ...]
    embedded: tuple[TextToSpeech, ...]
    last_name: str
    speaks_on: bool

    def build(self, shared: Shared, executor: Executor, events: CallEvents) -> FailoverTtsService:
        """Return the voice of one call."""
        services = [
            ServiceVoice(
                row.name,
                partial(asyncio.to_thread, row.build, shared),
                breaker,
                rate_hz=CLOUD_VOICE_RATE_HZ,
                deadlines=audio_deadlines(row),
            )
            for row, breaker in zip(self.rows, self.breakers, strict=True)
        ]
        return FailoverTtsService(
            services,
            at_rate(chain_of(self.embedded), CLOUD_VOICE_RATE_HZ),
            last_name=self.last_name,
            executor=executor,
            events=events,
            speaks_on=self.speaks_on,
        )


@dataclass(frozen=True)
class ServiceRecogniser:
    """Recogniser of a deployment that is a service, and the embedded one after it.

    Attributes:
        row: row of the service.
        breaker: its circuit breaker.
        embedded: the embedded recogniser, started by its owner.
        fallback: name of its row.
    """

    row: ServiceRow[Any]
    breaker: CircuitBreaker
    embedded: EnginePool[Transcript]
    fallback: str

    def build(self, shared: Shared, events: CallEvents, *, audio_passthrough: bool) -> FailoverSttService:
        """Return the recogniser of one call."""
        return FailoverSttService(
            self.row.name,
            partial(asyncio.to_thread, self.row.build, shared),
            self.breaker,
            fallback=self.fallback,
            build_fallback=partial(EngineSttService, self.embedded, audio_passthrough=False, events=events),
            events=events,
            rate_hz=self.embedded.rate_hz,
            traits=recogniser_traits(self.row),
            answer_s=answer_deadline_s(self.row),
            audio_passthrough=audio_passthrough,
        )


@dataclass(frozen=True)
class WorkerRecogniser:
    """Recogniser of a deployment that is in workers, and the embedded one after it.

    Attributes:
        hosted: the recogniser in workers.
        name: name of its row.
        breaker: its circuit breaker.
        embedded: the embedded recogniser, started by its owner.
        fallback: name of its row.
    """

    hosted: UtteranceEngine[Transcript]
    name: str
    breaker: CircuitBreaker
    embedded: EnginePool[Transcript]
    fallback: str

    def of_call(self, events: CallEvents) -> FailoverUtterances:
        """Return the engine of one call."""
        return FailoverUtterances(
            *(self.hosted, self.embedded, self.breaker, events), engine=self.name, successor=self.fallback
        )


async def load_service_voices(
    first: ServiceRow[Any], following: Sequence[tuple[str, BaseModel | ServiceRow[Any]]], language: str
) -> ServiceVoices:
    """Load the embedded voices after a service.

    Args:
        first: row of the voice.
        following: names of the voices after it, with settings or rows.
        language: language of the deployment.

    Raises:
        AgentError: no embedded voice loads.
    """
    rows = (first, *(chosen for _, chosen in following if isinstance(chosen, ServiceRow)))
    named = [(name, chosen) for name, chosen in following if not isinstance(chosen, ServiceRow)]
    voices = [*named] or _last_voices(language)
    loaded: list[tuple[str, TextToSpeech]] = []
    for place, (name, settings) in enumerate(voices):
        try:
            loaded.append((name, await create_engine(TTS, name, settings)))
        except AgentError as error:
            if not loaded and place == len(voices) - 1:
                raise EngineError(
                    f"no embedded voice loads for the calls whose service voice fails; name one that is "
                    f"installed in speaking.fallback: {error}",
                    engine=name,
                ) from error
            logger.warning(f"the voice {name} does not load, it stands in for no other: {error}")
        if loaded and not named:
            break
    breakers = tuple(new_breaker() for _ in rows)
    embedded = tuple(voice for _, voice in loaded)
    return ServiceVoices(rows, breakers, embedded, loaded[0][0], speaks_on=bool(named))


def new_breaker() -> CircuitBreaker:
    """Return the breaker of a service: one failure opens it, because another engine is there."""
    return CircuitBreaker(
        max_failures=1, cool_down_ms=COOL_DOWN_MS, longest_cool_down_ms=LONGEST_COOL_DOWN_MS
    )


def _last_voices(language: str) -> list[tuple[str, BaseModel]]:
    names = (LAST_ENGLISH, LAST) if language.startswith("en") else (LAST,)
    chosen = []
    for name in names:
        model = settings_model(TTS.factory(name))
        values = {} if name == LAST_ENGLISH else {"voice": language}
        chosen.append((name, model.model_validate(values)))
    return chosen


async def create_engine(
    registry: Registry[Any], name: str, chosen: BaseModel | ServiceRow[Any] | None
) -> Any:
    """Return an engine, loaded in a thread; a service's row and None stay what they are."""
    if chosen is None or isinstance(chosen, ServiceRow):
        return chosen
    return await asyncio.to_thread(registry.create, name, chosen)
