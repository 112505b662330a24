"""The caller's ear of a call from a file: late wake-ups of a busy machine are no gaps."""

import wave
from pathlib import Path

import numpy as np
import pytest
from pipecat.frames.frames import OutputAudioRawFrame
from pipecat.transports.base_transport import TransportParams

from transports.local.file import LATE_MS, FileCall, FileTransport

RATE_HZ = 16_000
CHUNK_MS = 40
CHUNK = OutputAudioRawFrame(b"\x01\x10" * (RATE_HZ * CHUNK_MS // 1000), RATE_HZ, 1)


class LateClock:
    """A clock whose sleeper is woken late."""

    def __init__(self, late_ms: int) -> None:
        self.at_ms = 1_000
        self._late_ms = late_ms

    def now_us(self) -> int:
        return self.at_ms * 1_000

    def now_ms(self) -> int:
        return self.at_ms

    async def sleep_until_ms(self, deadline_ms: int) -> None:
        self.at_ms = max(self.at_ms, deadline_ms + self._late_ms)


def heard(path: Path) -> np.ndarray:
    """Samples of the recording in which the bot is heard."""
    with wave.open(str(path)) as file:
        stereo = np.frombuffer(file.readframes(file.getnframes()), "<i2").reshape(-1, 2)
    return np.flatnonzero(stereo[:, 1])


@pytest.mark.parametrize("late_ms", [0, 4, LATE_MS])
async def test_a_loop_that_wakes_late_makes_speech_no_longer(tmp_path: Path, late_ms: int):
    clock = LateClock(late_ms)
    call = FileCall(b"", rate_hz=RATE_HZ, output=tmp_path / "call.wav", clock=clock)
    output = FileTransport(call, TransportParams()).output()
    call.start()
    for _ in range(30):
        await output.take_audio(CHUNK)
    call.recording.close()
    samples = heard(tmp_path / "call.wav")
    assert samples[-1] - samples[0] + 1 == len(samples) == 30 * CHUNK_MS * RATE_HZ // 1000


async def test_audio_that_comes_later_begins_when_it_comes(tmp_path: Path):
    clock = LateClock(0)
    call = FileCall(b"", rate_hz=RATE_HZ, output=tmp_path / "call.wav", clock=clock)
    output = FileTransport(call, TransportParams()).output()
    call.start()
    await output.take_audio(CHUNK)
    clock.at_ms += LATE_MS + 1
    await output.take_audio(CHUNK)
    call.recording.close()
    samples = heard(tmp_path / "call.wav")
    assert np.diff(samples).max() - 1 == (LATE_MS + 1) * RATE_HZ // 1000
