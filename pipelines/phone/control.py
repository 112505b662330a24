"""Control of a phone call from inside of it: keys, transfer to a human, hang-up.

Input: the caller's keys and turns, the model's tool calls, and the playback of the bot's replies. Outputs:
keys as text that the caller typed; a transfer to a human, with a spoken summary of the session; the end of
the call once the last reply was heard, with its reason as an event. Decides which input may request which
output. The model requests keys, a transfer or the end by its tools. A key (``person_key``) and a turn that
only asks for a human request a transfer; a turn that is only a farewell ends the call.

The caller of ``run`` owns its task, which handles one request after the other. A transfer that is not taken
leaves the conversation as it was, and the bot reports it. When the caller is gone, the human's phone
stops ringing. The call never ends while the caller speaks: a call that is to end does so ``GRACE_S`` after
the last word, if it is quiet. A request that repeats one in progress joins it.
"""

import asyncio
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, Literal, Protocol

from loguru import logger
from pipecat.audio.dtmf.types import KeypadEntry
from pipecat.frames.frames import (
    Frame,
    InterruptionFrame,
    LLMMessagesAppendFrame,
    OutputDTMFFrame,
    TTSSpeakFrame,
)

from parley.core.call_events import (
    CallEnding,
    ReplyFinished,
    TransferBegan,
    TransferEnded,
    TurnEnded,
    TurnStarted,
    TurnTranscribed,
    Wait,
    WaitBegan,
    WaitEnded,
)
from parley.core.errors import AgentError, EngineError
from parley.core.tuning import tuned
from parley.language import find_language
from parley.language.intents import IntentRules
from parley.models.tools import Tool
from parley.runtime.event_stream import CallEvents
from parley.serving.gateway.phone.caller_settings import CallCodeTuning
from parley.serving.gateway.phone.settings import PhoneRoutesSettings

# Keys form one input until none is pressed for this long, or until "#".
KEYS_S, MOST_KEYS = 2.0, 32
# A farewell without an answer ends the call after ``ANSWER_S``; with one, ``GRACE_S`` after the answer.
ANSWER_S, GRACE_S = 6.0, 1.0
# The human who takes a call has heard the summary twice before they are expected to press a key.
SUMMARY_S, SUMMARY_TOKENS = 6.0, 100
# Longest transfer in addition to the ringing: the summary, the offer, and the posts.
MOST_TRANSFER_S = 120.0
MOST_REASON_CHARS = 200
# Outcome of a transfer, in addition to those of the desk: the caller hung up, and was not being put through.
GONE, TAKEN_S = "gone", 2.0
# Reasons of an end, as an event has them.
FAREWELL = "farewell", "the caller has said goodbye"
BY_MODEL = "ended_by_model", "the model has ended the call"
TAKEN = "taken_by_a_person", "a person has taken the call"
NOT_TAKEN = "not_taken_by_a_person", "the agent cannot go on, and no person has taken the call"
TRANSFER, HANG_UP, PRESS = "transfer_to_a_person", "hang_up", "press_keys"


class CallControl(Protocol):
    """Operations on phone calls; see ``serving.gateway.phone.call_manager.CallManager``."""

    @property
    def can_call(self) -> bool: ...

    async def transfer(
        self, call_sid: str, to: str, caller: str, words: str, *, announced: asyncio.Event
    ) -> str: ...

    async def hang_up(self, call_sid: str) -> None: ...

    async def leave(self, call_sid: str) -> None: ...

    def is_put_through(self, call_sid: str) -> bool: ...


@dataclass(frozen=True, slots=True)
class PhoneFacts:
    """Facts of a call.

    Attributes:
        call_sid: Twilio's name for it.
        caller, called: numbers, as Twilio reports them.
        direction: "inbound", or "outbound" for a call placed by us, which a machine may answer.
    """

    call_sid: str
    caller: str
    called: str
    direction: Literal["inbound", "outbound"] = "inbound"


