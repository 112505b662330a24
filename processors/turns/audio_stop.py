"""Drop the caller's audio after the last stage that uses it.

Input audio is a system frame: by default it visits every processor after the recogniser (turns, LLM, TTS,
output), which all just pass it on, fifty times a second for each call. Nothing after the recogniser of a
cascade uses audio, so it stops here; the end of turn gets it from the voice activity detector.
"""

from pipecat.frames.frames import Frame, InputAudioRawFrame
from pipecat.processors.frame_processor import FrameDirection

from parley.processors.direct_audio import DirectAudio


class AudioStop(DirectAudio):
    """Consumes input audio; passes everything else."""

    def __init__(self) -> None:
        # It runs in the pushing task: it must not add the hop that it is there to save.
        super().__init__(enable_direct_mode=True)

    async def take_audio(self, frame: InputAudioRawFrame) -> None:
        """Drop the audio."""

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        await self.push_frame(frame, direction)
