"""Cascade with the playout clock around its output, which sends its records to the client.

It has the engines, the transport, the turns and the voice of the product, without its gateway and session
store. In addition to the ``heard`` message of every reply (``HeardReply.as_message``) it sends the reply as
the model will be shown it (``remembered``). In ``released`` it sends the number of words by Pipecat's own
rule: by the time stamps of the words, counted from the moment when their audio left the voice.

    python -m evals.heard_truth.server --config configs/embedded.yaml --port 7862
"""

import asyncio
import sys
from typing import Any

from pipecat.frames.frames import Frame, TTSSpeakFrame, TTSStartedFrame, TTSTextFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    AssistantTurnStoppedMessage,
    LLMContextAggregatorPair,
    LLMUserAggregatorParams,
)
from pipecat.processors.audio.vad_processor import VADProcessor
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.processors.frameworks.rtvi import RTVIServerMessageFrame
from pipecat.transports.base_transport import TransportParams
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
from pipecat.turns.user_start import VADUserTurnStartStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from pipecat.workers.runner import WorkerRunner

from parley.core.call_events import ReplyFinished
from parley.evals.harness.comparison_server import command
from parley.pipelines.engines.engines import Engines
from parley.processors.front_end.vad import VOICE, SharedVadAnalyzer
from parley.processors.playout.assistant import HeardAssistantAggregator
from parley.processors.playout.heard import PlayoutSettings
from parley.processors.playout.playout import Playout
from parley.processors.turns.audio_stop import AudioStop
from parley.processors.turns.endpoint import EndpointStopStrategy
from parley.runtime.event_stream import CallEvents
from parley.transports.webrtc.transport import PacedWebRTCTransport
from parley.turn_taking.endpointing.policies import endpoint_policy

INPUT_RATE_HZ = 16_000


class ReleasedWords(FrameProcessor):
    """Counter of the words that the output has released of the newest speech."""

    def __init__(self) -> None:
        super().__init__(enable_direct_mode=True)
        self.count = 0

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSStartedFrame):
            self.count = 0
        elif isinstance(frame, TTSTextFrame):
            self.count += 1
        await self.push_frame(frame, direction)


async def run_bot(engines: Engines, connection: SmallWebRTCConnection) -> None:
    """Run one call."""
    hearing, bot = engines.deployment.hearing, engines.deployment.bot
    stt, thinking, tts = await asyncio.gather(
        engines.build_stt(audio_passthrough=False), engines.answering.build(), engines.build_tts()
    )
    released = ReleasedWords()
    messages: asyncio.Queue[dict[str, object]] = asyncio.Queue()

    def on_reply_finished(event: ReplyFinished) -> None:
        if event.heard.is_known:
            messages.put_nowait({**event.heard.as_message(), "released": released.count})

    events = CallEvents()
    events.subscribe(ReplyFinished, on_reply_finished)
    playout = Playout(
        PlayoutSettings(),
        events=events,
        peer_quiet_ms=lambda: transport.quiet_ms(),
    )
    transport = PacedWebRTCTransport(
        connection,
        TransportParams(audio_in_enabled=True, audio_out_enabled=True, audio_out_end_silence_secs=0),
        # A stream without subscribers: this evaluation uses the delay of the settings.
        events=CallEvents(),
        on_packet=playout.played,
    )
    endpoint = EndpointStopStrategy(
        endpoint_policy(hearing.endpoint),
        completeness=engines.turn,
        executor=engines.executors.turn,
        events=events,
    )
    vad = SharedVadAnalyzer(
        engines.vad,
        executor=engines.executors.vad,
        params=VOICE.params(),
        events=events,
        pause_ms=VOICE.pause_ms,
        listeners=[endpoint.hear],
    )
    context = LLMContext()
    user, _ = LLMContextAggregatorPair(
        context,
        user_params=LLMUserAggregatorParams(
            user_turn_strategies=UserTurnStrategies(start=[VADUserTurnStartStrategy()], stop=[endpoint])
        ),
    )
    assistant = HeardAssistantAggregator(context, user)

    @assistant.event_handler("on_assistant_turn_stopped")
    async def on_bot_turn(_aggregator: Any, message: AssistantTurnStoppedMessage) -> None:
        messages.put_nowait({"kind": "remembered", "text": message.content})

    thought, entry, playout_exit = playout.taps()
    listening = [transport.input(), VADProcessor(vad_analyzer=vad, enable_direct_mode=True), stt, AudioStop()]
    speaking = [thought, tts, entry, transport.output(), playout_exit, released]
    worker = PipelineWorker(
        Pipeline([*listening, user, *thinking, *speaking, assistant]),
        params=PipelineParams(
            audio_in_sample_rate=INPUT_RATE_HZ, audio_out_sample_rate=engines.output_rate_hz
        ),
        enable_turn_tracking=False,
        idle_timeout_secs=None,
    )
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)

    @transport.event_handler("on_client_connected")
    async def on_connected(_transport: Any, _client: Any) -> None:
        await worker.queue_frame(TTSSpeakFrame(bot.greeting))

    @transport.event_handler("on_client_disconnected")
    async def on_disconnected(_transport: Any, _client: Any) -> None:
        await runner.cancel()

    async def forward() -> None:
        while True:
            await worker.queue_frame(RTVIServerMessageFrame(data=await messages.get()))

    async with asyncio.TaskGroup() as tasks:
        forwarding = tasks.create_task(forward(), name="heard.forward")
        try:
            await runner.run()
        finally:
            forwarding.cancel()


if __name__ == "__main__":
    sys.exit(
        command(
            run_bot, description="Serve a cascade that reports how much of each reply was heard.", port=7862
        )
    )
