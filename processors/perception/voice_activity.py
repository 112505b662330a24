"""Voice activity of a call, whose speech ends where no audio comes any more.

A transport may stop sending within a word: its network is gone, its client sends nothing after a key is
released. Pipecat's timer for this reads the clock. It also ends the speech of a process that its host stopped
for a second, although the audio of that second is about to arrive, and so cuts a word in two. Here looks
are counted instead of time: a process that was stopped has one look for all of the stop.

Owns one task from the start of the call to its end.
"""

import asyncio
from collections.abc import Iterator
from copy import copy

from pipecat.frames.frames import (
    CancelFrame,
    EndFrame,
    Frame,
    InputAudioRawFrame,
    StartFrame,
    VADUserStartedSpeakingFrame,
    VADUserStoppedSpeakingFrame,
)
from pipecat.processors.audio.vad_processor import VADProcessor
from pipecat.processors.frame_processor import FrameDirection

from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.processors.direct_audio import DirectAudio
from parley.processors.front_end.vad import SharedVadAnalyzer
from parley.processors.perception.voice_onset import (
    AUDIO_AHEAD,
    AUDIO_END,
    note_audio_end,
)
from parley.processors.pipecat_internals import end_voice, judge_audio

# Speech ends at this many looks in a row without new audio: 0.9 to 1 s after the last, within the second
# for which a client's own end of a turn waits for it.
LOOK_S, MOST_LOOKS = 0.1, 9
# A client that sends a second at once sends the next one a second later: its speech has ended when none has
# come for twice as long as the last piece was, of which this is the longest that counts.
LONGEST_PIECE_S = 1.0
# Pipecat reports every 0.2 s that the user still speaks; each report costs all processors of the call. The
# reports feed an idle timer that is not used here (ours reads the turns).
SPEECH_ACTIVITY_S = 1.0


class VoiceActivity(DirectAudio, VADProcessor):
    """Processor of voice activity.

    Args:
        analyzer: finds the voice in the caller's audio.
    """

    def __init__(self, analyzer: SharedVadAnalyzer) -> None:
        super().__init__(
            vad_analyzer=analyzer,
            speech_activity_period=SPEECH_ACTIVITY_S,
            audio_idle_timeout=0,
            enable_direct_mode=True,
        )
        self._analyzer = analyzer
        # Samples of the caller's audio so far.
        self._heard = 0
        # Samples of the present piece that are not judged yet.
        self._ahead = 0
        # Looks without audio at which speech ends.
        self._most_looks = MOST_LOOKS
        self._has_heard = False
        self._looking: asyncio.Task[None] | None = None

    async def take_audio(self, frame: InputAudioRawFrame) -> None:
        """Pass audio on and look for a voice in it."""
        self._has_heard = True
        self._ahead = len(frame.audio) // PCM_BYTES_PER_SAMPLE
        piece_s = min(self._ahead / frame.sample_rate, LONGEST_PIECE_S)
        self._most_looks = max(MOST_LOOKS, round(2 * piece_s / LOOK_S))
        for piece in self._windows(frame):
            self._heard = note_audio_end(piece, self._heard)
            self._ahead -= len(piece.audio) // PCM_BYTES_PER_SAMPLE
            await self.pass_audio(piece)
            await judge_audio(self, piece)

    def _windows(self, frame: InputAudioRawFrame) -> Iterator[InputAudioRawFrame]:
        """Yield the audio in pieces in each of which one window ends at most.

        Pipecat looks at the state after each piece, and a client may send a quarter of a second at once. In
        one such piece a word begins and has nearly ended, so that its beginning would not be seen. And the
        end of a voice would be reported after the beginning of the next word.
        """
        window = self._analyzer.num_frames_required()
        if self._heard % window + len(frame.audio) // PCM_BYTES_PER_SAMPLE < 2 * window:
            yield frame
            return
        size = window * PCM_BYTES_PER_SAMPLE
        for at in range(0, len(frame.audio), size):
            piece = copy(frame)
            piece.audio, piece.metadata = frame.audio[at : at + size], dict(frame.metadata)
            piece.num_frames = len(piece.audio) // PCM_BYTES_PER_SAMPLE
            yield piece

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        """Process any other frame; begin and end with the call."""
        await super().process_frame(frame, direction)
        if isinstance(frame, StartFrame) and self._looking is None:
            self._looking = self.create_task(self._end_without_audio(), name="voice_activity.looks")
        elif isinstance(frame, EndFrame | CancelFrame):
            await self._stop_looking()

    async def push_frame(self, frame: Frame, direction: FrameDirection = FrameDirection.DOWNSTREAM) -> None:
        """Push a frame; one that reports a voice has its place in the audio."""
        if isinstance(frame, VADUserStartedSpeakingFrame | VADUserStoppedSpeakingFrame):
            AUDIO_END.put(frame, self._heard)
            AUDIO_AHEAD.put(frame, self._ahead)
        await super().push_frame(frame, direction)

    async def cleanup(self) -> None:
        """End the task."""
        await self._stop_looking()
        await super().cleanup()

    async def _stop_looking(self) -> None:
        looking, self._looking = self._looking, None
        if looking is not None:
            await self.cancel_task(looking)

    async def _end_without_audio(self) -> None:
        looks = 0
        while True:
            await asyncio.sleep(LOOK_S)
            looks, self._has_heard = 0 if self._has_heard else looks + 1, False
            if looks == self._most_looks:
                self._analyzer.end_voice()
                await end_voice(self)
