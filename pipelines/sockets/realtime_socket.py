"""Calls of clients that speak a protocol of their own (``protocols.client_protocol``) over a socket, or over
the data channel of a WebRTC connection whose tracks carry the sound.

``run_socket_session`` picks the client up and waits for the settings that it sends before the conversation.
It holds the call in the deployment's cascade or duplex pipeline, and carries out the client's actions there.
The session is the same as for any other transport: a client that names one goes on with it.

Owns the client's session (its reader and its writer) and the calls of tools that wait for the client.
"""

import asyncio
import base64
import uuid
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import Any

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

from parley.core.call_events import (
    CallEnding,
    PassagesCited,
    QuestionDropped,
    QuestionSent,
    ReplyBrought,
    ReplyFinished,
    ToolsRenewed,
    TurnEnded,
    TurnEndRequested,
    Wait,
    WaitBegan,
    WaitEnded,
)
from parley.core.client_rules import ClientRules, prompt_of
from parley.core.errors import AgentError, CapacityError, EngineError, MediaError, OversizedError
from parley.core.timeline import HeardReply
from parley.models.tools import EffectUnknownError
from parley.pipelines.call import OPENING, Call, LiveCall, SocketClient, client_prompt
from parley.pipelines.engines.engines import Engines
from parley.pipelines.engines.plan import INPUT_RATE_HZ
from parley.pipelines.lifecycle import LOST
from parley.pipelines.sockets.client_checks import picture_limits
from parley.pipelines.sockets.client_tools import RequestedSettings
from parley.pipelines.sockets.out_of_band import OutOfBandAnswers
from parley.pipelines.voice.cascade import run_conversation
from parley.pipelines.voice.duplex import run_duplex
from parley.processors.duplex.omni import DuplexPauseFrame, DuplexResumeFrame
from parley.processors.playout.heard import PlayoutSettings
from parley.processors.playout.playout import reply_named
from parley.processors.turns.idle import QUIET_ENDS
from parley.protocols.client_protocol import (
    Action,
    Began,
    CallerStopped,
    CancelResponse,
    CreateResponse,
    EarlierReply,
    EndTurn,
    Greet,
    MustListen,
    OutOfBandRequest,
    Pause,
    Paused,
    Pictures,
    PlaybackTruncated,
    ProtocolError,
    ReplyCites,
    Resume,
    Resumed,
    SessionUpdate,
    ToolAnswer,
    ToolCalled,
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

# Calls of tools that may wait for the client at a time.
MOST_ASKED = 16
# Longest wait for the client's request to answer what its tools returned. Where the answer came before the
# request, it could not carry the request's metadata any more.
REQUESTED_S = 0.3
# Rows of the transports.
SOCKET, TRACKS = "websocket", "realtime_webrtc"
# A turn that a client has ended had no voice if none was detected within this time.
VOID_MS = 2_000


class _AskedTools:
    """Tools of one call that its client runs, and the calls that wait for its answer.

    Args:
        transport: sends the calls to the client.
    """

    def __init__(self, transport: SocketTransport) -> None:
        self._transport = transport
        self._asked: dict[str, asyncio.Future[str]] = {}
        self._outputs: list[tuple[asyncio.Future[str], str]] = []
        self._release: asyncio.TimerHandle | None = None

    def answer(self, call_id: str, output: str) -> None:
        """Take the client's answer to a call of a tool. Raises Refusal when it is not awaited."""
        asked = self._asked.pop(call_id, None)
        if asked is None or asked.done():
            raise ProtocolError(
                "this call no longer expects the output",
                code="item_not_found",
                param="item.call_id",
            )
        self._outputs.append((asked, output))
        if self._release is None:
            self._release = asyncio.get_running_loop().call_later(REQUESTED_S, self.release)

    def release(self) -> None:
        """Return the outputs of the client's tools to the model: the client has requested its answer."""
        release, self._release = self._release, None
        if release is not None:
            release.cancel()
        outputs, self._outputs = self._outputs, []
        for asked, output in outputs:
            if not asked.done():
                asked.set_result(output)

    async def run(self, key: str, name: str, arguments: str, timeout_s: float) -> str:
        """Have the client run a tool.

        Raises:
            EngineError: the client cannot be asked.
            EffectUnknownError: the client was asked, and did not answer.
        """
        session = self._transport.session
        if session.gone.is_set() or len(self._asked) >= MOST_ASKED:
            raise EngineError("the client cannot be reached", engine=name)
        call_id = f"call_{uuid.uuid4().hex[:24]}"
        asked: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._asked[call_id] = asked
        gone = asyncio.create_task(session.gone.wait(), name="tool.gone")
        self._transport.report(ToolCalled(call_id, name, arguments))
        try:
            ends: set[asyncio.Future[Any]] = {asked, gone}
            await asyncio.wait(ends, timeout=timeout_s, return_when=asyncio.FIRST_COMPLETED)
            # The output may have come, and wait for the request to answer it.
            self.release()
            if asked.done():
                return asked.result()
            raise EffectUnknownError("the client did not answer", engine=name)
        finally:
            gone.cancel()
            self._asked.pop(call_id, None)


class _AnswerWait:
    """State of the caller's wait for an answer, from its question to its first words.

    Args:
        events: events of the call.
    """

    def __init__(self, events: CallEvents) -> None:
        self._is_on = False
        events.subscribe(WaitBegan, lambda event: self._set(event.reason, is_on=True))
        events.subscribe(WaitEnded, lambda event: self._set(event.reason, is_on=False))

    def is_on(self) -> bool:
        """Return whether the caller waits for an answer."""
        return self._is_on

    def _set(self, reason: Wait, *, is_on: bool) -> None:
        if reason is Wait.ANSWER:
            self._is_on = is_on


class _TurnAnswers:
    """Decision whether a turn of the caller is answered, as ``Call.answers``.

    A client may have requested that turns are not answered on their own. An answer that it requests is for
    the newest turn, also where a noise cuts it and the model is asked again.

    Args:
        requested: returns the settings that the client has requested.
        events: events of the call.
    """

    def __init__(self, requested: Callable[[], SessionUpdate], events: CallEvents) -> None:
        self._requested, self._is_requested = requested, False
        # Turn of which an answer was requested; empty for none.
        self._turn = ""
        # A question without a turn, such as that for the first words, takes the request too.
        events.subscribe(QuestionSent, self._on_question)
        events.subscribe(QuestionDropped, self._on_question)

    def request(self) -> None:
        """Let the model answer the next question."""
        self._is_requested = True

    def __call__(self, said: str, *, is_again: bool) -> str | None:
        is_requested = self._is_requested or (is_again and said == self._turn)
        self._is_requested, self._turn = False, said if is_requested else ""
        return "" if self._requested().answers is False and not is_requested else None

    def _on_question(self, _event: QuestionSent | QuestionDropped) -> None:
        self._is_requested = False


class _ActionHandler:
    """Performer of a client's actions in one call.

    Owns the watch over the end of a turn that a client has declared; ``close`` ends it.

    Args:
        engines: engines of the process.
        transport: transport of the client.
        call: call of the client.
        asked: tools that the client runs.
        requested: settings that the client has requested.
        answers: whether turns are answered.
        mode: cascade or duplex.
    """

    def __init__(
        self,
        engines: Engines,
        transport: SocketTransport,
        call: Call,
        asked: _AskedTools,
        requested: RequestedSettings,
        answers: _TurnAnswers,
        mode: str,
    ) -> None:
        self._engines = engines
        self._transport = transport
        self._call = call
        self._asked = asked
        self._requested, self._answers = requested, answers
        self._aside = OutOfBandAnswers(engines, call, transport.report)
        self._mode = mode
        self._watch: asyncio.Task[None] | None = None

    async def act(self, action: Action) -> None:
        """Perform an action. Raises Refusal when it is not possible."""
        call, happen, receiver = self._call, self._transport.report, self._call.client.entry.receiver()
        match action:
            case Typed(text):
                self._requested.set_for_reply(None)
                self._answers.request()
                await self._report(InputTransportMessageFrame(message=_send_text(text)))
            case Pictures():
                await self._transport.show(await self._readable(action))
            case EarlierReply(text):
                _check_text(self._call.conversation.take_typed, text)
                self._renew_tools()
                call.events.publish(ReplyBrought(call.events.now_ms(), text))
            case Greet():
                await self._greet()
            case CreateResponse():
                await self._respond(action)
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
            case ToolsAnswered(tools, choice):
                self._requested.set_for_reply(tools, choice)
                self._asked.release()
            case SessionUpdate():
                await self._apply_update(action)
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
        """End the watch and the answers outside of the conversation: the call is over."""
        await self._aside.close()
        watch, self._watch = self._watch, None
        if watch is not None:
            watch.cancel()
            await asyncio.gather(watch, return_exceptions=True)

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
            raise ProtocolError("there is no turn to respond to", code="invalid_value")
        await self._report(TTSSpeakFrame(greeting, append_to_context=True))

    async def _respond(self, request: CreateResponse) -> None:
        engines, instructions, text = self._engines, request.instructions, request.text
        if self._mode == "duplex" and engines.realtime is not None:
            if not text or instructions is not None or request.tools is not None:
                raise ProtocolError(f"{engines.realtime.name} decides when it speaks", code="not_supported")
            await self.act(Typed(text))
            return
        messages: list[LLMContextMessage] = []
        if text:
            _check_text(self._call.conversation.take_typed, text)
            await self._report(InterruptionFrame())
            messages = [{"role": "user", "content": text}]
        elif self._is_new:
            if not engines.answering.speaks_first:
                await self._greet()
                return
            messages = [{"role": "developer", "content": OPENING}]
        self._requested.set_for_reply(request.tools, request.choice)
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
        self._renew_tools()
        if update.instructions is not None or update.notes is not None:
            await self._instruct(self._instructions)

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
    """
    protocol = session.protocol
    entry = UnitEntry()
    live = _live_call(engines, conversation, session, connection)
    transport = _transport_of(engines, session, live, entry, connection, mode)
    asked = _AskedTools(transport)
    requested = RequestedSettings(lambda: session.requested, live.events)
    client = SocketClient(
        greets=protocol.greets,
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
    )
    answers = _TurnAnswers(requested, live.events)
    call = Call(
        conversation,
        SOCKET if connection is None else TRACKS,
        live,
        recorded_as=protocol.name,
        peer_cancels_echo=True,
        client=client,
        rules=rules,
        answers=answers,
    )
    ends: list[CallEnding] = []
    call.events.subscribe(CallEnding, ends.append)
    actor = _ActionHandler(engines, transport, call, asked, requested, answers, mode)
    # A speech model receives speech at its natural pace, also an earlier recording.
    if mode == "cascade":
        session.hear_at_once()
    session.add_check(partial(_checked_text, conversation))
    await transport.open()
    session.happen(Began(conversation.session_id, {**_facts(engines, mode), **(facts or {})}))
    if not protocol.wants_units:
        await _until_configured(session)

    def on_reply_finished(event: ReplyFinished) -> None:
        _end_reply(transport, event.heard, has_tracks=connection is not None)

    def on_passages_cited(event: PassagesCited) -> None:
        transport.report(ReplyCites(event.reply_id, event.passages))

    call.events.subscribe(ReplyFinished, on_reply_finished)
    call.events.subscribe(PassagesCited, on_passages_cited)

    @transport.event_handler("on_client_connected")
    async def on_connected(_transport: SocketTransport, _client: object) -> None:
        # Settings that came while the pipeline was built are merged, and not applied yet.
        await actor.act(session.requested)
        await session.attend(actor.act)

    @transport.event_handler("on_client_disconnected")
    async def on_disconnected(_transport: SocketTransport, _client: object) -> None:
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
        return LiveCall(conversation.clock, PlayoutSettings(flushes=True), rate_hz=rate_hz)
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
        is_answer_awaited=_AnswerWait(live.events).is_on,
    )


def _checked_text(conversation: Conversation, action: Action) -> Action:
    """Refuse an action with more text than the session takes now, before it has any effect."""
    match action:
        case Typed(text) | CreateResponse(text=text) | EarlierReply(text) if text:
            _check_text(conversation.typed_wait_s, text)
    return action


def _check_text(take: Callable[[str], float], text: str) -> None:
    """Raise ProtocolError when the session cannot take a text; ``take`` returns the wait for it."""
    try:
        wait_s = take(text)
    except OversizedError as error:
        raise ProtocolError(str(error), code="too_large") from error
    if wait_s:
        raise ProtocolError(f"too much text, try again in {wait_s:.0f} s", code="rate_limited")


async def _until_configured(session: SocketCall) -> None:
    try:
        async with asyncio.timeout(session.settings.begin_s):
            await session.began.wait()
    except TimeoutError:
        # The client is taken as it is.
        return


def _facts(engines: Engines, mode: str) -> Mapping[str, Any]:
    return {"mode": mode, **engines.describe()}


def _send_text(text: str) -> dict[str, Any]:
    """Return a text as an RTVI client's message: it passes the same checks the same way."""
    return {
        "label": "rtvi-ai",
        "type": "send-text",
        "id": uuid.uuid4().hex,
        "data": {"content": text, "options": {"run_immediately": True, "audio_response": True}},
    }


def reason_of(error: BaseException | None) -> tuple[str, str]:
    """Return the reason of ``SessionEnded``: a word, and a sentence for readers."""
    if error is None:
        return "stopped", ""
    return "error", str(error) if isinstance(error, AgentError) else "the conversation failed"
