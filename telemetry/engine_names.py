"""Names of the engines that serve a call, stage by stage, as they change when one fails over to another.

The fallback of the language model answers single turns, and does not take over from it: the pieces of its
answers name it (``ResponseText.author``), and what is used and billed stays that of the service.
"""

from collections.abc import Callable, Iterator, Mapping

from parley.core.call_events import EngineFailedOver, EngineUsed, VoiceChosen
from parley.core.usage import Stage
from parley.runtime.event_stream import CallEvents

# Sections of a deployment, as the event has them.
STAGE_OF_SECTION: Mapping[str, Stage] = {"hearing": Stage.STT, "speaking": Stage.TTS}
# Section whose fallback answers turns of the language model.
THINKING_SECTION = "thinking"
# Section of a realtime service, whose fallback is a cascade of three stages.
REALTIME_SECTION = "duplex"


class EngineNames(Mapping[Stage, str]):
    """Name of the present engine of each stage of one call.

    Args:
        events: events of the call.
        names: at its beginning.
        cascade: names of the engines that take over from a realtime service.
        engine_of: returns the name of the engine of a voice that the client chooses; None: it chooses none.
    """

    def __init__(
        self,
        events: CallEvents,
        names: Mapping[Stage, str],
        cascade: Mapping[Stage, str] | None = None,
        *,
        engine_of: Callable[[str], str] | None = None,
    ) -> None:
        self._names, self._cascade = dict(names), dict(cascade or {})
        self._engine_of = engine_of
        events.subscribe(EngineFailedOver, self._on_failed_over)
        self._models: dict[Stage, str] = {}
        events.subscribe(VoiceChosen, self._on_voice_chosen)
        events.subscribe(EngineUsed, self._on_engine_used)

    @property
    def models(self) -> Mapping[Stage, str]:
        """Name of the model of each stage whose present engine has reported it."""
        return self._models

    def __getitem__(self, stage: Stage) -> str:
        return self._names[stage]

    def __iter__(self) -> Iterator[Stage]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _on_voice_chosen(self, event: VoiceChosen) -> None:
        if self._engine_of is not None:
            self._names[Stage.TTS] = self._engine_of(event.voice)
            self._models.pop(Stage.TTS, None)

    def _on_engine_used(self, event: EngineUsed) -> None:
        if event.model and not event.is_out_of_band:
            self._models[event.stage] = event.model

    def _on_failed_over(self, event: EngineFailedOver) -> None:
        if event.stage in STAGE_OF_SECTION:
            stage = STAGE_OF_SECTION[event.stage]
            self._names[stage] = event.successor
            self._models.pop(stage, None)
        elif event.stage == REALTIME_SECTION:
            self._names.update(self._cascade)
            self._models.clear()
