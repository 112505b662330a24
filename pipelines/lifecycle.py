"""Life cycle of every call around its pipeline: its beginning, the watchers that end it, its records."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from functools import partial
from typing import Any

from loguru import logger
from pipecat.frames.frames import EndFrame, ErrorFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.processors.frameworks.rtvi import RTVIObserverParams, RTVIServerMessageFrame
from pipecat.services.ai_service import AIService
from pipecat.services.llm_service import LLMService
from pipecat.services.stt_service import STTService
from pipecat.services.tts_service import TTSService
from pipecat.transports.base_transport import BaseTransport
from pipecat.workers.runner import WorkerRunner

from parley.configs.deployment import Bot
from parley.core.call_events import CallBegan, CallEnded, CallEnding, CallerLeft, EngineFailed
from parley.core.errors import PeerError
from parley.core.provenance import Provenance
from parley.core.tuning import tuned
from parley.core.usage import Stage
from parley.pipelines.call import Call, client_prompt
from parley.pipelines.call_records import CallRecords
from parley.pipelines.engines.engines import Engines
from parley.pipelines.engines.plan import INPUT_RATE_HZ
from parley.pipelines.live_calls import ListenedCall
from parley.pipelines.modes import CASCADE, REALTIME
from parley.pipelines.process_answers import ProcessAnswers
from parley.pipelines.release import release_call
from parley.pipelines.stages.lost_stages import LostStages
from parley.pipelines.tenant_charges import TenantCharges
from parley.pipelines.usage_records import UsageRecords
from parley.pipelines.voiceprints import VoiceprintRecords
from parley.processors.dialogue.llm_failover import LlmFailoverHead
from parley.processors.dialogue.rtvi import CheckedRtvi, ShowPicture
from parley.processors.pipecat_internals import observe_what_is_read
from parley.processors.turns.idle import IdleMonitor
from parley.protocols.client_protocol import SHUTDOWN, STOPPING
from parley.runtime.observers import CallObserver, ObservedCall, close_observers, open_observers
from parley.runtime.trace_context import CallTrace, open_call_trace
from parley.session_store.conversation import Conversation
from parley.session_store.rows import SHOWN_CHARS
from parley.telemetry.call_metrics import CallMetrics
from parley.telemetry.call_traces import CallTraces
from parley.telemetry.engine_names import EngineNames
from parley.telemetry.failure_log import CallFailures
from parley.telemetry.turn_events import TurnLogWriter
from parley.telemetry.usage_ledger import CallLedger
from parley.turn_taking.idle import IdleTuning

OVER_LIMIT = "too many questions in a short time, ask again in a minute"
# Reasons for the end of a call.
LIMITED = "rate_limit_exceeded"
LOST = "session_lost"
USED_UP = "tenant_limit", "the limit of this account is used up"
EXPIRED = "grants_expired", "the grants of this client have expired; get another token"
BY_OPERATOR = "ended_by_operator", "an operator of this service has ended the call"


def idle_keeper(engines: Engines, call: Call) -> IdleMonitor:
    """Return the monitor of silences in one call."""
    bot = engines.deployment.bot
    # A recording or a script does not fall silent.
    settings = bot.idle if call.capabilities.has_person and call.client.prompts else None
    if settings is not None and not call.phone.ends_on_goodbye:
        settings = tuned(IdleTuning, settings).model_copy(update={"hang_up_on_farewell": False})
    return IdleMonitor(
        call.events,
        settings,
        floor=call.live.floor,
        timeout_ms=bot.idle_timeout_ms,
        idle_ms=call.live.turns.idle_ms,
        language=engines.deployment.language(),
    )


def call_worker(
    processors: Sequence[FrameProcessor],
    *,
    output_rate_hz: int,
    unseen: Sequence[FrameProcessor],
    rtvi: bool,
    reads_rtvi: bool = True,
    refuses_text: str = "",
    refuses_turn: Callable[[], str] | None = None,
    take_typed: Callable[[str], float] | None = None,
    show: ShowPicture | None = None,
) -> PipelineWorker:
    """The pipeline of one call, or of one typed turn.

    Args:
        processors: processors in order.
        output_rate_hz: rate of the bot's audio.
        unseen: processors whose frames are shown to no client, because they are guesses or are pushed again.
        rtvi: the call has an RTVI client.
        reads_rtvi: see ``SocketClient``. A message is a frame that passes the whole pipeline, several of
            them for each word of the bot: without a reader they would waste the loop's time.
        refuses_text: reason for refusing all text that a client types; empty to accept it.
        refuses_turn: returns the reason for refusing a turn now; empty to accept it.
        take_typed: see ``CheckedRtvi``.
        show: see ``CheckedRtvi``.
    """
    checked = None
    if rtvi:
        checked = CheckedRtvi(
            refuses_text=refuses_text, refuses_turn=refuses_turn, take_typed=take_typed, show=show
        )
    worker = PipelineWorker(
        Pipeline(list(processors)),
        params=PipelineParams(
            audio_in_sample_rate=INPUT_RATE_HZ,
            audio_out_sample_rate=output_rate_hz,
            # Durations are measured by the call's own events, which also hold for a simulated clock.
            enable_usage_metrics=True,
        ),
        enable_turn_tracking=False,
        enable_rtvi=rtvi,
        rtvi_processor=checked,
        rtvi_observer_params=RTVIObserverParams(
            metrics_enabled=False,
            system_logs_enabled=False,
            ignored_sources=list(unseen),
            bot_output_enabled=reads_rtvi,
            bot_llm_enabled=reads_rtvi,
            bot_tts_enabled=reads_rtvi,
            bot_speaking_enabled=reads_rtvi,
            user_llm_enabled=reads_rtvi,
            # A socket reports the words of a turn before its end by the order of these messages.
            user_speaking_enabled=True,
            user_input_enabled=reads_rtvi,
        ),
        idle_timeout_secs=None,
    )
    observe_what_is_read(worker)
    return worker


async def run_call(
    engines: Engines,
    worker: PipelineWorker,
    transport: BaseTransport,
    call: Call,
    idle: IdleMonitor,
    *,
    mode: str = CASCADE,
    background: Sequence[Coroutine[Any, Any, None]] = (),
    before_close: Callable[[], Awaitable[None]] | None = None,
    reads_annotations: bool = True,
) -> None:
    """Run one call until it ends, for any reason.

    Args:
        engines: engines of the process.
        worker: worker of its pipeline.
        transport: transport of the call, Pipecat's or ours.
        call: the call.
        idle: monitor of its silences.
        mode: mode of the call (``modes``).
        background: coroutines to run during the call; cancelled at its end.
        before_close: awaited before the end of the call is recorded, to complete the session's records.
        reads_annotations: the model that answers reads what specialists report, with the words.

    Raises:
        PeerError: the transport cannot work any more, or never could.
    """
    # Lines of the log say which call they are about (``telemetry.json_log``).
    with logger.contextualize(session=call.conversation.shown_id, call=call.call_id[:SHOWN_CHARS]):
        await _run_call(
            engines,
            worker,
            transport,
            call,
            idle,
            mode=mode,
            background=background,
            before_close=before_close,
            reads_annotations=reads_annotations,
        )


async def _run_call(
    engines: Engines,
    worker: PipelineWorker,
    transport: BaseTransport,
    call: Call,
    idle: IdleMonitor,
    *,
    mode: str,
    background: Sequence[Coroutine[Any, Any, None]],
    before_close: Callable[[], Awaitable[None]] | None,
    reads_annotations: bool,
) -> None:
    # Before the call's tasks exist: they inherit it.
    trace = None if engines.traces is None else open_call_trace()
    runner = WorkerRunner(handle_sigint=call.handles_sigint)
    await runner.add_workers(worker)

    failures: list[str] = []

    @worker.event_handler("on_pipeline_error")
    async def on_error(_worker: PipelineWorker, error: ErrorFrame) -> None:
        call.events.publish(_failure(call.events.now_ms(), error))
        if _is_of_transport(error, transport):
            failures.append(error.error)
            await runner.cancel(reason="the transport has failed")

    @transport.event_handler("on_client_disconnected")
    async def on_gone(_transport: BaseTransport, _client: object) -> None:
        call.events.publish(CallerLeft(call.events.now_ms()))
        await runner.cancel(reason="the caller has disconnected")

    if mode == CASCADE:
        LostStages(call.events)
    names = EngineNames(
        call.events,
        *(engines.names(by, voice=call.choices.voice) for by in (mode, CASCADE)),
        engine_of=engines.voice_engine,
    )
    _record(call, engines.deployment.bot, names)
    VoiceprintRecords(call.conversation, call.events, call.call_id)
    observed = ObservedCall(call.conversation.session_id, call.call_id, call.transport, mode)
    usage = UsageRecords(call, engines.prices, names)
    observers = [
        *_own_observers(engines, call, observed, names, trace),
        *open_observers(engines.observers, call.events, observed),
    ]
    try:
        call.events.publish(CallBegan(call.events.now_ms()))
        try:
            with engines.live_calls.opened(call, mode) as live:
                watching = _enders(engines, idle, worker, call, live)
                async with engines.recordings.recorded(call, mode):
                    with engines.annotations.opened(call, are_read=reads_annotations):
                        await run_background(runner, [*watching, *background])
        finally:
            if before_close is not None:
                await before_close()
            usage.finish()
            call.events.publish(CallEnded(call.events.now_ms()))
        call.live.turns.close()
    finally:
        try:
            await release_call(runner, worker, transport, call)
        finally:
            # Handlers that still ran may have published; from here on the stream is closed.
            close_observers(observers)
    if failures:
        raise PeerError(f"the transport has failed: {failures[0]}")


def _record(call: Call, bot: Bot, names: EngineNames) -> None:
    """Record the events of a call; its replies name their maker where the session has evidence."""
    maker, made_by = call.conversation.made_by, None
    if maker is not None:
        made_by = partial(_made_by, maker, call, bot.system_prompt, names)
    CallRecords(call, made_by, (bot.greeting, bot.greeting_again))


def _made_by(
    maker: Provenance,
    call: Call,
    system_prompt: str,
    names: EngineNames,
    prompt: str | None,
    writers: Sequence[str],
) -> dict[str, Any]:
    """Return the field of a reply that names its maker, for the prompt of its request or else of the call."""
    engines = {stage.value: name for stage, name in names.items()}
    if prompt is None:
        prompt = client_prompt(call.client.requested(), call.choices.prompt(system_prompt))
    models = {stage.value: model for stage, model in names.models.items()}
    return {"made_by": maker.of_reply(engines, prompt, models=models, writers=writers)}


def _own_observers(
    engines: Engines,
    call: Call,
    observed: ObservedCall,
    names: EngineNames,
    trace: CallTrace | None,
) -> list[CallObserver]:
    """Return Parley's own observers of a call."""
    events, mode = call.events, observed.mode
    currency = None if engines.prices.settings is None else engines.prices.settings.currency
    observers: list[CallObserver] = [
        TurnLogWriter(call.live.turns, events, judges_words=mode == CASCADE),
        ProcessAnswers(events, engines.answers, is_service=mode == REALTIME),
        CallMetrics(events, observed, engines.metrics, names, currency),
        CallFailures(events, engines.failures, names),
        CallLedger(events, observed, engines.ledger),
        TenantCharges(events, engines.answering.usage.tenants, call.rules.identity),
    ]
    if trace is not None and engines.traces is not None:
        observers.append(CallTraces(events, observed, engines.traces.tracer, names, trace))
    return observers


