"""Measure how much audio has come since a voice began.

A recogniser has more audio after the onset of a voice than the detector needed: a client sends a quarter of a
second at once, of which the voice begins anywhere, and on a busy loop audio overtakes the frame that reports
the voice. Counting back by the detector's time alone would cut the first sounds off. So voice activity notes
on each piece of audio, and on each report, where it is in the audio.
"""

from pipecat.frames.frames import (
    InputAudioRawFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)

from parley.core.frame_facts import FrameFact
from parley.core.media import PCM_BYTES_PER_SAMPLE, samples_to_ms

# Samples from the first audio of the call to the end of a piece; on the reports of a voice, to the end of the
# audio that had been judged.
AUDIO_END = FrameFact[int]("audio_end_sample")
# On the report of a voice: samples of the same piece of audio that are later than what had been judged. The
# newest of them was recorded when the piece came, so what is reported happened as much earlier.
AUDIO_AHEAD = FrameFact[int]("audio_ahead_samples")


def note_audio_end(frame: InputAudioRawFrame, before: int) -> int:
    """Note on a piece of audio where it ends, given the samples before it; return that."""
    end = before + len(frame.audio) // PCM_BYTES_PER_SAMPLE
    AUDIO_END.put(frame, end)
    return end


def ahead_ms(frame: VADUserStartedSpeakingFrame | VADUserStoppedSpeakingFrame, rate_hz: int) -> int:
    """Return how much audio had come that is later than what led to a report of a voice."""
    return samples_to_ms(AUDIO_AHEAD.of(frame) or 0, rate_hz)


def judged_ms(frame: VADUserStartedSpeakingFrame | VADUserStoppedSpeakingFrame, rate_hz: int) -> int | None:
    """Return the length of the audio that led to a report of a voice; None where it is not known."""
    end = AUDIO_END.of(frame)
    return None if end is None else samples_to_ms(end, rate_hz)


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
        noticed, end = AUDIO_END.of(frame), self._end
        if noticed is None or end is None:
            return needed_ms
        return needed_ms + samples_to_ms(max(0, end - noticed), rate_hz)
