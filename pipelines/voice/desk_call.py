"""Call of a human at the desk, who speaks in the call of a caller.

    transport.input -> (to the caller) -> VAD -> STT -> (recorded words) -> transport.output

Two calls are bridged: the caller hears the human in their own call, and the human hears the caller here. The
words of the human are recorded in the caller's session. The call ends when the human, or their desk, no
longer has the session, when the caller's call ends, when the human hangs up, or when an operator ends it.
"""

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import Any

from pipecat.frames.frames import EndFrame
from pipecat.pipeline.worker import PipelineWorker
from pipecat.transports.base_transport import BaseTransport
from pipecat.workers.runner import WorkerRunner

from parley.core.tiers import Tier
from parley.pipelines.builder import Stages, build_desk
from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.lifecycle import run_background
from parley.pipelines.live_pace import play_live
from parley.pipelines.modes import DESK
from parley.pipelines.release import release_call
from parley.pipelines.stages.shared import voice_detector
from parley.pipelines.voice.echo import CallFrontEnd
from parley.pipelines.voice_bridges import VoiceBridge
from parley.processors.perception.voice_activity import VoiceActivity
from parley.processors.speech.human_voice import HumanMicrophone, HumanWords
from parley.session_store.conversation import Conversation
from parley.session_store.tier_board import TierBoard

WRITES = "the desk writes by its own form"


async def run_desk_call(
    engines: Engines,
    transport: BaseTransport,
    call: Call,
    bridge: VoiceBridge,
    board: TierBoard,
    desk_id: str,
) -> None:
    """Hold the call of a human until it ends.

    Args:
        engines: of the process.
        transport: of the human's call.
        call: the human's call, in the caller's session.
        bridge: of the caller's call.
        board: of the process, with the desk that has the session.
        desk_id: desk of the human.

    Raises:
        PeerError: another human speaks in it already.
    """
    session_id = call.conversation.session_id
    listing = engines.live_calls.opened_silent(call.call_id, session_id, call.transport, DESK)
    with bridge.used(), listing as live:
        worker = build_desk(engines, await _stages(engines, transport, call, bridge), refuses_text=WRITES)
        runner = WorkerRunner(handle_sigint=False)
        await runner.add_workers(worker)

        @transport.event_handler("on_client_disconnected")
        async def on_gone(_transport: BaseTransport, _client: object) -> None:
            await runner.cancel(reason="the human has hung up")

        ends = (
            bridge.ended.wait(),
            _until_returned(call.conversation),
            board.until_not_held_by(session_id, desk_id),
            call.conversation.lost.wait(),
            live.ending.wait(),
        )
        background = [play_live(bridge.to_human, transport.output()), _end_with_first(worker, *ends)]
        try:
            await run_background(runner, background)
        finally:
            await release_call(runner, worker, transport, call)


async def _stages(engines: Engines, transport: BaseTransport, call: Call, bridge: VoiceBridge) -> Stages:
    """Return the stages of the human's call, in which no model answers."""
    detector = voice_detector(engines, call, CallFrontEnd(), [])
    return Stages(
        head=[transport.input(), HumanMicrophone(bridge.to_caller.put), VoiceActivity(detector)],
        perception=[await engines.build_stt(audio_passthrough=False)],
        dialogue=[HumanWords(partial(call.conversation.record_human, transport=call.transport))],
        playout=[transport.output()],
    )


async def _end_with_first(worker: PipelineWorker, *ends: Coroutine[Any, Any, object]) -> None:
    """End the human's call, once, with the first of these."""
    waits = [asyncio.create_task(each, name="desk_call.end") for each in ends]
    try:
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for wait in waits:
            wait.cancel()
    await worker.queue_frame(EndFrame())


async def _until_returned(conversation: Conversation) -> None:
    while conversation.tier.tier is Tier.HUMAN:
        await conversation.tier_after(conversation.tier.epoch)
