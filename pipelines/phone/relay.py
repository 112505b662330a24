"""Phone call as text: Twilio recognises the caller and speaks (ConversationRelay), the session answers.

Each prompt of the caller is a typed turn of the call's session, whose answer is sent while it is made. An
interruption ends it, and what Twilio reports as heard is what the session remembers of it, also where the
answer was complete here long before it was spoken. Keys are a turn of their own after a pause or ``#``. A
farewell, a wish for a person, the key of a person and the model's tools (``phone.relay_control``) end the
session: after the answer, and the time that it takes to speak it, because Twilio does not report when that is
over. What the caller says meanwhile takes it back. ``phone.relay_media`` has the language of the call and the
recordings that are played in it.

Owns the task of the present turn. A session that another call has taken, or that is deleted, ends its call.
The socket closed by Twilio: the call goes on over another one, because
Twilio asks how it goes on (``PhoneRoutes.reconnect``). Closed here because the server stops: likewise, at
another process. A message that cannot be read is skipped, ``MOST_REFUSED`` of them close the socket.
"""

import asyncio
import uuid
from collections.abc import Callable
from contextlib import aclosing

from fastapi import WebSocket
from loguru import logger
from starlette.websockets import WebSocketDisconnect, WebSocketState

from parley.configs.deployment import Deployment
from parley.core.call_events import CallBegan, CallEnded, CallEnding
from parley.core.errors import AgentError
from parley.core.grants import ANONYMOUS
from parley.language.intents import IntentRules
from parley.pipelines.call_bounds import CallBounds
from parley.pipelines.engines.llm_runtime import LlmRuntime
from parley.pipelines.lifecycle import BY_OPERATOR, LOST, USED_UP
from parley.pipelines.live_calls import LiveCalls
from parley.pipelines.phone.control import ANSWER_S
from parley.pipelines.phone.relay_control import End, RelayControl
from parley.pipelines.phone.relay_media import RelayMedia
from parley.pipelines.phone.sessions import PhoneSessions
from parley.pipelines.sessions import TypedTurns
from parley.pipelines.text.heard_answers import note_heard
from parley.processors.turns.idle import SILENCE
from parley.protocols import twilio_relay as relay
from parley.protocols.client_protocol import REFUSED, SHUTDOWN, STOPPING, ProtocolError
from parley.runtime.event_stream import CallEvents
from parley.serving.gateway.phone.carriers.carrier import PhoneCall
from parley.serving.gateway.phone.carriers.twilio_relay import RELAY
from parley.serving.gateway.phone.routes import PhoneArguments
from parley.serving.gateway.phone.settings import PhoneRoutesSettings
from parley.serving.gateway.session_api import ClientDialogue
from parley.session_store.conversation import Conversation
from parley.session_store.conversations import Conversations
from parley.session_store.events import Kind
from parley.session_store.prompt import BY_DEPLOYMENT
from parley.telemetry.call_metrics import count_ends
from parley.telemetry.metrics import ServerMetrics

# Longest wait for the first message, for a message of a caller who says nothing, and for Twilio to take one.
SETUP_S, SILENT_S, SEND_S = 10.0, 900.0, 10.0
# Pause after which pressed keys are a turn.
KEYS_S = 2.0
MOST_REFUSED, MOST_KEYS = 20, 40
# A slow voice says two words in a second. It begins after a moment.
WORDS_PER_S, VOICE_BEGINS_S, LONGEST_LAST_S = 2.0, 1.0, 30.0
# WebSocket close codes (RFC 6455, 7.4.1; 12.2).
DONE, WRONG, RESTART = 1000, 1008, 1012


async def hold_relay(
    deployment: Deployment,
    answering: LlmRuntime,
    conversations: Conversations,
    phones: PhoneSessions,
    arguments: PhoneArguments,
    *,
    live_calls: LiveCalls,
    metrics: ServerMetrics,
    stopping: asyncio.Event,
) -> None:
    """Hold one phone call as text.

    Args:
        deployment: with the settings of phone calls.
        answering: language model and tools. A call ends after a goodbye when its tenant has used up a limit.
        conversations: sessions of this process.
        phones: sessions of phone calls.
        arguments: of the call.
        live_calls: list of this process, where operators see the call and end it.
        metrics: of the process; the end of the call is counted.
        stopping: set when the server stops.
    """
    assert deployment.phone is not None and arguments.websocket is not None
    tenants = answering.usage.tenants

    def open_turns(control: RelayControl) -> TypedTurns:
        tools = control.tools() if answering.calls_tools else ()
        return TypedTurns(conversations, answering, deployment, answers=control.answer, tools=tools)

    call = RelayCall(
        arguments.websocket,
        arguments.phone,
        deployment.phone,
        open_turns,
        intents=deployment.language().intents,
        greeting=deployment.bot.greeting,
        disclosure=deployment.bot.disclosure,
        apology=deployment.bot.voiceless_phrase,
        live_calls=live_calls,
        stopping=stopping,
        used_up=tenants.used_up(ANONYMOUS),
        goodbye=tenants.settings.phrase,
    )
    count_ends(call.events, metrics)
    try:
        if await call.open():
            await phones.hold_text(arguments.phone, call.hold)
    finally:
        await call.close()


