"""Two callers speak at once to pocketsphinx with one decoder, in its own process."""

import asyncio
from pathlib import Path

from loguru import logger
from pipecat.frames.frames import (
    ErrorFrame,
    Frame,
    InputAudioRawFrame,
    TranscriptionFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.tests.utils import SleepFrame, run_test

from parley.models.stt import Transcript
from parley.models.stt.pocketsphinx import PocketsphinxSettings
from parley.processors.perception.engine_stt import EngineSttService, transcript_from_fields
from parley.runtime.engine_process import EngineProcess
from tests.voices import say, silence

QUESTIONS = ("how much is a replacement card", "what is the fee for an overdraft")
FRAME_BYTES = 640


def spoken(question: str, *, frame_s: float, rest_s: float) -> list[Frame]:
    pcm = silence(400) + say(question) + silence(200)
    frames: list[Frame] = []
    for at in range(0, len(pcm), FRAME_BYTES):
        frames += [InputAudioRawFrame(pcm[at : at + FRAME_BYTES], 16_000, 1), SleepFrame(frame_s)]
    started, stopped = (
        VADUserStartedSpeakingFrame(start_secs=0.128),
        VADUserStoppedSpeakingFrame(stop_secs=0.2),
    )
    return [*frames[:40], started, *frames[40:], stopped, SleepFrame(rest_s)]


async def test_both_callers_get_their_words_from_one_decoder() -> None:
    logged: list[str] = []
    sink = logger.add(lambda line: logged.append(line.record["message"]), level="WARNING")
    engine: EngineProcess[Transcript] = EngineProcess(
        "parley.models.stt.pocketsphinx:PocketsphinxStt",
        PocketsphinxSettings(
            language_model="documents",
            sentences=QUESTIONS,
            cache_dir=Path("out/test-cache").absolute(),
            warm_decoders=1,
            max_decoders=1,
        ),
        decode=transcript_from_fields,
        name="pocketsphinx",
    )
    await engine.start()
    try:
        calls = await asyncio.gather(
            *(
                run_test(EngineSttService(engine), frames_to_send=spoken(question, frame_s=0.005, rest_s=5))
                for question in QUESTIONS
            )
        )
    finally:
        logger.remove(sink)
        await engine.close()
    assert any("decoders are in use" in line for line in logged)
    heard = [[f.text for f in down if isinstance(f, TranscriptionFrame)] for down, _ in calls]
    assert heard == [[question] for question in QUESTIONS]
    assert not [frame for _, up in calls for frame in up if isinstance(frame, ErrorFrame)]
    assert engine.restarts == 0
