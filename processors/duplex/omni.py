"""A full-duplex engine in place of dialogue and speech: it hears everything, and decides when it talks.

    transport.input -> (echo control) -> VAD -> STT -> perception -> user turns -> gate -> (voice)
        -> DuplexOmniProcessor -> entry -> transport.output -> exit -> bot turns

In: the caller's audio and pictures, system frames, appended as they come; interruptions of the outer policy;
what a voice in front of it says. That is what an engine with a large tier in the pipeline is to say
(``contents``); it passes as it is where the engine finds its own words (a greeting, an apology), and while
no engine goes on. Out: the engine's speech as replies like any other, with an id, audio in paced pieces and
the places of its words, so that the playout clock knows what was heard of it; hums without a reply, which
take no turn. Questions (``LLMContextFrame``) end here: their turn is in the session, and the engine has
heard it.

One flush. An engine that yields, a caller who interrupts (``InterruptionFrame``) and a hang-up drop what has
not left here by the same path, and the interruption drops what has; the playout clock commits what was heard.
While the interrupting caller has the floor the engine is made to listen: models that may not yield by
themselves do then. What an engine says in a unit that was on its way when it was interrupted is dropped too.

An engine with a large tier falls silent by itself, and only it knows whether what was cut is said on: its
yield goes down the pipeline, where the sound is, and not up, where the rest is being made.

An engine that fails is given up: the caller hears an apology, and the next one of ``hosts`` goes on with
what was said so far. When ``most_failures`` come in a row without ``recovered_units`` between them,
``on_given_up`` is told, and nothing is said any more.

Owns three tasks, the ticks (``ticker``), the voice and the camera, and a thread for each engine; they end
with the processor.

A pause holds the engine and hears nothing; whoever pauses for longer than ``pause_ms`` is told
``on_pause_expired``: a paused conversation keeps an engine from somebody else.
"""

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import Executor
from dataclasses import dataclass, replace

