"""Shared parts of the servers of comparison: ``GET /health``, ``POST /api/offer``, the life of the engines.

Pipecat's own request handler answers offers. A call's pipeline, which each server brings, is a background
task of its request, as in Pipecat's own runner. The engines are loaded before the first call and closed when
the server ends.
"""

import argparse
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import uvicorn
from fastapi import BackgroundTasks, FastAPI
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
from pipecat.transports.smallwebrtc.request_handler import SmallWebRTCRequest, SmallWebRTCRequestHandler

from parley.configs.load import load_deployment
from parley.evals.harness.command import exit_code, quiet_log
from parley.pipelines.engines.engines import Engines
from parley.runtime import event_loop

HOST = "127.0.0.1"

RunBot = Callable[[Engines, SmallWebRTCConnection], Awaitable[None]]


def create_app(engines: Engines, run_bot: RunBot) -> FastAPI:
    """Build the server around Pipecat's own request handler.

    Args:
        engines: loaded.
        run_bot: runs one call.
    """
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


async def serve(run_bot: RunBot, config: Path, port: int) -> None:
    """Load the engines of a deployment and serve until a signal.

    Raises:
        ConfigError: the deployment is wrong.
        EngineError: an engine does not load.
    """
    async with await Engines.load(load_deployment(config)) as engines:
        settings = uvicorn.Config(
            create_app(engines, run_bot), host=HOST, port=port, log_level="warning", access_log=False
        )
        await uvicorn.Server(settings).serve()


def command(run_bot: RunBot, *, description: str, port: int) -> int:
    """Run the command line of such a server; return 2 after one line when the deployment cannot be served.

    Args:
        run_bot: runs one call.
        description: of the server.
        port: default.
    """
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--config", type=Path, default=Path("configs/embedded.yaml"))
    parser.add_argument("--port", type=int, default=port)
    arguments = parser.parse_args()
    quiet_log()

    def run() -> int:
        event_loop.run(serve(run_bot, arguments.config, arguments.port))
        return 0

    return exit_code(run)
