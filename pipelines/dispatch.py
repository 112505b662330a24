"""Dispatch of one conversation: from the arguments that the gateway accepted to its end.

Input: the arguments of a conversation, from the gateway or a foreign runner: a browser, a socket of some
protocol, a phone call. Decides which session goes on, which pipeline holds it, and over which transport.
Each function returns when its conversation is over, or raises the error that ended it. The gateway owns the
task and hangs the peer up.
"""

import asyncio
from collections.abc import Callable, Mapping
from contextlib import AsyncExitStack
from dataclasses import replace
from functools import partial
from typing import Any

from loguru import logger
from pipecat.runner.types import RunnerArguments
from pipecat.transports.base_transport import BaseTransport

from parley.audio.comfort_noise import ComfortNoise
from parley.core.call_choices import CallChoices
from parley.core.errors import CapacityError, PeerError, StoreError
from parley.core.grants import ANONYMOUS, ClientIdentity
from parley.pipelines.call import NO_LOST_CALL, Call, LiveCall, LostCall
from parley.pipelines.earlier_streams import read_earlier_streams
from parley.pipelines.engines.engines import Engines
from parley.pipelines.engines.plan import INPUT_RATE_HZ
from parley.pipelines.held_calls import HeldCalls, hang_up_of
from parley.pipelines.modes import CASCADE, DUPLEX
from parley.pipelines.phone.calls import hold_phone
from parley.pipelines.phone.control import PhoneFacts
from parley.pipelines.phone.relay import hold_relay
from parley.pipelines.phone.sessions import PhoneSessions
from parley.pipelines.pipeline import Pipeline
from parley.pipelines.sockets.chat_sockets import ChatDialect, hold_chat
from parley.pipelines.sockets.client_checks import check_of
from parley.pipelines.sockets.realtime_socket import reason_of, run_socket_session
from parley.pipelines.voice.cascade import run_conversation
from parley.pipelines.voice.desk_call import run_desk_call
from parley.pipelines.voice.duplex import run_duplex
from parley.pipelines.waiting import wait_as_browser, wait_as_client, wait_as_socket
from parley.processors.fusion.camera_specialist import WATCHED_PER_S, WATCHED_PX
from parley.serving.gateway.desk.desk import DESK_CALL
from parley.serving.gateway.phone.carriers.twilio_relay import RELAY
from parley.serving.gateway.phone.routes import PhoneArguments
from parley.serving.gateway.settings import MAX_SOCKET_BYTES
from parley.serving.gateway.sockets.chat_sockets import ChatArguments, ChatRequestArguments
from parley.serving.gateway.sockets.eval_socket import EvalArguments, PipecatSocketArguments
from parley.serving.gateway.sockets.realtime_sockets import SocketArguments
from parley.serving.gateway.webrtc.realtime_calls import RealtimeCallArguments
from parley.serving.gateway.webrtc.routes import BrowserArguments
from parley.session_store.conversation import Conversation
from parley.session_store.conversations import Conversations
from parley.session_store.lost_calls import lost_call
from parley.session_store.store import SessionStore
from parley.transports.registry import TRANSPORTS, TransportRow
from parley.transports.request import LONGEST_PX, PICTURES_PER_S, ReportsQuiet, TransportRequest
from parley.transports.twilio.stream import PhoneStream
from parley.transports.webrtc.event_channel import EventConnection
from parley.transports.websocket.peer import MixedPeer, StarlettePeer
from parley.transports.websocket.session import SocketCall, SocketPeer

# Quiet time after which a browser counts as gone.
VANISH_MS = 3_500


