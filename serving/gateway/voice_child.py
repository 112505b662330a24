"""A process that decodes one file of a stranger's, and may be harmed by it.

Run by path in an isolated interpreter (``python -I``) by ``voice_decoder``; nothing imports it. In: the bytes
of the file on standard input. Out: 16-bit mono PCM on standard output, or an exit status that says why not.
Before it reads a byte it gives up what it does not need: memory, processor time, files to write, files to
open. The demuxer may be one of those below and opens nothing else: a playlist could name files of this
machine, or hosts near it.

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
# No protocol: the file is read through our own functions. An unknown name stands for none at all.
PROTOCOLS = "none"
# Standard input, output and error, and what Python keeps for itself.
MOST_FILES = 16


def give_up(memory_bytes: int, cpu_s: int) -> None:
    """For the whole life of the process."""
    limits = {
        resource.RLIMIT_CPU: cpu_s,
        resource.RLIMIT_FSIZE: 0,
        resource.RLIMIT_CORE: 0,
        resource.RLIMIT_NOFILE: MOST_FILES,
    }
    if sys.platform != "darwin":
        # macOS knows the name and takes no value for it.
        limits[resource.RLIMIT_AS] = memory_bytes
    for name, limit in limits.items():
        resource.setrlimit(name, (limit, limit))


def decode(data: bytes, *, rate_hz: int, most_samples: int) -> bytes:
    """Mono PCM of the first audio stream. Raises OverflowError when there is more of it than is wanted."""
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
    """The exit status."""
    rate_hz, most_samples, memory_bytes, cpu_s = map(int, sys.argv[1:])
    # What FFmpeg says of a broken file is nobody's news.
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
