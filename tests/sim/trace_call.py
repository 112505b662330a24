"""The strategies of a call with a random caller and a bot that answers them, on virtual time."""

import asyncio
import random
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from pipecat.clocks.system_clock import SystemClock
from pipecat.frames.frames import (
    Frame,
    InterimTranscriptionFrame,
    LLMRunFrame,
    TranscriptionFrame,
    TTSSpeakFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.frame_processor import FrameProcessorSetup
from pipecat.turns.user_stop.base_user_turn_stop_strategy import UserTurnStoppedParams
from pipecat.utils.asyncio.task_manager import TaskManager

from parley.core.call_events import (
    BotTurnEnded,
    CallEvent,
    ClauseAnnounced,
    FloorLeft,
    FloorTaken,
    ReplyAnnounced,
    ReplyFinished,
    ReplyOpened,
    ReplyProgressed,
    ReplyStarted,
    ReplyWritten,
    ToolsCalled,
    VoicePaused,
    VoiceSuspected,
    Wait,
    WaitBegan,
    WaitEnded,
)
from parley.core.media import WordTime
from parley.core.timeline import HeardMark, HeardReply, HeardSoFar, HeardSource
from parley.evals.virtual_time import START_S
from parley.models.stt import Transcript
from parley.processors.turns.barge_in import BargeInStartStrategy
from parley.processors.turns.endpoint import NOT_MEANT, EndpointStopStrategy
from parley.processors.turns.looks import NoLooks, VoiceLooks
from parley.processors.turns.stop_words import NoStopWords, StopWords
from parley.runtime.engine_host import Answer
from parley.runtime.engine_hosting.messages import EngineMessage
from parley.runtime.event_stream import CallEvents
from parley.turn_taking.barge_in.barge_in import BargeIn
from parley.turn_taking.barge_in.settings import BargeInTuning
from parley.turn_taking.barge_in.table import BargeInState
from parley.turn_taking.endpointing.endpointer import EndpointTuning
from parley.turn_taking.endpointing.policies import endpoint_policy
from tests import virtual_time
from tests.fakes.caller_sound import MeasuredSound
from tests.fakes.executor import InlineExecutor
from tests.fakes.late_engine import LateEngine
from tests.fakes.stt import ScriptedStream, ScriptedStt
from tests.in_place_engine import InPlaceEngine, as_transcript

CALL_S = 40.0
PIECE_MS = 40
SAID = {
    "cough": ("", "", "hat", "them"),
    "hum": ("", "mhm", "and", "man up", "yeah"),
    "listens": ("mhm", "yeah", "okay", "uh huh", "right okay", "i see", "okay and her"),
    "stops": ("stop", "wait", "hold on", "shut", "stop stop"),
    "asks": ("what", "no", "how much", "who", "account"),
    "talks": (
        "what about the fees",
        "and now the weather in the north please",
        "yeah but what does it cost",
        "okay then tell me about mortgages",
        "the wait is long",
        "um i would like to know",
    ),
}
LENGTH_MS = {
    "cough": (40, 220),
    "hum": (180, 480),
    "listens": (250, 900),
    "stops": (250, 600),
    "asks": (200, 600),
    "talks": (700, 3_500),
}
CLAUSES = (
    "The fee is five dollars a month.",
    "It is due on the first.",
    "Do you want to hear more?",
    "Then stop at the desk.",
    "One moment, please.",
    "The north is cold today and windy.",
)


class _RandomEars(ScriptedStt):
    """Spotter and engine of early looks with random results."""

    def __init__(self, rng: random.Random) -> None:
        super().__init__()
        self.rng = rng

    def open_stream(self) -> "_RandomStream":
        return _RandomStream(self)


class _RandomStream(ScriptedStream):
    def __init__(self, engine: _RandomEars) -> None:
        super().__init__(engine._settings)
        self._rng = engine.rng

    def finish(self) -> Transcript:
        text = self._rng.choice(("", "", "", "stop", "wait", "no", "what", "how much", "yes"))
        odds = self._rng.choice((None, -3.0, -0.5, 0.0, 0.5, 2.0))
        return Transcript(text, confidence=0.9, final=True, floor_log_odds=odds)

    def ask(self, question: EngineMessage) -> Answer:
        return {"log_odds": self._rng.choice((-9.0, -1.0, 0.0, 0.0, 1.0, 9.0))}, b""


class _Bot:
    """Bot that answers turns in replies of a few clauses; an interrupted reply ends a moment later."""

    def __init__(self, rng: random.Random, events: CallEvents, later: Callable[..., None]) -> None:
        self._rng, self._events, self._later = rng, events, later
        self._speaking = asyncio.Lock()
        self.tasks: set[asyncio.Task[None]] = set()
        # Clauses of each open reply, the number that were heard, and whether the reply belongs to the
        # context.
        self._open: dict[str, tuple[Sequence[str], int, bool]] = {}
        self._protected: set[str] = set()
        self._names = 0
        self._is_waiting = False

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)

    def answer(self) -> None:
        self.start(self._answer())

    def say(self, text: str, *, in_context: bool = True, protected: bool = False) -> None:
        self.start(self._speak([text], is_written=False, in_context=in_context, protected=protected))

    def interrupted(self) -> None:
        kept = {name for name in self._open if name in self._protected and self._rng.random() < 0.5}
        if not kept:
            for task in list(self.tasks):
                task.cancel()
        lost = [name for name in self._open if name not in kept]
        delay_s = self._rng.choice((0.004, 0.02, 0.02, 0.06, 0.3, 0.8))
        for name in lost:
            self._later(delay_s, self._lose, name)
        if self._is_waiting:
            self._is_waiting = False
            self._later(0.002, self._publish, WaitEnded, Wait.ANSWER)
        if lost and self._rng.random() < 0.8:
            self._later(delay_s + self._rng.choice((0.0, 0.01, 0.05)), self._publish, BotTurnEnded, "", True)

    async def _answer(self) -> None:
        rng = self._rng
        self._is_waiting = True
        self._publish(WaitBegan, Wait.ANSWER)
        await asyncio.sleep(rng.uniform(0.05, 1.5))
        if rng.random() < 0.25:
            await self._speak(["One moment, please."], is_written=False, in_context=False)
            await asyncio.sleep(rng.uniform(0.0, 0.8))
        if rng.random() < 0.15:
            self._publish(ToolsCalled)
            await asyncio.sleep(rng.uniform(0.1, 2.0))
        said = [rng.choice(CLAUSES) for _ in range(rng.randint(1, 5))]
        ended = self._later_wait_end if self._is_waiting else None
        await self._speak(said, is_written=True, in_context=True, started=ended)
        self._later_wait_end()

    def _later_wait_end(self) -> None:
        if self._is_waiting:
            self._is_waiting = False
            self._publish(WaitEnded, Wait.ANSWER)

    async def _speak(
        self,
        clauses: Sequence[str],
        *,
        is_written: bool,
        in_context: bool,
        protected: bool = False,
        started: Callable[[], None] | None = None,
    ) -> None:
        rng, self._names = self._rng, self._names + 1
        name = f"reply.{self._names}"
        self._open[name] = clauses, 0, in_context
        if protected:
            self._protected.add(name)
        if is_written:
            self._publish(ReplyOpened, name)
            self._later(rng.uniform(0.05, 3.0), self._publish, ReplyWritten, name)
            await asyncio.sleep(rng.uniform(0.05, 0.6))
        self._publish(ReplyAnnounced, name, protected)
        self._publish(ClauseAnnounced, name, clauses[0])
        async with self._speaking:
            await asyncio.sleep(rng.uniform(0.05, 0.3))
            self._publish(ReplyStarted, name)
            if started is not None:
                started()
            for place, clause in enumerate(clauses):
                if place:
                    self._publish(ClauseAnnounced, name, clause)
                await asyncio.sleep(len(clause) * rng.uniform(0.03, 0.09))
                self._open[name] = clauses, place + 1, in_context
                heard = " ".join(clauses[: place + 1])
                mark = self._mark(name, heard)
                self._publish(ReplyProgressed, HeardSoFar(name, clause, mark, 0, in_context))
            self._finish(name)
            self._later(rng.choice((0.0, 0.02)), self._publish, BotTurnEnded, " ".join(clauses), False)

    def _lose(self, name: str) -> None:
        if name in self._open:
            self._finish(name)

    def _finish(self, name: str) -> None:
        clauses, count, in_context = self._open.pop(name)
        self._protected.discard(name)
        heard, rest = " ".join(clauses[:count]), " ".join(clauses[count:])
        mark = self._mark(name, heard)
        self._publish(ReplyFinished, HeardReply(name, heard, rest, bool(rest), mark, in_context, 0, 0))

    def _mark(self, name: str, heard: str) -> HeardMark:
        return HeardMark(name, 0, len(heard.split()) - 1, HeardSource.PLAYOUT_CLOCK)

    def _publish(self, kind: type[CallEvent], *facts: object) -> None:
        self._events.publish(kind(self._events.now_ms(), *facts))  # type: ignore[call-arg]


