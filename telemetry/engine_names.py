"""Names of the engines that serve a call, stage by stage, as they change when one fails over to another."""

from collections.abc import Iterator, Mapping

from parley.core.call_events import EngineFailedOver
from parley.core.usage import Stage
from parley.runtime.event_stream import CallEvents

# Sections of a deployment, as the event has them.
STAGE_OF_SECTION: Mapping[str, Stage] = {"hearing": Stage.STT, "speaking": Stage.TTS}
# Section of a realtime service, whose fallback is a cascade of three stages.
REALTIME_SECTION = "duplex"


class EngineNames(Mapping[Stage, str]):
    """Name of the present engine of each stage of one call.

    Args:
        events: events of the call.
        names: at its beginning.
        cascade: names of the engines that take over from a realtime service.
    """

    def __init__(
        self, events: CallEvents, names: Mapping[Stage, str], cascade: Mapping[Stage, str] | None = None
    ) -> None:
        self._names, self._cascade = dict(names), dict(cascade or {})
        events.subscribe(EngineFailedOver, self._on_failed_over)

    def __getitem__(self, stage: Stage) -> str:
        return self._names[stage]

    def __iter__(self) -> Iterator[Stage]:
        return iter(self._names)

    def __len__(self) -> int:
        return len(self._names)

    def _on_failed_over(self, event: EngineFailedOver) -> None:
        if event.stage in STAGE_OF_SECTION:
            self._names[STAGE_OF_SECTION[event.stage]] = event.successor
        elif event.stage == REALTIME_SECTION:
            self._names.update(self._cascade)
