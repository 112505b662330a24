"""A call of a client that speaks a protocol of its own (``protocols.surface``) over a socket.

``hold_surface`` picks the client up, waits for what it wants to be known before the conversation, holds the
call in the deployment's cascade or duplex pipeline, and has what the client wants done there. The session is
the same as for any other transport: a client that names one goes on with it.

Owns the client's session (its reader and its writer) and the calls of tools that wait for the client.
"""

import asyncio
import uuid
from collections.abc import Mapping
from typing import Any

from pipecat.frames.frames import (
    InputTransportMessageFrame,
    InterruptionFrame,
    LLMUpdateSettingsFrame,
    TTSSpeakFrame,
)
from pipecat.services.settings import LLMSettings
from pipecat.transports.base_transport import TransportParams

from core.errors import AgentError, EngineError
from models.tools import EffectUnknownError
from pipelines.call import Call, Client, playout_settings
from pipelines.cascade import run_conversation
from pipelines.duplex import run_duplex
from pipelines.engines import INPUT_RATE_HZ, Engines
from processors.duplex.omni import DuplexPauseFrame, DuplexResumeFrame
from processors.playout.playout import reply_named
from protocols.surface import (
    Action,
    Began,
    EndTurn,
    Greet,
    HeardUntil,
    Hush,
    MustListen,
    Pause,
    Paused,
    Refusal,
    Resume,
    Resumed,
    Said,
    ToolAnswer,
    ToolAsked,
    Trimmed,
    Typed,
    Wish,
)
from session_store.conversation import Conversation
from transports.websocket.session import SurfaceSession
from transports.websocket.transport import SocketTransport

# Calls of tools that wait for the client at a time.
MOST_ASKED = 16


