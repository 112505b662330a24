"""Servers that only carry media to browsers, to compare with: stock Pipecat, and aiortc alone.

``python -m evals.load.players SYSTEM --audio FILE --port PORT``. ``stock`` is Pipecat's
``SmallWebRTCTransport`` with its defaults, and a pipeline of its input and its output, which plays the same
words to every caller for a third of the time. ``aiortc`` sends every caller's own sound back. Neither has a
recogniser, a model, a voice or voice activity detection. The audio is 16-bit PCM at ``PCM_HZ``.
"""

import argparse
import asyncio
from contextlib import suppress
from pathlib import Path
from typing import Any

import uvicorn
from aiortc import MediaStreamTrack, RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from fastapi import FastAPI
from pipecat.frames.frames import OutputAudioRawFrame
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.transports.base_transport import TransportParams
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
from pipecat.transports.smallwebrtc.transport import SmallWebRTCTransport
from pipecat.workers.runner import WorkerRunner

from parley.evals.harness.command import quiet_log
from parley.evals.harness.comparison_server import HOST, create_app
from parley.evals.load.browsers import CYCLE_S
from parley.runtime import event_loop

SYSTEMS = ("stock", "aiortc")
PCM_HZ = 24_000


def stock(pcm: bytes) -> FastAPI:
    """Build the server of stock Pipecat."""

    async def run_bot(_engines: Any, connection: SmallWebRTCConnection) -> None:
        transport = SmallWebRTCTransport(
            webrtc_connection=connection,
            params=TransportParams(audio_in_enabled=True, audio_out_enabled=True),
        )
        worker = PipelineWorker(
            Pipeline([transport.input(), transport.output()]),
            params=PipelineParams(audio_out_sample_rate=PCM_HZ),
        )
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(worker)

        @transport.event_handler("on_client_disconnected")
        async def on_client_disconnected(_transport: Any, _client: Any) -> None:
            await runner.cancel()

        playing = asyncio.create_task(_play(worker, pcm), name="load.play")
        try:
            await runner.run()
        finally:
            playing.cancel()
            with suppress(asyncio.CancelledError):
                await playing

    return create_app(None, run_bot)  # type: ignore[arg-type]  # no engine is used


async def _play(worker: PipelineWorker, pcm: bytes) -> None:
    while True:
        await worker.queue_frames([OutputAudioRawFrame(pcm, PCM_HZ, 1)])
        await asyncio.sleep(CYCLE_S)


def echo() -> FastAPI:
    """Build the server of aiortc alone."""
    app = FastAPI()
    calls: set[RTCPeerConnection] = set()

    @app.get("/health")
    async def health() -> dict[str, str]:
        return {"status": "ok"}

    @app.post("/api/offer")
    async def offer(body: dict[str, str]) -> dict[str, str]:
        connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        calls.add(connection)

        @connection.on("track")
        def on_track(track: MediaStreamTrack) -> None:
            connection.addTrack(track)

        @connection.on("connectionstatechange")
        async def on_state() -> None:
            if connection.connectionState in ("failed", "closed"):
                calls.discard(connection)

        await connection.setRemoteDescription(RTCSessionDescription(body["sdp"], "offer"))
        await connection.setLocalDescription(await connection.createAnswer())
        return {"sdp": connection.localDescription.sdp, "type": connection.localDescription.type}

    return app


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(description="Serve media alone to browsers.")
    parser.add_argument("system", choices=SYSTEMS)
    parser.add_argument("--audio", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    quiet_log()
    app = echo() if given.system == "aiortc" else stock(given.audio.read_bytes())
    server = uvicorn.Server(uvicorn.Config(app, host=HOST, port=given.port, log_level="warning"))
    event_loop.run(server.serve())


if __name__ == "__main__":
    main()
