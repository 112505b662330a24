"""Calls of clients that speak a protocol of their own (``protocols.client_protocol``) over a socket, or over
the data channel of a WebRTC connection whose tracks carry the sound.

``run_socket_session`` picks the client up and waits for the settings that it sends before the conversation.
It holds the call in the deployment's cascade or duplex pipeline, and carries out the client's actions there.
The session is the same as for any other transport: a client that names one goes on with it.

Owns the client's session (its reader and its writer) and the calls of tools that wait for the client.
"""

import asyncio
import base64
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from loguru import logger
from pipecat.frames.frames import (
    InputTransportMessageFrame,
    InterruptionFrame,
    LLMMessagesAppendFrame,
    LLMUpdateSettingsFrame,
    TTSSpeakFrame,
)
from pipecat.processors.aggregators.llm_context import LLMContextMessage
from pipecat.services.settings import LLMSettings
from pipecat.transports.base_transport import TransportParams

from parley.core.call_choices import OWN_VOICE, CallChoices
from parley.core.call_events import (
    CallEnding,
    PassagesCited,
    RecordingConsentChanged,
    ReplyBrought,
    ReplyFinished,
    ToolsRenewed,
    TurnEnded,
    TurnEndRequested,
    TurnStarted,
    VoiceChosen,
)
from parley.core.client_rules import ClientRules, prompt_of
from parley.core.errors import (
    AgentError,
    CapacityError,
    MediaError,
    PeerError,
)
from parley.core.timeline import HeardReply
from parley.pipelines.call import (
    OPENING,
    Call,
    CallPeer,
    LiveCall,
    Resumption,
    SocketClient,
    client_prompt,
)
from parley.pipelines.engines.engines import Engines
from parley.pipelines.engines.plan import INPUT_RATE_HZ
from parley.pipelines.latency_reports import LatencyReports
from parley.pipelines.lifecycle import LOST
from parley.pipelines.sockets.answer_state import AnswerWait, TurnAnswers
from parley.pipelines.sockets.client_checks import (
    check_text,
    checked_text,
    checked_voice,
    choice_check,
    picture_limits,
    takes_text,
)
from parley.pipelines.sockets.client_mcp import ClientMcp
from parley.pipelines.sockets.client_tools import RequestedSettings
from parley.pipelines.sockets.out_of_band import OutOfBandAnswers
from parley.pipelines.sockets.reply_usage import ReplyUsage
from parley.pipelines.sockets.tool_requests import ToolRequests
from parley.pipelines.voice.cascade import run_conversation
from parley.pipelines.voice.duplex import run_duplex
from parley.processors.dialogue.rtvi import typed_message
from parley.processors.duplex.omni import DuplexPauseFrame, DuplexResumeFrame
from parley.processors.playout.heard import PlayoutSettings
from parley.processors.playout.playout import reply_named
from parley.processors.turns.idle import QUIET_ENDS
from parley.protocols.client_mcp import McpApproval
from parley.protocols.client_protocol import (
    Action,
    Began,
    CallerStopped,
    CancelResponse,
    CreateResponse,
    EarlierReply,
    EndTurn,
    Greet,
    LatencyMeasured,
    MustListen,
    OutOfBandRequest,
    Pause,
    Paused,
    Pictures,
    PlaybackTruncated,
    ProtocolError,
    ReplyCites,
    RequestFailed,
    Resume,
    Resumed,
    SessionUpdate,
    ToolAnswer,
    ToolsAnswered,
    Trimmed,
    Typed,
)
from parley.runtime.event_stream import CallEvents
from parley.session_store.conversation import Conversation
from parley.transports.unit_input import UnitEntry
from parley.transports.webrtc.event_channel import EventConnection
from parley.transports.webrtc.event_transport import EventTransport
from parley.transports.websocket.pictures import PictureLimits
from parley.transports.websocket.session import SocketCall
from parley.transports.websocket.transport import SocketTransport

