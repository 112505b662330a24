"""A conversation of Pipecat's own OpenAI Realtime service: a foreign pipeline as the client.

``python -m tests.peers.foreign.pipecat_client URL QUESTION STOP`` takes the server and two WAVs of 24 kHz.
QUESTION makes the model call the pipeline's tool; STOP is spoken during the answer. The bot speaks first, as
usual in such pipelines. The program prints what it has seen as one line of JSON.
"""

import asyncio
import json
import sys
from typing import Any

import numpy as np
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
    TTSStartedFrame,
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

from tests.peers.foreign.player import RATE_HZ, LoopWatch, Player, keep_imports, pcm_of

PIECE = RATE_HZ // 25 * 2
QUIET_S = 3


class Listener(FrameProcessor):
    """Processor that records the frames that pass, and plays the answers."""

    def __init__(self) -> None:
        super().__init__()
        self.audio = b""
        self.words: list[str] = []
        self.interruptions = self.answers = 0
        self.player = Player()
        self.news = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TTSStartedFrame):
            self.answers += 1
        elif isinstance(frame, TTSAudioRawFrame):
            self.audio += frame.audio
            self.player.take(str(self.answers), len(frame.audio) / 2 / RATE_HZ)
        elif isinstance(frame, TTSTextFrame):
            self.words.append(frame.text)
        elif isinstance(frame, InterruptionFrame) and direction is FrameDirection.DOWNSTREAM:
            self.interruptions += 1
            self.player.over()
        self.news.set()
        await self.push_frame(frame, direction)


class Ears(FrameProcessor):
    """Processor before the service, which the words of the caller pass on their way to the context."""

    def __init__(self, news: asyncio.Event) -> None:
        super().__init__()
        self.heard: list[str] = []
        self._news = news

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, TranscriptionFrame):
            self.heard.append(frame.text)
            self._news.set()
        await self.push_frame(frame, direction)


async def main(
    url: str, question: bytes, stop: bytes, model: str = "parley-cascade", *, last: str = "euros"
) -> dict[str, Any]:
    """Hold the conversation, which is over when ``last`` is said after STOP; return what was seen of it."""
    called: list[str] = []
    failures: list[str] = []
    tool = FunctionSchema("weather", "How the weather is.", {"city": {"type": "string"}}, ["city"])
    context = LLMContext(tools=ToolsSchema([tool]))
    heard = events.AudioInput(format=events.PCMAudioFormat(), turn_detection=events.TurnDetection())
    service = OpenAIRealtimeLLMService(
        api_key="x",
        base_url=f"{url.replace('http', 'ws', 1)}/v1/realtime",
        settings=OpenAIRealtimeLLMService.Settings(
            model=model,
            system_instruction="Be kind.",
            session_properties=events.SessionProperties(audio=events.AudioConfiguration(input=heard)),
        ),
    )

    async def weather(params: FunctionCallParams) -> None:
        called.append(params.arguments["city"])
        await params.result_callback(f"sunny in {called[-1]}")

    service.register_function("weather", weather)
    listener, watch = Listener(), LoopWatch()
    ears = Ears(listener.news)

    @service.event_handler("on_error")
    async def on_error(_service: Any, error: ErrorFrame) -> None:
        failures.append(error.error)
        listener.news.set()

    pair = LLMContextAggregatorPair(
        context,
        user_params=LLMUserAggregatorParams(user_turn_strategies=ExternalUserTurnStrategies()),
    )
    worker = PipelineWorker(
        Pipeline([pair.user(), ears, service, listener, pair.assistant()]),
        params=PipelineParams(audio_in_sample_rate=RATE_HZ, audio_out_sample_rate=RATE_HZ),
        idle_timeout_secs=None,
    )
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    speech = bytearray(bytes(RATE_HZ * 2 * QUIET_S) + question)

    async def speak() -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        while True:
            data = bytes(speech[:PIECE])
            del speech[:PIECE]
            await worker.queue_frame(InputAudioRawFrame(data.ljust(PIECE, b"\0"), RATE_HZ, 1))
            due_s += 0.04
            await asyncio.sleep(max(0.0, due_s - loop.time()))

    async def until(is_true: Any) -> None:
        async with asyncio.timeout(60):
            while not is_true() and not failures:
                listener.news.clear()
                await listener.news.wait()

    speaking = asyncio.create_task(speak())
    watch.begin()
    try:
        # The first context has the bot speak first, as such pipelines usually begin.
        await worker.queue_frame(LLMRunFrame())
        await until(lambda: called and "sunny" in "".join(listener.words))
        audio_before = len(listener.audio)
        await until(lambda: len(listener.audio) > audio_before + RATE_HZ * 2)
        speech += stop
        before = listener.interruptions
        await until(lambda: listener.interruptions > before)
        await until(lambda: len(ears.heard) >= 2)
        since = len(listener.words)
        await until(lambda: last in "".join(listener.words[since:]))
    except TimeoutError:
        failures.append("it took too long")
    finally:
        await watch.end()
        speaking.cancel()
        await runner.cancel(reason="over")
        await asyncio.gather(running, speaking, return_exceptions=True)
    return {
        "errors": failures,
        "called": called,
        "heard": ears.heard,
        "words": "".join(listener.words),
        "interrupted": listener.interruptions,
        "loudest": int(np.abs(np.frombuffer(listener.audio, "<i2").astype(np.int32)).max(initial=0)),
        **listener.player.report(watch),
    }


if __name__ == "__main__":
    address, *files = sys.argv[1:]
    keep_imports()
    print(json.dumps(asyncio.run(main(address, *(pcm_of(file) for file in files)))))