class _Actor:
    """Has done what the client of one call wants."""

    def __init__(self, engines: Engines, session: SurfaceSession, call: Call) -> None:
        self._engines = engines
        self._session = session
        self._call = call
        self._asked: dict[str, asyncio.Future[str]] = {}

    async def act(self, action: Action) -> None:
        """Raises Refusal when it cannot be done."""
        call, happen = self._call, self._session.happen
        match action:
            case Typed(text):
                await self._report(InputTransportMessageFrame(message=_send_text(text)))
            case Said(text):
                call.wrote(text, interrupted=False)
            case Greet():
                await self._greet()
            case EndTurn():
                if call.end_turn is not None:
                    await call.end_turn()
            case Hush():
                await self._report(InterruptionFrame())
            case MustListen():
                if call.client.ears is not None:
                    call.client.ears.must_listen()
            case Pause(pause_ms):
                longest_ms = self._engines.deployment.duplex.ticks.pause_ms
                held_ms = min(pause_ms or longest_ms, longest_ms)
                if call.client.ears is not None:
                    await call.client.ears.pause(held_ms)
                else:
                    await self._report(DuplexPauseFrame(held_ms))
                happen(Paused(held_ms))
            case Resume():
                if call.client.ears is not None:
                    call.client.ears.resume()
                else:
                    await self._report(DuplexResumeFrame())
                happen(Resumed())
            case HeardUntil(reply_id, audio_ms):
                call.claim(reply_id, audio_ms)
                happen(Trimmed(reply_id, audio_ms))
            case ToolAnswer(call_id, output):
                asked = self._asked.pop(call_id, None)
                if asked is not None and not asked.done():
                    asked.set_result(output)
            case Wish():
                await self._wish(action)
            case _:
                raise AssertionError(action)

    async def run_tool(self, key: str, name: str, arguments: str, timeout_s: float) -> str:
        """Have the client run a tool.

        Raises:
            EngineError: it was not asked.
            EffectUnknownError: it was, and did not answer.
        """
        if self._session.gone.is_set() or len(self._asked) >= MOST_ASKED:
            raise EngineError("the client cannot be asked", engine=name)
        call_id = f"call_{uuid.uuid4().hex[:24]}"
        asked = self._asked[call_id] = asyncio.get_running_loop().create_future()
        gone = asyncio.create_task(self._session.gone.wait(), name="tool.gone")
        self._session.happen(ToolAsked(call_id, name, arguments))
        try:
            await asyncio.wait({asked, gone}, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            if asked.done():
                return asked.result()
            raise EffectUnknownError("the client did not answer", engine=name)
        finally:
            gone.cancel()
            self._asked.pop(call_id, None)

    async def _greet(self) -> None:
        bot = self._engines.deployment.bot
        if any(event.payload.get("text") for event in self._call.conversation.events):
            raise Refusal("there is nothing to respond to", code="invalid_value")
        if bot.greeting:
            await self._report(TTSSpeakFrame(bot.greeting, append_to_context=True))

    async def _wish(self, wish: Wish) -> None:
        if wish.instructions is not None:
            delta = LLMSettings(system_instruction=wish.instructions)
            await self._report(LLMUpdateSettingsFrame(delta=delta))

    async def _report(self, frame: Any) -> None:
        if self._call.report is not None:
            await self._call.report(frame)


async def hold_surface(
    engines: Engines, conversation: Conversation, session: SurfaceSession, *, mode: str
) -> None:
    """Hold one call.

    Args:
        engines: of the process.
        conversation: open.
        session: of the client, open.
        mode: cascade or duplex.
    """
    dialect = session.dialect
    client = Client(
        greets=dialect.greets,
        prompts=dialect.prompts,
        tells_units=dialect.wants_units,
        wish=lambda: session.wish,
        is_wished=session.began if dialect.wants_units else None,
        on_placed=session.placed if dialect.wants_units else None,
    )
    # Units are handed on at their own rate, and as they are; other audio in packets.
    rate_hz = dialect.output_format.rate_hz if dialect.wants_units else engines.output_rate_hz
    call = Call(
        conversation,
        dialect.name,
        playout=playout_settings(engines.deployment).model_copy(update={"flushes": True}),
        peer_cancels_echo=True,
        output_rate_hz=rate_hz,
        client=client,
    )
    actor = _Actor(engines, session, call)
    client.run_tool = actor.run_tool
    session.happen(Began(conversation.session_id, _facts(engines, mode)))
    if not dialect.wants_units:
        await _until_wished(session)
    sees = mode == "duplex" and engines.sees
    transport = SocketTransport(
        session,
        TransportParams(
            audio_in_enabled=True,
            audio_out_enabled=True,
            audio_in_sample_rate=INPUT_RATE_HZ,
            audio_out_sample_rate=rate_hz,
            audio_out_10ms_chunks=2,
            audio_out_end_silence_secs=0,
            video_in_enabled=sees,
        ),
        input_rate_hz=INPUT_RATE_HZ,
        on_packet=call.on_packet,
        ears=lambda: client.ears,
        reply_of=call.playout.reply_of,
        reply_named=reply_named,
    )

    @transport.event_handler("on_client_connected")
    async def on_connected(_transport: SocketTransport, _client: object) -> None:
        if session.wish.instructions is not None:
            await actor.act(Wish(instructions=session.wish.instructions))
        await session.attend(actor.act)

    run = run_duplex if mode == "duplex" else run_conversation
    try:
        await run(engines, transport, call)
    finally:
        if conversation.lost.is_set():
            call.end = "session_lost", str(conversation.loss)
        if call.end[0] != "stopped":
            session.over(*call.end)


async def _until_wished(session: SurfaceSession) -> None:
    try:
        async with asyncio.timeout(session.settings.begin_s):
            await session.began.wait()
    except TimeoutError:
        # It is taken as it is.
        return


def _facts(engines: Engines, mode: str) -> Mapping[str, Any]:
    return {"mode": mode, **engines.describe()}


def _send_text(text: str) -> dict[str, Any]:
    """As an RTVI client types it: the same checks and the same way."""
    return {
        "label": "rtvi-ai",
        "type": "send-text",
        "id": uuid.uuid4().hex,
        "data": {"content": text, "options": {"run_immediately": True, "audio_response": True}},
    }


def reason_of(error: BaseException | None) -> tuple[str, str]:
    """Why a conversation is over, for ``Over``: a word, and a sentence for people."""
    if error is None:
        return "stopped", ""
    return "error", str(error) if isinstance(error, AgentError) else "the conversation failed"