NO_TURN = "there is no turn to respond to"
# Rows of the transports.
SOCKET, TRACKS = "websocket", "realtime_webrtc"
# A turn that a client has ended had no voice if none was detected within this time.
VOID_MS = 2_000


class _ActionHandler:
    """Performer of a client's actions in one call.

    Owns the watch over the end of a turn that a client has declared, and a response that waits for the tools
    of its own MCP servers; ``close`` ends them.

    Args:
        engines: engines of the process.
        transport: transport of the client.
        call: call of the client.
        asked: tools that the client runs.
        requested: settings that the client has requested.
        answers: whether turns are answered.
        mcp: MCP servers of the client.
        mode: cascade or duplex.
    """

    def __init__(
        self,
        engines: Engines,
        transport: SocketTransport,
        call: Call,
        asked: ToolRequests,
        requested: RequestedSettings,
        answers: TurnAnswers,
        mcp: ClientMcp,
        mode: str,
    ) -> None:
        self._engines = engines
        self._transport = transport
        self._call = call
        self._asked = asked
        self._requested, self._answers = requested, answers
        self._aside = OutOfBandAnswers(engines, call, transport.report)
        self._mcp = mcp
        self._mode = mode
        self._latencies = LatencyReports(call.live)
        self._voice = call.choices.voice or OWN_VOICE
        self._watch: asyncio.Task[None] | None = None
        self._waiting: asyncio.Task[None] | None = None
        call.events.subscribe(TurnStarted, lambda _event: self._drop_waiting())

    async def begin(self) -> None:
        """Perform what the client has requested since the pipeline was begun, and what it requests now.

        The settings of that time are merged, and neither applied nor checked yet by the tools of its servers.
        """
        session = self._transport.session
        requested = session.requested
        await self.act(requested)
        try:
            self._mcp.check_choice(requested.choice, requested.mcp or (), param="session.tool_choice")
        except ProtocolError as refusal:
            session.refuse(refusal)
        await session.attend(self.act)

    async def act(self, action: Action) -> None:
        """Perform an action. Raises ProtocolError when it is not possible."""
        call, happen, receiver = self._call, self._transport.report, self._call.client.entry.receiver()
        if isinstance(action, Typed | CreateResponse | CancelResponse):
            self._drop_waiting()
        match action:
            case Typed(text):
                self._requested.set_for_reply(None)
                self._answers.request()
                await self._report(InputTransportMessageFrame(message=typed_message(text)))
            case Pictures():
                await self._transport.show(await self._readable(action))
            case EarlierReply(text):
                check_text(self._call.conversation.take_typed, text)
                self._renew_tools()
                call.events.publish(ReplyBrought(call.events.now_ms(), text))
            case Greet():
                await self._greet()
            case CreateResponse():
                await self._respond_with_servers(action)
            case OutOfBandRequest():
                await self._aside.begin(action)
            case EndTurn():
                await self._end_turn()
            case CancelResponse():
                await self._report(InterruptionFrame())
            case MustListen():
                if receiver is not None:
                    receiver.must_listen()
            case Pause(pause_ms):
                longest_ms = self._engines.deployment.duplex.ticks.pause_ms
                held_ms = min(pause_ms or longest_ms, longest_ms)
                if receiver is not None:
                    await receiver.pause(held_ms)
                else:
                    await self._report(DuplexPauseFrame(held_ms))
                happen(Paused(held_ms))
            case Resume():
                if receiver is not None:
                    receiver.resume()
                else:
                    await self._report(DuplexResumeFrame())
                happen(Resumed())
            case PlaybackTruncated(reply_id, audio_ms):
                if not call.live.playout.claim(reply_id, audio_ms):
                    raise ProtocolError("the text of that audio can no longer change", code="item_not_found")
                happen(Trimmed(reply_id, audio_ms, call.live.playout.heard_text(reply_id)))
            case ToolAnswer(call_id, output):
                self._asked.answer(call_id, output)
            case ToolsAnswered(tools, choice, mcp):
                self._requested.set_for_reply(tools, choice, mcp)
                self._asked.release()
            case McpApproval():
                self._mcp.answer(action)
            case SessionUpdate():
                await self._apply_update(action)
            case LatencyMeasured(report):
                self._latencies.take(report)
            case _:
                raise AssertionError(action)

    async def _readable(self, pictures: Pictures) -> Pictures:
        """Return pictures for a language model as they are stored.

        One thread reads those of all clients, because a small file may hold many pixels.

        Raises:
            ProtocolError: one is no picture, or too many wait.
        """
        if self._mode == "duplex":
            return pictures
        files: list[bytes] = []
        for file in pictures.files:
            try:
                read = await self._engines.answering.pictures.read(base64.b64encode(file).decode("ascii"))
            except (MediaError, CapacityError) as error:
                raise ProtocolError(str(error), code="invalid_value", param="item.content") from error
            files.append(base64.b64decode(read.data))
        return replace(pictures, files=tuple(files))

    async def close(self) -> None:
        """End what is owned here, and the connections to the client's servers: the call is over."""
        await self._aside.close()
        tasks = [task for task in (self._watch, self._waiting) if task is not None]
        self._watch = self._waiting = None
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._mcp.close()

    async def _end_turn(self) -> None:
        events = self._call.events
        if not events.has_subscribers(TurnEndRequested):
            # A realtime service ends turns by itself.
            return
        events.publish(TurnEndRequested(events.now_ms(), waits_for_words=True))
        if self._watch is not None:
            self._watch.cancel()
        self._watch = asyncio.create_task(self._unless_over(), name="turn.watch")

    async def _unless_over(self) -> None:
        """Report a turn that the client ended as over, also when no voice was detected in it."""
        ended = await self._call.events.wait_for(TurnEnded, within_ms=VOID_MS)
        if ended is None and not self._transport.caller_speaks:
            self._transport.report(CallerStopped())

    @property
    def _is_new(self) -> bool:
        """True when the session has no words yet."""
        return not any(event.payload.get("text") for event in self._call.conversation.events)

    async def _greet(self) -> None:
        greeting = self._engines.deployment.bot.greeting
        if not self._is_new or not greeting:
            raise ProtocolError(NO_TURN, code="invalid_value")
        await self._report(TTSSpeakFrame(greeting, append_to_context=True))

    def _check_speaks(self) -> None:
        """Raise ProtocolError when the bot has nothing to say on request: no turn, and no first words."""
        engines = self._engines
        if self._is_new and not (engines.answering.speaks_first or engines.deployment.bot.greeting):
            raise ProtocolError(NO_TURN, code="invalid_value")

    async def _respond_with_servers(self, request: CreateResponse) -> None:
        """Respond once the tools of the MCP servers that the response has of its own are known."""
        if request.mcp:
            if not request.text:
                self._check_speaks()
            self._requested.set_for_reply(request.tools, request.choice, request.mcp)
            if not self._mcp.is_listed:
                self._waiting = asyncio.create_task(self._respond_later(request), name="response.mcp")
                return
        await self._respond(request)

    async def _respond_later(self, request: CreateResponse) -> None:
        await self._mcp.until_listed()
        try:
            self._mcp.check_choice(request.choice, request.mcp or (), param="response.tool_choice")
            await self._respond(request)
            return
        except ProtocolError as error:
            refusal = error
        except Exception as error:
            logger.opt(exception=error).error(f"a requested response: {type(error).__name__}")
            refusal = ProtocolError("the response failed", code="server_error")
        self._requested.set_for_reply(None)
        self._transport.session.refuse(refusal)
        # The request was accepted: the client waits for its end.
        self._transport.report(RequestFailed(str(refusal)))

    def _drop_waiting(self) -> None:
        """Make no response that waits: the caller or the client goes on without it."""
        waiting, self._waiting = self._waiting, None
        if waiting is not None and not waiting.done():
            waiting.cancel()
            self._requested.set_for_reply(None)

    async def _respond(self, request: CreateResponse) -> None:
        engines, instructions, text = self._engines, request.instructions, request.text
        if self._mode == "duplex" and engines.realtime is not None:
            if not text or instructions is not None or request.tools is not None:
                raise ProtocolError(f"{engines.realtime.name} decides when it speaks", code="not_supported")
            await self.act(Typed(text))
            return
        messages: list[LLMContextMessage] = []
        if text:
            check_text(self._call.conversation.take_typed, text)
            await self._report(InterruptionFrame())
            messages = [{"role": "user", "content": text}]
        elif self._is_new:
            if not engines.answering.speaks_first:
                await self._greet()
                return
            messages = [{"role": "developer", "content": OPENING}]
        self._requested.set_for_reply(request.tools, request.choice, request.mcp)
        self._answers.request()
        # Through the pipeline in this order: the instructions hold for this question alone.
        if instructions is not None:
            self._renew_tools()
            await self._instruct(prompt_of(self._engines.deployment.bot.system_prompt, instructions))
        await self._report(LLMMessagesAppendFrame(messages, run_llm=True))
        if instructions is not None:
            await self._instruct(self._instructions)

    @property
    def _instructions(self) -> str:
        return client_prompt(self._call.client.requested(), self._engines.deployment.bot.system_prompt)

    async def _instruct(self, instructions: str) -> None:
        await self._report(LLMUpdateSettingsFrame(delta=LLMSettings(system_instruction=instructions)))

    async def _apply_update(self, update: SessionUpdate) -> None:
        # Before the prompt: no question has both the client's text and the deployment's tools.
        if update.mcp is not None:
            self._requested.use_servers(is_update=True)
        self._renew_tools()
        if update.instructions is not None or update.notes is not None:
            await self._instruct(self._instructions)
        events = self._call.events
        if update.voice is not None and update.voice != self._voice:
            self._voice = update.voice
            events.publish(VoiceChosen(events.now_ms(), update.voice))
        if update.allow_recording is not None:
            events.publish(RecordingConsentChanged(events.now_ms(), update.allow_recording))

    def _renew_tools(self) -> None:
        """Offer the tools that the client's rules and its settings permit now."""
        events = self._call.events
        events.publish(ToolsRenewed(events.now_ms()))

    async def _report(self, frame: Any) -> None:
        await self._call.live.input.queue(frame)


