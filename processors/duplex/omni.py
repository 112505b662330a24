"""A full-duplex engine in place of dialogue and speech: it receives all audio, and decides when it talks.

    transport.input -> (echo control) -> VAD -> STT -> perception -> user turns -> gate -> (voice)
        -> DuplexOmniProcessor -> entry -> transport.output -> exit -> bot turns

Inputs: the caller's audio and pictures, system frames, appended as they come; interruptions of the outer
policy; and the output of a voice before it. An engine with a large tier in the pipeline says that output
(``contents``). It passes unchanged where the engine finds its own words (a greeting, an apology), and while
there is no engine. Outputs: the engine's speech as replies like any other, with an id, audio in paced pieces
and the places of its words, so that the playout clock knows the heard part. Backchannels are output without a
reply, and take no turn. Questions (``LLMContextFrame``) end here: their turn is in the session, and the
engine has received its audio.

There is one way to flush. An engine that yields, a caller who interrupts (``InterruptionFrame``) and a
hang-up drop everything that has not left here by the same path. The interruption drops the rest, and the
playout clock commits the heard part. While the interrupting caller has the floor the engine is made to listen
(``forced_listening``): models that may not yield by themselves do then.

``conversation`` and ``succession`` hold the engine and its successors. The processor owns three tasks (the
engines with their ticks, ``ticker``; the voice; the camera) and a thread for each engine; they end with the
processor.

A pause holds the engine and drops audio. A pause longer than ``pause_ms`` is published as ``PauseExpired``: a
paused conversation keeps an engine from another caller.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass

from loguru import logger
from pipecat.frames.frames import (
    CancelFrame,
    EndFrame,
    Frame,
    InputAudioRawFrame,
    InputImageRawFrame,
    InterruptionFrame,
    LLMContextFrame,
    StartFrame,
    SystemFrame,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor

from parley.audio.paced_output import PacedOutput
from parley.core.call_events import PauseExpired
from parley.core.tuning import tuned
from parley.processors.duplex.conversation import EngineConversation
from parley.processors.duplex.outlet import Outlet, Way
from parley.processors.duplex.settings import DuplexSettings, DuplexTuning
from parley.processors.duplex.succession import EngineSource, EngineSuccession
from parley.processors.duplex.voice import EngineVoice
from parley.runtime.event_stream import CallEvents

# An answer that is longer is cut where the call ends.
END_S = 30


@dataclass
class DuplexPauseFrame(SystemFrame):
    """Request to pause: drop audio and say nothing.

    Attributes:
        pause_ms: longest pause; no longer than the setting.
    """

    pause_ms: int | None = None


@dataclass
class DuplexResumeFrame(SystemFrame):
    """Request to continue after a pause."""


async def _say_nothing() -> None:
    """Do nothing, where there is no apology."""


class DuplexOmniProcessor(FrameProcessor):
    """Processor that holds one conversation with a full-duplex engine.

    Args:
        source: source of the engines.
        events: events of the call.
        outlet: receives the engine's speech.
        settings: None for the defaults.
        apologise: has an apology said for an error; must not block for long.
        uses_pipeline_audio: True when audio and pictures come down the pipeline. Otherwise a client passes
            them to ``hear`` and ``see``: voice activity takes 10 ms for a second that comes at once, and a
            unit would wait.
    """

    def __init__(
        self,
        source: EngineSource,
        events: CallEvents,
        *,
        outlet: Outlet | None = None,
        settings: DuplexSettings | None = None,
        apologise: Callable[[], Awaitable[None]] = _say_nothing,
        uses_pipeline_audio: bool = True,
    ) -> None:
        super().__init__()
        self._events, self._uses_pipeline_audio = events, uses_pipeline_audio
        self._settings = tuned(DuplexTuning, settings)
        outlet = outlet or Outlet()
        self._voice = EngineVoice(
            self.push_frame,
            events,
            settings=self._settings.voice,
            playout=outlet.playout,
            keeps_apart=lambda: self.captures,
            interrupt=lambda: self._conversation.interrupt_heard_reply(),
            unit_sink=outlet.unit_sink,
        )
        self._conversation = EngineConversation(
            events,
            Way(self.push_frame, self.broadcast_interruption, apologise),
            outlet,
            self._settings,
            source.prepare,
            self._voice,
        )
        self._engine_input = self._conversation.engine_input
        self._engines = EngineSuccession(source, self._conversation, events, self._settings, str(self))
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._pause_watch: asyncio.Task[None] | None = None

    @property
    def is_speaking(self) -> bool:
        """True while a reply is current."""
        return self._voice.is_speaking

    @property
    def is_voice_on(self) -> bool:
        """True while the voice speaks by itself; see ``EngineConversation``."""
        return self._conversation.is_voice_on

    @property
    def paced(self) -> PacedOutput | None:
        """Held audio of the current engine."""
        return self._voice.paced

    @property
    def refused_pictures(self) -> int:
        """Number of camera frames that were no pictures."""
        return self._engine_input.camera.refused

    @property
    def unit_ms(self) -> int:
        """Length of a unit of the current engine; see ``EngineConversation``."""
        return self._conversation.unit_ms

    @property
    def wants_content(self) -> bool:
        """True when the deployment's model is asked; see ``EngineConversation``."""
        return self._conversation.wants_content

    @property
    def captures(self) -> bool:
        """True when the output of the voice is for an engine; see ``EngineConversation``."""
        return self._conversation.captures

    # ``UnitEars``.

    def hear(self, frame: InputAudioRawFrame) -> None:
        """Append audio of the caller."""
        self._engine_input.hear(frame)

    def see(self, frame: InputImageRawFrame) -> None:
        """Append a picture: raw RGB of no more pixels than an engine takes."""
        self._engine_input.see(frame)

    async def unit_begun(self, within_ms: int) -> None:
        """Wait for the beginning of a unit; see ``UnitEars``."""
        await self._engine_input.unit_begun(within_ms)

    def must_listen(self) -> None:
        """Have the bot listen; see ``EngineConversation``."""
        self._conversation.must_listen()

    async def pause(self, wanted_ms: int | None) -> None:
        """Drop audio and say nothing, for at most ``wanted_ms``."""
        if self._conversation.is_paused:
            return
        await self._conversation.pause()
        longest_ms = self._settings.pause_ms
        limit_ms = min(wanted_ms, longest_ms) if wanted_ms is not None and wanted_ms > 0 else longest_ms
        self._pause_watch = self.create_task(self._watch_pause(limit_ms), name=f"{self}::pause")

    def resume(self) -> None:
        """Continue after a pause."""
        self._stop_watching()
        self._conversation.resume()

    async def cleanup(self) -> None:
        await super().cleanup()
        await self._end()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, InputAudioRawFrame | InputImageRawFrame):
            self._perceive(frame)
            return
        if direction is FrameDirection.DOWNSTREAM:
            if isinstance(frame, LLMContextFrame) or self._conversation.take(frame):
                return
        self._conversation.follow_caller(frame)
        if isinstance(frame, InterruptionFrame):
            self._conversation.interrupt()
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

    def _perceive(self, frame: InputAudioRawFrame | InputImageRawFrame) -> None:
        if not self._uses_pipeline_audio:
            return
        if isinstance(frame, InputAudioRawFrame):
            self._engine_input.hear(frame)
        else:
            self._engine_input.look(frame)

    def _begin(self) -> None:
        works = {
            "units": self._engines.run(),
            "voice": self._voice.run(),
            "camera": self._engine_input.run_camera(),
        }
        for name, work in works.items():
            self._tasks[name] = self.create_task(work, name=f"{self}::{name}")

    async def _end(self) -> None:
        """Hang up: nothing more is said, and the engine is given back."""
        self._voice.drop()
        self._stop_watching()
        for name in list(self._tasks):
            await self._stop(name)

    async def _end_in_good_order(self) -> None:
        """Say the current reply to its end, then end."""
        if self.captures:
            with suppress(TimeoutError):
                async with asyncio.timeout(END_S):
                    await self._conversation.until_all_is_said()
        await self._stop("units")
        await self._voice.finish()
        await self._end()

    async def _stop(self, name: str) -> None:
        task = self._tasks.pop(name, None)
        if task is not None:
            await self.cancel_task(task, timeout=2 * self._settings.tick.grace_ms / 1000 + 1)

    def _stop_watching(self) -> None:
        watch, self._pause_watch = self._pause_watch, None
        if watch is not None:
            watch.cancel()

    async def _watch_pause(self, limit_ms: int) -> None:
        await asyncio.sleep(limit_ms / 1000)
        logger.warning(f"{self}: paused for {limit_ms} ms")
        self._events.publish(PauseExpired(self._events.now_ms()))
