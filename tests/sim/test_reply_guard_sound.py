"""The caller's audio when the model fails: guard, Pipecat's speech service and playout on virtual time."""

import asyncio
from collections.abc import AsyncGenerator

import pytest
from pipecat.frames.frames import Frame, TTSAudioRawFrame
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.processors.aggregators.llm_response_universal import LLMContextAggregatorPair
from pipecat.services.settings import TTSSettings
from pipecat.services.tts_service import TTSService

from parley.core.errors import EngineError
from parley.processors.dialogue.llm_failover import LlmFailover
from tests.fakes.reply_bench import ReplyBench
from tests.fakes.scripted_llm import HANG, Script, ScriptedLanguageModel, ScriptedLlmService
from tests.virtual_time import run

RATE_HZ = 8000
MS_PER_WORD = 300
DEAD_AIR_MS = 2000
PRIMARY = ["We", " open", " at", " ten", ".", " On", " Sundays", " we", " stay", " closed", "."]


class ToneTts(TTSService):
    """Speech service whose every word is 300 ms of one value; the first sound comes after 40 ms."""

    def __init__(self) -> None:
        super().__init__(
            push_start_frame=True,
            push_stop_frames=True,
            sample_rate=RATE_HZ,
            settings=TTSSettings(model=None, voice=None, language=None),
        )
        self.sentences: list[str] = []

    async def run_tts(self, text: str, context_id: str) -> AsyncGenerator[Frame | None, None]:
        self.sentences.append(text)
        await asyncio.sleep(0.04)
        for _ in text.split():
            pcm = b"\1\0" * (RATE_HZ * MS_PER_WORD // 1000)
            yield TTSAudioRawFrame(pcm, RATE_HZ, 1, context_id=context_id)


def silences_ms(bench: ReplyBench) -> list[int]:
    """Return the gaps of the loudspeaker's audio in ms, the first one from the question."""
    played_ms, gaps = bench.asked_ms, []
    for at_ms, frame in bench.ear.frames:
        if isinstance(frame, TTSAudioRawFrame):
            if at_ms > played_ms:
                gaps.append(at_ms - played_ms)
            played_ms = max(played_ms, at_ms) + MS_PER_WORD
    return gaps


@pytest.mark.parametrize("stall_after", range(len(PRIMARY)))
@pytest.mark.parametrize("failure", [HANG, RuntimeError("dropped")], ids=["stalled", "dropped"])
def test_wherever_the_answer_breaks_the_caller_hears_no_dead_air_and_nothing_twice(
    stall_after: int, failure: object
):
    script: Script = [0.3]
    for piece in PRIMARY[:stall_after]:
        script = [*script, piece, 0.05]
    engine = ScriptedLanguageModel([0.05, "We open at ten. ", "On Sundays we stay closed."])
    guard = LlmFailover(ScriptedLlmService([*script, failure]), engine)
    tts = ToneTts()
    context = LLMContext([{"role": "user", "content": "When do you open?"}])
    assistant = LLMContextAggregatorPair(context).assistant()

    async def call() -> ReplyBench:
        async with ReplyBench([*guard.processors, tts], after=[assistant]) as bench:
            await bench.ask(context)
            await bench.until(1)
            await asyncio.sleep(5)
        return bench

    bench = run(call())
    assert max(silences_ms(bench)) < DEAD_AIR_MS
    assert tts.sentences.count("We open at ten.") == 1
    assert tts.sentences.count("On Sundays we stay closed.") == 1
    remembered = [message for message in context.get_messages() if message["role"] == "assistant"]
    assert len(remembered) == 1


def test_with_no_fallback_left_the_caller_hears_an_apology_in_time():
    guard = LlmFailover(ScriptedLlmService([HANG]), ScriptedLanguageModel([EngineError("no", engine="x")]))
    tts = ToneTts()

    async def call() -> ReplyBench:
        async with ReplyBench([*guard.processors, tts]) as bench:
            await bench.ask("When do you open?")
            await bench.until(1)
            await asyncio.sleep(5)
        return bench

    assert max(silences_ms(run(call()))) < DEAD_AIR_MS
    assert tts.sentences[0].startswith("I cannot answer")
