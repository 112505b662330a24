"""The sessions of one process: the store of the deployment, and what summarises older turns.

Opened once, beside the engines, and closed before them: a summary may ask the language model.
"""

from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import asynccontextmanager

from configs.deployment import Deployment
from pipelines.answering import Answering
from pipelines.chat import Answered, Asked, Piece, ask
from serving.gateway.session_api import TurnEvent
from session_store.compaction import Compactor
from session_store.conversation import Conversations
from session_store.store import SessionStore


@asynccontextmanager
async def open_conversations(deployment: Deployment, answering: Answering) -> AsyncIterator[Conversations]:
    """The sessions of this process.

    Raises:
        ConfigError: the store cannot be used: its address, its folder, its schema or its file.
    """
    store = await SessionStore.open(deployment.remembering.store)
    try:
        settings = deployment.remembering.conversation
        compactor = Compactor(
            settings.compaction, answering.summarizer(), budget_tokens=settings.budget_tokens
        )
        yield Conversations(store, settings, compactor=compactor)
    finally:
        await store.close()


class TypedTurns:
    """Typed turns of any session, one at a time in each: the sessions API's ``Typing``.

    Args:
        conversations: of this process.
        answering: what answers.
    """

    def __init__(self, conversations: Conversations, answering: Answering) -> None:
        self._conversations = conversations
        self._answering = answering

    async def __call__(
        self, session_id: str, text: str, *, key: str | None
    ) -> AsyncGenerator[TurnEvent, None]:
        """See ``Typing``.

        Raises:
            StoreError: there is no such session, or it is no longer ours.
            EngineError: nothing answered.
        """
        async with self._conversations.open(session_id) as conversation, conversation.turn:
            async for event in ask(conversation, self._answering, text, key=key):
                match event:
                    case Asked(turn):
                        yield TurnEvent("turn", {"session": session_id, "seq": turn.seq, "text": text})
                    case Piece(more):
                        yield TurnEvent("delta", {"text": more})
                    case Answered(turn):
                        yield TurnEvent("done", {"seq": turn.seq, **dict(turn.payload)})
