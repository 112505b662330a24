"""Servers that play the same audio to every telephone caller: stock Pipecat, and this product's line alone.

``python -m evals.phone.players SYSTEM --audio FILE --port PORT``. The audio is 16-bit PCM at 8 kHz, made
before, and given to the pipeline in pieces of 200 ms as fast as it takes them.

``stock``: Pipecat's ``FastAPIWebsocketTransport`` with ``TwilioFrameSerializer``, at 8 kHz both ways, all
other settings its defaults. ``stock_vad``: the same with the input stages of its telephone example, its voice
detector and its turn analyser, each built per call. ``line``: this product's ``PhoneTransport`` in such a
pipeline. None of them has a recogniser, a model or a voice.
"""

import argparse
import asyncio
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request, Response, WebSocket
from pipecat.audio.vad.silero import SileroVADAnalyzer
from pipecat.frames.frames import OutputAudioRawFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    LLMContextAggregatorPair,
    LLMUserAggregatorParams,
)
from pipecat.runner.utils import parse_telephony_websocket
from pipecat.serializers.twilio import TwilioFrameSerializer
from pipecat.transports.base_transport import BaseTransport
from pipecat.transports.websocket.fastapi import FastAPIWebsocketParams, FastAPIWebsocketTransport
from pipecat.workers.runner import WorkerRunner

from parley.audio.comfort_noise import ComfortNoise
from parley.evals.harness.command import quiet_log
from parley.evals.harness.comparison_server import HOST
from parley.pipelines.engines.plan import INPUT_RATE_HZ
from parley.protocols import twiml
from parley.protocols.twilio_media import RATE_HZ
from parley.runtime import event_loop
from parley.runtime.event_stream import CallEvents
from parley.transports.twilio.stream import PhoneStream
from parley.transports.twilio.transport import PhoneTransport, phone_params
from parley.transports.websocket.peer import StarlettePeer

SYSTEMS = ("stock", "stock_vad", "line")
PIECE_BYTES = RATE_HZ * 2 // 5
MOST_BYTES = 1_000_000


def create_app(system: str, pcm: bytes, port: int) -> FastAPI:
    """Build the server."""
    app = FastAPI()

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/twilio/voice")
    async def voice(_request: Request) -> Response:
        return Response(twiml.connect(f"ws://{HOST}:{port}/media", {}), media_type="text/xml")

    @app.websocket("/media")
    async def media(websocket: WebSocket) -> None:
        await websocket.accept()
        if system == "line":
            await _line(websocket, pcm)
        else:
            await _stock(websocket, pcm, hears=system == "stock_vad")

    return app


async def _stock(websocket: WebSocket, pcm: bytes, *, hears: bool) -> None:
    _kind, call = await parse_telephony_websocket(websocket)
    serializer = TwilioFrameSerializer(
        stream_sid=call.stream_id,
        call_sid=call.call_id,
        # Hanging up automatically would need credentials.
        params=TwilioFrameSerializer.InputParams(auto_hang_up=False),
    )
    transport = FastAPIWebsocketTransport(
        websocket=websocket,
        params=FastAPIWebsocketParams(audio_in_enabled=True, audio_out_enabled=True, serializer=serializer),
    )
    hearing: list[Any] = []
    if hears:
        user, _assistant = LLMContextAggregatorPair(
            LLMContext(), user_params=LLMUserAggregatorParams(vad_analyzer=SileroVADAnalyzer())
        )
        hearing = [user]
    await _play(
        transport, hearing, pcm, PipelineParams(audio_in_sample_rate=8000, audio_out_sample_rate=8000)
    )


async def _line(websocket: WebSocket, pcm: bytes) -> None:
    stream = PhoneStream(StarlettePeer(websocket, most_bytes=MOST_BYTES), comfort=ComfortNoise().packet)
    try:
        if await stream.open() is not None:
            transport = PhoneTransport(
                stream,
                phone_params(INPUT_RATE_HZ),
                input_rate_hz=INPUT_RATE_HZ,
                on_packet=_heard,
                events=CallEvents(),
            )
            rates = PipelineParams(audio_in_sample_rate=INPUT_RATE_HZ, audio_out_sample_rate=RATE_HZ)
            await _play(transport, [], pcm, rates)
    finally:
        await stream.close()


def _heard(_pcm: bytes) -> None:
    """Drop it: nothing is recorded here."""


async def _play(transport: BaseTransport, hearing: list[Any], pcm: bytes, params: PipelineParams) -> None:
    worker = PipelineWorker(Pipeline([transport.input(), *hearing, transport.output()]), params=params)
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)

    @transport.event_handler("on_client_connected")
    async def on_client_connected(_transport: Any, _client: Any) -> None:
        pieces = (pcm[at : at + PIECE_BYTES] for at in range(0, len(pcm), PIECE_BYTES))
        await worker.queue_frames([OutputAudioRawFrame(piece, RATE_HZ, 1) for piece in pieces])

    @transport.event_handler("on_client_disconnected")
    async def on_client_disconnected(_transport: Any, _client: Any) -> None:
        await runner.cancel()

    await runner.run()


async def serve(system: str, audio: Path, port: int) -> None:
    """Serve until a signal."""
    app = create_app(system, await asyncio.to_thread(audio.read_bytes), port)
    settings = uvicorn.Config(
        app, host=HOST, port=port, log_level="warning", access_log=False, ws_per_message_deflate=False
    )
    await uvicorn.Server(settings).serve()


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("--audio", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    quiet_log()
    event_loop.run(serve(given.system, given.audio, given.port))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
