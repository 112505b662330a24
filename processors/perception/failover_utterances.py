"""Recogniser of a call that is in workers, with an embedded one that takes over when no worker is left.

``EngineSttService`` opens a stream when it has none, and plays the utterances again that no engine has heard:
so nothing of the caller is lost when another engine opens the stream. An engine without room is waited for,
because it is there. After a failure the embedded one transcribes to the end of the call.

The circuit breaker is shared by all calls. While it is not closed, a call waits no longer for a worker than
one attempt takes.
"""

from collections.abc import Callable

from loguru import logger

from parley.core.call_events import EngineFailedOver
from parley.core.errors import EngineBusyError, EngineError
from parley.core.failover import CircuitBreaker, FailoverReason
from parley.models.stt import Transcript
from parley.processors.perception.failover_stt import HEARING
from parley.runtime.event_stream import CallEvents
from parley.runtime.utterances import UtteranceEngine, UtteranceStream

# A worker that restarts its engine, or a network that stumbles, is back before it.
GRACE_MS = 2_000


class FailoverUtterances:
    """Utterance engine of one call (``runtime.utterances.UtteranceEngine``).

    Args:
        first: engine in workers.
        following: the embedded one, at the same rate.
        breaker: of the first, shared by the calls.
        events: of the call; receives ``EngineFailedOver``.
        engine, successor: names of their rows.
    """

    def __init__(
        self,
        first: UtteranceEngine[Transcript],
        following: UtteranceEngine[Transcript],
        breaker: CircuitBreaker,
        events: CallEvents,
        *,
        engine: str,
        successor: str,
    ) -> None:
        self._first, self._following, self._breaker = first, following, breaker
        self._events, self._engine, self._successor = events, engine, successor
        self._is_replaced = False
        self._failing_since_ms: int | None = None

    @property
    def rate_hz(self) -> int:
        """Rate of the audio."""
        return self._first.rate_hz

    async def open_stream(
        self, on_partial: Callable[[Transcript], None], on_failure: Callable[[EngineError], None]
    ) -> UtteranceStream[Transcript]:
        """Return a stream of the engine in use; see ``UtteranceEngine.open_stream``."""
        if not self._is_replaced:
            began_ms = self._events.now_ms()
            reason = FailoverReason.BROKEN
            if self._breaker.allows(began_ms):
                try:
                    stream = await self._first.open_stream(on_partial, on_failure)
                except EngineBusyError:
                    raise
                except EngineError:
                    if not self._is_lost(began_ms):
                        raise
                    reason = FailoverReason.ERROR
                else:
                    self._failing_since_ms = None
                    self._breaker.on_success(began_ms)
                    return stream
            self._take_over(reason)
        return await self._following.open_stream(on_partial, on_failure)

    def _is_lost(self, began_ms: int) -> bool:
        """Return whether the attempt that began now and failed is the last one."""
        if self._failing_since_ms is None:
            self._failing_since_ms = began_ms
        failing_ms = self._events.now_ms() - self._failing_since_ms
        return failing_ms >= GRACE_MS or not self._breaker.is_closed

    def _take_over(self, reason: FailoverReason) -> None:
        self._is_replaced = True
        now_ms = self._events.now_ms()
        if reason is not FailoverReason.BROKEN:
            self._breaker.on_failure(now_ms)
        logger.warning(
            f"the recogniser {self._engine} is not there ({reason.value}): {self._successor} goes on"
        )
        self._events.publish(EngineFailedOver(now_ms, HEARING, self._engine, self._successor, reason))
