"""Compare the length of a pause by the clock with the audio of it that was heard.

The end of a turn is judged by how long the caller has been silent. The clock says so only while audio comes
as it is spoken. After a stop of the process, or a silent network, the audio of that time is about to come,
and the caller may speak in it. So a decision that is due waits for audio that is missing.

A client may also send no more audio, because a key was released or its network is gone. Where the next looks
find no new audio, the clock decides. Owns no task: the waits are their caller's.
"""

from parley.core.clock import Clock
from parley.core.media import PCM_BYTES_PER_SAMPLE

# Audio is late by less than this as a rule: a piece of a phone's has up to 100 ms, and networks jitter.
LATE_MS = 200
# Audio that is on its way comes within this time: the loop has it from the network, or voice activity has it.
LOOK_MS, MOST_LOOKS = 50, 2


class HeardPause:
    """Pause of a caller, by the clock and by their audio.

    Args:
        clock: clock of the strategy.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard_bytes = 0
        # Time at which the pause began, and the audio heard by then.
        self._began_ms = self._began_bytes = 0

    def hear(self, pcm: bytes) -> None:
        """Count audio, 16-bit mono."""
        self._heard_bytes += len(pcm)

    def begin(self) -> None:
        """Note that the voice is over."""
        self._began_ms, self._began_bytes = self._clock.now_ms(), self._heard_bytes

    def is_late(self, rate_hz: int) -> bool:
        """Return whether audio of the pause is missing that may be about to come.

        Audio is awaited only if some has come since the voice ended.
        """
        return self._heard_bytes > self._began_bytes and self._missing_ms(rate_hz) > LATE_MS

    async def catch_up(self, rate_hz: int, *, due_ms: int) -> None:
        """Return when no audio is missing for a decision, or none comes.

        Args:
            rate_hz: rate of the audio.
            due_ms: when the decision was due. One for which the loop was late waits in any case.
        """
        if self._clock.now_ms() - due_ms <= LATE_MS and not self.is_late(rate_hz):
            return
        least_ms, looks = self._missing_ms(rate_hz), 0
        while least_ms > LATE_MS and looks < MOST_LOOKS:
            await self._clock.sleep_until_ms(self._clock.now_ms() + LOOK_MS)
            missing_ms, looks = self._missing_ms(rate_hz), looks + 1
            # Audio that comes as it is spoken, after some was lost, makes up for nothing.
            if missing_ms <= least_ms - LOOK_MS // 2:
                least_ms, looks = missing_ms, 0

    def _missing_ms(self, rate_hz: int) -> int:
        heard_bytes = self._heard_bytes - self._began_bytes
        heard_ms = heard_bytes // PCM_BYTES_PER_SAMPLE * 1000 // rate_hz
        return self._clock.now_ms() - self._began_ms - heard_ms