async def run_socket_session(
    engines: Engines,
    conversation: Conversation,
    session: SocketCall,
    *,
    mode: str,
    rules: ClientRules,
    facts: Mapping[str, Any] | None = None,
    connection: EventConnection | None = None,
    imitated: Callable[[str], Awaitable[np.ndarray]] | None = None,
    resumption: Resumption = Resumption(),
) -> None:
    """Hold one call.

    Args:
        engines: engines of the process.
        conversation: session of the call, open.
        session: session of the client, open.
        mode: cascade or duplex.
        rules: rules of the client, the same by which the session checks its actions.
        facts: sent to the client at the beginning, where its protocol has a field for them.
        connection: whose tracks carry the sound; None: the messages do.
        imitated: returns the sound of a reference voice, or raises PeerError; None: there are none.
        resumption: facts that it takes over from its lost connections.
    """
    protocol = session.protocol
    entry = UnitEntry()
    live = _live_call(engines, conversation, session, connection)
    transport = _transport_of(engines, session, live, entry, connection, mode)
    asked = ToolRequests(transport, ReplyUsage(live.events, transport.report))
    mcp, requested = _requested_by(engines, transport, live.events, asked)
    client = SocketClient(
        greets=protocol.greets,
        # A protocol sets it whose client takes a reply that it has not requested.
        speaks_announcements=getattr(protocol, "speaks_announcements", protocol.greets),
        prompts=protocol.prompts,
        reports_units=protocol.wants_units,
        reads_rtvi=False,
        requested=requested,
        began=session.began if protocol.wants_units else None,
        on_placed=session.placed if protocol.wants_units else None,
        entry=entry,
        unit_sink=transport if protocol.wants_units else None,
        # A protocol sets it where its client takes audio of replies only.
        hums=getattr(protocol, "hums", True),
        run_tool=asked.run,
        mcp_tools=mcp.tools,
        # One sets it whose client asks.
        asks_consent=getattr(protocol, "asks_consent", False),
    )
    answers = TurnAnswers(requested, live.events)
    # A speech model receives speech at its natural pace, also an earlier recording.
    if mode == "cascade":
        session.hear_at_once()
    session.add_check(partial(checked_text, conversation))
    session.add_check(choice_check(mcp, lambda: session.requested))
    await transport.open()
    recorded_as = engines.recordings.facts_of(conversation.session_id, client)
    began = {**_facts(engines, mode), **recorded_as, **(facts or {})}
    session.happen(Began(conversation.session_id, began))
    if not protocol.wants_units:
        # A protocol sets it whose conversation begins with the client's first message.
        await _until_configured(session, is_needed=getattr(protocol, "prepares", False))
    requested_voice = session.requested.reference_voice or ""
    choices = await _choices_of(session, imitated)
    # A client may go on to send the one that it requested, where that was removed since.
    session.add_check(partial(checked_voice, {requested_voice, choices.reference_voice}))
    call = Call(
        conversation,
        SOCKET if connection is None else TRACKS,
        live,
        peer=CallPeer(cancels_echo=True, recorded_as=protocol.name),
        client=client,
        rules=rules,
        answers=answers,
        choices=choices,
        resumption=resumption,
    )
    ends: list[CallEnding] = []
    call.events.subscribe(CallEnding, ends.append)
    actor = _ActionHandler(engines, transport, call, asked, requested, answers, mcp, mode)

    def on_reply_finished(event: ReplyFinished) -> None:
        _end_reply(transport, event.heard, has_tracks=connection is not None)

    def on_passages_cited(event: PassagesCited) -> None:
        transport.report(ReplyCites(event.reply_id, event.passages))

    call.events.subscribe(ReplyFinished, on_reply_finished)
    call.events.subscribe(PassagesCited, on_passages_cited)

    @transport.event_handler("on_client_connected")
    async def on_connected(_transport: SocketTransport, _client: object) -> None:
        await actor.begin()

    @transport.event_handler("on_client_disconnected")
    async def on_disconnected(_transport: SocketTransport, _client: object) -> None:
        # While the costs of the call are counted.
        await actor.close()
        if session.ended is not None and not ends:
            call.events.publish(CallEnding(call.events.now_ms(), *session.ended))

    run = run_duplex if mode == "duplex" else run_conversation
    try:
        await run(engines, transport, call)
    finally:
        await actor.close()
        if conversation.lost.is_set():
            session.over(LOST, str(conversation.loss))
        elif ends and ends[-1].reason not in QUIET_ENDS:
            # An end for silence is an ordinary one for a client.
            session.over(ends[-1].reason, ends[-1].message)


