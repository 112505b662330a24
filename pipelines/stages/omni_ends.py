"""Ends of a full-duplex call: no engine goes on, a pause is too long, its client has no turns left."""

import asyncio
from collections.abc import Callable

from loguru import logger
from pipecat.frames.frames import EndFrame, LLMContextFrame, TTSSpeakFrame
from pipecat.processors.frameworks.rtvi import RTVIServerMessageFrame

from parley.core.call_events import CallEnding, EnginesGivenUp, PauseExpired
from parley.core.errors import CapacityError
from parley.core.usage import Stage
from parley.pipelines.call import Call
from parley.pipelines.lifecycle import LIMITED, OVER_LIMIT
from parley.serving.gateway.auth.usage import UsageLimits
from parley.serving.pool.omni import FINAL
from parley.serving.pool.pool import AssignmentRefused


class OmniAllowance:
    """Counter of a client's turns. An engine with words of its own answers by itself, until the call ends.

    Args:
        call: call of the client.
        usage: limits of the process.
        is_asked: returns whether the deployment's model answers a question.
    """

    def __init__(self, call: Call, usage: UsageLimits, is_asked: Callable[[LLMContextFrame], bool]) -> None:
        self._call, self._usage, self._is_asked = call, usage, is_asked
        self._is_used_up = asyncio.Event()
        self._ends: list[CallEnding] = []
        call.events.subscribe(CallEnding, self._ends.append)

    async def take_turn(self, question: LLMContextFrame) -> bool:
        """Count a turn of the caller; return False when there is none left."""
        is_taken = await self._usage.try_take(self._call.rules.counted)
        # An end that has begun already reports its reason: expired grants, for example, which permit no turns
        # either.
        if not is_taken and not self._is_asked(question) and not self._ends:
            self._is_used_up.set()
        return is_taken

    async def run(self) -> None:
        """End the call when its client has no turns left."""
        await self._is_used_up.wait()
        # After the words of the gate in place of an answer.
        end_soon(self._call, LIMITED, OVER_LIMIT, is_failure=False)


class EngineEnds:
    """Ends a call when no engine goes on, or when it was paused for too long.

    Args:
        call: call of the engines.
        refusal: spoken where there is no room for the call.
    """

    def __init__(self, call: Call, refusal: str) -> None:
        self._call, self._refusal = call, refusal
        call.events.subscribe(EnginesGivenUp, self._on_engines_given_up)
        call.events.subscribe(PauseExpired, self._on_pause_expired)

    def _on_pause_expired(self, _event: PauseExpired) -> None:
        end_soon(self._call, "timeout", "it was paused for too long")

    def _on_engines_given_up(self, event: EnginesGivenUp) -> None:
        if event.stage is Stage.STT:
            # A speech model hears by itself: the words of the record alone are lost.
            return
        call, error = self._call, event.error
        if not isinstance(error, CapacityError):
            end_soon(call, "error", "no engine can continue the conversation")
            return
        data = {"kind": "queue", "position": 0, "wait_s": None, "refused": str(error)}
        call.live.input.put(RTVIServerMessageFrame(data=data))
        is_final = isinstance(error, AssignmentRefused) and error.reason in FINAL
        said = f"Sorry, {error}." if is_final else self._refusal
        if call.client.greets and said:
            call.live.input.put(TTSSpeakFrame(said, append_to_context=False))
        end_soon(call, reason_refused(error), str(error))


def reason_refused(error: CapacityError) -> str:
    """Return the reason for which a caller gets no worker."""
    return error.reason.value if isinstance(error, AssignmentRefused) else "service_unavailable"


def end_soon(call: Call, reason: str, message: str, *, is_failure: bool = True) -> None:
    """End a call after the current speech."""
    logger.log("ERROR" if is_failure else "INFO", f"the call ends: {message}")
    call.events.publish(CallEnding(call.events.now_ms(), reason, message))
    call.live.input.put(EndFrame())
