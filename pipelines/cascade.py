"""The cascade: ears, turns, thought, voice, in the order the data meets them.

``run_conversation`` builds one call's pipeline from the shared engines, runs it until the caller is gone and
returns. It owns everything of the call: Pipecat's worker owns the tasks, and whatever ends it (hang-up,
cancellation, idleness, a session that another process took over) ends them. The call is one transport of a
session, which was there before it and stays behind it.

    transport.input -> VAD -> STT -> (audio stops) -> (perceived) -> user turns -> (committed)
        -> guarded LLM -> TTS -> transport.output -> (heard) -> bot turns
"""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from loguru import logger
from pipecat.frames.frames import EndFrame, TTSSpeakFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    AssistantTurnStoppedMessage,
    LLMUserAggregator,
    LLMUserAggregatorParams,
    UserTurnStoppedMessage,
)
from pipecat.processors.audio.vad_processor import VADProcessor
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.processors.frameworks.rtvi import RTVIObserverParams, RTVIServerMessageFrame
from pipecat.transports.base_transport import BaseTransport
from pipecat.turns.user_start import TranscriptionUserTurnStartStrategy, VADUserTurnStartStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from pipecat.workers.runner import WorkerRunner

from configs.deployment import Bot
from pipelines.call import Call
from pipelines.engines import Engines
from processors.dialogue.commit_gate import CommitGate
from processors.dialogue.durable_tools import DurableTools
from processors.dialogue.rtvi import CheckedRtvi
from processors.front_end.vad import SharedVadAnalyzer
from processors.fusion.perception import Perception
from processors.playout.assistant import HeardAssistantAggregator
from processors.taps.turn_marks import SpeakingTap, ThinkingTap, TypingTap
from processors.turns.audio_stop import AudioStop
from processors.turns.endpoint import EndpointStopStrategy
from session_store.conversation import Conversation
from telemetry.turns import TurnLog
from turn_taking.endpointing import Endpoint, Endpointer

INPUT_RATE_HZ = 16_000


async def run_conversation(
    engines: Engines,
    transport: BaseTransport,
    call: Call,
    *,
    rtvi: bool = True,
    handle_sigint: bool = False,
    finished: asyncio.Event | None = None,
) -> None:
    """Hold one conversation over ``transport`` until it ends.

    Args:
        engines: of the process.
        transport: Pipecat's or ours.
        call: the session that it is a part of, and its records.
        rtvi: whether the other side speaks RTVI (a browser page, another program).
        handle_sigint: end the conversation on Ctrl-C.
        finished: set by whoever wants the conversation to end in good order, after what is being said.
    """
    turns = call.turns
    runner = WorkerRunner(handle_sigint=handle_sigint)
    async with engines.answering.tools(call.conversation) as tools:
        worker = await build_worker(engines, transport, call, tools=tools, rtvi=rtvi)
        await runner.add_workers(worker)

        @transport.event_handler("on_client_disconnected")
        async def on_gone(_transport: BaseTransport, _client: object) -> None:
            await runner.cancel(reason="the caller is gone")

        call.joined()
        try:
            enders = _enders(engines, worker, call, rtvi=rtvi, finished=finished)
            # What a crash left half done may take a slow server's time; nobody's greeting waits for it.
            await _run(runner, [*enders, tools.recover()])
        finally:
            call.left()
    turns.close()


