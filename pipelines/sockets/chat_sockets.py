"""Conversations over the MiniCPM-o server's turn-based sockets, ``/ws/chat`` and ``/ws/streaming``.

``POST /api/chat`` is a client of the same kind, whose answer comes whole.

A request is a whole conversation as its client shows it. Turns that the session already has are not written
again, and new ones are added as turns. Where the two differ, the session follows the client
(``session_store.history``). Recordings are transcribed by the deployment's recogniser. The last message is a
typed turn (``pipelines.text.typed_turns``), and the answer is committed before it is reported as done. The
deployment's voice speaks it clause by clause. A causal model reads the question before it is asked to answer
it, and keeps what it read of the conversation (``Answering.memory``). The token counts are the model's own,
and null where a model does not report them.

``stop`` and a client that leaves end the present work at once; the session has the delivered part. Failures
are reported to the client, and the conversation goes on after one where it can. Owns the client's reader and
the task of the present work, which ends before the next one begins.
"""

import asyncio
import time
import uuid
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Literal

from parley.core.call_events import CallBegan, CallEnded
from parley.core.client_rules import ClientRules
from parley.core.errors import (
    AgentError,
    CapacityError,
)
from parley.core.grants import ANONYMOUS
from parley.core.tuning import tuned
from parley.pipelines.call_bounds import CallBounds
from parley.pipelines.engines.engines import Engines
from parley.pipelines.lifecycle import BY_OPERATOR, EXPIRED, LOST
from parley.pipelines.live_calls import ListedCall
from parley.pipelines.sockets.chat_conversation import (
    TRANSPORT,
    ChatConversation,
    ChatQuestion,
    ClientHaltedError,
)
from parley.protocols.chat_ws import (
    ChatRequest,
    Close,
    Generate,
    Prefill,
    Stop,
    StreamingMessage,
    chat_request,
    error,
    prefill_done,
    streaming_message,
    whole_request,
)
from parley.protocols.client_protocol import BROKEN, SHUTDOWN, STOPPING, Message, ProtocolError
from parley.session_store.conversation import Conversation
from parley.session_store.conversations import Conversations
from parley.transports.websocket.messages import ChatSocketTuning, MessageSocket
from parley.transports.websocket.session import SocketPeer

ChatDialect = Literal["chat", "streaming", "request"]
# Reads a message of a client of each dialect.
READERS: Mapping[ChatDialect, Callable[[str], Any]] = {
    "chat": chat_request,
    "streaming": streaming_message,
    "request": whole_request,
}


class _StoppingError(Exception):
    """Raised when the server stops."""


