"""A conversation with the current engine: its input, its speech, and when it has to listen.

Inputs: the caller's audio and pictures, appended as they come (``engine_recogniser``); interruptions; speech
of the voice before the engine. Output: the engine's speech (``voice``), without the part that was in progress
when the caller interrupted (``forced_listening``). No frames pass here: ``omni`` has the pipeline.

``Taker`` decides what happens to the output of the voice before the engine. An engine with a large tier says
it itself; before the first engine is ready it waits; otherwise it passes unchanged.
"""

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from concurrent.futures import Executor
from dataclasses import replace
from enum import Enum

from pipecat.frames.frames import (
    Frame,
    InterruptionFrame,
    OutputTransportMessageUrgentFrame,
    TTSAudioRawFrame,
    TTSTextFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)

from parley.core.call_events import SpeechReported, TurnEndRequested, UnitTaken, Wait, WaitEnded
from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.core.units import Tick, Vote
from parley.models.omni import EndsTurns, HearsWords, OmniEngine, Preparation, UnitResult
from parley.processors.duplex.engine_recogniser import EngineInput
from parley.processors.duplex.forced_listening import ForcedListening
from parley.processors.duplex.outlet import Outlet, Way
from parley.processors.duplex.settings import DuplexTuning
from parley.processors.duplex.tick import TickedCall
from parley.processors.duplex.ticker import Ticker
from parley.processors.duplex.voice import EngineVoice
from parley.protocols.client_protocol import Faltered, Ready, UnitOver
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock

# Words of the voice between two units: more than a minute of speech.
MOST_WORDS = 256
# Shorter units are ticked by the clock even where they come from a client that is notified of each.
LEAST_ARRIVAL_MS = 200


class Taker(Enum):
    """Receiver of the audio of the voice.

    Attributes:
        NEXT_ENGINE: it waits for the next one.
        ENGINE: the current engine says it.
        LISTENER: the current engine finds its own words, or there is none: it is played unchanged.
    """

    NEXT_ENGINE = "next engine"
    ENGINE = "engine"
    LISTENER = "listener"


