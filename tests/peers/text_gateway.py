"""Gateway with a language model and a session store, and without engines for sound: for surfaces of text.

It runs in the process of the test, in uvicorn on a loopback socket, and starts in a second.
"""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from parley.configs.load import load_deployment
from parley.core.tuning import tuned
from parley.pipelines.engines.llm_runtime import LlmRuntime, plan_answering
from parley.pipelines.live_calls import LiveCalls
from parley.pipelines.phone.relay import hold_relay
from parley.pipelines.phone.sessions import PhoneSessions
from parley.pipelines.sessions import TypedTurns, open_conversations
from parley.runtime.shutdown import Shutdown
from parley.serving.gateway.admin.operations import Operations
from parley.serving.gateway.app import create_app
from parley.serving.gateway.phone.call_links import CallLinks
from parley.serving.gateway.phone.caller_directory import CallerDirectory
from parley.serving.gateway.settings import ServerTuning
from parley.telemetry.metrics import ServerMetrics
from parley.transports.webrtc.signaling import Signaling
from tests.peers.operations_gateway import TOKEN
from tests.peers.session_gateway import served


@asynccontextmanager
async def text_gateway(folder: Path, configuration: str) -> AsyncIterator[str]:
    """Yield the address of a gateway.

    Args:
        folder: of its files.
        configuration: YAML of the deployment.
    """
    (folder / "own.yaml").write_text(configuration)
    deployment = load_deployment(folder / "own.yaml")
    shutdown, metrics, live_calls = Shutdown(), ServerMetrics(), LiveCalls(can_listen=True)
    answering = await LlmRuntime.load(deployment, plan_answering(deployment))
    try:
        async with open_conversations(deployment, answering) as conversations:
            store, phone = conversations.store, deployment.phone
            links = book = phones = None
            if phone is not None and phone.reconnect is not None:
                links = CallLinks(store, phone.reconnect)
                book = CallerDirectory(store, phone.remember_callers, None, number=phone.number)
                phones = PhoneSessions(conversations, book, links)

            async def run_call(arguments: Any) -> None:
                assert phones is not None
                await hold_relay(
                    deployment,
                    answering,
                    conversations,
                    phones,
                    arguments,
                    live_calls=live_calls,
                    metrics=metrics,
                    stopping=shutdown.stopping,
                )

            app = create_app(
                tuned(ServerTuning, deployment.server),
                run_call=run_call,
                describe=dict,
                open_door=lambda on_call: Signaling(on_call, max_calls=1, hang_up_s=0.2),
                conversations=conversations,
                type_turn=TypedTurns(conversations, answering, deployment),
                modes=("cascade",),
                phone=phone,
                book=book,
                call_links=links,
                operations=Operations(calls=live_calls),
                operator_token=TOKEN,
                usage=answering.usage,
                shutdown=shutdown,
                metrics=metrics,
            )
            async with served(app) as server:
                yield f"http://127.0.0.1:{server.port}"
    finally:
        await answering.close()
