"""Names of the engines that serve a call, stage by stage, as they change when one fails over to another."""

from collections.abc import Iterator, Mapping

from parley.core.call_events import EngineFailedOver
from parley.core.usage import Stage
from parley.runtime.event_stream import CallEvents

# Sections of a deployment, as the event has them.
STAGE_OF_SECTION: Mapping[str, Stage] = {"hearing": Stage.STT, "speaking": Stage.TTS}


class EngineNames(Mapping[Stage, str]):
    """Name of the present engine of each stage of one call.

    Args:
        events: events of the call.
        names: at its beginning.
    """

    def __init__(self, events: CallEvents, names: Mapping[Stage, str]) -> None:
        self._names = dict(names)
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