def _end_reply(transport: SocketTransport, heard: HeardReply, *, has_tracks: bool) -> None:
    """Report the end of a reply by the playout record."""
    if heard.is_known:
        transport.end_reply(heard.reply_id, was_cut=heard.truncated)
    if has_tracks and heard.truncated and heard.mark.audio_ms:
        # Of a track the server knows what was played; any other client reports it.
        transport.report(Trimmed(heard.reply_id, heard.mark.audio_ms, heard.text))


def _live_call(
    engines: Engines, conversation: Conversation, session: SocketCall, connection: EventConnection | None
) -> LiveCall:
    protocol = session.protocol
    # Units are passed on at their own rate, unchanged; other audio in packets.
    rate_hz = protocol.output_format.rate_hz if protocol.wants_units else engines.output_rate_hz
    if connection is None:
        # A client of units sends audio all the time, and one that is away may keep its socket for minutes.
        quiet_ms = (lambda: session.quiet_ms) if protocol.wants_units else None
        settings = PlayoutSettings(flushes=True)
        return LiveCall(conversation.clock, settings, rate_hz=rate_hz, peer_quiet_ms=quiet_ms)
    # A client that plays a track keeps what has come when it is interrupted.
    return LiveCall(conversation.clock, rate_hz=rate_hz, peer_quiet_ms=connection.events.quiet_ms)


