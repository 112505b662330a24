"""Process that decodes one untrusted file, and may be harmed by it.

``decoder`` runs it by path in an isolated interpreter (``python -I``); nothing imports it. Input: the
bytes of the file on standard input. Output: 16-bit mono PCM on standard output, or an exit status for the
reason of the failure. Before it reads a byte it gives up what it does not need: memory, processor time,
writing and opening files. Only the demuxers below are allowed, and they open nothing else: a playlist could
name files of this machine, or hosts near it.

Arguments: RATE_HZ MOST_SAMPLES MEMORY_BYTES CPU_S.
"""

import io
import resource
import sys

import av
from av.audio.resampler import AudioResampler
from av.error import FFmpegError

EXIT_NOT_AUDIO, EXIT_TOO_LONG, EXIT_TOO_LARGE = 3, 4, 5
DEMUXERS = "wav,w64,aiff,mp3,flac,ogg,matroska,webm,mov,mp4,m4a,3gp,3g2,mj2,aac,amr,caf"
# No protocol: the file is read through our own functions. FFmpeg has no protocol of this name.
PROTOCOLS = "none"
# Standard input, output and error, and files that Python keeps open.
MOST_FILES = 16


def give_up(memory_bytes: int, cpu_s: int) -> None:
    """Set the resource limits for the whole life of the process."""
    limits = {
        resource.RLIMIT_CPU: cpu_s,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: MOST_FILES,
    }
    if sys.platform != "darwin":
        # macOS has the name and accepts no value for it.
        limits[resource.RLIMIT_AS] = memory_bytes
    for name, limit in limits.items():
        resource.setrlimit(name, (limit, limit))


def decode(data: bytes, *, rate_hz: int, most_samples: int) -> bytes:
    """Return mono PCM of the first audio stream.

    Raises:
        OverflowError: there is more of it than ``most_samples``.
    """
    pcm = bytearray()
    options = {"format_whitelist": DEMUXERS, "protocol_whitelist": PROTOCOLS}
    with av.open(io.BytesIO(data), "r", options=options, metadata_errors="ignore") as container:
        stream = container.streams.audio[0]
        # Threads would take the memory of their stacks.
        stream.codec_context.thread_type = "NONE"
        resampler = AudioResampler(format="s16", layout="mono", rate=rate_hz)
        for frame in container.decode(stream):
            for piece in resampler.resample(frame):
                pcm += bytes(piece.planes[0])[: piece.samples * 2]
            if len(pcm) > most_samples * 2:
                raise OverflowError
        for piece in resampler.resample(None):
            pcm += bytes(piece.planes[0])[: piece.samples * 2]
    if len(pcm) > most_samples * 2:
        raise OverflowError
    return bytes(pcm)


def main() -> int:
    """Decode standard input; return the exit status."""
    rate_hz, most_samples, memory_bytes, cpu_s = map(int, sys.argv[1:])
    # FFmpeg's messages about a broken file are of no use.
    av.logging.set_level(None)
    give_up(memory_bytes, cpu_s)
    try:
        pcm = decode(sys.stdin.buffer.read(), rate_hz=rate_hz, most_samples=most_samples)
    except OverflowError:
        return EXIT_TOO_LONG
    except MemoryError:
        return EXIT_TOO_LARGE
    except (FFmpegError, IndexError, ValueError, OSError):
        return EXIT_NOT_AUDIO
    if not pcm:
        return EXIT_NOT_AUDIO
    sys.stdout.buffer.write(pcm)
    sys.stdout.buffer.flush()
    return 0


if __name__ == "__main__":
    sys.exit(main())
