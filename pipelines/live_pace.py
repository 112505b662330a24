"""Pace of live audio into an output, which takes any amount at once.

An output queues what comes and plays it in its own time. A delay that is in its queue stays there to the end
of the call, so live audio goes on in its own time and waits where the oldest of it is dropped
(``pipelines.voice_bridges.LiveAudio``).

The pace follows the loop's clock. That of the output may differ: after a stop of the process, for example, it
has played less than the time says. So nothing goes on either while the output's queue has audio.
"""

import asyncio

from pipecat.frames.frames import OutputAudioRawFrame
from pipecat.processors.frame_processor import FrameProcessor

from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.pipelines.engines.plan import INPUT_RATE_HZ
from parley.pipelines.voice_bridges import LiveAudio
from parley.transports.pipecat_internals import queued_frames

# Audio that may be ahead of its time: as much as our outputs hold (``PacedAudioTrack``), so that a late loop
# makes no gap.
LEAD_S = 0.06
# Time between looks at a queue that has audio: one piece.
LOOK_S = 0.02


class LivePace:
    """Pace of one writer.

    Args:
        output: output of the call.
    """

    def __init__(self, output: FrameProcessor) -> None:
        self._output = output
        self._end_s = 0.0

    async def next(self, pcm: bytes) -> None:
        """Return when a piece of live audio (``LiveAudio``) is due, and count it as played."""
        loop = asyncio.get_running_loop()
        await asyncio.sleep(max(0.0, self._end_s - LEAD_S - loop.time()))
        while queued_frames(self._output):  # noqa: ASYNC110 - Pipecat's queue has no event for it
            await asyncio.sleep(LOOK_S)
        self._end_s = max(self._end_s, loop.time()) + len(pcm) / PCM_BYTES_PER_SAMPLE / INPUT_RATE_HZ


async def play_live(audio: LiveAudio, output: FrameProcessor) -> None:
    """Play audio in an output, until cancelled."""
    pace = LivePace(output)
    while True:
        pcm = await audio.get()
        await pace.next(pcm)
        await output.queue_frame(OutputAudioRawFrame(pcm, INPUT_RATE_HZ, 1))