def _transport_of(
    engines: Engines,
    session: SocketCall,
    live: LiveCall,
    entry: UnitEntry,
    connection: EventConnection | None,
    mode: str,
) -> SocketTransport:
    """Return the transport of a call, whose sound goes by its messages or by the tracks of a connection."""
    limits, rate_hz = picture_limits(engines, mode), live.playout.rate_hz
    open_transport = (
        SocketTransport
        if connection is None
        else partial(EventTransport, connection=connection, events=live.events)
    )
    return open_transport(
        session,
        TransportParams(
            audio_in_enabled=True,
            audio_out_enabled=True,
            audio_in_sample_rate=INPUT_RATE_HZ,
            audio_out_sample_rate=rate_hz,
            audio_out_10ms_chunks=4,
            audio_out_end_silence_secs=0,
            video_in_enabled=limits is not None,
        ),
        input_rate_hz=INPUT_RATE_HZ,
        pictures=limits or PictureLimits(),
        on_packet=live.on_packet,
        receiver=entry.receiver,
        reply_of=live.playout.reply_of,
        reply_named=reply_named,
        is_answer_awaited=AnswerWait(live.events).is_on,
    )


def _requested_by(
    engines: Engines, transport: SocketTransport, events: CallEvents, asked: ToolRequests
) -> tuple[ClientMcp, RequestedSettings]:
    """Return the MCP servers of a client, and the settings that it requests."""
    session = transport.session
    mcp = ClientMcp(
        engines.deployment.server.clients.mcp_hosts,
        report=transport.report,
        renew=lambda: events.publish(ToolsRenewed(events.now_ms())),
        functions=lambda: [tool.name for tool in requested.tools],
        until_requested=asked.until_requested,
        gone=session.gone,
        take_usage=asked.take_usage,
    )
    requested = RequestedSettings(lambda: session.requested, events, mcp)
    return mcp, requested