async def hold_chat(
    engines: Engines,
    conversations: Conversations,
    peer: SocketPeer,
    *,
    protocol: ChatDialect,
    session_id: str | None,
    owner: str | None = None,
    rules: ClientRules | None = None,
    facts: Mapping[str, str] | None = None,
    on_first_word: Callable[[], None] | None = None,
) -> None:
    """Hold one conversation.

    Args:
        engines: engines of the process.
        conversations: sessions of the process.
        peer: the client's socket, accepted.
        protocol: of the client: ``/ws/chat``, ``/ws/streaming`` or ``POST /api/chat``.
        session_id: the session that goes on; None for a new one.
        owner: owner of a new session.
        rules: rules of the client; None for those of an anonymous one.
        facts: additional fields of the first message to the client.
        on_first_word: called when the client's first request has come; must not block.

    Raises:
        Exception: an unexpected error; the client was notified.
    """
    settings = tuned(ChatSocketTuning, engines.deployment.sockets)
    socket: MessageSocket[Any] = MessageSocket(
        peer,
        READERS[protocol],
        is_stop=lambda message: isinstance(message, Stop),
        settings=settings,
        on_first_message=on_first_word,
    )
    socket.open()
    code, reason = STOPPING
    try:
        async with (
            # A question of /ws/chat is a typed turn; a conversation by turns is a call like others.
            conversations.open(session_id, owner=owner, for_call=protocol == "streaming") as conversation,
            engines.answering.memory(conversation) as memory,
        ):
            talk = ChatConversation(
                engines, conversations, conversation, socket, memory, rules or ClientRules()
            )
            call_id = uuid.uuid4().hex
            CallBounds(talk.events, conversation, call_id, TRANSPORT)
            talk.events.publish(CallBegan(talk.events.now_ms()))
            watches = list[asyncio.Task[None]]()
            try:
                run = _stream if protocol == "streaming" else _chat
                listing = engines.live_calls.opened_silent(call_id, conversation.session_id, TRANSPORT)
                with listing as live, conversation.reporting(talk.events, speaks=False):
                    watches += [
                        asyncio.create_task(_end_when_lost(conversation, socket), name="chat.lost"),
                        asyncio.create_task(_end_when_expired(rules, socket), name="chat.grants"),
                        asyncio.create_task(_end_when_requested(live, socket), name="chat.operator"),
                    ]
                    code, reason = await run(talk, socket, engines, facts or {})
                if socket.given_up is not None:
                    talk.end(*socket.given_up)
            except AgentError as failed:
                talk.end_as(failed)
                raise
            except asyncio.CancelledError:
                # The server did not wait any longer.
                talk.end(SHUTDOWN, STOPPING[1])
                raise
            except Exception:
                talk.end(*BROKEN)
                raise
            finally:
                for watch in watches:
                    watch.cancel()
                talk.events.publish(CallEnded(talk.events.now_ms()))
    except AgentError as failed:
        await socket.send(error(str(failed)))
        code, reason = close_of(failed)
    except Exception:
        code, reason = 1011, "failed"
        await socket.send(error("the conversation failed"))
        raise
    finally:
        await socket.close(code, reason)


async def _end_when_lost(conversation: Conversation, socket: MessageSocket[Any]) -> None:
    """End a client, even an idle one, when another call takes its session or the session is deleted."""
    await conversation.lost.wait()
    await socket.send(error(str(conversation.loss), LOST))
    socket.give_up(1011, LOST, why=(LOST, str(conversation.loss)))


async def _end_when_requested(live: ListedCall, socket: MessageSocket[Any]) -> None:
    """End a client, even an idle one, when an operator requests it; the session has what was delivered."""
    await live.ending.wait()
    kind, why = BY_OPERATOR
    await socket.send(error(why, kind))
    socket.give_up(1008, kind, why=BY_OPERATOR)


async def _end_when_expired(rules: ClientRules | None, socket: MessageSocket[Any]) -> None:
    """End a client, even an idle one, when its grants end."""
    identity = ANONYMOUS if rules is None else rules.identity
    expires_s = identity.grants.expires_s
    if expires_s is None or identity.is_operator:
        return
    await asyncio.sleep(max(0.0, expires_s - time.time()))
    kind, why = EXPIRED
    await socket.send(error(why, kind))
    socket.give_up(1008, kind, why=EXPIRED)


async def _chat(
    talk: ChatConversation, socket: MessageSocket[ChatRequest], engines: Engines, facts: Mapping[str, str]
) -> tuple[int, str]:
    """Answer one request. Returns code and reason of the close frame."""
    settings = tuned(ChatSocketTuning, engines.deployment.sockets)
    try:
        request = await socket.next(settings.open_s)
    except TimeoutError:
        why = f"no request arrived within {settings.open_s:g} s"
        talk.end("timeout", why)
        await socket.send(error(why))
        return 1000, "timeout"
    if request is None:
        talk.note_left()
        return 1000, ""
    try:
        question = await talk.unless_halted(talk.begin(request))
        await socket.send({**_prefilled(talk, question), **facts})
        await socket.send(await talk.respond(question, speaks=question.given.speaks))
    except ClientHaltedError:
        talk.note_left()
        return 1000, "stopped"
    except AgentError as failed:
        talk.end_as(failed)
        code = failed.code if isinstance(failed, ProtocolError) else ""
        await socket.send(error(str(failed), code))
        return close_of(failed)
    return 1000, ""


