"""A caller of pocketsphinx in its own process: the engine, and the frames of a question."""

from pathlib import Path

from pipecat.frames.frames import (
    Frame,
    InputAudioRawFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.tests.utils import SleepFrame

from parley.models.stt import Transcript
from parley.models.stt.pocketsphinx import PocketsphinxSettings
from parley.processors.perception.engine_stt import transcript_from_fields
from parley.runtime.engine_process import EngineProcess
from tests.voices import say, silence

QUESTIONS = ("how much is a replacement card", "what is the fee for an overdraft")
FRAME_BYTES = 640


def child(**settings: int) -> EngineProcess[Transcript]:
    return EngineProcess(
        "parley.models.stt.pocketsphinx:PocketsphinxStt",
        PocketsphinxSettings(
            language_model="documents",
            sentences=QUESTIONS,
            cache_dir=Path("out/test-cache").absolute(),
            warm_decoders=1,
            **settings,
        ),
        decode=transcript_from_fields,
        name="pocketsphinx",
    )


def spoken(question: str, *, frame_s: float, rest_s: float) -> list[Frame]:
    """Return the frames of a question, with pauses between them and after the last."""
    pcm = silence(400) + say(question) + silence(200)
    frames: list[Frame] = []
    for at in range(0, len(pcm), FRAME_BYTES):
        frames += [InputAudioRawFrame(pcm[at : at + FRAME_BYTES], 16_000, 1), SleepFrame(frame_s)]
    started, stopped = (
        VADUserStartedSpeakingFrame(start_secs=0.128),
        VADUserStoppedSpeakingFrame(stop_secs=0.2),
    )
    return [*frames[:40], started, *frames[40:], stopped, SleepFrame(rest_s)]
