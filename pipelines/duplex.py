"""Full duplex: an engine that is ticked on a clock, in place of the cascade's turns, thought and voice.

``run_duplex`` builds one call's pipeline around the deployment's omni engine, runs it until the caller is
gone and returns. What a call shares with a cascade is shared: the session behind the commit gate,
perception, echo control, the playout clock, idle prompts, records. The recogniser listens beside the engine,
because a speech model does not write down what its caller says.

    transport.input -> (echo control) -> VAD -> STT -> perception -> turns -> waits -> gate
        -> (guessed) guarded LLM -> voice -> engine -> transport.output -> (heard) -> bot turns

The two-tier engine decides in its own small tier, and everything between the turns and the engine is its
large one: any model and any voice of the registry, with tools, guesses, phrases that cover a silence and
apologies.
A service of the provider's in place of an engine has a pipeline of its own (``pipelines.realtime``).
Beside another engine the same small tier says where a turn ends and when the bot is to be silent
(``processors.duplex.beside``), questions end at the engine, and the voice only greets, prompts and
apologises.
"""

import asyncio
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import asdict, replace
from functools import partial
from typing import Any

from loguru import logger
from pipecat.frames.frames import (
    EndFrame,
    Frame,
    InterruptionFrame,
    LLMContextFrame,
    TTSSpeakFrame,
)
from pipecat.pipeline.worker import PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.frameworks.rtvi import RTVIServerMessageFrame
from pipecat.transports.base_transport import BaseTransport

from core.call_events import (
    AnswerHeard,
    CallEnding,
    EnginesGivenUp,
    FinalWords,
    PauseExpired,
    ReplyCut,
    VoiceEnded,
    VoiceStarted,
)
from core.errors import CapacityError, ConfigError
from models.omni import OmniHost, Preparation, Vote
from models.omni.two_tier.ears import OwnVoice, Spotted, Spotting, Told
from models.omni.two_tier.engine import TwoTierEngine, TwoTierHost, TwoTierSettings
from models.stt import Transcript
from pipelines.builder import Background, Stages, build
from pipelines.call import Call, told_to
from pipelines.client_tools import offered_tools
from pipelines.echo import open_echo_control
from pipelines.engines import Engines
from pipelines.in_queue import InQueue
from pipelines.lifetime import LIMITED, OVER_LIMIT, history_of, hold, idle_keeper, voice_activity
from pipelines.pipeline_input import PipelineInput
from pipelines.realtime import run_realtime
from pipelines.stages import (
    commit_gate,
    gain_of,
    perception_of,
    speculation_of,
    voice_detector,
    wait_guard,
)
from processors.dialogue.durable_tools import DurableTools
from processors.duplex.beside import TurnsBeside
from processors.duplex.contents import Contents
from processors.duplex.dialogue import CallDialogue
from processors.duplex.omni import DuplexOmniProcessor
from processors.duplex.outlet import Outlet
from processors.duplex.questions import Questions
from processors.duplex.succession import EngineSource
from processors.duplex.tick import Tick
from processors.duplex.turns import IS_WRITTEN, DuplexTurns
from processors.playout.assistant import HeardAssistantAggregator
from processors.playout.playout import guard_protected
from processors.taps.notice import NoticeTap
from processors.taps.response_events import ResponseEvents
from processors.turns.stop_words import StopWords
from protocols.surface import Wish
from runtime.event_stream import CallEvents
from serving.gateway.usage import UsageLimits
from serving.pool.omni import FINAL, PooledConversation, PooledOmni
from serving.pool.pool import NotPlaced
from serving.scheduler.wants import Task
from telemetry.ticks import SUFFIX, TickLog
from telemetry.turn_events import TurnLogWriter
from turn_taking.asking_back import AskingBack
from turn_taking.self_voice import SelfVoice

# Lines of a log that is on a slow disk are waited for when a call ends.
LOG_S = 2.0
# A client is told of votes so often, and of no more at a time.
VOTES_S = 0.4
MOST_VOTES = 64
# What is spotted so long behind the end of its voice stops nothing any more.
COMMAND_LATE_S = 1.5
# The check for the bot's own voice looks back as far (``SelfVoiceSettings.look_ms``).
OWN_VOICE_S = 0.32