class RelayCall:
    """Phone call whose words come and go as text.

    Args:
        websocket: accepted; of Twilio.
        phone: the call.
        phone_settings: of the deployment.
        open_turns: returns typed turns of this call alone, which are closed with it.
        intents: rules of the deployment's language.
        greeting: first words of a call; empty: none.
        disclosure: phrase before them, which cannot be interrupted; empty: none.
        apology: words in place of an answer that failed; empty: none.
        live_calls: list in which operators see it.
        stopping: set when the server stops.
        used_up: set when the call is to end after a goodbye; None: never.
        goodbye: last words of such a call.

    Attributes:
        events: of the call: its end, where this side decided it.
    """

    def __init__(
        self,
        websocket: WebSocket,
        phone: PhoneCall,
        phone_settings: PhoneRoutesSettings,
        open_turns: Callable[[RelayControl], TypedTurns],
        *,
        intents: IntentRules,
        greeting: str,
        disclosure: str,
        apology: str,
        live_calls: LiveCalls,
        stopping: asyncio.Event,
        used_up: asyncio.Event | None,
        goodbye: str,
    ) -> None:
        self._socket, self._phone, self._settings = websocket, phone, phone_settings
        assert phone_settings.relay is not None
        self._opening = phone_settings.relay.opening
        self._media = RelayMedia(phone_settings.relay, intents, self._send, self._keep_language)
        self._control = RelayControl(phone, phone_settings, self._media, self._send)
        self._conversation: Conversation | None = None
        self._turns = open_turns(self._control)
        self._ended = asyncio.Event()
        self._greeting, self._disclosure, self._apology = greeting, disclosure, apology
        self._live_calls = live_calls
        self._stopping = stopping
        self._used_up = used_up or asyncio.Event()
        self._goodbye = goodbye
        self._answering: asyncio.Task[None] | None = None
        self._keys = ""
        self._refused = 0
        self._code = DONE
        self.events = CallEvents()
        # Reason and message of the end, where this side decided it.
        self._why: tuple[str, str] | None = None

    async def open(self) -> bool:
        """Wait for the first message; return whether it is that of this call."""
        try:
            async with asyncio.timeout(SETUP_S):
                began = await self._next()
        except TimeoutError:
            began = None
        if isinstance(began, relay.RelayBegan) and began.call_sid == self._phone.call_sid:
            return True
        logger.warning("a ConversationRelay socket does not begin with the setup of its call")
        self._code = WRONG
        return False

    async def hold(self, conversation: Conversation) -> bool:
        """Hold the call until its socket is closed; return whether it is over."""
        call_id = uuid.uuid4().hex
        self._conversation = conversation
        CallBounds(self.events, conversation, call_id, RELAY)
        self.events.publish(CallBegan(self.events.now_ms()))
        try:
            with self._live_calls.opened_silent(call_id, conversation.session_id, RELAY) as live:
                return await self._hold(conversation, call_id, live.ending)
        finally:
            if self._why is not None:
                self.events.publish(CallEnding(self.events.now_ms(), *self._why))
            self.events.publish(CallEnded(self.events.now_ms()))

    async def _hold(self, conversation: Conversation, call_id: str, ended_by_operator: asyncio.Event) -> bool:
        await self._greet(conversation, call_id)
        lost = asyncio.create_task(conversation.lost.wait(), name="relay.lost")
        stopping = asyncio.create_task(self._stopping.wait(), name="relay.stopping")
        ended = asyncio.create_task(self._ended.wait(), name="relay.ended")
        operator = asyncio.create_task(ended_by_operator.wait(), name="relay.operator")
        leaving = asyncio.create_task(self._leave_when_used_up(), name="relay.used_up")
        loop = asyncio.get_running_loop()
        heard_s = loop.time()
        try:
            while True:
                reading = asyncio.create_task(self._next(), name="relay.read")
                quiet_until_s = max(heard_s, self._media.plays_until_s) + SILENT_S
                within_s = KEYS_S if self._keys else quiet_until_s - loop.time()
                done, _ = await asyncio.wait(
                    {reading, lost, stopping, ended, operator},
                    timeout=within_s,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                if reading not in done:
                    reading.cancel()
                    await asyncio.gather(reading, return_exceptions=True)
                if lost in done or stopping in done:
                    # Another call has the session, or this process ends: Twilio asks what follows.
                    self._code = RESTART
                    is_lost = conversation.lost.is_set()
                    self._why = (LOST, str(conversation.loss)) if is_lost else (SHUTDOWN, STOPPING[1])
                    # The same call over another socket holds its link by now, and is not ended by this one.
                    return is_lost
                if ended in done:
                    return True
                if operator in done:
                    await self._stop_answer()
                    self._why = BY_OPERATOR
                    await self._send(relay.end())
                    return True
                if reading not in done:
                    if not self._keys:
                        # A recording that began meanwhile, and to which the caller listens, is no silence.
                        if self._media.plays_until_s + SILENT_S > loop.time():
                            continue
                        self._why = SILENCE
                        await self._send(relay.end())
                        return True
                    await self._press_all(conversation)
                    continue
                heard_s = loop.time()
                event = reading.result()
                if event is None:
                    return False
                if not self._used_up.is_set():
                    await self._take(conversation, event)
        finally:
            await self._stop_answer()
            watching = (lost, stopping, ended, operator, leaving)
            for watch in watching:
                watch.cancel()
            await asyncio.gather(*watching, return_exceptions=True)

    async def close(self) -> None:
        """Close the socket."""
        await self._stop_answer()
        await self._turns.close()
        if self._socket.application_state is WebSocketState.CONNECTED:
            try:
                async with asyncio.timeout(SEND_S):
                    await self._socket.close(self._code)
            except (TimeoutError, RuntimeError, WebSocketDisconnect):
                # Twilio has closed it at the same moment.
                return

    async def _greet(self, conversation: Conversation, call_id: str) -> None:
        is_reconnected = bool(self._phone.session)
        if code := conversation.state.language:
            await self._media.resume(code)
        words = self._greeting
        if self._disclosure and not is_reconnected:
            await self._disclose(conversation, call_id)
        if is_reconnected:
            words = "" if self._settings.reconnect is None else self._settings.reconnect.phrase
        elif self._opening is not None:
            await _commit_phrase(conversation, await self._media.play(self._opening))
        if not words:
            return
        if not is_reconnected:
            await _commit_phrase(conversation, words)
        await self._send_phrase(words, is_last=True)

    async def _disclose(self, conversation: Conversation, call_id: str) -> None:
        """Have the disclosure spoken; Twilio reports no end of it, and lets nothing interrupt it."""
        await _commit_phrase(conversation, self._disclosure)
        language = self._media.phrase_language
        message = relay.token(self._disclosure, is_last=True, language=language, is_interruptible=False)
        await self._send(message)
        payload = {"call_id": call_id, "text": self._disclosure}
        conversation.record(conversation.draft(Kind.DISCLOSED, "system", payload))

    async def _take(self, conversation: Conversation, event: relay.RelayEvent) -> None:
        """Take an event of Twilio."""
        match event:
            case relay.Prompted(text, language, is_last) if is_last and text:
                await self._stop_answer()
                await self._media.follow(language)
                await self._begin(conversation, text)
            case relay.SpeechInterrupted(heard, _):
                self._media.interrupt()
                await self._stop_answer()
                if self._control.ending is not None:
                    # A noise interrupts, too. What the caller says now takes the end back.
                    self._answering = asyncio.create_task(
                        self._end_in(ANSWER_S, self._control.ending), name="relay.ending"
                    )
                await note_heard(conversation, heard, transport=RELAY)
            case relay.Pressed(digit):
                await self._press(conversation, digit)
            case relay.RelayFault():
                # Its text repeats the message, which holds words of the call.
                logger.warning(f"Twilio could not use a message of call {self._phone.call_sid[:40]}")

    async def _press(self, conversation: Conversation, digit: str) -> None:
        if digit == self._settings.person_key and not self._keys and self._control.can_transfer:
            await self._stop_answer()
            ending = self._control.pass_on()
            self._answering = asyncio.create_task(
                self._say_last(self._control.connecting, ending), name="relay.connecting"
            )
            return
        self._keys = (self._keys + digit)[-MOST_KEYS:]
        if digit == "#":
            await self._press_all(conversation)

    async def _press_all(self, conversation: Conversation) -> None:
        keys, self._keys = self._keys.rstrip("#"), ""
        if keys:
            await self._begin(conversation, keys)

    async def _begin(self, conversation: Conversation, text: str) -> None:
        """Answer a turn of the caller; an answer that is being made ends."""
        await self._stop_answer()
        self._control.begin(text)
        # An end that was about to be sent is taken back.
        self._why = None
        self._answering = asyncio.create_task(
            self._answer(conversation.session_id, text), name="relay.answer"
        )

    async def _answer(self, session_id: str, text: str) -> None:
        said = ""
        try:
            answer = self._turns(session_id, text, key=None, dialogue=ClientDialogue(RELAY))
            async with aclosing(answer):
                async for event in answer:
                    if event.name == "delta":
                        piece = str(event.data["text"])
                        said += piece
                        if self._control.answers_itself:
                            await self._send_phrase(piece, is_last=False)
                        else:
                            await self._send(relay.token(piece, is_last=False))
        except AgentError as error:
            logger.warning(f"a turn of call {self._phone.call_sid[:40]} has no answer: {error}")
            if self._apology and not said:
                said = self._apology
                await self._send_phrase(said, is_last=False)
        await self._send(relay.token("", is_last=True))
        if (ending := self._control.ending) is not None:
            await self._end_after(said, ending)

    async def _leave_when_used_up(self) -> None:
        """End the call after a goodbye when its tenant has used up a limit."""
        await self._used_up.wait()
        await self._stop_answer()
        await self._say_last(self._goodbye, End(relay.end(), USED_UP))

    async def _say_last(self, text: str, ending: End) -> None:
        """Say the last words of the session, and end it."""
        await self._send_phrase(text, is_last=True)
        await self._end_after(text, ending)

    async def _end_after(self, said: str, ending: End) -> None:
        """End the session when the words have been spoken, and recordings before them played."""
        await self._end_in(min(LONGEST_LAST_S, VOICE_BEGINS_S + len(said.split()) / WORDS_PER_S), ending)

    async def _end_in(self, after_s: float, ending: End) -> None:
        """End the session after this time, and recordings that play until then."""
        await asyncio.sleep(self._media.playing_s + after_s)
        self._why = ending.why
        await self._send(ending.message)
        self._ended.set()

    async def _stop_answer(self) -> None:
        answering, self._answering = self._answering, None
        if answering is not None:
            answering.cancel()
            [result] = await asyncio.gather(answering, return_exceptions=True)
            if isinstance(result, Exception):
                logger.opt(exception=result).error("a turn of a call as text failed")

    async def _next(self) -> relay.RelayEvent | None:
        """Return the next event; None when the socket is closed."""
        while True:
            try:
                message = await self._socket.receive()
            except RuntimeError:
                return None
            if message["type"] == "websocket.disconnect":
                return None
            try:
                event = relay.read(str(message.get("text") or ""))
            except ProtocolError as error:
                self._refused += 1
                logger.warning(f"a message of ConversationRelay is skipped: {error}")
                if self._refused > MOST_REFUSED:
                    self._code, self._why = WRONG, REFUSED
                    return None
                continue
            self._refused = 0
            if event is not None:
                return event

    async def _send_phrase(self, text: str, *, is_last: bool) -> None:
        """Send words of the deployment, in its own language."""
        await self._send(relay.token(text, is_last=is_last, language=self._media.phrase_language))

    def _keep_language(self, code: str) -> None:
        assert self._conversation is not None
        self._conversation.record(self._conversation.draft(Kind.STATE, "system", {"language": code}))

    async def _send(self, message: str) -> None:
        if self._socket.client_state is not WebSocketState.CONNECTED:
            return
        try:
            async with asyncio.timeout(SEND_S):
                await self._socket.send_text(message)
        except (TimeoutError, RuntimeError, WebSocketDisconnect) as error:
            # The reader notices the end of the socket.
            logger.info(f"ConversationRelay takes nothing any more: {type(error).__name__}")


async def _commit_phrase(conversation: Conversation, words: str) -> None:
    """Commit words of the deployment."""
    reply_id = uuid.uuid4().hex
    facts = {"text": words, "truncated": False, "unheard": "", "transport": RELAY}
    said = {"reply_id": reply_id, "by": BY_DEPLOYMENT, **facts}
    await conversation.in_time(
        conversation.append(conversation.draft(Kind.BOT_TURN, "bot", said, key=reply_id))
    )
