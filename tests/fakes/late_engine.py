"""An in-place engine whose final results come after the call that requests them, as from a child."""

import asyncio
from collections.abc import Callable

from parley.core.errors import EngineError
from parley.models.stt import Transcript
from parley.runtime.engine_host import BlockingEngine
from tests.in_place_engine import InPlaceEngine, InPlaceStream


class LateEngine(InPlaceEngine[Transcript]):
    """In-place engine that returns final results ``late_ms`` after the end of the utterance."""

    def __init__(self, engine: BlockingEngine, accept: Callable[[object], Transcript], late_ms: int) -> None:
        super().__init__(engine, accept)
        self._late_ms = late_ms

    async def open_stream(
        self, on_partial: Callable[[Transcript], None], on_failure: Callable[[EngineError], None]
    ) -> InPlaceStream[Transcript]:
        return _LateStream(self._engine, self._accept, on_partial, on_failure, self._late_ms)


class _LateStream(InPlaceStream[Transcript]):
    def __init__(
        self,
        engine: BlockingEngine,
        accept: Callable[[object], Transcript],
        on_partial: Callable[[Transcript], None],
        on_failure: Callable[[EngineError], None],
        late_ms: int,
    ) -> None:
        super().__init__(engine, accept, on_partial, on_failure)
        self._late_ms = late_ms

    def finish(self) -> "asyncio.Future[Transcript]":
        final = super().finish()
        loop = asyncio.get_running_loop()
        later: asyncio.Future[Transcript] = loop.create_future()

        def deliver() -> None:
            error = final.exception()
            if later.cancelled():
                return
            if error is not None:
                later.set_exception(error)
            else:
                later.set_result(final.result())

        loop.call_later(self._late_ms / 1000, deliver)
        return later
