"""Calls over every transport are freed when they end, without waiting for a garbage collection."""

import asyncio
import gc
import json
import os
import sys
import threading
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from aiortc import RTCPeerConnection
from aiortc.rtcrtpreceiver import RTCRtpReceiver
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
from pipecat.utils.base_object import BaseObject

from parley.command.gateway import gateway
from parley.command.listener import claim_port
from parley.configs.load import load_deployment
from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.engines.loading import SPEECH_THREADS
from parley.pipelines.sessions import open_conversations
from parley.transports.twilio.stream import PhoneStream
from parley.transports.websocket.session import SocketCall
from parley.turn_taking.barge_in.barge_in import BargeIn

OF_A_CALL = (
    BaseObject,
    BargeIn,
    Call,
    PhoneStream,
    RTCPeerConnection,
    RTCRtpReceiver,
    SmallWebRTCConnection,
    SocketCall,
)
# What a cycle of these keeps is not freed by counting. asyncio's own transports are cycles; uvloop's are not.
COUNTED = ("parley", "pipecat", "aiortc", "aioice")
CALLS_S = 120.0
# The thread pools of the event loop and of the store's readers.
POOLS = ("asyncio_", "session_store.read_")


def alive() -> Counter[str]:
    return Counter(type(each).__name__ for each in gc.get_objects() if isinstance(each, OF_A_CALL))


def in_cycles() -> Counter[str]:
    """Count the objects that a collection has found unreachable since ``gc.DEBUG_SAVEALL`` was set."""
    kinds = Counter(f"{type(each).__module__}.{type(each).__qualname__}" for each in gc.garbage)
    return Counter({name: count for name, count in kinds.items() if name.partition(".")[0] in COUNTED})


@asynccontextmanager
async def served(folder: Path) -> AsyncIterator[tuple[str, Any]]:
    """Run the product with its embedded engines in this process; yield its root and its calls."""
    deployment = folder / "deployment.yaml"
    deployment.write_text(
        "phone: {signatures: false}\n"
        f"remembering: {{store: {{url: 'sqlite:///{folder}/sessions.db'}}}}\n"
        "hearing: {own_process: false}\n"
    )
    loaded = load_deployment(str(deployment))
    listener = claim_port("127.0.0.1", 0)
    async with (
        await Engines.load(loaded, duplex=True) as engines,
        open_conversations(loaded, engines.answering) as conversations,
        gateway(engines, conversations, mode="cascade") as server,
    ):
        # A thread of this pool that starts when calls are busy stays: all of them are there beforehand.
        everyone = threading.Barrier(SPEECH_THREADS)
        waits = [engines.executors.speech.submit(everyone.wait, 60) for _ in range(SPEECH_THREADS)]
        await asyncio.gather(*map(asyncio.wrap_future, waits))
        serving = asyncio.create_task(server.serve(sockets=[listener]))
        try:
            app: Any = server.config.app
            yield f"http://127.0.0.1:{listener.getsockname()[1]}", app.state.calls
        finally:
            server.should_exit = True
            await serving


async def place(url: str, calls: Any) -> dict[str, Any]:
    """Place a call of each kind from another process, and wait until all lines are free again."""
    process = await asyncio.create_subprocess_exec(
        *(sys.executable, "-m", "parley.evals.soak.callers", url, "--calls", "1"),
        cwd=Path(__file__).resolve().parents[2],
        stdout=asyncio.subprocess.PIPE,
        env=os.environ,
    )
    async with asyncio.timeout(CALLS_S):
        output, _ = await process.communicate()
        while calls.active:
            await asyncio.sleep(0.05)
    received: dict[str, Any] = json.loads(output.decode().splitlines()[-1])
    return received


def threads_of_calls() -> Counter[str]:
    """Count threads by name, without the pools, which grow up to a bound when they are busy and stay."""
    names = (thread.name for thread in threading.enumerate())
    return Counter(name for name in names if not name.startswith(POOLS))


async def test_calls_of_all_transports_leave_no_object_and_no_thread(tmp_path: Path):
    async with served(tmp_path) as (url, calls):
        # The first calls start threads that stay.
        received = await place(url, calls)
        held = {"cascade": 1, "duplex": 1, "phone": 1, "realtime": 1, "socket": 1, "text": 1}
        assert received["held"] == held and received["failed"] == {}
        # Typed answers and greetings are measured.
        assert {kind: len(each) for kind, each in received["latencies"].items()} == {"phone": 1, "text": 1}
        gc.collect()
        before, threads = alive(), threads_of_calls()
        gc.disable()
        # The gateway collects when no call is left, and would free what is in cycles.
        gc.set_debug(gc.DEBUG_SAVEALL)
        try:
            received = await place(url, calls)
            assert received["failed"] == {}
            async with asyncio.timeout(60):
                while alive() - before or threads_of_calls() - threads:
                    await asyncio.sleep(0.1)
        except TimeoutError:
            pytest.fail(f"left: {alive() - before}, threads {threads_of_calls() - threads}")
        else:
            gc.collect()
            assert in_cycles() == Counter()
        finally:
            gc.set_debug(0)
            gc.garbage.clear()
            gc.enable()
