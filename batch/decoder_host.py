"""Process that decodes untrusted audio files, each in a child that may be harmed by it.

``batch.decoding`` starts it. It imports the decoder once and forks for every file, which takes 3 ms where a
new interpreter takes 150. The child gives up memory, processor time, writing and opening files before it
reads a byte (``reference_voices.decoder_child``). It has two descriptors, of the file and of a pipe.

Input: on a socket, ``REQUEST`` with the two descriptors. Output: on the pipe the number of channels (one
byte, 1 or 2) and 16-bit PCM, interleaved; on the socket ``REPLY`` when the child has ended.

    python -m batch.decoder_host SOCKET_FD
"""

import os
import signal
import socket
import struct
import sys
from typing import IO

import av
from av.audio.resampler import AudioResampler
from av.error import FFmpegError, InvalidDataError

from parley.runtime.parent_death import die_with_the_parent
from parley.serving.gateway.reference_voices.decoder_child import (
    DEMUXERS,
    EXIT_NOT_AUDIO,
    EXIT_TOO_LARGE,
    EXIT_TOO_LONG,
    PROTOCOLS,
    give_up,
)

EXIT_DAMAGED = 6
# Rate, most milliseconds of audio, bytes of address space, seconds of processor time, least readable share.
REQUEST = struct.Struct("!IQQId")
# Exit status of the child, negative for a signal; its processor time in milliseconds.
REPLY = struct.Struct("!iI")
STEREO = 2
# A file with a broken packet at its end or after a lost one is still worth reading.
MOST_DAMAGED_PACKETS = 2
# Formats that state their length.
WITH_LENGTH = frozenset({"wav", "w64", "aiff", "flac", "ogg", "mov", "caf"})


class DamagedError(Exception):
    """The file cannot be decoded to its end."""


def decode(file: IO[bytes], pipe: IO[bytes], *, rate_hz: int, most_samples: int, least_share: float) -> None:
    """Write the channels and the PCM of the first audio stream to the pipe.

    Args:
        file: that is decoded.
        pipe: that is written to.
        rate_hz: of the PCM.
        most_samples: longest audio.
        least_share: share of the audio that must be readable; 0 takes what there is.

    Raises:
        OverflowError: the audio is longer than ``most_samples``.
        DamagedError: too little of it can be read.
        FFmpegError: it is no audio.
    """
    options = {"format_whitelist": DEMUXERS, "protocol_whitelist": PROTOCOLS}
    with av.open(file, "r", options=options, metadata_errors="ignore") as container:
        stream = container.streams.audio[0]
        # Threads would take the memory of their stacks.
        stream.codec_context.thread_type = "NONE"
        channels = STEREO if stream.codec_context.layout.nb_channels == STEREO else 1
        layout = "stereo" if channels == STEREO else "mono"
        resampler = AudioResampler(format="s16", layout=layout, rate=rate_hz)
        samples, damaged = 0, 0
        packets = container.demux(stream)
        while True:
            try:
                packet = next(packets, None)
                frames = () if packet is None else packet.decode()
            except InvalidDataError:
                damaged += 1
                if damaged > MOST_DAMAGED_PACKETS and least_share > 0:
                    raise DamagedError from None
                continue
            for frame in (None,) if packet is None else frames:
                for piece in resampler.resample(frame):
                    if not samples:
                        pipe.write(bytes([channels]))
                    samples += piece.samples
                    if samples > most_samples:
                        raise OverflowError
                    pipe.write(bytes(piece.planes[0])[: piece.samples * 2 * channels])
            if packet is None:
                break
        # The length of another format is a guess by its bit rate.
        has_length = container.format.name.split(",")[0] in WITH_LENGTH
        if has_length and stream.duration and stream.time_base:
            expected = float(stream.duration * stream.time_base) * rate_hz
            if samples < least_share * expected - rate_hz:
                raise DamagedError
        if damaged and not samples:
            raise DamagedError


def _child(file: IO[bytes], pipe: IO[bytes], request: bytes) -> int:
    rate_hz, most_ms, memory_bytes, cpu_s, least_share = REQUEST.unpack(request)
    give_up(memory_bytes, cpu_s)
    try:
        decode(
            file,
            pipe,
            rate_hz=rate_hz,
            most_samples=most_ms * rate_hz // 1_000,
            least_share=least_share,
        )
        pipe.flush()
    except OverflowError:
        return EXIT_TOO_LONG
    except MemoryError:
        return EXIT_TOO_LARGE
    except DamagedError:
        return EXIT_DAMAGED
    except (FFmpegError, IndexError, ValueError, OSError):
        return EXIT_NOT_AUDIO
    return 0


def main() -> int:
    """Serve requests until the parent is gone; return the exit status."""
    # The worker decides when a decoder ends.
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    die_with_the_parent()
    # FFmpeg's messages about a broken file are of no use.
    av.logging.set_level(None)
    with socket.socket(fileno=int(sys.argv[1])) as connection:
        while True:
            data, handles, _, _ = socket.recv_fds(connection, REQUEST.size, 2)
            if len(data) < REQUEST.size or len(handles) != 2:
                return 0
            pid = os.fork()
            if not pid:
                # The child never returns to the loop.
                status = 1
                try:
                    die_with_the_parent()
                    connection.close()
                    with os.fdopen(handles[0], "rb") as file, os.fdopen(handles[1], "wb") as pipe:
                        status = _child(file, pipe, data)
                finally:
                    os._exit(status)
            for handle in handles:
                os.close(handle)
            _, status, usage = os.wait4(pid, 0)
            cpu_ms = round((usage.ru_utime + usage.ru_stime) * 1_000)
            try:
                connection.sendall(REPLY.pack(os.waitstatus_to_exitcode(status), cpu_ms))
            except OSError:
                return 0


if __name__ == "__main__":
    sys.exit(main())