class _Votes:
    """What the engine decided, for a client to show: a letter for each unit, some units at a time."""

    def __init__(self, events: CallEvents) -> None:
        self._events = events
        self._votes = ""

    def take(self, tick: Tick) -> None:
        """One unit."""
        if tick.vote is Vote.YIELD:
            self._events.publish(ReplyCut(self._events.now_ms(), "engine", None))
        self._votes = (self._votes + tick.vote.value[0])[-MOST_VOTES:]

    async def run(self, pipeline: PipelineInput, unit_ms: Callable[[], int]) -> None:
        """Tell the client until cancelled; ``unit_ms`` of the engine that is on."""
        while True:
            await asyncio.sleep(VOTES_S)
            votes, self._votes = self._votes, ""
            if votes:
                data = {"kind": "votes", "votes": votes, "unit_ms": unit_ms()}
                await pipeline.queue(RTVIServerMessageFrame(data=data))


class _OfCall:
    """The two-tier host, with the large tier of one call; see ``OmniHost``."""

    sessions: int | None = None
    takes_frames = False

    def __init__(self, host: TwoTierHost, dialogue: CallDialogue, *, has_echo: bool) -> None:
        self._host, self._dialogue = host, dialogue
        self._settings = _with_echo(host.settings) if has_echo else host.settings

    def open_engine(self) -> TwoTierEngine:
        return self._host.open_engine(self._dialogue.end(), self._settings)

    def close(self) -> None:
        """The host is not of this call alone."""


def _of_call(
    host: OmniHost, dialogue: CallDialogue, call: Call, in_queue: InQueue, *, has_echo: bool
) -> OmniHost:
    if isinstance(host, TwoTierHost):
        return _OfCall(host, dialogue, has_echo=has_echo)
    if isinstance(host, PooledOmni):
        conversation = call.conversation
        task = Task.OMNI_DUPLEX if host.takes_frames else Task.AUDIO_DUPLEX
        return host.of_call(conversation.session_id, conversation.epoch, task=task, on_queue=in_queue.take)
    return host


def _with_echo(settings: TwoTierSettings) -> TwoTierSettings:
    """What begins in the first moments of an answer may be its echo: it is weighed like any other voice."""
    policy = settings.policy
    barge_in = policy.barge_in.model_copy(update={"early_ms": 0})
    return settings.model_copy(update={"policy": policy.model_copy(update={"barge_in": barge_in})})


async def run_duplex(
    engines: Engines,
    transport: BaseTransport,
    call: Call,
    *,
    rtvi: bool = True,
    handle_sigint: bool = False,
    finished: asyncio.Event | None = None,
) -> None:
    """Hold one full-duplex conversation over ``transport`` until it ends.

    Args:
        engines: of the process, loaded for duplex.
        transport: Pipecat's or ours.
        call: the session that it is a part of, and its records.
        rtvi: whether the other side speaks RTVI (a browser page, another program).
        handle_sigint: end the conversation on Ctrl-C.
        finished: set by whoever wants the conversation to end in good order, after what is being said.

    Raises:
        ConfigError: the engines were loaded without duplex; the call wants to know who answered it.
    """
    if call.voicemail is not None:
        raise ConfigError(
            "phone.voicemail: full duplex does not find out who answered a call; see phone.mode"
        )
    if engines.realtime is not None:
        await run_realtime(
            engines, transport, call, rtvi=rtvi, handle_sigint=handle_sigint, finished=finished
        )
        return
    if not engines.omni:
        raise ConfigError("this process was started without full duplex: --mode duplex")
    idle = idle_keeper(engines, call)
    async with offered_tools(engines.answering, call) as tools:
        log = _open_log(engines, call)
        try:
            worker, background = await build_duplex(engines, transport, call, tools=tools, log=log, rtvi=rtvi)
            await hold(
                engines,
                worker,
                transport,
                call,
                idle,
                beside=[*(start() for start in background), tools.recover()],
                rtvi=rtvi,
                handle_sigint=handle_sigint,
                finished=finished,
            )
        finally:
            if log is not None:
                log.close()
                await asyncio.to_thread(log.join, LOG_S)


