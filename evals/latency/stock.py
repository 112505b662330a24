"""Baseline: the same engines in the pipeline of Pipecat's documentation, with its defaults.

Shared with the product are the loaded engines and their services, the greeting and the prompt. The recogniser
runs in its own process, the model streams, and the voice streams and gives word times. The use of our
services, instead of ones written for the comparison, favours the baseline. A recogniser in a thread would
hold the interpreter lock, and one that does not mark its final transcripts would cost every turn up to a
second.

Pipecat's own are ``SmallWebRTCTransport`` with default ``TransportParams``, its request handler,
``SileroVADAnalyzer`` and the default turn strategies (smart-turn v3), each built per call on the event loop
as in its examples. So are sentence aggregation before the voice, ``PipelineParams`` with metrics on and the
default rates, RTVI and turn tracking on. Logging is at WARNING, which is no default, so that logging does not
make the difference.

    python -m evals.latency.stock --config configs/embedded.yaml --port 7861

``evals.harness.comparison_server`` describes the process around the pipeline.
"""

import asyncio
import sys
from typing import Any

from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.frames.frames import TTSSpeakFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    LLMContextAggregatorPair,
    LLMUserAggregatorParams,
)
from pipecat.processors.frame_processor import FrameProcessor
from pipecat.services.tts_service import TTSService
from pipecat.transports.base_transport import TransportParams
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
from pipecat.transports.smallwebrtc.transport import SmallWebRTCTransport
from pipecat.workers.runner import WorkerRunner

from parley.evals.harness.comparison_server import command
from parley.evals.library_internals import aggregate_sentences
from parley.pipelines.engines.engines import Engines


async def run_bot(engines: Engines, connection: SmallWebRTCConnection) -> None:
    """Run one call, wired as in Pipecat's quickstart."""
    bot = engines.deployment.bot
    transport = SmallWebRTCTransport(
        webrtc_connection=connection, params=TransportParams(audio_in_enabled=True, audio_out_enabled=True)
    )
    stt, model, tts = await asyncio.gather(
        engines.build_stt(), engines.answering.build(), engines.build_tts()
    )
    context = LLMContext([{"role": "system", "content": bot.system_prompt}])
    user_aggregator, assistant_aggregator = LLMContextAggregatorPair(
        context, user_params=LLMUserAggregatorParams(vad_analyzer=SileroVADAnalyzer())
    )
    pipeline = Pipeline(
        [
            transport.input(),
            stt,
            user_aggregator,
            *model,
            by_sentence(tts),
            transport.output(),
            assistant_aggregator,
        ]
    )
    worker = PipelineWorker(pipeline, params=PipelineParams(enable_metrics=True, enable_usage_metrics=True))
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)

    @transport.event_handler("on_client_connected")
    async def on_client_connected(_transport: Any, _client: Any) -> None:
        if bot.greeting:
            await worker.queue_frames([TTSSpeakFrame(bot.greeting)])

    @transport.event_handler("on_client_disconnected")
    async def on_client_disconnected(_transport: Any, _client: Any) -> None:
        await runner.cancel()

    await runner.run()


def by_sentence(tts: FrameProcessor) -> FrameProcessor:
    """Restore the text aggregation that a voice has by default in Pipecat."""
    if isinstance(tts, TTSService):
        aggregate_sentences(tts)
    return tts


if __name__ == "__main__":
    sys.exit(
        command(
            run_bot, description="Serve a stock Pipecat pipeline with the engines of a deployment.", port=7861
        )
    )
