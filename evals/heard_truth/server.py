"""A cascade with the playout clock around its output, which tells the client what it has in its books.

The engines, the transport, the turns and the voice of the product, without its gateway and session store.
Beside the ``heard`` message of every reply (``HeardReply.as_message``) it sends what the model will be shown
of it (``remembered``), and in ``released`` how many words Pipecat's own rule had let go: by the time stamps
of the words, counted from the moment when their audio left the voice.

    python -m evals.heard_truth.server --config configs/embedded.yaml --port 7862
"""

import argparse
import asyncio
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import BackgroundTasks, FastAPI
from loguru import logger
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
from pipecat.transports.smallwebrtc.request_handler import SmallWebRTCRequest, SmallWebRTCRequestHandler
from pipecat.turns.user_start import VADUserTurnStartStrategy
from pipecat.turns.user_turn_strategies import UserTurnStrategies
from pipecat.workers.runner import WorkerRunner

from configs.load import load_deployment
from core.errors import ConfigError, EngineError
from pipelines.engines import Engines
from processors.front_end.vad import SharedVadAnalyzer
from processors.playout.assistant import HeardAssistantAggregator
from processors.playout.heard import HeardReply, PlayoutSettings
from processors.playout.playout import Playout
from processors.turns.audio_stop import AudioStop
from processors.turns.endpoint import EndpointStopStrategy
from runtime import event_loop
from transports.webrtc.transport import PacedWebRTCTransport
from turn_taking.endpointing import Endpointer

HOST = "127.0.0.1"
INPUT_RATE_HZ = 16_000


class ReleasedWords(FrameProcessor):
    """Counts the words that the output has let go of the newest speech."""

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
    """One call."""
    hearing, bot = engines.deployment.hearing, engines.deployment.bot
    stt, thinking, tts = await asyncio.gather(
        engines.build_stt(audio_passthrough=False), engines.build_llm(), engines.build_tts()
    )
    released = ReleasedWords()
    messages: asyncio.Queue[dict[str, object]] = asyncio.Queue()

    def on_reply(reply: HeardReply) -> None:
        messages.put_nowait({**reply.as_message(), "released": released.count})

    playout = Playout(
        PlayoutSettings(word_due_percent=engines.deployment.speaking.delivery.word_due_percent),
        on_reply=on_reply,
        peer_quiet_ms=lambda: transport.quiet_ms(),
    )
    transport = PacedWebRTCTransport(
        connection,
        TransportParams(audio_in_enabled=True, audio_out_enabled=True, audio_out_end_silence_secs=0),
        on_packet=playout.played,
    )
    endpoint = EndpointStopStrategy(
        Endpointer(hearing.endpoint), completeness=engines.turn, executor=engines.executors.turn
    )
    vad = SharedVadAnalyzer(
        engines.vad,
        executor=engines.executors.vad,
        params=hearing.voice.params(),
        on_pause=endpoint.on_pause,
        on_onset=endpoint.on_onset,
        pause_ms=hearing.voice.pause_ms,
        on_audio=endpoint.hear,
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

    async def tell() -> None:
        while True:
            await worker.queue_frame(RTVIServerMessageFrame(data=await messages.get()))

    async with asyncio.TaskGroup() as tasks:
        telling = tasks.create_task(tell(), name="heard.tell")
        try:
            await runner.run()
        finally:
            telling.cancel()


def create_app(engines: Engines) -> FastAPI:
    """The server around Pipecat's own request handler."""
    handler = SmallWebRTCRequestHandler()

    @asynccontextmanager
    async def lifespan(_app: FastAPI) -> AsyncIterator[None]:
        yield
        await handler.close()

    app = FastAPI(lifespan=lifespan)

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/api/offer")
    async def offer(request: SmallWebRTCRequest, background_tasks: BackgroundTasks) -> dict[str, str] | None:
        async def on_connection(connection: SmallWebRTCConnection) -> None:
            background_tasks.add_task(run_bot, engines, connection)

        return await handler.handle_web_request(request, on_connection)

    return app


async def serve(config: Path, port: int) -> None:
    """Load the engines of a deployment and serve until a signal.

    Raises:
        ConfigError: the deployment is wrong.
        EngineError: an engine does not load.
    """
    async with await Engines.load(load_deployment(config)) as engines:
        settings = uvicorn.Config(
            create_app(engines), host=HOST, port=port, log_level="warning", access_log=False
        )
        await uvicorn.Server(settings).serve()


def main() -> int:
    """Command line; 2 with one line when the deployment cannot be served."""
    parser = argparse.ArgumentParser(description="A cascade that tells what was heard of each reply.")
    parser.add_argument("--config", type=Path, default=Path("configs/embedded.yaml"))
    parser.add_argument("--port", type=int, default=7862)
    arguments = parser.parse_args()
    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    try:
        event_loop.run(serve(arguments.config, arguments.port))
    except (ConfigError, EngineError) as error:
        print(f"error: {' '.join(str(error).split())}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
