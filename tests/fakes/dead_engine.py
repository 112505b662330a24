"""Recogniser that is gone for good: no stream opens."""

from collections.abc import Callable

from parley.core.errors import EngineError
from parley.models.stt import Transcript
from parley.runtime.utterances import UtteranceStream


class DeadEngine:
    """Engine that refuses every stream, and counts them."""

    def __init__(self, rate_hz: int = 16_000) -> None:
        self._rate_hz = rate_hz
        self.refused = 0

    @property
    def rate_hz(self) -> int:
        return self._rate_hz

    async def open_stream(
        self, _on_partial: Callable[[Transcript], None], _on_failure: Callable[[EngineError], None]
    ) -> UtteranceStream[Transcript]:
        self.refused += 1
        raise EngineError("no worker is there", engine="recogniser")