def _open_log(engines: Engines, call: Call) -> TickLog | None:
    duplex = engines.deployment.duplex
    if duplex.tick_log is None:
        return None
    head = {
        "call_id": call.call_id,
        "engine": duplex.engine.name,
        "transport": call.transport,
        "deployment": engines.deployment.name,
    }
    path = duplex.tick_log / f"{call.call_id}{SUFFIX}"
    return TickLog(path, head, limit_bytes=duplex.tick_log_mb * 1_000_000, keep_days=duplex.tick_log_days)


async def build_duplex(
    engines: Engines,
    transport: BaseTransport,
    call: Call,
    *,
    tools: DurableTools,
    log: TickLog | None = None,
    rtvi: bool = True,
) -> tuple[PipelineWorker, Background]:
    """The pipeline of one call, and what runs beside it. Loads no model."""
    stop_words = await engines.build_stop_words()
    try:
        return await _build(engines, transport, call, stop_words, tools=tools, log=log, rtvi=rtvi)
    except BaseException:
        call.close_front_end()
        if stop_words is not None:
            stop_words.close()
        raise


async def _build(
    engines: Engines,
    transport: BaseTransport,
    call: Call,
    stop_words: StopWords | None,
    *,
    tools: DurableTools,
    log: TickLog | None,
    rtvi: bool,
) -> tuple[PipelineWorker, Background]:
    context, events, is_two_tier = LLMContext(), call.events, _is_two_tier(engines)
    echo, stt, tts, thinking = await asyncio.gather(
        # A word is best heard in one signal: what echo control passes on switches between two.
        open_echo_control(
            engines, transport, call, on_cancelled=None if stop_words is None else stop_words.hear
        ),
        engines.build_stt(),
        engines.build_tts(),
        engines.answering.build(tools=tools, context=context, rules=call.rules),
    )
    TurnLogWriter(call.turns, events, words=FinalWords)
    events.subscribe(AnswerHeard, lambda event: engines.answered(event.latency_ms))
    perception = perception_of(engines, call, engines.deployment.hearing.stt.name)
    engine = _EngineStages(
        engines, transport, call, context, log=log, has_echo=bool(echo), sends=rtvi and call.client.reads_rtvi
    )
    thought = engine.thought
    allowance = _Allowance(call, engines.answering.usage, engine.is_asked)
    waits = wait_guard(
        engines,
        call,
        thought.push_frame,
        is_asked=engine.is_asked,
        is_covered=lambda: engine.omni.wants_content,
    )
    ask_back = engines.deployment.hearing.ask_back if is_two_tier else None
    asking = AskingBack(ask_back) if ask_back is not None else None
    gate = commit_gate(engines, call, context, perception, asking, take_turn=allowance.take_turn)
    speculation = speculation_of(engines, call, gate, tts)
    _, entry, exit_ = call.playout.taps()
    spotter = _Spotter(events, stop_words, engine) if stop_words is not None else None
    vad = voice_detector(
        engines,
        call,
        [call.turns.heard, *engine.listeners, *([] if stop_words is None or echo else [stop_words.hear])],
    )
    stages = Stages(
        head=[transport.input(), *echo, voice_activity(vad)],
        perception=[stt, perception],
        turns=[engine.user],
        dialogue=[waits, gate, Questions(engine.is_asked), *speculation.around(thinking)],
        speech=[thought, tts, engine.omni],
        playout=[entry, transport.output(), exit_],
        tail=HeardAssistantAggregator(context, None),
        # What they push is a guess, or is said by the engine when its time has come.
        unseen=[speculation.head, *thinking, *([tts] if is_two_tier else [])],
    )
    worker = build(engines, transport, call, stages, rtvi=rtvi)
    background = [allowance.run, *engine.background(), *([spotter.run] if spotter is not None else [])]
    return worker, background