async def run_session(
    engines: Engines,
    conversations: Conversations,
    runner_args: RunnerArguments,
    *,
    mode: str = CASCADE,
    held: HeldCalls | None = None,
    phones: PhoneSessions | None = None,
    on_call: Callable[[Call], None] | None = None,
) -> None:
    """Hold one conversation over the transport that the arguments bring.

    The session that ``body`` names goes on; without a name it is a new one. Its ``mode`` is the caller's
    choice, where it makes one, and with ``reconnect`` the call goes on that was broken off. ``held`` has the
    calls of this process; ``phones`` finds the session of a phone call; ``on_call`` is called with each of
    those calls.

    Raises:
        UnknownSessionError: there is no such session.
        ConfigError: the arguments belong to an unknown transport, or one that lacks a package.
    """
    if isinstance(runner_args, BrowserArguments) and not await wait_as_browser(
        runner_args.line,
        runner_args.webrtc_connection,
        vanish_ms=VANISH_MS,
    ):
        return
    if isinstance(runner_args, EvalArguments) and not await wait_as_socket(
        runner_args.line,
        runner_args.websocket,
        in_frames=isinstance(runner_args, PipecatSocketArguments),
    ):
        return
    if isinstance(runner_args, (SocketArguments, RealtimeCallArguments)):
        await converse_by_socket(engines, conversations, runner_args, held or HeldCalls())
        return
    if isinstance(runner_args, ChatArguments | ChatRequestArguments):
        await converse_by_chat(engines, conversations, runner_args)
        return
    if isinstance(runner_args, PhoneArguments):
        assert phones is not None
        if runner_args.phone.network == RELAY:
            await hold_relay(
                engines.deployment,
                engines.answering,
                conversations,
                phones,
                runner_args,
                live_calls=engines.live_calls,
                metrics=engines.metrics,
                stopping=engines.shutdown.stopping,
            )
            return
        await converse_by_phone(engines, phones, runner_args, on_call=on_call)
        return
    row = TRANSPORTS.of_arguments(runner_args)
    body = runner_args.body if isinstance(runner_args.body, dict) else {}
    identity: ClientIdentity = getattr(runner_args, "identity", ANONYMOUS)
    if body.get("mode") == DESK_CALL and identity.is_operator:
        await converse_as_human(
            engines, conversations, row, runner_args, str(body.get("session")), str(body.get("desk"))
        )
        return
    held, session_id = held or HeldCalls(), body.get("session")
    # A foreign runner passes on any values that a client sent.
    is_reconnected = body.get("reconnect") is True and session_id is not None
    if is_reconnected:
        await held.end(str(session_id))
    async with AsyncExitStack() as stack:
        conversation = await stack.enter_async_context(
            conversations.open(session_id, owner=identity.session_owner, for_call=True)
        )
        stack.enter_context(held.holding(conversation.session_id, hang_up_of(runner_args)))
        reported = body.get("echo_cancellation")
        wanted = body.get("mode")
        chosen = wanted if wanted in (CASCADE, DUPLEX) else mode
        answers = engines.sees if chosen == DUPLEX else engines.cascade_sees
        live = LiveCall(
            conversation.clock,
            follows_packets=row.capabilities.reports_playout,
            peer_quiet_ms=lambda: transport.quiet_ms() if isinstance(transport, ReportsQuiet) else 0,
        )
        transport = await open_transport(engines, row, runner_args, live, sees=answers)
        rules, choices = engines.answering.rules(identity), _choices_of(runner_args)
        if choices.instructions:
            rules.add_text()
        lost = await _lost_call(conversations.store, conversation) if is_reconnected else NO_LOST_CALL
        call = Call(
            conversation,
            row.name,
            live,
            rtvi=row.capabilities.speaks_rtvi,
            peer_cancels_echo=reported if isinstance(reported, bool) else None,
            rules=rules,
            choices=choices,
            reconnected="" if is_reconnected else None,
            begins_held=is_reconnected and body.get("held") is True,
            earlier=lost.earlier,
            line=lost.line,
        )
        await pipeline_of(chosen)(engines, transport, call)


def _choices_of(arguments: RunnerArguments) -> CallChoices:
    """Return the choices of a caller, which the gateway has checked; a foreign runner has none."""
    return arguments.choices if isinstance(arguments, BrowserArguments | EvalArguments) else CallChoices()