def _failure(at_ms: int, error: ErrorFrame) -> EngineFailed:
    """Return the event of an error; whether it will recur is Pipecat's verdict on the service."""
    failed = error.processor
    is_permanent = isinstance(failed, AIService) and not failed.is_usable
    return EngineFailed(at_ms, stage_of(failed), is_permanent)


def stage_of(processor: object) -> Stage | None:
    """Return the stage of a processor that has reported an error; None for another part."""
    if isinstance(processor, LLMService | LlmFailoverHead):
        return Stage.LLM
    if isinstance(processor, STTService):
        return Stage.STT
    return Stage.TTS if isinstance(processor, TTSService) else None


def _is_of_transport(error: ErrorFrame, transport: BaseTransport) -> bool:
    """Return whether the error means that the transport is gone.

    A call without its transport receives and sends no audio: a room that cannot be joined, for example.
    """
    failed = error.processor
    return failed in (transport.input(), transport.output()) and failed is not None and not failed.is_usable


async def run_background(runner: WorkerRunner, background: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run until the conversation is over, with its watchers, which end with it.

    Args:
        runner: runs the pipeline.
        background: the watchers.
    """
    async with asyncio.TaskGroup() as tasks:
        watching = [tasks.create_task(each, name="conversation.watch") for each in background]
        try:
            await runner.run()
        finally:
            for watch in watching:
                watch.cancel()


def _enders(
    engines: Engines,
    idle: IdleMonitor,
    worker: PipelineWorker,
    call: Call,
    live: ListenedCall,
) -> list[Coroutine[Any, Any, None]]:
    """Return the watchers of a call and the task of its input.

    A call ends on silence, a lost session, expired grants, a used-up limit of its tenant, an operator's
    request, a server that stops, and ``finished``.
    """
    watching = [
        idle.run(worker.queue_frame),
        call.live.input.run(),
        _end_when_lost(call, worker),
        _end_when_expired(call, worker),
        _leave_when_closing(engines, idle, call, worker),
        _leave_when_used_up(engines, idle, call, worker),
        _leave_when_ended(live, idle, call, worker),
    ]
    return [*watching, _end_when(call.finished, worker)] if call.finished else watching


async def _end_when(finished: asyncio.Event, worker: PipelineWorker) -> None:
    await finished.wait()
    await worker.queue_frame(EndFrame())


async def _leave_when_closing(
    engines: Engines, idle: IdleMonitor, call: Call, worker: PipelineWorker
) -> None:
    await engines.shutdown.closing.wait()
    call.events.publish(CallEnding(call.events.now_ms(), SHUTDOWN, STOPPING[1]))
    idle.leave(engines.deployment.bot.shutdown_phrase)
    if call.peer.speaks_rtvi:
        await worker.queue_frame(RTVIServerMessageFrame(data={"kind": SHUTDOWN}))


async def _leave_when_used_up(
    engines: Engines, idle: IdleMonitor, call: Call, worker: PipelineWorker
) -> None:
    """End the call after a goodbye when its tenant has used up its minutes, tokens or cost."""
    tenants = engines.answering.usage.tenants
    used_up = tenants.used_up(call.rules.identity)
    if used_up is None:
        return
    await used_up.wait()
    kind, reason = USED_UP
    call.events.publish(CallEnding(call.events.now_ms(), kind, reason))
    idle.leave(tenants.settings.phrase)
    if call.peer.speaks_rtvi:
        await worker.queue_frame(RTVIServerMessageFrame(data={"kind": kind, "reason": reason}))


async def _leave_when_ended(
    live: ListenedCall, idle: IdleMonitor, call: Call, worker: PipelineWorker
) -> None:
    """End the call when an operator requests it; what is being said goes on for a moment."""
    await live.ending.wait()
    kind, reason = BY_OPERATOR
    call.events.publish(CallEnding(call.events.now_ms(), kind, reason))
    idle.leave("")
    if call.peer.speaks_rtvi:
        await worker.queue_frame(RTVIServerMessageFrame(data={"kind": kind, "reason": reason}))


async def _end_when_lost(call: Call, worker: PipelineWorker) -> None:
    """End the call when another process has claimed the session, or it was deleted: nothing more is kept."""
    conversation = call.conversation
    await conversation.lost.wait()
    logger.warning(f"this process has lost the session: {conversation.loss}")
    reason = str(conversation.loss)
    call.events.publish(CallEnding(call.events.now_ms(), LOST, reason))
    if call.peer.speaks_rtvi:
        await worker.queue_frame(RTVIServerMessageFrame(data={"kind": LOST, "reason": reason}))
    await worker.queue_frame(EndFrame())


async def _end_when_expired(call: Call, worker: PipelineWorker) -> None:
    """End the call when the grants of its client end, after the current speech."""
    identity = call.rules.identity
    expires_s = identity.grants.expires_s
    if expires_s is None or identity.is_operator:
        return
    await asyncio.sleep(max(0.0, expires_s - time.time()))
    logger.info("the call ends: the grants of its client have expired")
    call.events.publish(CallEnding(call.events.now_ms(), *EXPIRED))
    if call.peer.speaks_rtvi:
        kind, reason = EXPIRED
        await worker.queue_frame(RTVIServerMessageFrame(data={"kind": kind, "reason": reason}))
    await worker.queue_frame(EndFrame())


def history_of(conversation: Conversation) -> tuple[tuple[str, str], ...]:
    """Return the conversation so far from the session: words as they were heard, older turns as a summary."""
    return tuple(
        (str(message["role"]), str(message.get("content", "")))
        for message in conversation.view().messages
        if message.get("role") in ("user", "assistant")
    )