class EngineConversation:
    """Conversation of one call; see ``succession.Conversation``.

    Args:
        events: events of the call.
        way: access to the pipeline.
        outlet: receives the engine's speech.
        settings: settings of the engine.
        prepare: returns how another context begins.
        voice: speaks for the engine; its callbacks belong to its owner, or a call would not be freed.

    Attributes:
        voice: as given.
        engine_input: input for the engine.
        ticks: number of ticks.
        is_paused: True while audio is dropped and nothing is said.
    """

    def __init__(
        self,
        events: CallEvents,
        way: Way,
        outlet: Outlet,
        settings: DuplexTuning,
        prepare: Callable[[], Awaitable[Preparation]],
        voice: EngineVoice,
    ) -> None:
        self._events, self._way, self._outlet = events, way, outlet
        self._settings, self._prepare = settings, prepare
        self._clock = LoopClock()
        self._engine: OmniEngine | None = None
        self._ticker: Ticker | None = None
        self._taker = Taker.NEXT_ENGINE if outlet.holds_first else Taker.LISTENER
        # The voice speaks by itself until then: an engine of its own words has to listen.
        self._voice_until_us = 0
        # The same for speech that no interruption ends.
        self._protected_until_us = 0
        self._result: UnitResult | None = None
        # Its words since the last unit, for a client that is notified of units.
        self._voice_words: deque[str] = deque(maxlen=MOST_WORDS)
        self.is_paused = self._caller_voiced = False
        self._contents_changed = asyncio.Event()
        self._listening = ForcedListening()
        self.engine_input = EngineInput(settings.camera)
        self.voice = voice
        self.ticks = 0
        events.subscribe(SpeechReported, self._on_speech_reported)
        events.subscribe(WaitEnded, self._on_wait_ended)
        events.subscribe(TurnEndRequested, self._on_turn_end_requested)

    @property
    def unit_ms(self) -> int:
        """Length of a unit of the current engine; 0 without one."""
        return self._engine.unit_ms if self._engine is not None else 0

    @property
    def wants_content(self) -> bool:
        """Return whether the current engine says words of another model: the deployment's model is asked."""
        return self._taker is Taker.ENGINE

    @property
    def captures(self) -> bool:
        """Return whether the output of the voice is for an engine."""
        return self._outlet.contents is not None and self._taker is not Taker.LISTENER

    @property
    def is_voice_on(self) -> bool:
        """Return whether the voice speaks by itself, as a greeting where an engine has its own words."""
        contents = self._outlet.contents
        return (contents is not None and contents.is_passing) or self._clock.now_us() < self._voice_until_us

    @property
    def is_waiting(self) -> bool:
        """Return whether there is content that the engine has not said."""
        return self._outlet.contents is not None and self._outlet.contents.is_waiting

    async def until_all_is_said(self) -> None:
        """Return when no content is left and the voice is silent."""
        while self.is_waiting or self.voice.is_speaking:
            await self.voice.until_silent()
            if self.is_waiting:
                # A unit says its last piece, or it is taken back.
                self._contents_changed.clear()
                await self._contents_changed.wait()

    def must_listen(self) -> None:
        """Have the bot listen.

        Where units are taken by arrival, it listens in the unit that contains the next audio; otherwise from
        here on, and its current speech ends.
        """
        if self._ticker is not None and self._ticker.by_arrival:
            self._ticker.listen_next()
        else:
            self._listening.interrupt(engine_speaks=True)

    def follow_caller(self, frame: Frame) -> None:
        """Record that the caller begins or ceases to speak."""
        if isinstance(frame, VADUserStartedSpeakingFrame | VADUserStoppedSpeakingFrame):
            self._caller_voiced = isinstance(frame, VADUserStartedSpeakingFrame)
        elif isinstance(frame, UserStartedSpeakingFrame | UserStoppedSpeakingFrame):
            self._listening.follow_caller(speaks=isinstance(frame, UserStartedSpeakingFrame))

    def interrupt(self) -> None:
        """Drop everything that was not said: the caller, or an engine with a large tier, requests silence."""
        if self._outlet.contents is not None:
            self._outlet.contents.interrupted()
        self._contents_changed.set()
        # An engine with a large tier decided it, or sees its content taken away.
        if not self.captures:
            self._listening.interrupt(engine_speaks=self.voice.is_speaking)
        self._voice_until_us = self._protected_until_us
        self._voice_words.clear()
        self.voice.drop()

    def take(self, frame: Frame) -> bool:
        """Return whether a frame of the voice goes to the engine, and no further."""
        contents = self._outlet.contents
        if contents is not None and contents.take(frame, captures=self.captures):
            return True
        if isinstance(frame, TTSAudioRawFrame):
            samples = len(frame.audio) // (PCM_BYTES_PER_SAMPLE * frame.num_channels)
            from_us = max(self._voice_until_us, self._clock.now_us())
            self._voice_until_us = from_us + samples * 1_000_000 // frame.sample_rate
            if not frame.interruptible:
                self._protected_until_us = self._voice_until_us
        elif isinstance(frame, TTSTextFrame):
            self._voice_words.append(frame.text.strip())
        return False

    async def pause(self) -> None:
        """Drop audio and say nothing from here on."""
        self.is_paused = True
        if self._ticker is not None:
            self._ticker.pause()
        await self.voice.flush()

    def resume(self) -> None:
        """Continue after a pause."""
        self.is_paused = False
        if self._ticker is not None and self._ticker.is_paused:
            self._ticker.resume()

    async def hold(self, engine: OmniEngine, executor: Executor, preparation: Preparation) -> None:
        """Hold the conversation with an engine; see ``SuccessiveConversation``."""
        by_arrival = self._outlet.reports_units and engine.unit_ms >= LEAST_ARRIVAL_MS
        self.voice.begin(engine.output_rate_hz, unit_ms=engine.unit_ms, whole_units=by_arrival)
        call = TickedCall(
            on_result=self._say,
            on_tick=self._note,
            on_prepared=lambda: self._report_ready(engine, preparation, by_arrival=by_arrival),
            must_listen=self._begin_unit,
            is_quiet=lambda: not self._listening.caller_speaks and not self.voice.is_speaking,
            # While there is content to be said no unit is left out either.
            has_voice=lambda: self._caller_voiced or self.is_waiting,
            renewed=self._prepare,
        )
        self._engine = engine
        self._taker = Taker.ENGINE if isinstance(engine, HearsWords) else Taker.LISTENER
        self._ticker = Ticker(
            engine, executor, call, settings=self._settings.gated(), clock=self._clock, by_arrival=by_arrival
        )
        try:
            if self.is_paused:
                self._ticker.pause()
            self.engine_input.begin(self._ticker, engine.input_rate_hz)
            await self._ticker.run(preparation)
        finally:
            self.engine_input.end()
            self._ticker = self._engine = None
            self._taker = Taker.NEXT_ENGINE
            self._contents_changed.set()

    def refused(self) -> None:
        """Note that there is no room for an engine; see ``SuccessiveConversation``."""
        self._taker = Taker.LISTENER

    async def failed(self, *, is_first: bool) -> None:
        """Handle the failure of an engine; see ``SuccessiveConversation``."""
        self._taker = Taker.LISTENER
        failure = Faltered("the speech model failed; another one continues")
        # Sent in the same way as the units, and as the message of the next engine.
        if not self.voice.fail(failure) and self._outlet.reports_units:
            await self._way.push(OutputTransportMessageUrgentFrame(message=failure))
        # Content that was being made for it is dropped, and late frames of it are recognised by their
        # context.
        if self._outlet.contents is not None:
            self._outlet.contents.given_up()
        self._contents_changed.set()
        await self._interrupt()
        if is_first:
            await self._way.apologise()

    def _on_speech_reported(self, event: SpeechReported) -> None:
        if isinstance(self._engine, HearsWords):
            self._engine.on_words(event.report)

    def _on_wait_ended(self, event: WaitEnded) -> None:
        """Notify the engine that the owed answer begins, or does not come."""
        if event.reason is Wait.ANSWER and isinstance(self._engine, HearsWords):
            self._engine.on_settled()

    def _on_turn_end_requested(self, _event: TurnEndRequested) -> None:
        if isinstance(self._engine, EndsTurns):
            self._engine.end_turn()

    def _report_ready(self, engine: OmniEngine, preparation: Preparation, *, by_arrival: bool) -> None:
        if self._outlet.reports_units:
            self.voice.follow(Ready(engine.unit_ms, len(preparation.system_prompt), by_arrival))

    def _begin_unit(self) -> bool:
        is_voice_first = self._outlet.voice_begins() or self._clock.now_us() < self._voice_until_us
        return self._listening.begin_unit() or (is_voice_first and not self.wants_content)

    def _say(self, result: UnitResult) -> None:
        self._result = result
        if self.is_paused:
            return
        if result.vote is Vote.SPEAK and self._listening.drops():
            self._result = replace(result, vote=Vote.LISTEN, text="")
            return
        self.voice.say(result)

    def _note(self, tick: Tick) -> None:
        self.ticks += 1
        self._contents_changed.set()
        result, self._result = self._result, None
        if self._outlet.reports_units and result is not None:
            by_arrival = self._ticker is not None and self._ticker.by_arrival
            lost = tick.left_out_ms // self.unit_ms if by_arrival and self.unit_ms else 0
            words = "".join(f"{word} " for word in self._voice_words)
            self._voice_words.clear()
            self.voice.follow(_unit_over(replace(result, text=result.text + words), tick, lost=lost))
        self._events.publish(UnitTaken(self._events.now_ms(), tick))

    async def interrupt_heard_reply(self) -> None:
        """Interrupt after the engine fell silent in the middle of a reply that was heard.

        Only an engine with a large tier knows whether the rest is resumed: its yield goes down the pipeline,
        where the audio is, and not up, where the rest is being made.
        """
        if self.captures:
            await self._way.push(InterruptionFrame())
        else:
            await self._interrupt()

    async def _interrupt(self) -> None:
        """Interrupt the engine's speech. Speech of the voice itself is not the engine's to end."""
        if not self.is_voice_on:
            await self._way.interrupt()


def _unit_over(result: UnitResult, tick: Tick, *, lost: int) -> UnitOver:
    took_ms = tick.took_us / 1000
    return UnitOver(
        vote=result.vote.value,
        text=result.text,
        end_of_turn=result.end_of_turn,
        took_ms=took_ms,
        cost_ms={
            "prefill": result.cost_prefill_ms,
            "llm": result.cost_llm_ms,
            "tts": result.cost_tts_ms,
            "all": took_ms,
        },
        n_tokens=result.n_tokens,
        n_tts_tokens=result.n_tts_tokens,
        kv_tokens=result.kv_tokens,
        lost=lost,
    )