def _is_two_tier(engines: Engines) -> bool:
    """Return whether every engine decides by its own small tier, and has the rest of the pipeline say it."""
    return all(isinstance(host, TwoTierHost) for host in engines.omni)


class _EngineStages:
    """The full-duplex engine of one call, and the stages that know it.

    Args:
        engines: of the process.
        transport: Pipecat's or ours.
        call: whose engine.
        context: of who thinks.
        log: takes every unit; None: nothing does.
        has_echo: the call has echo control.
        sends: there is a client that reads messages.

    Attributes:
        omni: the engine in the pipeline.
        user: the caller's turns.
        thought: directly after the model.
        listeners: given the caller's audio.
    """

    def __init__(
        self,
        engines: Engines,
        transport: BaseTransport,
        call: Call,
        context: LLMContext,
        *,
        log: TickLog | None,
        has_echo: bool,
        sends: bool,
    ) -> None:
        duplex, events = engines.deployment.duplex, call.events
        self._call, self._responses = call, ResponseEvents(events)
        self.thought = NoticeTap(self._on_thought)
        self.user = DuplexTurns(
            context, events, on_words=self.tell, speak=self.thought.push_frame, are_own=_own_words(call)
        )
        dialogue = CallDialogue(self.user, rate_hz=engines.output_rate_hz, kept=engines.kept_speech)
        self._contents = Contents(engines.output_rate_hz, dialogue.arrived)
        in_queue = InQueue(duplex.queue_phrase, duplex.queue_again_s, events)
        hosts = [_of_call(host, dialogue, call, in_queue, has_echo=has_echo) for host in engines.omni]
        self._votes, self._write = _Votes(events), _ticks_to(log)
        hears_directly = call.client.tells_units and not has_echo
        self.omni = self._processor(engines, hosts, hears_pipeline=not hears_directly)
        self._beside = self._turns_beside(engines, transport)
        yields_to_stop = duplex.yields == "policy" and duplex.turns.barge_in.protected_yields_to_stop
        self._guards_protected = self._beside is not None and yields_to_stop
        if hears_directly:
            call.client.hear_by(self.omni)
        EngineEnds(call, duplex.refusal)
        call.floor.add_holder(lambda: self.omni.is_speaking)
        self.listeners = [self._beside.hear] if self._beside is not None else []
        self._hosts, self._in_queue, self._sends = hosts, in_queue, sends

    def is_asked(self, frame: LLMContextFrame) -> bool:
        """Return whether the deployment's model answers: an engine of its own words answers by itself."""
        return self.omni.wants_content or IS_WRITTEN.is_on(frame)

    def is_over_bot(self) -> bool:
        """Return whether a voice that begins now is one over the bot."""
        return self.omni.is_speaking or self.omni.is_voice_on

    def tell(self, heard: Told) -> None:
        """Hand on what was heard to the tier that decides about turns."""
        if self._beside is not None and not self.omni.wants_content:
            self._beside.on_words(heard)
        else:
            self.omni.on_words(heard)

    def _on_thought(self, frame: Frame) -> None:
        if isinstance(frame, TTSSpeakFrame) and self._guards_protected and not self.omni.captures:
            # What an engine is to say for the voice it protects itself.
            guard_protected(frame)
        self._responses.publish(frame)
        self._contents.thought(frame)
        if isinstance(frame, InterruptionFrame):
            self.user.interruption_passed()

    def _on_tick(self, tick: Tick) -> None:
        self._write(tick)
        self._votes.take(tick)

    def _turns_beside(self, engines: Engines, transport: BaseTransport) -> TurnsBeside | None:
        """Return what decides about turns for an engine that does not; None where every engine does."""
        hearing, duplex = engines.deployment.hearing, engines.deployment.duplex
        # Not through this object: the other would hold it, and it the other.
        omni = self.omni
        if _is_two_tier(engines):
            return None
        return TurnsBeside(
            self._call.events,
            self.user,
            settings=duplex.turns,
            ears=hearing.voice.ears(),
            vad=engines.vad,
            turn=engines.turn,
            executor=engines.executors.vad or engines.executors.turn,
            turn_executor=engines.executors.turn,
            yields=duplex.yields == "policy",
            is_on=lambda: not omni.wants_content,
            set_gain_db=gain_of(transport),
        )

    def _processor(
        self, engines: Engines, hosts: Sequence[OmniHost], *, hears_pipeline: bool
    ) -> DuplexOmniProcessor:
        call, duplex = self._call, engines.deployment.duplex
        apology = engines.deployment.thinking.guard.apology
        client = call.client
        return DuplexOmniProcessor(
            EngineSource(hosts, lambda: _preparation(engines, call), engines.executors.omni),
            call.events,
            outlet=Outlet(
                playout=call.playout,
                contents=self._contents,
                holds_first=isinstance(engines.omni[0], TwoTierHost),
                tells_units=client.tells_units,
                mouth=client.mouth,
                on_tick=self._on_tick,
            ),
            settings=duplex.ticks,
            apologise=lambda: self.thought.push_frame(TTSSpeakFrame(apology, append_to_context=False)),
            hears_pipeline=hears_pipeline,
        )

    def background(self) -> Background:
        """Return the tasks of the call; not kept, because they hold this."""
        call = self._call
        tasks: list[Callable[[], Coroutine[Any, Any, None]]] = []
        if self._beside is not None:
            tasks.append(self._beside.run)
        if self._sends:
            tasks.append(lambda: self._votes.run(call.input, lambda: self.omni.unit_ms))
        for host in self._hosts:
            if isinstance(host, PooledConversation):
                tasks += [partial(_close_at_end, host), partial(self._in_queue.run, call.input)]
        if call.self_voice is not None:
            tasks.append(partial(_look_for_own_voice, call.self_voice, self.is_over_bot, self.tell))
        return tasks


