"""Between the person's turn and the model: nothing is asked before the turn is durable.

In: the context that the user aggregator pushes when a turn is over. The gate finds the messages that are new
in it, commits them to the session, puts the session's own view in the place of the context's messages, and
lets the context pass to the model. The model therefore sees what the store holds and nothing else: what was
said on other transports, replies as far as they were heard, older turns in short.

Waiting happens in the processor's own queue of ordered frames: audio and interruptions pass by. A database
that is slow is covered by a short filler, said again while it lasts. An interruption cancels the wait, not
the commit: the turn stays in the session, and the next one is asked with it. A session that another process
claimed asks nothing any more. Guesses (speculative contexts) pass
as they are; they have no effect until their turn comes again as a real one.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from typing import cast

from loguru import logger
from pipecat.frames.frames import Frame, LLMContextFrame, TTSSpeakFrame
from pipecat.processors.aggregators.llm_context import LLMContext, LLMContextMessage
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pydantic import BaseModel, ConfigDict, Field

from core.errors import CapacityError, StoreError
from processors.dialogue.engine_llm import text_of
from processors.fusion.perception import Perceived
from session_store.conversation import Conversation

Perceive = Callable[[], Awaitable[Perceived]]


class CommitGateSettings(BaseModel):
    """What the caller hears while the session store is slow.

    Attributes:
        filler: said when a turn has waited for ``filler_after_ms``; empty for nothing.
        filler_after_ms: DESIGN section 5 masks dead air from 700 ms on; the rest of the reply's latency is
            still to come.
        filler_again_ms: from one filler to the next.
        refusal: said when no turn can be taken because too much waits already.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    filler: str = "One moment, please."
    filler_after_ms: int = Field(default=500, ge=50, le=10_000)
    filler_again_ms: int = Field(default=8_000, ge=1_000, le=60_000)
    refusal: str = "Sorry, I cannot write that down right now. Please try again in a moment."


class CommitGate(FrameProcessor):
    """Holds each question until it is in the session.

    Args:
        conversation: the session.
        context: of the aggregators; its messages are replaced by the session's view.
        transport: how the person talks, for the record.
        settings: fillers.
        perceive: what was perceived of the turn.
    """

    def __init__(
        self,
        conversation: Conversation,
        context: LLMContext,
        *,
        transport: str,
        settings: CommitGateSettings | None = None,
        perceive: Perceive | None = None,
    ) -> None:
        super().__init__()
        self._conversation = conversation
        self._context = context
        self._transport = transport
        self._settings = settings or CommitGateSettings()
        self._perceive = perceive
        self._commits: set[asyncio.Task[None]] = set()
        self._pinned: list[LLMContextMessage] = []
        self._known = 0
        self.rebuild()

    def rebuild(self, behind: Sequence[LLMContextMessage] = ()) -> None:
        """Put the session's view into the context, and ``behind`` it what came meanwhile."""
        messages = cast(list[LLMContextMessage], list(self._conversation.view().messages))
        view = [*self._pinned, *messages]
        self._context.set_messages([*view, *behind])
        self._known = len(view)

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, LLMContextFrame) and direction is FrameDirection.DOWNSTREAM:
            if not frame.speculation and not await self._admit():
                return
        await self.push_frame(frame, direction)

    async def cleanup(self) -> None:
        for commit in list(self._commits):
            await self.cancel_task(commit)
        await super().cleanup()

    async def _admit(self) -> bool:
        """Commit what is new; whether the model may be asked."""
        upto = len(self._context.messages)
        new, self._known = self._context.messages[self._known :], upto
        texts: list[str] = []
        for message in new:
            if not isinstance(message, dict):
                continue
            if message.get("role") == "user":
                texts.append(text_of(message.get("content")))
            elif message.get("role") in ("system", "developer"):
                self._pinned.append(message)
        said = "\n".join(text for text in texts if text)
        if said:
            commit = self.create_task(self._commit(said), name=f"{self}::commit")
            self._commits.add(commit)
            commit.add_done_callback(self._commits.discard)
            try:
                await self._wait_with_filler(commit)
                commit.result()
            except CapacityError as error:
                logger.error(f"{self}: {error}")
                await self._say(self._settings.refusal)
                return False
            except StoreError as error:
                # The session is no longer ours, which ends the call (``Conversation.lost``), or it refuses.
                logger.warning(f"{self}: the turn is not in the session: {error}")
                return False
        self.rebuild(self._context.messages[upto:])
        return True

    async def _commit(self, said: str) -> None:
        seen = await self._perceive() if self._perceive is not None else Perceived("", ())
        await self._conversation.user_turn(
            said, transport=self._transport, rendered=seen.text, tokens=seen.tokens
        )

    async def _wait_with_filler(self, commit: asyncio.Task[None]) -> None:
        timeout_ms = self._settings.filler_after_ms
        while True:
            done, _ = await asyncio.wait({commit}, timeout=timeout_ms / 1000)
            if done:
                return
            await self._say(self._settings.filler)
            timeout_ms = self._settings.filler_again_ms

    async def _say(self, text: str) -> None:
        if text:
            await self.push_frame(TTSSpeakFrame(text, append_to_context=False))
