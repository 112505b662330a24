"""Between the person's turn and the model: nothing is asked before the turn is durable.

In: the context that the user aggregator pushes when a turn is over. The gate finds the messages that are new
in it, commits them to the session, puts the session's own view in the place of the context's messages, and
lets the context pass to the model. The model therefore sees what the store holds and nothing else: what was
said on other transports, replies as far as they were heard, older turns in short.

Waiting happens in the processor's own queue of ordered frames: audio and interruptions pass by. A database
that is slow is covered by a short filler, said again while it lasts. An interruption cancels the wait, not
the commit: the turn stays in the session; the next one is asked with it, and when none comes (somebody only
coughed) it is asked by itself once it is durable. A turn that cannot be committed is not asked: the caller
hears a refusal, or, when another process claimed the session, the call ends (``Conversation.lost``).

Guesses (speculative contexts) do not pass: Pipecat answers a confirmed one without asking again, so it would
be answered without a record. Nothing in Parley speculates in front of this gate.
"""

import asyncio
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, cast

from loguru import logger
from pipecat.frames.frames import (
    Frame,
    LLMContextFrame,
    TTSSpeakFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from pipecat.processors.aggregators.llm_context import LLMContext, LLMContextMessage
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pydantic import BaseModel, ConfigDict, Field

from core.errors import AgentError
from processors.dialogue.engine_llm import text_of
from processors.fusion.perception import Perceived
from session_store.conversation import Conversation

Perceive = Callable[[], Awaitable[Perceived]]

# Longer than the end of a turn takes from silence to its question.
LATER_S = 1.0


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
        self._tasks: set[asyncio.Task[None]] = set()
        # A turn whose wait was interrupted before the model could be asked.
        self._unasked: asyncio.Task[None] | None = None
        # The person is not speaking.
        self._quiet = asyncio.Event()
        self._quiet.set()
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
        if isinstance(frame, UserStartedSpeakingFrame):
            self._quiet.clear()
        elif isinstance(frame, UserStoppedSpeakingFrame):
            self._quiet.set()
        if isinstance(frame, LLMContextFrame) and direction is FrameDirection.DOWNSTREAM:
            if frame.speculation or not await self._admit():
                return
        await self.push_frame(frame, direction)

    async def cleanup(self) -> None:
        for task in list(self._tasks):
            task.cancel()
        if self._tasks:
            await asyncio.wait(self._tasks)
        await super().cleanup()

    async def _admit(self) -> bool:
        """Commit what is new; whether the model may be asked."""
        self._unasked = None
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
            commit = self._own(self._commit(said), "commit")
            try:
                await self._wait_with_filler(commit)
            except asyncio.CancelledError:
                self._unasked = commit
                self._own(self._ask_later(commit), "later")
                raise
            if not await self._is_durable(commit):
                return False
        self.rebuild(self._context.messages[upto:])
        return True

    def _own(self, work: Coroutine[Any, Any, None], name: str) -> asyncio.Task[None]:
        # Not Pipecat's ``create_task``, which logs an error and returns None in its place.
        task = asyncio.create_task(work, name=f"{self}::{name}")
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        return task

    async def _is_durable(self, commit: asyncio.Task[None]) -> bool:
        """Whether a commit that is over succeeded; what the caller hears when it did not."""
        error = commit.exception()
        if error is None:
            return True
        logger.opt(exception=None if isinstance(error, AgentError) else error).error(
            f"{self}: a turn is not in the session: {type(error).__name__}: {error}"
        )
        if self._conversation.loss is None:
            await self._say(self._settings.refusal)
        return False

    async def _ask_later(self, commit: asyncio.Task[None]) -> None:
        """An interruption came while the turn was not durable yet; when nobody goes on, it is asked."""
        await asyncio.wait({commit})
        await self._quiet.wait()
        # What was said meanwhile comes as a question of its own, and brings this turn with it.
        await asyncio.sleep(LATER_S)
        if self._unasked is not commit or commit.cancelled() or not await self._is_durable(commit):
            return
        self._unasked = None
        self.rebuild(self._context.messages[self._known :])
        await self.push_frame(LLMContextFrame(self._context))

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