def _own_words(call: Call) -> Callable[[str], bool] | None:
    """Return what knows words that the bot said a moment ago; None without echo control."""
    words, clock = call.own_words, call.conversation.clock
    return (lambda text: words.explains(text, clock.now_us() // 1000)) if words is not None else None


class _Allowance:
    """Counts the turns of a client. An engine of its own words answers by itself, until the call ends.

    Args:
        call: whose client.
        usage: of the process.
        is_asked: whether the deployment's model answers a question.
    """

    def __init__(self, call: Call, usage: UsageLimits, is_asked: Callable[[LLMContextFrame], bool]) -> None:
        self._call, self._usage, self._is_asked = call, usage, is_asked
        self._is_used_up = asyncio.Event()

    def take_turn(self, question: LLMContextFrame) -> bool:
        """Count a turn of the caller; false where there is none left."""
        is_taken = self._usage.try_take(self._call.rules.counted)
        # What has ended the call already says why: its grants, for example, which give no turns either.
        if not is_taken and not self._is_asked(question) and self._call.end[0] == "stopped":
            self._is_used_up.set()
        return is_taken

    async def run(self) -> None:
        """End the call when its client has no turns left."""
        await self._is_used_up.wait()
        # After what the gate says in place of an answer.
        _end_soon(self._call, LIMITED, OVER_LIMIT, is_failure=False)


class EngineEnds:
    """Ends a call with which no engine goes on, or that was paused for too long.

    Args:
        call: whose engines.
        refusal: said where there is no room for the call.
    """

    def __init__(self, call: Call, refusal: str) -> None:
        self._call, self._refusal = call, refusal
        call.events.subscribe(EnginesGivenUp, self._on_engines_given_up)
        call.events.subscribe(PauseExpired, self._on_pause_expired)

    def _on_pause_expired(self, _event: PauseExpired) -> None:
        _end_soon(self._call, "timeout", "it was paused for too long")

    def _on_engines_given_up(self, event: EnginesGivenUp) -> None:
        call, error = self._call, event.error
        if not isinstance(error, CapacityError):
            _end_soon(call, "error", "no engine goes on")
            return
        data = {"kind": "queue", "position": 0, "wait_s": None, "refused": str(error)}
        call.input.put(RTVIServerMessageFrame(data=data))
        is_final = isinstance(error, NotPlaced) and error.reason in FINAL
        said = f"Sorry, {error}." if is_final else self._refusal
        if call.client.greets and said:
            call.input.put(TTSSpeakFrame(said, append_to_context=False))
        _end_soon(call, reason_refused(error), str(error))


async def _preparation(engines: Engines, call: Call) -> Preparation:
    """How a context begins: what the deployment and the client want, and what was said so far."""
    client = call.client
    if client.on_placed is not None:
        client.on_placed()
    if client.is_wished is not None:
        await client.is_wished.wait()
    wish, preparation = client.wish(), engines.preparation
    llm, tts = wish.llm_ref_audio, wish.tts_ref_audio
    return replace(
        preparation,
        system_prompt=told_to(wish, preparation.system_prompt),
        llm_ref_audio=preparation.llm_ref_audio if llm is None else llm,
        tts_ref_audio=preparation.tts_ref_audio if tts is None else tts,
        history=history_of(call.conversation),
        settings={**preparation.settings, **_accepted(engines, wish)},
    )


def _accepted(engines: Engines, wish: Wish) -> dict[str, Any]:
    """What of a client's settings every engine of the deployment has; the rest is for other models."""
    known: list[frozenset[str]] = [getattr(host, "client_settings", frozenset()) for host in engines.omni]
    names = frozenset.intersection(*known)
    return {name: value for name, value in wish.settings.items() if name in names}


class _Spotter:
    """Listens to a short voice over the bot for commands when it has ended. ``run`` is its caller's task."""

    def __init__(self, events: CallEvents, stop_words: StopWords, engine: _EngineStages) -> None:
        self._stop_words, self._engine = stop_words, engine
        self._number = 0
        events.subscribe(VoiceStarted, self._on_voice_started)
        events.subscribe(VoiceEnded, self._on_voice_ended)

    async def run(self) -> None:
        """Close the stop words with the call."""
        await _close_at_end(self._stop_words)

    def _on_voice_started(self, event: VoiceStarted) -> None:
        if self._engine.is_over_bot():
            self._stop_words.on_voice_started(event.voiced_ms)

    def _on_voice_ended(self, _event: VoiceEnded) -> None:
        self._number += 1
        spotted = partial(self._on_spotted, self._number, asyncio.get_running_loop().time())
        if self._stop_words.on_voice_stopped(spotted):
            self._engine.tell(Spotting(self._number))

    def _on_spotted(self, number: int, stopped_s: float, heard: Transcript) -> None:
        if asyncio.get_running_loop().time() - stopped_s <= COMMAND_LATE_S:
            self._engine.tell(Spotted(number, heard.text, heard.floor_log_odds))


async def _look_for_own_voice(
    self_voice: SelfVoice, is_speaking: Callable[[], bool], tell: Callable[[Told], None]
) -> None:
    """While the bot speaks: whether what is heard is its own voice, by the levels."""
    while True:
        await asyncio.sleep(OWN_VOICE_S)
        own = self_voice.is_own() if is_speaking() else None
        if own is not None:
            tell(OwnVoice(own))


async def _close_at_end(held: StopWords | PooledConversation) -> None:
    try:
        await asyncio.Event().wait()
    finally:
        held.close()


def reason_refused(error: CapacityError) -> str:
    """Why somebody gets no worker, in a word."""
    return error.reason.value if isinstance(error, NotPlaced) else "service_unavailable"


def _end_soon(call: Call, reason: str, message: str, *, is_failure: bool = True) -> None:
    logger.log("ERROR" if is_failure else "INFO", f"the call ends: {message}")
    call.events.publish(CallEnding(call.events.now_ms(), reason, message))
    call.input.put(EndFrame())


def _ticks_to(log: TickLog | None) -> Callable[[Tick], None]:
    """Return what takes every unit."""
    return (lambda tick: _log_tick(log, tick)) if log is not None else lambda _tick: None


def _log_tick(log: TickLog, tick: Tick) -> None:
    line = asdict(tick)
    # What is said is in the session, and nowhere else.
    line["letters"] = len(line.pop("text"))
    line["vote"] = tick.vote.value
    log.write(line)