import numpy as np
from loguru import logger
from pipecat.frames.frames import (
    CancelFrame,
    EndFrame,
    Frame,
    InputAudioRawFrame,
    InputImageRawFrame,
    InterruptionFrame,
    LLMContextFrame,
    OutputTransportMessageUrgentFrame,
    StartFrame,
    SystemFrame,
    TTSAudioRawFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pydantic import BaseModel, ConfigDict, Field

from audio.paced_output import PacedOutput
from audio.resample import Resampler
from core.call_events import TurnEndRequested, Wait, WaitEnded
from core.clock import Clock
from core.errors import AgentError, CapacityError, EngineError
from core.media import PCM_BYTES_PER_SAMPLE, pcm16_to_float
from models.omni import EndsTurns, HearsWords, OmniEngine, OmniHost, Placing, Preparation, UnitResult, Vote
from models.omni.two_tier.ears import Told
from processors.duplex.camera import Camera, CameraSettings
from processors.duplex.contents import Contents
from processors.duplex.ticker import Tick, Ticker, TickSettings
from processors.duplex.voice import EngineVoice, VoiceSettings
from processors.playout.playout import Playout
from protocols.surface import Faltered, Happening, Ready, UnitMouth, UnitOver
from runtime.engine_thread import EngineThread
from runtime.event_stream import CallEvents
from runtime.loop_clock import LoopClock

# An answer that is longer is cut where the call ends.
END_S = 30
# Units that are shorter are ticked by the clock also where they come from a client that is told of each.
LEAST_ARRIVAL_MS = 200


class DuplexSettings(BaseModel):
    """How a full-duplex engine talks."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    tick: TickSettings = TickSettings()
    camera: CameraSettings = CameraSettings()
    voice: VoiceSettings = VoiceSettings()
    pause_ms: int = Field(60_000, ge=1_000, le=600_000, description="nobody pauses for longer")
    most_failures: int = Field(
        3, ge=1, le=20, description="so many failures in a row and the conversation is given up"
    )
    retry_ms: int = Field(
        500,
        ge=0,
        le=60_000,
        description="wait behind a failure without a unit, times failures",
    )
    recovered_units: int = Field(
        100, ge=1, le=100_000, description="units behind which a failure is forgotten"
    )


@dataclass
class DuplexPauseFrame(SystemFrame):
    """Hear and say nothing.

    Attributes:
        pause_ms: for at most so long; no longer than the setting.
    """

    pause_ms: int | None = None


@dataclass
class DuplexResumeFrame(SystemFrame):
    """Go on."""


class DuplexOmniProcessor(FrameProcessor):
    """One conversation with a full-duplex engine.

    Args:
        hosts: engines, the ones behind the first for when it fails.
        events: of the call.
        prepare: how a conversation begins, with what was said so far; asked anew for each engine and context.
        playout: its books take what is said, as it is written.
        contents: for an engine with a large tier in the pipeline: what the voice makes goes there.
        holds_first: what the voice says before the first engine is on waits for it.
        settings: see the model.
        clock: of the units.
        executors: makes the thread of an engine.
        apologise: says that something went wrong; must not block for long.
        on_given_up: told that no engine goes on, and what the last one failed of; must not wait for the end
            of the call.
        on_pause_expired: told that a pause was too long; the same.
        on_tick: told what became of each unit; must not block.
        tells_units: whoever is behind the output is told when an engine is ready, and of each unit, behind
            its audio (``protocols.surface``); long units are taken when they have been heard.
        mouth: has what is said in a unit that was taken so as soon as it is made.

    Attributes:
        ticks: that were taken.
    """

    def __init__(
        self,
        hosts: Sequence[OmniHost],
        events: CallEvents,
        *,
        prepare: Callable[[], Awaitable[Preparation]],
        playout: Playout | None = None,
        contents: Contents | None = None,
        holds_first: bool = True,
        settings: DuplexSettings | None = None,
        clock: Clock | None = None,
        executors: Callable[[], Executor] = lambda: EngineThread("omni"),
        apologise: Callable[[], Awaitable[None]] | None = None,
        on_given_up: Callable[[Exception], Awaitable[None]] | None = None,
        on_pause_expired: Callable[[], Awaitable[None]] | None = None,
        on_tick: Callable[[Tick], None] | None = None,
        tells_units: bool = False,
        mouth: UnitMouth | None = None,
    ) -> None:
        super().__init__()
        self._tells_units = tells_units
        self._hears_directly = False
        self._result: UnitResult | None = None
        self._hosts = tuple(hosts)
        self._prepare = prepare
        self._playout = playout
        self._contents = contents
        # No engine goes on at this moment: what the voice says is heard as it is.
        self._is_between = not holds_first
        # The voice says something by itself until then: an engine of its own words is to listen.
        self._voice_until_us = 0
        self._engine: OmniEngine | None = None
        self._settings = settings or DuplexSettings()
        self._clock: Clock = clock or LoopClock()
        self._executors = executors
        self._apologise = apologise
        self._on_given_up = on_given_up
        self._on_pause_expired = on_pause_expired
        self._on_tick = on_tick
        self._tasks: list[asyncio.Task[None]] = []
        self._ticker: Ticker | None = None
        # The caller's audio has this rate, and the engine wants that one.
        self._heard_hz = self._wanted_hz = 0
        self._resampler: Resampler | None = None
        self._voice = EngineVoice(
            self.push_frame,
            clock=self._clock,
            settings=self._settings.voice,
            playout=playout,
            keeps_apart=lambda: self.captures,
            on_yield=self._yielded,
            mouth=mouth,
        )
        # The caller speaks, and has interrupted: the engine is to listen, for a unit at least.
        self._caller_speaks = self._caller_voiced = self._yields = self._is_paused = False
        # The unit that is on its way was interrupted.
        self._drops_unit = False
        self._camera = Camera(self._settings.camera, show=self._show)
        self._pause_watch: asyncio.Task[None] | None = None
        self.ticks = 0
        events.subscribe(WaitEnded, self._on_wait_ended)
        events.subscribe(TurnEndRequested, self._on_turn_end_requested)

    @property
    def is_speaking(self) -> bool:
        """Whether a reply is on."""
        return self._voice.is_speaking

    @property
    def is_voice_on(self) -> bool:
        """Whether the voice says something by itself, as a greeting beside an engine of its own words."""
        is_passing = self._contents is not None and self._contents.is_passing
        return is_passing or self._clock.now_us() < self._voice_until_us

    @property
    def paced(self) -> PacedOutput | None:
        """What is held of the engine that is on."""
        return self._voice.paced

    @property
    def refused_pictures(self) -> int:
        """Frames of the camera that were none."""
        return self._camera.refused

    @property
    def unit_ms(self) -> int:
        """Of the engine that is on; 0 while none is."""
        return self._engine.unit_ms if self._engine is not None else 0

    @property
    def wants_content(self) -> bool:
        """Whether the engine that is on says what others find: the deployment's model is asked."""
        return isinstance(self._engine, HearsWords)

    @property
    def captures(self) -> bool:
        """Whether what the voice makes is for the engine; before the first one is on, it waits for it."""
        has_taker = self._engine is None or self.wants_content
        return self._contents is not None and has_taker and not self._is_between

    def on_words(self, words: Told) -> None:
        """What a recogniser beside understood, for an engine that wants to know."""
        if isinstance(self._engine, HearsWords):
            self._engine.on_words(words)

    def hear_directly(self) -> None:
        """What comes down the pipeline is for others: voice activity takes 10 ms for a second that comes at
        once, and a unit would wait for it.
        """
        self._hears_directly = True

    def must_listen(self) -> None:
        """The bot has to listen: in the unit that hears what comes next, where units are taken as they come;
        otherwise from here on, and what it says ends.
        """
        if self._ticker is not None and self._ticker.by_arrival:
            self._ticker.listen_behind()
        else:
            self._yields = self._drops_unit = True

    def _on_wait_ended(self, event: WaitEnded) -> None:
        """The answer that was owed begins, or does not come."""
        if event.reason is Wait.ANSWER and isinstance(self._engine, HearsWords):
            self._engine.on_settled()

    def _on_turn_end_requested(self, _event: TurnEndRequested) -> None:
        if isinstance(self._engine, EndsTurns):
            self._engine.end_turn()

    async def cleanup(self) -> None:
        await super().cleanup()
        await self._end()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, InputAudioRawFrame):
            if not self._hears_directly:
                self.hear(frame)
            return
        if isinstance(frame, InputImageRawFrame):
            if not self._hears_directly and self._ticker is not None and self._ticker.sees:
                self._camera.take(frame)
            return
        if direction is FrameDirection.DOWNSTREAM:
            if isinstance(frame, LLMContextFrame):
                return
            if self._contents is not None and self._contents.take(frame, captures=self.captures):
                return
            if isinstance(frame, TTSAudioRawFrame):
                self._follow_voice(frame)
        if isinstance(frame, VADUserStartedSpeakingFrame):
            self._caller_voiced = True
        elif isinstance(frame, VADUserStoppedSpeakingFrame):
            self._caller_voiced = False
        elif isinstance(frame, UserStartedSpeakingFrame):
            self._caller_speaks = True
        elif isinstance(frame, UserStoppedSpeakingFrame):
            self._caller_speaks = False
        elif isinstance(frame, InterruptionFrame):
            if self._contents is not None:
                self._contents.interrupted()
            # An engine with a large tier decided it, or sees what it says taken away.
            if not self.captures:
                # Every turn of the caller begins with one: only who speaks has something to give up.
                self._yields = self._yields or self._voice.is_speaking
                self._drops_unit = True
            self._voice_until_us = 0
            self._voice.drop()
        elif isinstance(frame, DuplexPauseFrame):
            await self.pause(frame.pause_ms)
        elif isinstance(frame, DuplexResumeFrame):
            self.resume()
        elif isinstance(frame, CancelFrame):
            await self._end()
        elif isinstance(frame, EndFrame):
            await self._end_in_good_order()
        await self.push_frame(frame, direction)
        if isinstance(frame, StartFrame):
            self._begin()

    def _follow_voice(self, frame: TTSAudioRawFrame) -> None:
        samples = len(frame.audio) // (PCM_BYTES_PER_SAMPLE * frame.num_channels)
        from_us = max(self._voice_until_us, self._clock.now_us())
        self._voice_until_us = from_us + samples * 1_000_000 // frame.sample_rate

    # What is heard and seen.

    def hear(self, frame: InputAudioRawFrame) -> None:
        """What the caller says; appends, nothing else."""
        ticker, wanted_hz = self._ticker, self._wanted_hz
        if ticker is None:
            return
        if frame.sample_rate != self._heard_hz:
            self._heard_hz = frame.sample_rate
            self._resampler = None if self._heard_hz == wanted_hz else Resampler(self._heard_hz, wanted_hz)
        audio = pcm16_to_float(frame.audio)
        if self._resampler is not None:
            audio = self._resampler.feed(audio)
        if len(audio):
            ticker.hear(audio)

    async def unit_begun(self, within_ms: int) -> None:
        """See ``UnitEars``."""
        if self._ticker is not None:
            await self._ticker.unit_begun(within_ms=within_ms)

    def see(self, frame: InputImageRawFrame) -> None:
        """What the camera shows: raw RGB of no more pixels than an engine takes; the same."""
        ticker = self._ticker
        if ticker is not None and ticker.sees:
            width, height = frame.size
            ticker.see(np.frombuffer(frame.image, np.uint8).reshape(height, width, 3))

    def _show(self, picture: np.ndarray) -> float:
        """Returns how long a picture is enough for the engine that is on, in ms."""
        ticker = self._ticker
        if ticker is None:
            return 0.0
        ticker.see(picture)
        return ticker.picture_ms

    # The engine.

    def _begin(self) -> None:
        works = {"units": self._converse(), "voice": self._voice.run(), "camera": self._camera.run()}
        for name, work in works.items():
            self._tasks.append(self.create_task(work, name=f"{self}::{name}"))

    async def _end(self) -> None:
        """Hang up: nothing more is said, and the engine is given back."""
        self._voice.drop()
        self._stop_watching()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            await self.cancel_task(task, timeout=2 * self._settings.tick.grace_ms / 1000 + 1)

    async def _end_in_good_order(self) -> None:
        """What is being said is said to its end."""
        if self.captures and self._contents is not None:
            contents, deadline_us = self._contents, self._clock.now_us() + END_S * 1_000_000
            # What is over is known in the engine's thread, which has no event for it.
            while (  # noqa: ASYNC110
                contents.is_waiting or self._voice.is_speaking
            ) and self._clock.now_us() < deadline_us:
                await asyncio.sleep(0.02)
        units = next((task for task in self._tasks if task.get_name().endswith("::units")), None)
        if units is not None:
            self._tasks.remove(units)
            await self.cancel_task(units, timeout=2 * self._settings.tick.grace_ms / 1000 + 1)
        await self._voice.finish()
        await self._end()

    async def _converse(self) -> None:
        failures = place = 0
        last: Exception = EngineError("no engine", engine="omni")
        while failures < self._settings.most_failures:
            ticks = self.ticks
            try:
                await self._with_engine(self._hosts[place % len(self._hosts)])
            except CapacityError as error:
                # There is no room, and there will be none: the next one, or nobody.
                logger.warning(f"{self}: an engine is refused: {error}")
                last = error
                self._is_between = True
                failures = self._settings.most_failures if len(self._hosts) == 1 else failures + 1
            except Exception as error:  # the edge of a conversation: whatever it is, the caller is told
                last = error
                units = self.ticks - ticks
                failures = 1 if units >= self._settings.recovered_units else failures + 1
                logger.opt(exception=None if isinstance(error, AgentError) else error).error(
                    f"{self}: an engine is given up, {failures} in a row: {type(error).__name__}: {error}"
                )
                self._is_between = True
                told = Faltered("the speech model failed, another one goes on")
                # In the same way as the units were told, and as the next engine will be.
                if not self._voice.fail(told) and self._tells_units:
                    await self.push_frame(OutputTransportMessageUrgentFrame(message=told))
                # What was being made for it is nobody's, and what comes late of it is known by its context.
                if self._contents is not None:
                    self._contents.given_up()
                await self._interrupt()
                if self._apologise is not None and failures == 1:
                    await self._apologise()
                if not units and failures < self._settings.most_failures:
                    await asyncio.sleep(failures * self._settings.retry_ms / 1000)
            host = self._hosts[place % len(self._hosts)]
            if isinstance(host, Placing) and len(self._hosts) > 1:
                host.leave()
            place += 1
        if self._on_given_up is not None:
            await self._on_given_up(last)

    async def _with_engine(self, host: OmniHost) -> None:
        """Until it fails, or the conversation is over."""
        placing = host if isinstance(host, Placing) else None
        if placing is None:
            await self._with_had(host)
            return
        await placing.place()
        well = False
        try:
            await self._until_lost(host, placing)
        except asyncio.CancelledError:
            # The call is over, and not because of the engine.
            well = True
            raise
        finally:
            placing.over(well=well)

    async def _until_lost(self, host: OmniHost, placing: Placing) -> None:
        """A worker that is gone is known before the engine's next call finds out."""
        conversation = asyncio.create_task(self._with_had(host), name=f"{self}::conversation")
        lost = asyncio.create_task(placing.lost.wait(), name=f"{self}::lost")
        try:
            await asyncio.wait({conversation, lost}, return_when=asyncio.FIRST_COMPLETED)
            if conversation.done():
                conversation.result()
            raise EngineError("the worker is gone", engine=type(host).__name__)
        finally:
            for task in (conversation, lost):
                task.cancel()
            await asyncio.gather(conversation, lost, return_exceptions=True)

    async def _with_had(self, host: OmniHost) -> None:
        preparation, executor = await self._prepare(), self._executors()
        try:
            engine = await self._opened(host, executor)
            by_arrival = self._tells_units and engine.unit_ms >= LEAST_ARRIVAL_MS
            self._voice.begin(engine.output_rate_hz, unit_ms=engine.unit_ms, whole_units=by_arrival)
            self._wanted_hz, self._heard_hz = engine.input_rate_hz, 0
            self._is_between = False
            self._engine = engine
            self._ticker = self._ticker_of(engine, executor, preparation, by_arrival=by_arrival)
            if self._is_paused:
                self._ticker.pause()
            await self._ticker.run(preparation)
        finally:
            self._ticker = self._engine = None
            executor.shutdown(wait=False)

    async def _opened(self, host: OmniHost, executor: Executor) -> OmniEngine:
        """One that comes too late is given back in the thread that opens it."""
        opening = executor.submit(host.open_engine)
        opened = asyncio.wrap_future(opening)
        try:
            done, _ = await asyncio.wait({opened}, timeout=self._settings.tick.prepare_ms / 1000)
        except asyncio.CancelledError:
            executor.submit(lambda: opening.result().cleanup())
            raise
        if not done:
            executor.submit(lambda: opening.result().cleanup())
            raise EngineError("no engine was opened in time", engine=type(host).__name__)
        return opened.result()

    def _ticker_of(
        self, engine: OmniEngine, executor: Executor, preparation: Preparation, *, by_arrival: bool
    ) -> Ticker:
        def on_prepared() -> None:
            if self._tells_units:
                self._tell(Ready(engine.unit_ms, len(preparation.system_prompt), by_arrival))

        return Ticker(
            engine,
            executor=executor,
            settings=self._settings.tick,
            clock=self._clock,
            must_listen=self._must_listen,
            is_quiet=lambda: not self._caller_speaks and not self._voice.is_speaking,
            hears_voice=self._is_anything_on,
            renewed=self._prepare,
            on_result=self._say,
            on_tick=self._note,
            by_arrival=by_arrival,
            on_prepared=on_prepared,
        )

    def _tell(self, happening: Happening) -> None:
        self._voice.follow(happening)

    def _is_anything_on(self) -> bool:
        """The caller speaks, or there is something to be said: no unit is left out."""
        return self._caller_voiced or (self._contents is not None and self._contents.is_waiting)

    def _note(self, tick: Tick) -> None:
        self.ticks += 1
        result, self._result = self._result, None
        if self._tells_units and result is not None:
            by_arrival = self._ticker is not None and self._ticker.by_arrival
            lost = tick.left_out_ms // self.unit_ms if by_arrival and self.unit_ms else 0
            self._tell(_unit_over(result, tick, lost=lost))
        if self._on_tick is not None:
            self._on_tick(tick)

    def _must_listen(self) -> bool:
        """Asked once a unit, as it begins."""
        must = self._yields or (not self.wants_content and self._clock.now_us() < self._voice_until_us)
        self._drops_unit = False
        self._yields = self._yields and self._caller_speaks
        return must

    # What is said.

    def _say(self, result: UnitResult) -> None:
        self._result = result
        if self._is_paused:
            return
        if self._drops_unit and result.vote is Vote.SPEAK:
            # It was on its way when the caller interrupted, and its engine takes it for said.
            self._yields = True
            self._result = replace(result, vote=Vote.LISTEN, text="")
            return
        self._voice.say(result)

    async def _yielded(self) -> None:
        """The engine fell silent in the middle of what it said."""
        if self.captures:
            await self.push_frame(InterruptionFrame())
        else:
            await self._interrupt()

    async def _interrupt(self) -> None:
        """What the engine said is taken back. What the voice says by itself is not the engine's to end."""
        if not self.is_voice_on:
            await self.broadcast_interruption()

    # Pauses.

    async def pause(self, wanted_ms: int | None) -> None:
        """Hear and say nothing, for so long at most."""
        if self._is_paused:
            return
        self._is_paused = True
        if self._ticker is not None:
            self._ticker.pause()
        await self._voice.flush()
        longest_ms = self._settings.pause_ms
        limit_ms = min(wanted_ms, longest_ms) if wanted_ms is not None and wanted_ms > 0 else longest_ms
        self._pause_watch = self.create_task(self._watch_pause(limit_ms), name=f"{self}::pause")

    def resume(self) -> None:
        """Go on."""
        self._is_paused = False
        self._stop_watching()
        if self._ticker is not None and self._ticker.is_paused:
            self._ticker.resume()

    def _stop_watching(self) -> None:
        watch, self._pause_watch = self._pause_watch, None
        if watch is not None:
            watch.cancel()

    async def _watch_pause(self, limit_ms: int) -> None:
        await asyncio.sleep(limit_ms / 1000)
        logger.warning(f"{self}: paused for {limit_ms} ms")
        if self._on_pause_expired is not None:
            await self._on_pause_expired()


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
