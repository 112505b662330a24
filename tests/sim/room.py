"""A room in which the microphone hears the loudspeaker, around a scripted caller on virtual time.

Audio for the loudspeaker comes back ``delay_ms`` later, through the same room as in ``tests.speakerphone``,
on the clock of the microphone. The left channel of the recording holds the caller alone.
"""

import numpy as np
from pipecat.frames.frames import InputAudioRawFrame
from pipecat.transports.base_transport import TransportParams

from parley.audio import g711
from parley.audio.resample import Resampler
from parley.core.media import float_to_pcm16, pcm16_to_float
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock
from parley.transports.local.file import FileCall, FileInput, FileTransport
from tests.speakerphone import RATE_HZ, room_path

# Upper bound of a simulated call's length.
LONGEST_S = 120
LINE_HZ = 8_000
# -70 dBFS.
NOISE = 3e-4


class Room:
    """Echo path from the loudspeaker to the microphone.

    Args:
        delay_ms: time from the moment a packet leaves to the start of its echo.
        loss_db: attenuation of the direct sound, in dB.
        drift_ppm: how much faster the microphone's clock runs.
    """

    def __init__(self, delay_ms: float, *, loss_db: float = 14.0, drift_ppm: float = 0.0) -> None:
        self._delay = delay_ms * RATE_HZ / 1000
        self._path = (10 ** (-loss_db / 20) * room_path()).astype(np.float32)
        self._step = 1 / (1 + drift_ppm * 1e-6)
        self._played = np.zeros(LONGEST_S * RATE_HZ, np.float32)
        self._end = 0
        self._heard = 0
        self._began_us: int | None = None
        self._rng = np.random.default_rng(6)

    def played(self, pcm: bytes) -> None:
        """Take a packet that leaves now; rounding does not separate packets that follow each other."""
        samples = pcm16_to_float(pcm)
        at = self._now()
        self._end = at if at - self._end > RATE_HZ // 100 else self._end
        self._played[self._end : self._end + len(samples)] = samples
        self._end += len(samples)

    def hear(self, pcm: bytes) -> bytes:
        """Return the microphone's next piece: the caller's voice, and the echo of the bot's."""
        near = pcm16_to_float(pcm)
        # Noise of the microphone.
        near = near + NOISE * self._rng.standard_normal(len(near))
        self._began_us = self._began_us or LoopClock().now_us() - len(near) * 1_000_000 // RATE_HZ
        places = self._step * (self._heard + np.arange(len(near))) - self._delay
        self._heard += len(near)
        first = int(np.floor(places[0])) - len(self._path)
        known = self._played[max(0, first) : int(places[-1]) + 2] if places[-1] >= 0 else self._played[:0]
        if not known.any():
            return float_to_pcm16(near)
        known = np.pad(known, (max(0, -first), 0))
        size = 1 << (len(known) + len(self._path) - 1).bit_length()
        echo = np.fft.irfft(np.fft.rfft(known, size) * np.fft.rfft(self._path, size), size)[: len(known)]
        return float_to_pcm16(near + np.interp(places - first, np.arange(len(echo)), echo))

    def _now(self) -> int:
        now_us = LoopClock().now_us()
        self._began_us = self._began_us or now_us
        return (now_us - self._began_us) * RATE_HZ // 1_000_000


class TelephoneLine(Room):
    """Telephone that returns the bot's audio: mu-law at 8 kHz both ways, and the filters of the other end."""

    def __init__(self, delay_ms: float, *, loss_db: float) -> None:
        super().__init__(delay_ms, loss_db=loss_db)
        # Response of a hybrid or a handset: short, and with almost no room.
        ring = np.arange(160)
        path = np.exp(-ring / 16) * np.cos(2 * np.pi * 900 * ring / RATE_HZ)
        self._path = (10 ** (-loss_db / 20) * path / np.sqrt(np.vdot(path, path))).astype(np.float32)
        self._there, self._back = (_Leg(), _Leg())

    def played(self, pcm: bytes) -> None:
        super().played(self._there.carry(pcm))

    def hear(self, pcm: bytes) -> bytes:
        return self._back.carry(super().hear(pcm))


class _Leg:
    def __init__(self) -> None:
        self._down, self._up = Resampler(RATE_HZ, LINE_HZ), Resampler(LINE_HZ, RATE_HZ)

    def carry(self, pcm: bytes) -> bytes:
        low = np.frombuffer(float_to_pcm16(self._down.feed(pcm16_to_float(pcm))), "<i2").astype(np.int16)
        back = g711.decode(g711.encode(low, g711.Law.MU), g711.Law.MU).astype("<i2").tobytes()
        return float_to_pcm16(self._up.feed(pcm16_to_float(back)))


class _RoomInput(FileInput):
    def __init__(self, transport: FileTransport, call: FileCall, params: TransportParams, room: Room) -> None:
        super().__init__(transport, call, params)
        self._room = room

    async def push_audio_frame(self, frame: InputAudioRawFrame) -> None:
        frame.audio = self._room.hear(frame.audio)
        await super().push_audio_frame(frame)


class RoomTransport(FileTransport):
    """File transport in a room that receives every packet."""

    def __init__(self, call: FileCall, params: TransportParams, events: CallEvents, room: Room) -> None:
        super().__init__(call, params, events)
        self._file_input = _RoomInput(self, call, params, room)