async def _lost_call(store: SessionStore, conversation: Conversation) -> LostCall:
    """Return the call that goes on, without its records where none was lost just now."""
    session_id = conversation.session_id
    try:
        line = await lost_call(store, session_id, now_us=conversation.clock.now_us())
    except StoreError as error:
        logger.warning(f"cannot read which call goes on: {error}")
        line = None
    if line is None:
        return LostCall(is_lost=True)
    return LostCall(is_lost=True, line=line, earlier=await read_earlier_streams(store, session_id, line))


async def converse_as_human(
    engines: Engines,
    conversations: Conversations,
    row: TransportRow,
    arguments: RunnerArguments,
    session_id: str,
    desk_id: str,
) -> None:
    """Hold the call of a human at the desk who has a session, whose caller is in a call here.

    Raises:
        PeerError: the desk no longer has the session, or the caller is in no call whose audio can be heard.
    """
    # The gateway checked it at the offer, which may be a while ago.
    if conversations.board.holder(session_id) != desk_id:
        raise PeerError("this desk does not have the session any more: take it over again")
    bridge = engines.bridges.find(session_id)
    if bridge is None:
        raise PeerError("the caller is in no call of the cascade: write to them")
    async with conversations.open(session_id) as conversation:
        live = LiveCall(conversation.clock, follows_packets=row.capabilities.reports_playout)
        transport = await open_transport(engines, row, arguments, live, sees=False)
        await run_desk_call(
            engines, transport, Call(conversation, row.name, live), bridge, conversations.board, desk_id
        )


async def converse_by_socket(
    engines: Engines,
    conversations: Conversations,
    arguments: SocketArguments | RealtimeCallArguments,
    held: HeldCalls,
) -> None:
    """Hold one conversation with a client that speaks a protocol of its own.

    ``held`` gets the call, which its client may continue over another socket.
    """
    deployment, rules = engines.deployment, engines.answering.rules(arguments.identity)
    voices, chooser = engines.choices_of(arguments.mode).voice_names, arguments.chooser
    if chooser is not None and voices.clones:
        references = await chooser.references_of(arguments.mode)
        voices = replace(voices, references=tuple(voice.id for voice in references))
    arguments.protocol.permit(instructions=rules.may_instruct, voices=voices)
    peer, connection = _peer_of(arguments)
    session = SocketCall(
        peer,
        arguments.protocol,
        settings=deployment.sockets,
        rate_hz=INPUT_RATE_HZ,
        check=check_of(engines, arguments.mode, rules),
        on_first_word=arguments.on_first_word if arguments.line is None else arguments.line.spoke,
    )
    body = arguments.body if isinstance(arguments.body, dict) else {}
    session_id = body.get("session")
    is_reconnected = body.get("reconnect") is True and session_id is not None
    session.open()
    reason, message = "server_shutdown", "the server is stopping"
    owner = arguments.identity.session_owner
    try:
        try:
            has_line = await wait_as_client(arguments.line, session)
        except CapacityError as error:
            has_line = False
            if not engines.shutdown.stopping.is_set():
                reason, message = "service_unavailable", str(error)
        else:
            if not has_line:
                reason, message = "stopped", ""
        if not has_line:
            return
        if connection is not None and not await connection.events.connected():
            # An offer whose client does not come is no session.
            reason, message = "stopped", ""
            return
        async with AsyncExitStack() as stack:
            conversation = await stack.enter_async_context(
                conversations.open(session_id, owner=owner, for_call=True)
            )
            stack.enter_context(held.holding(conversation.session_id, session.leave))
            lost = await _lost_call(conversations.store, conversation) if is_reconnected else NO_LOST_CALL
            await run_socket_session(
                *(engines, conversation, session),
                mode=arguments.mode,
                rules=rules,
                facts=_facts_of(body),
                connection=connection,
                imitated=None if chooser is None else chooser.imitated,
                lost=lost,
            )
            task = asyncio.current_task()
            # A cancelled pipeline ends without passing the cancellation on.
            if task is None or not task.cancelling():
                # A session that another process took, or that was deleted, ends its call in good order.
                reason, message = reason_of(conversation.loss)
    except Exception as error:
        reason, message = reason_of(error)
        raise
    finally:
        session.over(reason, message)
        await session.close(reason)