class PhoneControl:
    """Control of one call.

    Args:
        events: events of the call; receives the begin and the end of a transfer, and of the caller's wait.
        desk: carries out requests.
        facts: facts of the call.
        settings: settings of phone calls.
        summarize: returns a summary of the conversation in a few sentences, empty without any words; raises
            AgentError.
        gone: set when the caller has hung up.
        is_talking: returns whether the bot speaks or owes a reply.
        has_open_code: returns whether keys may be those of a code (``phone.call_codes``), which another
            reader handles.
        say: puts a frame into the pipeline, while the call runs.
        intents: rules of the language that is spoken; None for the default language.

    Attributes:
        finished: set when the call is to end after the current speech.
    """

    def __init__(
        self,
        events: CallEvents,
        desk: CallControl,
        facts: PhoneFacts,
        settings: PhoneRoutesSettings,
        *,
        summarize: Callable[[], Awaitable[str]],
        gone: asyncio.Event | None = None,
        is_talking: Callable[[], bool] = lambda: False,
        has_open_code: Callable[[], bool] = lambda: False,
        say: Callable[[Frame], Awaitable[None]],
        intents: IntentRules | None = None,
    ) -> None:
        self._intents = intents or find_language().intents
        self._is_talking = is_talking
        self._has_open_code = has_open_code
        self._gone = gone or asyncio.Event()
        self.finished = asyncio.Event()
        self._events, self._say = events, say
        self._desk, self._facts, self._settings = desk, facts, settings
        self._summarize = summarize
        self._news = asyncio.Event()
        self._keys = ""
        self._transfer: asyncio.Task[str] | None = None
        # Set when the caller has heard something since the transfer began: that they are being connected.
        self._announced = asyncio.Event()
        self._wants_person = self._model_refers = False
        # The agent cannot go on: there is no conversation to go back to. The reason, until it is handled.
        self._is_last_resort, self._fault = False, ""
        # No person has taken such a call either: whatever the caller does, it ends.
        self._is_given_up = False
        self._is_leaving = self._is_speaking = False
        self._leave_at_s: float | None = None
        self._reason, self._is_ending = FAREWELL, False
        self._keys_at_s: float | None = None
        self._interrupt = False
        events.subscribe(TurnStarted, self._on_turn_started)
        events.subscribe(TurnEnded, self._on_turn_ended)
        events.subscribe(TurnTranscribed, self._on_turn_transcribed)
        events.subscribe(ReplyFinished, self._on_reply_finished)
        events.subscribe(CallEnding, self._on_call_ending)

    @property
    def _is_passing_on(self) -> bool:
        return self._wants_person or (self._transfer is not None and not self._transfer.done())

    @property
    def _connecting(self) -> str:
        return self._settings.connecting.format(person=self._settings.person)

    @property
    def can_transfer(self) -> bool:
        """True when a human and a way to reach them are configured."""
        return self._settings.transfer_to is not None and self._desk.can_call

    def tools(self) -> Sequence[Tool]:
        """Return the model's tools for the call."""
        tools: list[Tool] = [
            hang_up_tool(self._hang_up),
            press_tool(self._press),
        ]
        if self.can_transfer:
            tools.append(
                PhoneTool(
                    TRANSFER,
                    f"Passes the call on to {self._settings.person}. Use it when the caller asks for a "
                    "person, or when you cannot help. It rings until they take the call, or nobody does.",
                    {"reason": {"type": "string", "description": "what the caller wants, in a sentence"}},
                    self._transferred,
                    timeout_s=self._settings.ring_s + MOST_TRANSFER_S,
                )
            )
        return tools

    # Events of the call. No handler blocks.

    def on_key(self, key: str) -> None:
        """Take a key that the caller presses."""
        if self._is_given_up:
            return
        # A caller who presses keys is not leaving.
        self._is_leaving, self._leave_at_s = False, None
        self._interrupt = self._interrupt or not self._keys
        self._keys = (self._keys + key)[:MOST_KEYS]
        codes = self._settings.call_codes
        # A "0" of a code that is typed slowly does not ask for a human.
        is_code = codes is not None and self._has_open_code()
        pause_s = tuned(CallCodeTuning, codes).pause_s if is_code else KEYS_S
        self._keys_at_s = self._now_s() + (0 if key == "#" else pause_s)
        self._news.set()

    def _on_turn_started(self, _event: TurnStarted) -> None:
        """Note that the caller speaks: the call does not end now."""
        self._is_speaking = True

    def _on_turn_ended(self, event: TurnEnded) -> None:
        self._is_speaking = False
        self._take_turn(event.text)

    def _on_turn_transcribed(self, event: TurnTranscribed) -> None:
        # The words of a turn may come in the middle of the next one, which decides what follows.
        if not self._is_speaking:
            self._take_turn(event.text)

    def _take_turn(self, text: str) -> None:
        """Take the words of a turn; empty for a noise."""
        if self._is_given_up:
            self._leave_soon()
            return
        if text.strip():
            self._is_leaving = self._settings.ends_on_goodbye and self._intents.is_farewell(text)
            self._reason = FAREWELL
        self._leave_at_s = self._now_s() + ANSWER_S if self._is_leaving else None
        self._news.set()

    def answer(self, said: str, *, is_again: bool) -> str | None:
        """Return the call's own answer to a turn; see ``processors.dialogue.commit_gate.Answers``."""
        if not self.can_transfer or not self._intents.requests_human(said):
            return None
        if self._facts.direction == "outbound":
            # In a call placed by us a menu may offer "an operator", whom the model may want.
            return None
        if is_again and not self._is_passing_on:
            # The call was not taken meanwhile: a repeated turn makes no new request.
            return None
        self._wants_person = True
        self._news.set()
        return self._connecting

    def pass_on(self, reason: str) -> bool:
        """Pass the call on, because the agent cannot go on; return False where there is no way to a human.

        The call ends when no one takes it.
        """
        if not self.can_transfer:
            return False
        self._is_last_resort, self._fault = True, reason
        self._news.set()
        return True

    def _on_reply_finished(self, event: ReplyFinished) -> None:
        reply = event.heard
        if reply.is_known and reply.in_context:
            self._announced.set()
        if self._is_leaving and reply.is_known and reply.in_context and not reply.truncated:
            self._leave_soon()

    # The task.

    async def run(self) -> None:
        """Carry out requests until cancelled."""
        try:
            while True:
                await self._until_due()
                if self._interrupt:
                    self._interrupt = False
                    await self._push(InterruptionFrame())
                if self._keys_at_s is not None and self._keys_at_s <= self._now_s():
                    await self._press_done()
                if self._wants_person:
                    self._wants_person = False
                    self._begin_transfer("")
                fault, self._fault = self._fault, ""
                if fault and not self._is_passing_on:
                    await self._push(TTSSpeakFrame(self._connecting, append_to_context=True))
                    self._begin_transfer(fault)
                if self._leave_at_s is not None and self._leave_at_s <= self._now_s():
                    self._leave()
        finally:
            transfer, self._transfer = self._transfer, None
            if transfer is not None:
                transfer.cancel()
                await asyncio.gather(transfer, return_exceptions=True)

    def _leave(self) -> None:
        """End the call if it is quiet; otherwise postpone the end."""
        if self._is_speaking:
            # Their turn decides what follows.
            self._leave_at_s = None
        elif self._is_talking():
            # Current speech may be interrupted; an end that has begun may not.
            self._leave_at_s = self._now_s() + GRACE_S
        else:
            self._leave_at_s = None
            self._publish_end(self._reason)
            self.finished.set()

    def _publish_end(self, reason: tuple[str, str]) -> None:
        """Publish why the call ends, unless it ends for another reason already."""
        if not self._is_ending:
            self._events.publish(CallEnding(self._events.now_ms(), *reason))

    def _on_call_ending(self, _event: CallEnding) -> None:
        self._is_ending = True

    async def _until_due(self) -> None:
        dues = [each for each in (self._keys_at_s, self._leave_at_s) if each is not None]
        left_s = max(0.0, min(dues) - self._now_s()) if dues else None
        with suppress(TimeoutError):
            async with asyncio.timeout(left_s):
                await self._news.wait()
        self._news.clear()

    async def _press_done(self) -> None:
        keys, self._keys, self._keys_at_s = self._keys, "", None
        person = self._settings.person_key
        if person and keys in (person, f"{person}#") and self.can_transfer:
            await self._push(TTSSpeakFrame(self._connecting, append_to_context=True))
            self._begin_transfer("")
            return
        logger.info(f"the caller pressed {len(keys)} keys")
        await self._push(
            LLMMessagesAppendFrame(
                [{"role": "user", "content": f"I pressed {' '.join(keys)} on my phone."}], run_llm=True
            )
        )

    def _begin_transfer(self, reason: str) -> "asyncio.Task[str]":
        if self._transfer is None or self._transfer.done():
            self._announced = asyncio.Event()
            self._transfer = asyncio.create_task(self._passed_on(reason), name="phone.transfer")
        return self._transfer

    async def _passed_on(self, reason: str) -> str:
        settings = self._settings
        assert settings.transfer_to is not None
        outcome = GONE
        self._events.publish(TransferBegan(self._events.now_ms()))
        self._waits(True)
        try:
            words = await self._words(reason)
            outcome = await self._taken_by(settings.transfer_to, words)
        finally:
            self._waits(False)
            self._events.publish(TransferEnded(self._events.now_ms(), outcome))
        logger.info(f"a transfer has ended: {outcome}")
        if outcome == "taken":
            self._publish_end(TAKEN)
        # An agent that cannot go on does not report what its tool returns.
        if outcome not in ("taken", GONE) and (self._is_last_resort or not self._model_refers):
            await self._push(
                TTSSpeakFrame(settings.nobody.format(person=settings.person), append_to_context=True)
            )
            if self._is_last_resort:
                self._is_given_up, self._reason = True, NOT_TAKEN
                self._leave_soon()
        return outcome

    def _leave_soon(self) -> None:
        self._leave_at_s = self._now_s() + GRACE_S
        self._news.set()

    async def _taken_by(self, person: str, words: str) -> str:
        """Return the outcome of a transfer; ``GONE`` when the caller hangs up first."""
        if self._gone.is_set():
            return GONE
        facts = self._facts
        shown = self._settings.number or (facts.called if facts.direction == "inbound" else facts.caller)
        transfer = asyncio.ensure_future(
            self._desk.transfer(self._facts.call_sid, person, shown, words, announced=self._announced)
        )
        gone = asyncio.create_task(self._gone.wait())
        try:
            await asyncio.wait({transfer, gone}, return_when=asyncio.FIRST_COMPLETED)
            if not transfer.done():
                # A caller who is put through leaves the stream a moment before the success is reported.
                if self._desk.is_put_through(self._facts.call_sid):
                    self._publish_end(TAKEN)
                await asyncio.wait({transfer}, timeout=TAKEN_S)
            return transfer.result() if transfer.done() else GONE
        finally:
            for task in (transfer, gone):
                task.cancel()
            await asyncio.gather(transfer, gone, return_exceptions=True)

    async def _words(self, reason: str) -> str:
        """Return the words that the human hears before they take the call."""
        summary, nothing = "", "Nothing was said so far."
        try:
            # The summary has a limit of its own, and falls back to an extract.
            async with asyncio.timeout(2 * SUMMARY_S):
                summary = await self._summarize()
        except (AgentError, TimeoutError) as error:
            logger.warning(f"transferring a call without a summary: {error or type(error).__name__}")
            nothing = ""
        description = " ".join(part.strip() for part in (reason, summary) if part.strip()) or nothing
        return f"A caller would like to talk to you. Press any key to take the call. {description}".strip()

    def _waits(self, waiting: bool) -> None:
        kind = WaitBegan if waiting else WaitEnded
        self._events.publish(kind(self._events.now_ms(), Wait.PERSON))

    async def _push(self, frame: Frame) -> None:
        await self._say(frame)

    def _now_s(self) -> float:
        return asyncio.get_running_loop().time()

    # Tools.

    async def _hang_up(self, _arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if not self._is_leaving:
            self._is_leaving, self._reason = True, BY_MODEL
        self._leave_at_s = self._now_s() + ANSWER_S
        self._news.set()
        return {"status": "the call ends after your next words: say goodbye"}

    async def _press(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        keys = str(arguments.get("keys", ""))
        try:
            buttons = [KeypadEntry(key) for key in keys[:MOST_KEYS]]
        except ValueError as error:
            raise EngineError("expected keys 0 to 9, * and #", engine=PRESS, retryable=False) from error
        for button in buttons:
            frame = OutputDTMFFrame(button=button)
            # Menus talk while keys are pressed.
            frame.interruptible = False
            await self._push(frame)
        return {"status": "pressed"}

    async def _transferred(self, arguments: Mapping[str, Any]) -> Mapping[str, Any]:
        if not self._is_passing_on:
            await self._push(TTSSpeakFrame(self._connecting, append_to_context=True))
        # This tool returns the outcome.
        self._model_refers = True
        try:
            reason = str(arguments.get("reason", ""))[:MOST_REASON_CHARS]
            return {"status": await asyncio.shield(self._begin_transfer(reason))}
        finally:
            self._model_refers = False


Act = Callable[[Mapping[str, Any]], Awaitable[Mapping[str, Any]]]


class PhoneTool:
    """Tool of the call (``models.tools.Tool``).

    Args:
        name: name under which the model calls it.
        description: description for the model.
        properties: properties of its arguments, all of them required.
        act: performs it.
        timeout_s: longest run.
    """

    idempotent = False

    def __init__(
        self,
        name: str,
        description: str,
        properties: Mapping[str, Any],
        act: Act,
        *,
        timeout_s: float = 8.0,
    ) -> None:
        self.name, self.description, self.timeout_s = name, description, timeout_s
        self.parameters: Mapping[str, Any] = {
            "type": "object",
            "properties": dict(properties),
            "required": list(properties),
            "additionalProperties": False,
        }
        self._act = act

    async def run(self, arguments: Mapping[str, Any], *, key: str) -> Mapping[str, Any]:
        """Perform it (``Tool``)."""
        return await self._act(arguments)


def hang_up_tool(act: Act) -> PhoneTool:
    """Return the tool by which the model ends the call."""
    description = (
        "Ends the phone call after your next words. Use it when the caller is done and you say goodbye."
    )
    return PhoneTool(HANG_UP, description, {}, act)


def press_tool(act: Act) -> PhoneTool:
    """Return the tool by which the model presses keys."""
    keys = {"keys": {"type": "string", "description": "0 to 9, * and #"}}
    return PhoneTool(PRESS, "Presses keys of the phone, for menus of machines.", keys, act)
