"""Pipecat service of a call whose service voice has other voices after it (``FailoverVoices``)."""

import asyncio
from collections.abc import Sequence
from concurrent.futures import Executor
from dataclasses import replace
from typing import Any

from pipecat.processors.frame_processor import FrameProcessorSetup

from parley.models.tts import TextToSpeech
from parley.processors.speech.crossing import ClauseSpeech
from parley.processors.speech.engine_tts import EngineTtsService
from parley.processors.speech.failover_voice import FailoverVoices
from parley.processors.speech.service_voice import ServiceVoice
from parley.runtime.event_stream import CallEvents


class FailoverTtsService(EngineTtsService):
    """Pipecat service that speaks with service voices in order, and with an embedded one after them.

    Owns the tasks of the service voices, which end with the call.

    Args:
        services: the service voices, the preferred one first.
        last: the voice after them, at their rate.
        last_name: name of its row.
        executor: threads for synthesis.
        events: events of the call.
        speaks_on: see ``FailoverVoices``.
        **kwargs: passed to ``EngineTtsService``.
    """

    def __init__(
        self,
        services: Sequence[ServiceVoice],
        last: TextToSpeech,
        *,
        last_name: str,
        executor: Executor,
        events: CallEvents,
        speaks_on: bool = True,
        **kwargs: Any,
    ) -> None:
        super().__init__(last, executor=executor, **kwargs)
        self._voices = FailoverVoices(services, last_name, self._start_last, events, speaks_on=speaks_on)
        self._serving: list[asyncio.Task[None]] = []

    async def setup(self, setup: FrameProcessorSetup) -> None:  # type: ignore[override]  # as Pipecat's own
        """Set up the service, and begin to connect the service voices."""
        await super().setup(setup)
        own = replace(setup, audio_out_sample_rate=self._voices.rate_hz)
        self._serving = [self.create_task(each, name="voice") for each in self._voices.tasks(own)]

    async def cleanup(self) -> None:
        """Stop speaking, and close the connections."""
        await super().cleanup()
        serving, self._serving = self._serving, []
        for task in serving:
            await self.cancel_task(task)

    def prepare(self, clause: str) -> None:
        """Do nothing: a guess would be paid for, and take the connection from the clause that is said."""

    def begin_clause(self, clause: str, context_id: str) -> ClauseSpeech:
        """Return the synthesis of a clause by the first voice that works (``EngineTtsService``)."""
        return self._voices.begin(clause, context_id)

    def _start_last(self, text: str) -> ClauseSpeech:
        crossing = self.new_crossing()
        crossing.start(self._executor, text)
        return crossing
