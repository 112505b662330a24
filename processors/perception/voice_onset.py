"""Measure how much audio has come since a voice began.

A recogniser has more audio after the onset of a voice than the detector needed: a client sends a quarter of a
second at once, of which the voice begins anywhere, and on a busy loop audio overtakes the frame that reports
the voice. Counting back by the detector's time alone would cut the first sounds off. So voice activity notes
on each piece of audio where it ends, and on the frame where the voice began.
"""

from pipecat.frames.frames import InputAudioRawFrame, VADUserStartedSpeakingFrame

from parley.core.frame_facts import FrameFact
from parley.core.media import PCM_BYTES_PER_SAMPLE, samples_to_ms

# Both count samples from the first audio of the call.
AUDIO_END = FrameFact[int]("audio_end_sample")
VOICE_BEGIN = FrameFact[int]("voice_begin_sample")


def note_audio_end(frame: InputAudioRawFrame, before: int) -> int:
    """Note on a piece of audio where it ends, given the samples before it; return that."""
    end = before + len(frame.audio) // PCM_BYTES_PER_SAMPLE
    AUDIO_END.put(frame, end)
    return end


class OnsetMeter:
    """Meter of one recogniser, which has to see all audio that it gets."""

    def __init__(self) -> None:
        self._end: int | None = None

    def hear(self, frame: InputAudioRawFrame) -> None:
        """Take a piece of audio."""
        self._end = AUDIO_END.of(frame)

    def up_to_here(self, frame: InputAudioRawFrame) -> InputAudioRawFrame:
        """Note on audio that is handed on again that it ends where the last piece ended; return it."""
        if self._end is not None:
            AUDIO_END.put(frame, self._end)
        return frame

    def since_ms(self, frame: VADUserStartedSpeakingFrame, rate_hz: int) -> int:
        """Return how much of the audio that came is later than the onset of a voice.

        Where the audio or the frame does not come from our voice activity, it is the time that the detector
        needed.
        """
        needed_ms = round(frame.start_secs * 1000)
        began, end = VOICE_BEGIN.of(frame), self._end
        if began is None or end is None:
            return needed_ms
        return max(needed_ms, samples_to_ms(end - began, rate_hz))