async def _run(runner: WorkerRunner, beside: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run until the conversation is over, beside what watches it, which ends with it."""
    async with asyncio.TaskGroup() as tasks:
        watching = [tasks.create_task(each, name="conversation.watch") for each in beside]
        try:
            await runner.run()
        finally:
            for watch in watching:
                watch.cancel()


def _enders(
    engines: Engines, worker: PipelineWorker, call: Call, *, rtvi: bool, finished: asyncio.Event | None
) -> list[Coroutine[Any, Any, None]]:
    enders = [
        _end_when_idle(call.turns, worker, engines.deployment.bot.idle_timeout_ms),
        _end_when_lost(call.conversation, worker, rtvi=rtvi),
    ]
    return [*enders, _end_when(finished, worker)] if finished else enders


async def _end_when(finished: asyncio.Event, worker: PipelineWorker) -> None:
    await finished.wait()
    await worker.queue_frame(EndFrame())


async def _end_when_lost(conversation: Conversation, worker: PipelineWorker, *, rtvi: bool) -> None:
    """Another process claimed the session, or somebody deleted it: nothing that is said here is kept."""
    await conversation.lost.wait()
    logger.warning(f"the session is gone from here: {conversation.loss}")
    if rtvi:
        reason = str(conversation.loss)
        await worker.queue_frame(RTVIServerMessageFrame(data={"kind": "session_lost", "reason": reason}))
    await worker.queue_frame(EndFrame())


async def _end_when_idle(turns: TurnLog, worker: PipelineWorker, idle_timeout_ms: int) -> None:
    """Pipecat's own idle observer would look at every frame of the call."""
    while True:
        left_ms = idle_timeout_ms - turns.idle_ms()
        if left_ms <= 0:
            break
        await asyncio.sleep(left_ms / 1000)
    logger.info("nobody has made a sound for a long time, ending the conversation")
    await worker.queue_frame(EndFrame())


async def build_worker(
    engines: Engines,
    transport: BaseTransport,
    call: Call,
    *,
    tools: DurableTools | None = None,
    rtvi: bool = True,
) -> PipelineWorker:
    """The pipeline of one call. Loads no model; what a cloud service builds is built in a thread."""
    deployment = engines.deployment
    hearing = deployment.hearing
    turns, conversation = call.turns, call.conversation
    context = LLMContext()
    stt, thinking, tts = await asyncio.gather(
        engines.build_stt(audio_passthrough=False),
        engines.answering.build(tools=tools, context=context),
        engines.build_tts(),
    )
    perception = Perception(conversation, call_id=call.call_id, settings=hearing.perception)
    gate = CommitGate(
        conversation,
        context,
        transport=call.transport,
        settings=deployment.remembering.gate,
        perceive=perception.take,
    )
    thought, entry, exit_ = call.playout.taps()

    def on_endpoint(endpoint: Endpoint) -> None:
        turns.user_turn_ended(silence_ms=endpoint.silence_ms, completeness=endpoint.completeness)

    endpoint = EndpointStopStrategy(
        Endpointer(hearing.endpoint),
        completeness=engines.turn,
        executor=engines.executors.turn,
        on_endpoint=on_endpoint,
        on_words=turns.words_arrived,
    )
    user = LLMUserAggregator(
        context,
        params=LLMUserAggregatorParams(
            user_turn_strategies=UserTurnStrategies(
                start=[VADUserTurnStartStrategy(), TranscriptionUserTurnStartStrategy()], stop=[endpoint]
            ),
            # Pipecat would have the model answer a developer message, which stays in the context and which
            # the documents take for a question: ``_follow`` asks again instead.
            empty_user_turn=None,
        ),
    )

    assistant = HeardAssistantAggregator(context, user)

    def hear(pcm: bytes) -> None:
        turns.heard(pcm)
        endpoint.hear(pcm)

    vad = SharedVadAnalyzer(
        engines.vad,
        executor=engines.executors.vad,
        params=hearing.voice.params(),
        on_pause=endpoint.on_pause,
        on_onset=endpoint.on_onset,
        pause_ms=hearing.voice.pause_ms,
        on_audio=hear,
    )
    pipeline = Pipeline(
        [
            transport.input(),
            VADProcessor(vad_analyzer=vad, enable_direct_mode=True),
            stt,
            AudioStop(),
            TypingTap(turns),
            perception,
            user,
            gate,
            *thinking,
            ThinkingTap(turns),
            thought,
            tts,
            SpeakingTap(turns),
            entry,
            transport.output(),
            exit_,
            assistant,
        ]
    )
    worker = PipelineWorker(
        pipeline,
        params=PipelineParams(
            audio_in_sample_rate=INPUT_RATE_HZ, audio_out_sample_rate=engines.output_rate_hz
        ),
        enable_turn_tracking=False,
        enable_rtvi=rtvi,
        rtvi_processor=CheckedRtvi() if rtvi else None,
        rtvi_observer_params=RTVIObserverParams(
            metrics_enabled=False,
            system_logs_enabled=False,
            ignored_sources=[thinking[0]] if len(thinking) > 1 else [],
        ),
        idle_timeout_secs=None,
    )
    call.report = worker.queue_frame
    greeting = deployment.bot.greeting_again if conversation.events else deployment.bot.greeting
    _follow(worker, transport, user, assistant, call, bot=deployment.bot, greeting=greeting, rtvi=rtvi)
    if rtvi:
        _introduce(worker, conversation)
    return worker


def _introduce(worker: PipelineWorker, conversation: Conversation) -> None:
    """Tell the other side which session this is: with its id it can come back."""

    @worker.rtvi.event_handler("on_client_ready")
    async def on_ready(_rtvi: Any) -> None:
        data = {"kind": "session", "id": conversation.session_id}
        await worker.queue_frame(RTVIServerMessageFrame(data=data))


def _follow(
    worker: PipelineWorker,
    transport: BaseTransport,
    user: FrameProcessor,
    assistant: FrameProcessor,
    call: Call,
    *,
    bot: Bot,
    greeting: str,
    rtvi: bool,
) -> None:
    """Greet once, ask again after a cough, and keep the turn log in step with the aggregators."""
    turns = call.turns
    greeted = cut_off = reprompted = False

    @transport.event_handler("on_client_connected")
    async def on_connected(_transport: BaseTransport, _client: object) -> None:
        nonlocal greeted
        # A peer that reconnects in the middle of the conversation is not greeted again.
        if greeting and not greeted:
            greeted = True
            await worker.queue_frame(TTSSpeakFrame(greeting, append_to_context=True))

    @user.event_handler("on_user_turn_stopped")
    async def on_user_turn(_aggregator: Any, _strategy: Any, message: UserTurnStoppedMessage) -> None:
        nonlocal cut_off, reprompted
        if message.content:
            reprompted = False
            turns.user_said(message.content)
        elif cut_off and bot.reprompt and not reprompted:
            # Nobody answers a cough, but the bot fell silent over it: better to say so than to leave a hole.
            # Once: in a noisy room it would go on for ever.
            reprompted = True
            await worker.queue_frame(TTSSpeakFrame(bot.reprompt, append_to_context=True))
        cut_off = False

    @assistant.event_handler("on_assistant_turn_stopped")
    async def on_bot_turn(_aggregator: Any, message: AssistantTurnStoppedMessage) -> None:
        nonlocal cut_off
        cut_off = message.interrupted
        turns.bot_said(message.content, interrupted=message.interrupted)
        turns.close()
        records = [record.as_message() for record in turns.drain()]
        replies = call.drain_heard()
        if message.content and not any(reply.in_context for reply in replies):
            # Not for the voice (a client that reads): nothing of it was played, all of it was shown.
            call.wrote(message.content, interrupted=message.interrupted)
        heard = [reply.as_message() for reply in replies]
        if rtvi:
            for data in [*heard, *records]:
                await worker.queue_frame(RTVIServerMessageFrame(data=data))