def _peer_of(
    arguments: SocketArguments | RealtimeCallArguments,
) -> tuple[SocketPeer, EventConnection | None]:
    """Return the other side of a conversation, and the connection whose tracks carry its sound."""
    if isinstance(arguments, SocketArguments):
        return StarlettePeer(arguments.websocket, most_bytes=MAX_SOCKET_BYTES), None
    connection = arguments.connection
    assert isinstance(connection, EventConnection)
    if arguments.first_event:
        connection.events.take_when_up(arguments.first_event)
    return connection.events, connection


async def converse_by_chat(
    engines: Engines, conversations: Conversations, arguments: ChatArguments | ChatRequestArguments
) -> None:
    """Hold one conversation with a client of a turn-based socket, or with one request over HTTP."""
    peer: SocketPeer
    protocol: ChatDialect
    if isinstance(arguments, ChatRequestArguments):
        peer, protocol = arguments.exchange, "request"
    else:
        peer, protocol = StarlettePeer(arguments.websocket, most_bytes=MAX_SOCKET_BYTES), arguments.protocol
    body = arguments.body if isinstance(arguments.body, dict) else {}
    await hold_chat(
        engines,
        conversations,
        peer,
        protocol=protocol,
        session_id=body.get("session"),
        owner=arguments.identity.session_owner,
        rules=engines.answering.rules(arguments.identity),
        facts=_facts_of(body),
        on_first_word=arguments.on_first_word,
    )


def _facts_of(body: Mapping[str, Any]) -> dict[str, str]:
    """Return the additional fields of the first message to a client."""
    return {"next_token": body["next_token"]} if "next_token" in body else {}


async def converse_by_phone(
    engines: Engines,
    phones: PhoneSessions,
    arguments: PhoneArguments,
    *,
    on_call: Callable[[Call], None] | None = None,
) -> None:
    """Hold one phone call, in one session or several."""
    settings = engines.deployment.phone
    assert settings is not None
    peer = MixedPeer(arguments.websocket, most_bytes=MAX_SOCKET_BYTES)
    phone = arguments.phone
    stream = PhoneStream(
        peer,
        settings.line,
        comfort=ComfortNoise().packet,
        call_sid=phone.call_sid,
        protocol=TRANSPORTS.create(phone.network),
    )
    try:
        started = await stream.open()
        if started is not None:
            facts = PhoneFacts(
                phone.call_sid or started.call_sid, phone.caller, phone.called, phone.direction
            )
            hold_one = partial(
                hold_phone,
                engines,
                stream,
                network=phone.network,
                run=pipeline_of(arguments.mode),
                facts=facts,
                desk=arguments.desk,
                settings=settings,
                on_call=on_call,
                has_open_code=lambda: phones.has_open_code,
            )
            await phones.hold(phone, stream, hold_one)
    finally:
        await stream.close(stream.end[1])


def pipeline_of(mode: str) -> Pipeline:
    """Return the function that holds a call of this mode."""
    return run_duplex if mode == DUPLEX else run_conversation


async def open_transport(
    engines: Engines, row: TransportRow, arguments: RunnerArguments, live: LiveCall, *, sees: bool
) -> BaseTransport:
    """Open the transport of a row for one set of runner arguments.

    Args:
        engines: of the process.
        row: of the transport.
        arguments: that bring the conversation.
        live: whose packets and delay are reported, where the transport does.
        sees: the model that answers takes pictures of the caller's camera.

    Raises:
        ConfigError: a package of the row's extra is not installed.
    """
    watches = engines.watches
    request = TransportRequest(
        sees=row.capabilities.video and (sees or watches),
        pictures_per_s=WATCHED_PER_S if watches else PICTURES_PER_S,
        longest_px=LONGEST_PX if sees else WATCHED_PX,
        vanish_ms=VANISH_MS,
        on_packet=live.on_packet,
        events=live.events,
    )
    transport: BaseTransport = await TRANSPORTS.create(row.name, arguments, request)
    return transport