class _Call:
    """Driver of the strategies, in the place of a user turn controller."""

    def __init__(self, rng: random.Random) -> None:
        self.rng, self.lines = rng, list[str]()
        self.loop = asyncio.get_running_loop()
        self.events = CallEvents()
        self.frames: asyncio.Queue[Frame] = asyncio.Queue()
        self.said: list[str] = []
        self.in_turn = self.is_closed = False
        self.level_db: float | None = None
        self.late_ms = 0
        self.bot = _Bot(rng, self.events, self.later)
        settings = BargeInTuning(
            warm_up_ms=rng.choice((0, 0, 3_000)),
            early_ms=rng.choice((0, 0, 1_000)),
            protected_yields_to_stop=rng.random() < 0.7,
            duck_longest_ms=rng.choice((500, 3_000)),
            looks=rng.random() < 0.5,
        )
        self.machine = BargeIn(settings)
        ears = _RandomEars(random.Random(rng.random()))
        spotter = LateEngine(ears, as_transcript, rng.choice((20, 120, 300, 700, 1_600)))
        self.stop_words = StopWords(spotter) if rng.random() < 0.7 else None
        self.looks = VoiceLooks(InPlaceEngine(ears, as_transcript)) if settings.looks else None
        self.endpoint = EndpointStopStrategy(
            endpoint_policy(EndpointTuning(kind="adaptive")),
            completeness=None,
            executor=InlineExecutor(),
            events=self.events,
        )
        self.strategy = BargeInStartStrategy(
            self.machine,
            self.events,
            endpoint=self.endpoint,
            set_gain_db=lambda db: self.note("gain", db),
            interrupt=self.interrupt,
            sound=MeasuredSound(
                self.heard_ms if rng.random() < 0.5 else None,
                (lambda: self.level_db) if rng.random() < 0.5 else None,
                (lambda: rng.choice((None, None, False, True))) if rng.random() < 0.4 else None,
                (lambda text: text in ("them", "account", "mhm", "what")) if rng.random() < 0.4 else None,
            ),
            stop_words=self.stop_words or NoStopWords(),
            looks=self.looks or NoLooks(),
        )
        self.events.subscribe(CallEvent, self.on_event)
        self.strategy.add_event_handler("on_user_turn_started", self.started)
        self.strategy.add_event_handler("on_push_frame", self.push)
        self.strategy.add_event_handler("on_reset_aggregation", self.reset)
        self.endpoint.add_event_handler("on_user_turn_stopped", self.stopped)

    def now_us(self) -> int:
        return round((self.loop.time() - START_S) * 1_000_000)

    def note(self, kind: str, *facts: object) -> None:
        facts_text = " ".join(str(fact) for fact in facts)
        self.lines.append(f"{self.now_us()} {kind} {facts_text} | {self.machine.state.name}")

    def later(self, delay_s: float, call: Callable[..., None], *arguments: object) -> None:
        def due() -> None:
            if not self.is_closed:
                call(*arguments)

        self.loop.call_later(delay_s, due)

    def heard_ms(self) -> int:
        return self.now_us() // 1_000 - self.late_ms

    def on_event(self, event: CallEvent) -> None:
        if isinstance(event, FloorLeft | FloorTaken):
            # The state of the machine, which each line has.
            return
        # The decision; its causes show in its time.
        facts = [
            getattr(event, name)
            for name in ("due_ms", "reason", "voice_ms", "from_word")
            if hasattr(event, name)
        ]
        self.note(type(event).__name__, *facts)

    async def interrupt(self) -> None:
        self.note("interrupt")
        self.bot.interrupted()

    async def started(self, *_arguments: object) -> None:
        if self.in_turn:
            return
        self.in_turn = True
        self.note("turn-started", self.said)
        await self.strategy.handle_user_turn_started()
        await self.endpoint.handle_user_turn_started()
        self.bot.interrupted()

    async def stopped(self, _strategy: object, _params: UserTurnStoppedParams) -> None:
        if not self.in_turn:
            return
        self.in_turn = False
        said, self.said = self.said, []
        self.note("turn-stopped", said)
        await self.strategy.handle_user_turn_stopped()
        await self.endpoint.handle_user_turn_stopped()
        if said:
            self.bot.answer()

    async def push(self, _strategy: object, frame: Frame, *_direction: object) -> None:
        if isinstance(frame, TTSSpeakFrame):
            self.note("pushed", "speak", frame.text, frame.append_to_context)
            self.bot.say(frame.text, in_context=bool(frame.append_to_context))
        elif isinstance(frame, LLMRunFrame):
            self.note("pushed", "run")
            self.bot.answer()
        elif isinstance(frame, TranscriptionFrame):
            self.note("pushed", "words", frame.text)
            self.frames.put_nowait(frame)
        else:
            raise AssertionError(frame)

    async def reset(self, *_arguments: object) -> None:
        self.said.clear()
        self.note("reset")

    async def aggregate(self) -> None:
        """Process frames one after the other, as a processor does."""
        while True:
            frame = await self.frames.get()
            if isinstance(frame, TranscriptionFrame) and frame.text:
                self.said.append(frame.text)
            await self.strategy.process_frame(frame)
            await self.endpoint.process_frame(frame)
            if isinstance(frame, TranscriptionFrame):
                self.note(
                    "words",
                    frame.text,
                    NOT_MEANT.is_on(frame),
                    self.machine.state is not BargeInState.LISTENING,
                )

    async def listen(self) -> None:
        """Pass on audio: the engines are scripted, and only its length counts."""
        while True:
            await asyncio.sleep(PIECE_MS / 1_000)
            # A busy loop receives audio late, and catches up; a caller who speaks reduces the delay.
            self.late_ms = self.rng.choice(
                (self.late_ms, self.late_ms, self.late_ms + 20, max(0, self.late_ms - 60))
            )
            if self.level_db is not None and self.rng.random() < 0.02:
                self.level_db = -24.0
            for ear in (self.stop_words, self.looks):
                if ear is not None:
                    ear.hear(bytes(PIECE_MS * 32))

    async def talk(self) -> None:
        """Speak at random; the detector and the recogniser report it later."""
        rng = self.rng
        while True:
            await asyncio.sleep(rng.choice((0.25, 0.4, 0.7, 1.2, 2.5, 5.0)) * rng.uniform(0.8, 1.2))
            kind = rng.choices(list(SAID), (2, 3, 3, 1, 2, 3))[0]
            length_ms = rng.randint(*LENGTH_MS[kind])
            self.level_db = rng.choice((-24.0, -22.0, -27.0, -45.0, -30.0)) + rng.uniform(-1, 1)
            self.report(kind, length_ms)
            await asyncio.sleep(length_ms / 1_000)

    def report(self, kind: str, length_ms: int) -> None:
        rng, put, events = self.rng, self.frames.put_nowait, self.events
        self.later(0.032, lambda: events.publish(VoiceSuspected(events.now_ms())))
        if length_ms < 100:
            return
        if rng.random() < 0.1:
            # A recogniser of its own reacts to speech that voice activity misses.
            self.later(0.2, put, self.partial(rng.choice(SAID[kind]).split()))
            return
        end_s = length_ms / 1_000
        self.later(0.128, put, VADUserStartedSpeakingFrame(start_secs=0.128))
        self.later(end_s + 0.096, lambda: events.publish(VoicePaused(events.now_ms())))
        self.later(end_s + 0.16, put, VADUserStoppedSpeakingFrame(stop_secs=0.16))
        words = rng.choice(SAID[kind]).split()
        at_s = 0.25
        for count in range(1, len(words) + 1):
            at_s += rng.uniform(0.15, 0.35)
            if at_s < end_s and rng.random() < 0.8:
                self.later(at_s, put, self.partial(words[:count]))
        if words and rng.random() < 0.95:
            late_s = rng.choice((0.03, 0.12, 0.12, 0.3, 0.6))
            self.later(end_s + 0.16 + late_s, put, self.final(words))

    def partial(self, words: Sequence[str]) -> Frame:
        text = " ".join(words)
        result = self.rng.choice((None, Transcript(text, confidence=self.rng.choice((0.0, 0.6, 0.9)))))
        return InterimTranscriptionFrame(text=text, user_id="", timestamp="", result=result)

    def final(self, words: Sequence[str]) -> Frame:
        rng, text = self.rng, " ".join(words)
        timed = tuple(WordTime(word, 0, 100, rng.choice((0.3, 0.6, 0.8, 0.9, 0.95))) for word in words)
        result = rng.choice((None, Transcript(text, timed, 0.7, final=True)))
        return TranscriptionFrame(text=text, user_id="", timestamp="", result=result, finalized=True)


async def _hold(rng: random.Random) -> list[str]:
    call = _Call(rng)
    for ear in (call.stop_words, call.looks):
        if ear is not None:
            await ear.open()
    manager = TaskManager()
    setup = FrameProcessorSetup(
        clock=SystemClock(), task_manager=manager, pipeline_worker=None, audio_in_sample_rate=16_000
    )  # type: ignore[arg-type]
    await call.endpoint.setup(setup)
    await call.strategy.setup(setup)
    if rng.random() < 0.6:
        call.bot.say(" ".join(CLAUSES[:3]), protected=rng.random() < 0.4)
    work = [asyncio.create_task(each()) for each in (call.aggregate, call.listen, call.talk)]
    await asyncio.sleep(CALL_S)
    call.is_closed = True
    for task in (*work, *call.bot.tasks):
        task.cancel()
    await asyncio.gather(*work, *call.bot.tasks, return_exceptions=True)
    await call.strategy.cleanup()
    await call.endpoint.cleanup()
    assert call.events.failures == 0
    assert not manager.current_tasks()
    return call.lines


def shell_trace(rng: random.Random) -> list[str]:
    """Return the events of one call, with the microsecond of each."""
    return virtual_time.run(_hold(rng))