async def _stream(
    talk: ChatConversation,
    socket: MessageSocket[StreamingMessage],
    engines: Engines,
    facts: Mapping[str, str],
) -> tuple[int, str]:
    """Answer questions in turns. Returns code and reason of the close frame."""
    settings = tuned(ChatSocketTuning, engines.deployment.sockets)
    began_s = asyncio.get_running_loop().time()
    # Language models run in this process: there is no queue for one of a pool.
    await socket.send({"type": "queue_done", "session_id": talk.session_id, **facts})
    question: ChatQuestion | None = None
    try:
        while True:
            try:
                # A question that was read is answered first.
                stopping = engines.shutdown.stopping if question is None else None
                within_s = settings.idle_s if socket.has_spoken else settings.open_s
                message = await _next(socket, within_s, stopping)
            except _StoppingError:
                talk.end(SHUTDOWN, STOPPING[1])
                return STOPPING
            except TimeoutError:
                talk.end("timeout", f"no message came within {within_s:g} s")
                elapsed_s = asyncio.get_running_loop().time() - began_s
                await socket.send({"type": "timeout", "elapsed_s": round(elapsed_s, 1)})
                return 1000, "timeout"
            if message is None or isinstance(message, Close):
                if message is None:
                    talk.note_left()
                return 1000, ""
            try:
                question = await _next_step(talk, socket, message, question)
            except ProtocolError as refusal:
                await socket.refuse(refusal)
                await _dropped(question)
                question = None
            except AgentError as failed:
                await _dropped(question)
                question = None
                if talk.is_lost:
                    raise
                await socket.send(error(str(failed)))
    finally:
        await _dropped(question)


async def _next(
    socket: MessageSocket[StreamingMessage], within_s: float, stopping: asyncio.Event | None
) -> StreamingMessage | None:
    """Return the next message; None when there will be no more.

    Raises:
        TimeoutError: none came within ``within_s``.
        _StoppingError: the server stops before a message came.
    """
    if stopping is None:
        return await socket.next(within_s)
    coming = asyncio.create_task(socket.next(within_s), name="chat.next")
    stop = asyncio.create_task(stopping.wait(), name="chat.stopping")
    try:
        await asyncio.wait({coming, stop}, return_when=asyncio.FIRST_COMPLETED)
        if coming.done():
            return coming.result()
        raise _StoppingError
    finally:
        coming.cancel()
        stop.cancel()


async def _next_step(
    talk: ChatConversation,
    socket: MessageSocket[StreamingMessage],
    message: StreamingMessage,
    question: ChatQuestion | None,
) -> ChatQuestion | None:
    """Handle a message; return the question that waits for its answer afterwards, or None."""
    match message:
        case Prefill():
            await _dropped(question)
            with suppress(ClientHaltedError):
                question = await talk.unless_halted(talk.begin(message))
                await socket.send(_prefilled(talk, question))
                return question
            await socket.send({"type": "done", "text": "", "stopped": True, "session_id": talk.session_id})
            return None
        case Generate():
            if question is None:
                raise ProtocolError("prefill comes first", code="not_prefilled", param="type")
            speaks = question.given.speaks if message.speaks is None else message.speaks
            done = await talk.respond(question, speaks=speaks)
            counts = {
                "cached_tokens": question.cached_tokens,
                "input_tokens": question.read_tokens,
                "generated_tokens": done["generated_tokens"],
            }
            await socket.send({**done, "cached_tokens": question.cached_tokens, "token_stats": counts})
            return None
    return question


async def _dropped(question: ChatQuestion | None) -> None:
    if question is not None:
        await question.answer.aclose()


def _prefilled(talk: ChatConversation, question: ChatQuestion) -> Message:
    unused = talk.unused(question)
    return prefill_done(
        question.cached_tokens,
        question.read_tokens,
        session_id=talk.session_id,
        **({"unused": unused} if unused else {}),
    )


def close_of(failed: AgentError) -> tuple[int, str]:
    """Return code and reason of the close frame after a failure that was reported to the client."""
    if isinstance(failed, ProtocolError):
        return 1003, failed.code
    if isinstance(failed, CapacityError):
        return 1013, "full"
    return 1011, "failed"
