"""Pipecat's own OpenAI Realtime service connected to Parley: a foreign pipeline as the client."""

import asyncio
from typing import Any

import numpy as np
import pytest
from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import (
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    InterruptionFrame,
    LLMRunFrame,
    TranscriptionFrame,
    TTSAudioRawFrame,
    TTSTextFrame,
)
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import (
    LLMContextAggregatorPair,
    LLMUserAggregatorParams,
)
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.services.llm_service import FunctionCallParams
from pipecat.services.openai.realtime import events
from pipecat.services.openai.realtime.llm import OpenAIRealtimeLLMService
from pipecat.turns.user_turn_strategies import ExternalUserTurnStrategies
from pipecat.workers.runner import WorkerRunner

from tests.peers.realtime_caller import PCM_HZ, at_rate
from tests.peers.server import RunningServer
from tests.peers.test_openai_realtime import MAINLY_CASCADE, QUESTION, forecaster
from tests.voices import say

__all__ = ["forecaster"]
pytestmark = pytest.mark.asyncio(loop_scope="module")

PIECE = PCM_HZ // 25 * 2


class Listener(FrameProcessor):
    """Processor that records the frames that pass."""

    def __init__(self) -> None:
        super().__init__()
        self.audio = b""
        self.words: list[str] = []
        self.errors: list[str] = []
        self.interruptions = 0

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSAudioRawFrame):
            self.audio += frame.audio
        elif isinstance(frame, TTSTextFrame):
            self.words.append(frame.text)
        elif isinstance(frame, InterruptionFrame) and direction is FrameDirection.DOWNSTREAM:
            self.interruptions += 1
        await self.push_frame(frame, direction)


@pytest.mark.parametrize("model", MAINLY_CASCADE)
async def test_a_spoken_conversation_with_a_tool_and_an_interruption(forecaster: RunningServer, model: str):
    tool = FunctionSchema("weather", "How the weather is.", {"city": {"type": "string"}}, ["city"])
    context = LLMContext(tools=ToolsSchema([tool]))
    heard = events.AudioInput(format=events.PCMAudioFormat(), turn_detection=events.TurnDetection())
    service = OpenAIRealtimeLLMService(
        api_key="x",
        base_url=f"{forecaster.url.replace('http', 'ws')}/v1/realtime",
        settings=OpenAIRealtimeLLMService.Settings(
            model=model,
            system_instruction="Be kind.",
            session_properties=events.SessionProperties(audio=events.AudioConfiguration(input=heard)),
        ),
    )
    called: list[Any] = []

    async def weather(params: FunctionCallParams) -> None:
        called.append(params.arguments)
        await params.result_callback("sunny")

    service.register_function("weather", weather)
    failures: list[str] = []

    @service.event_handler("on_error")
    async def on_error(_service: Any, error: ErrorFrame) -> None:
        failures.append(error.error)

    understood: list[str] = []
    pair = LLMContextAggregatorPair(
        context,
        user_params=LLMUserAggregatorParams(user_turn_strategies=ExternalUserTurnStrategies()),
    )

    class Ears(Listener):
        async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
            if isinstance(frame, TranscriptionFrame):
                understood.append(frame.text)
            await super().process_frame(frame, direction)

    listener = Listener()
    worker = PipelineWorker(
        Pipeline([pair.user(), Ears(), service, listener, pair.assistant()]),
        params=PipelineParams(audio_in_sample_rate=PCM_HZ, audio_out_sample_rate=PCM_HZ),
        idle_timeout_secs=None,
    )
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    speech = bytearray(bytes(PCM_HZ * 2 * 3) + at_rate(say(QUESTION), PCM_HZ))

    async def speak() -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            data = bytes(speech[:PIECE])
            del speech[:PIECE]
            await worker.queue_frame(InputAudioRawFrame(data.ljust(PIECE, b"\0"), PCM_HZ, 1))
            due_s += 0.04
            await asyncio.sleep(max(0.0, due_s - loop.time()))

    speaking = asyncio.create_task(speak())

    async def until(is_true: Any) -> None:
        async with asyncio.timeout(60):
            while not is_true():
                assert not failures, failures
                await asyncio.sleep(0.02)

    try:
        # The first context has the bot speak first, as such pipelines usually begin.
        await worker.queue_frame(LLMRunFrame())
        await until(lambda: called and "sunny" in "".join(listener.words))
        assert called == [{"city": "Paris"}]
        audio_before = len(listener.audio)
        await until(lambda: len(listener.audio) > audio_before + PCM_HZ * 2)
        speech += at_rate(say("Stop, please tell me the price."), PCM_HZ)
        before = listener.interruptions
        await until(lambda: listener.interruptions > before)
        await until(lambda: len(understood) >= 2)
        audio_before = len(listener.audio)
        await until(lambda: len(listener.audio) > audio_before + PCM_HZ * 2)
    finally:
        speaking.cancel()
        await runner.cancel(reason="over")
        await asyncio.gather(running, speaking, return_exceptions=True)
    assert failures == []
    assert understood[0] == "what are your opening hours"
    assert "sunny" in "".join(listener.words)
    assert np.abs(np.frombuffer(listener.audio, "<i2").astype(np.int32)).max() > 3_000