async def _choices_of(
    session: SocketCall, imitated: Callable[[str], Awaitable[np.ndarray]] | None
) -> CallChoices:
    """Return what a client has chosen before the conversation."""
    voice, reference = session.requested.voice or "", session.requested.reference_voice
    if reference and imitated is not None:
        try:
            return CallChoices(reference_voice=reference, reference_audio=await imitated(reference))
        except PeerError as error:
            # It was removed since; the engine's own voice speaks.
            session.refuse(ProtocolError(str(error), code="invalid_value"))
    return CallChoices(voice=voice)


async def _until_configured(session: SocketCall, *, is_needed: bool) -> None:
    """Wait for the client's settings. One that sends none in time is taken as it is, or has been given up."""
    within_s = session.settings.open_s if is_needed else session.settings.begin_s
    waits = [asyncio.create_task(each.wait(), name="settings") for each in (session.began, session.gone)]
    try:
        await asyncio.wait(waits, timeout=within_s, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for each in waits:
            each.cancel()


def _facts(engines: Engines, mode: str) -> Mapping[str, Any]:
    takes = {"text": takes_text(engines, mode), "pictures": picture_limits(engines, mode) is not None}
    return {
        "mode": mode,
        "takes": [name for name, is_taken in takes.items() if is_taken],
        **engines.describe(),
    }


def reason_of(error: BaseException | None) -> tuple[str, str]:
    """Return the reason of ``SessionEnded``: a word, and a sentence for readers."""
    if error is None:
        return "stopped", ""
    return "error", str(error) if isinstance(error, AgentError) else "the conversation failed"
