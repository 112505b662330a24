"""A caller and a bot around the start and stop strategies of a user aggregator, on virtual time."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from pipecat.clocks.system_clock import SystemClock
from pipecat.frames.frames import (
    Frame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.frame_processor import FrameProcessorSetup
from pipecat.turns.user_stop.base_user_turn_stop_strategy import UserTurnStoppedParams
from pipecat.utils.asyncio.task_manager import TaskManager

from parley.core.call_events import (
    CallEvent,
    ReplyAnnounced,
    ReplyCut,
    ReplyDucked,
    ReplyFinished,
    ReplyOpened,
    ReplyRestored,
    ReplyResumed,
    ReplyStarted,
)
from parley.core.timeline import HeardMark, HeardReply, HeardSource
from parley.models.stt import Transcript
from parley.processors.turns.barge_in import BargeInStartStrategy
from parley.processors.turns.endpoint import EndpointStopStrategy
from parley.processors.turns.looks import NoLooks
from parley.processors.turns.stop_words import NoStopWords, StopWords, StopWordSpotter
from parley.runtime.event_stream import CallEvents
from parley.turn_taking.barge_in.barge_in import BargeIn
from parley.turn_taking.barge_in.settings import BargeInTuning
from parley.turn_taking.endpointing.endpointer import EndpointTuning
from parley.turn_taking.endpointing.policies import endpoint_policy
from tests import virtual_time
from tests.fakes.caller_sound import MeasuredSound
from tests.fakes.executor import InlineExecutor
from tests.fakes.late_engine import LateEngine
from tests.fakes.stt import ScriptedStt, ScriptedSttSettings


class Floor:
    """Both strategies as a user turn controller drives them, and the output of the first."""

    def __init__(
        self,
        *,
        is_own: Callable[[], bool | None] | None,
        heard_ms: Callable[[], int] | None,
        stop_words: StopWordSpotter,
        level_db: Callable[[], float | None] | None = None,
        **settings: Any,
    ) -> None:
        self.decisions: list[CallEvent] = []
        self.gains_db: list[float] = []
        self.pushed: list[Frame] = []
        self.turns = self.stops = self.interruptions = self.resets = 0
        # Words in the aggregator, and those of each turn that is over.
        self.said, self.answered = list[str](), list[str]()
        self.in_turn = False
        self.machine = BargeIn(BargeInTuning(**settings))
        self.events = CallEvents()
        self.policy = endpoint_policy(EndpointTuning(kind="adaptive"))
        self.endpoint = EndpointStopStrategy(
            self.policy, completeness=None, executor=InlineExecutor(), events=self.events
        )
        self.strategy = BargeInStartStrategy(
            self.machine,
            self.events,
            endpoint=self.endpoint,
            set_gain_db=self.gains_db.append,
            sound=MeasuredSound(heard_ms, level_db, is_own),
            stop_words=stop_words,
            looks=NoLooks(),
            interrupt=self._interrupt,
        )
        for kind in (ReplyDucked, ReplyRestored, ReplyCut, ReplyResumed):
            self.events.subscribe(kind, self.decisions.append)
        self.strategy.add_event_handler("on_user_turn_started", self._started)
        self.strategy.add_event_handler("on_push_frame", self._push)
        self.strategy.add_event_handler("on_reset_aggregation", self._reset)
        self.endpoint.add_event_handler("on_user_turn_stopped", self._stopped)

    async def voice(self, duration_ms: int) -> None:
        """Send a voice of that length, as voice activity reports it."""
        await asyncio.sleep(0.128)
        await self.give(VADUserStartedSpeakingFrame(start_secs=0.128))
        await asyncio.sleep((duration_ms - 128 + 160) / 1000)
        await self.give(VADUserStoppedSpeakingFrame(stop_secs=0.16))

    async def words(self, text: str, confidence: float | None = None) -> None:
        result = Transcript(text, confidence=confidence) if confidence is not None else None
        frame = TranscriptionFrame(text=text, user_id="", timestamp="", result=result, finalized=True)
        await self.give(frame)

    async def give(self, frame: Frame) -> None:
        if isinstance(frame, TranscriptionFrame):
            self.said.append(frame.text)
        await self.strategy.process_frame(frame)
        await self.endpoint.process_frame(frame)

    def reply(self, reply_id: str) -> None:
        self.announce(reply_id)
        self.events.publish(ReplyStarted(self.events.now_ms(), reply_id))

    def announce(self, reply_id: str) -> None:
        self.events.publish(ReplyAnnounced(self.events.now_ms(), reply_id, False))

    def open(self, reply_id: str) -> None:
        self.events.publish(ReplyOpened(self.events.now_ms(), reply_id))

    def finish(self, reply: HeardReply) -> None:
        self.events.publish(ReplyFinished(self.events.now_ms(), reply))

    def lose(self, reply_id: str, *, heard: str, unheard: str, in_context: bool = True) -> None:
        """Report a cut reply, as the playout clock does after the interruption has passed."""
        mark = HeardMark(reply_id, 500, len(heard.split()) - 1, HeardSource.PLAYOUT_CLOCK)
        self.finish(HeardReply(reply_id, heard, unheard, True, mark, in_context, 0, 500_000))

    def of(self, kind: type) -> list[Any]:
        return [decision for decision in self.decisions if isinstance(decision, kind)]

    async def _interrupt(self) -> None:
        self.interruptions += 1

    async def _started(self, *_args: object) -> None:
        if self.in_turn:
            return
        self.in_turn = True
        self.turns += 1
        await self.strategy.handle_user_turn_started()
        await self.endpoint.handle_user_turn_started()
        self.interruptions += 1

    async def _stopped(self, _strategy: object, _params: UserTurnStoppedParams) -> None:
        self.in_turn = False
        self.stops += 1
        self.answered.append(" ".join(self.said))
        self.said.clear()
        await self.strategy.handle_user_turn_stopped()
        await self.endpoint.handle_user_turn_stopped()

    async def _push(self, _strategy: object, frame: Frame, *_direction: object) -> None:
        self.pushed.append(frame)

    async def _reset(self, *_args: object) -> None:
        self.resets += 1
        self.said.clear()


def play(
    scenario: Callable[[Floor], Awaitable[None]],
    *,
    is_own: Callable[[], bool | None] | None = None,
    heard_ms: Callable[[], int] | None = None,
    stop_words: StopWords | None = None,
    level_db: Callable[[], float | None] | None = None,
    **settings: Any,
) -> Floor:
    async def run() -> Floor:
        if stop_words is not None:
            await stop_words.open()
        floor = Floor(
            is_own=is_own,
            heard_ms=heard_ms,
            stop_words=stop_words or NoStopWords(),
            level_db=level_db,
            **settings,
        )
        tasks = TaskManager()
        setup = FrameProcessorSetup(
            clock=SystemClock(), task_manager=tasks, pipeline_worker=None, audio_in_sample_rate=16_000
        )  # type: ignore[arg-type]
        await floor.endpoint.setup(setup)
        await floor.strategy.setup(setup)
        await scenario(floor)
        await floor.strategy.cleanup()
        await floor.endpoint.cleanup()
        assert not tasks.current_tasks()
        return floor

    return virtual_time.run(run())


def spotter(late_ms: int, *words: str, word_ms: int = 200) -> StopWords:
    """Return a spotter that finds these words, one for each ``word_ms`` of loud audio."""

    def accept(result: object) -> Transcript:
        assert isinstance(result, Transcript)
        return result

    engine = ScriptedStt(ScriptedSttSettings(words=words or ("one",), word_ms=word_ms))
    return StopWords(LateEngine(engine, accept, late_ms))


def no_command(late_ms: int) -> StopWords:
    """Return a spotter that gets silence: it finds no command, and does not know how a voice sounds."""
    return spotter(late_ms)
