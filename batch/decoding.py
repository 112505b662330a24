"""Decode audio files that may come from anywhere, in processes that may be harmed by them (``decoder_host``).

Output: blocks of 16-bit PCM at ``RATE_HZ``, or a ``RefusedSource`` with the reason. Memory does not grow with
the file. A decoder that gives no audio for ``decode_stall_s`` is killed, with the host that forked it; the
next file gets a new host. One file is decoded at a time. Blocks.
"""

import math
import os
import select
import signal
import socket
import stat
import subprocess
import sys
import time
from collections.abc import Generator
from contextlib import suppress
from pathlib import Path

import numpy as np

from parley.batch.decoder_host import EXIT_DAMAGED, REPLY, REQUEST
from parley.batch.settings import GB, RATE_HZ, FileLimits
from parley.core.errors import MediaError
from parley.runtime.engine_hosting.supervisor import child_environment
from parley.serving.gateway.reference_voices.decoder_child import (
    EXIT_NOT_AUDIO,
    EXIT_TOO_LARGE,
    EXIT_TOO_LONG,
)

BLOCK_SAMPLES = 10 * RATE_HZ
MB = 1_000_000
# Decoding takes 1 ms of processor time per second of audio, AAC and MP3 2 ms.
CPU_SHARE = 0.1
LEAST_CPU_S = 10
REASONS = {
    EXIT_NOT_AUDIO: "the file is not audio in a supported format",
    EXIT_DAMAGED: "the file is damaged; --retry-parked --limit least_share=0 transcribes what can be decoded",
    EXIT_TOO_LONG: "the audio is longer than {hours:g} h",
    EXIT_TOO_LARGE: "decoding takes more memory than allowed",
}
EMPTY, TOO_LARGE = "the file is empty", "the file is larger than {gb:g} GB"
# Time for the reply after the last audio, and for the end of a killed process.
REPLY_S = 5.0


class RefusedSource(MediaError):
    """A source cannot be transcribed.

    Attributes:
        may_succeed: another try may succeed, because a process crashed or stalled.
    """

    def __init__(self, reason: str, *, may_succeed: bool = False) -> None:
        super().__init__(reason)
        self.may_succeed = may_succeed


class AudioFileDecoder:
    """Decoder for one thread.

    Args:
        limits: bounds of a file.

    Attributes:
        cpu_ms: processor time of the last file that was decoded to its end.
    """

    def __init__(self, limits: FileLimits) -> None:
        self.cpu_ms = 0
        self._limits = limits
        self._process: subprocess.Popen[bytes] | None = None
        self._connection: socket.socket | None = None

    @property
    def most_bytes(self) -> int:
        """Size of the largest file."""
        return round(self._limits.most_gb * GB)

    def blocks(self, path: Path) -> Generator[np.ndarray]:
        """Yield the audio of a file: int16, (channels, samples) each, at ``RATE_HZ``, of one or two channels.

        The generator is closed or read to its end before the next file.

        Raises:
            RefusedSource: the file is no audio, or a bound is reached.
        """
        handle = open_regular(path, most_bytes=self.most_bytes)
        try:
            yield from self.blocks_of(handle)
        finally:
            os.close(handle)

    def blocks_of(self, handle: int) -> Generator[np.ndarray]:
        """Yield the audio of an open file from its current place, as ``blocks``."""
        reading, writing = os.pipe()
        try:
            self._request(handle, writing)
        except BaseException:
            os.close(reading)
            raise
        finally:
            os.close(writing)
        try:
            first = self._read(reading, 1)
            channels = first[0] if first else 1
            frame_bytes = 2 * channels
            while data := self._read(reading, BLOCK_SAMPLES * frame_bytes):
                whole = data[: len(data) // frame_bytes * frame_bytes]
                yield np.ascontiguousarray(np.frombuffer(whole, "<i2").reshape(-1, channels).T)
            self.cpu_ms = self._finish()
            if not first:
                raise RefusedSource("the file has no sound")
        except GeneratorExit:
            # The rest is not taken: the decoder would wait for it.
            self.close()
            raise
        finally:
            os.close(reading)

    def close(self) -> None:
        """End the host."""
        if self._connection is not None:
            self._connection.close()
        process, self._process, self._connection = self._process, None, None
        if process is not None:
            # A child that hangs belongs to the group of the host.
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _request(self, handle: int, pipe: int) -> None:
        limits = self._limits
        cpu_s = LEAST_CPU_S + math.ceil(CPU_SHARE * limits.most_ms / 1_000)
        memory_bytes = limits.decode_memory_mb * MB
        request = REQUEST.pack(RATE_HZ, limits.most_ms, memory_bytes, cpu_s, limits.least_share)
        if self._connection is None or self._process is None or self._process.poll() is not None:
            self._start()
        assert self._connection is not None
        try:
            socket.send_fds(self._connection, [request], [handle, pipe])
        except OSError as error:
            self.close()
            raise RefusedSource(f"no decoder: {error.strerror}", may_succeed=True) from error

    def _start(self) -> None:
        self.close()
        ours, theirs = socket.socketpair()
        with theirs:
            self._process = subprocess.Popen(
                (sys.executable, "-m", "parley.batch.decoder_host", str(theirs.fileno())),
                env=child_environment(),
                pass_fds=(theirs.fileno(),),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                # A group of its own, which is killed as a whole.
                start_new_session=True,
            )
        ours.settimeout(REPLY_S)
        self._connection = ours

    def _read(self, pipe: int, size: int) -> bytes:
        """Return this many bytes, fewer at the end.

        Raises:
            RefusedSource: the decoder stalls.
        """
        data = bytearray()
        until_s = time.monotonic() + self._limits.decode_stall_s
        while len(data) < size:
            ready, _, _ = select.select([pipe], [], [], max(0.0, until_s - time.monotonic()))
            if not ready:
                self.close()
                stall_s = self._limits.decode_stall_s
                raise RefusedSource(f"the decoder stalled for {stall_s:g} s", may_succeed=True)
            piece = os.read(pipe, size - len(data))
            if not piece:
                break
            until_s = time.monotonic() + self._limits.decode_stall_s
            data += piece
        return bytes(data)

    def _finish(self) -> int:
        """Return the processor time of the decoder that has ended, in milliseconds.

        Raises:
            RefusedSource: it has failed.
        """
        assert self._connection is not None
        try:
            reply = self._connection.recv(REPLY.size, socket.MSG_WAITALL)
            status, cpu_ms = REPLY.unpack(reply)
        except (OSError, ValueError) as error:
            self.close()
            raise RefusedSource("the decoder ended without a result", may_succeed=True) from error
        if status == 0:
            return int(cpu_ms)
        if status in REASONS:
            raise RefusedSource(REASONS[status].format(hours=self._limits.most_hours))
        if -status in (signal.SIGKILL, signal.SIGXCPU):
            raise RefusedSource("decoding takes too much processor time or memory", may_succeed=True)
        how = f"crashed ({signal.Signals(-status).name})" if status < 0 else f"failed ({status})"
        raise RefusedSource(f"the decoder {how}", may_succeed=True)


def open_regular(path: Path, *, most_bytes: int) -> int:
    """Return a descriptor of a regular file, which is neither a link nor empty.

    Raises:
        RefusedSource: it is something else, too large, or cannot be read.
    """
    try:
        # A named pipe would block without NONBLOCK.
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    except OSError as error:
        if path.is_symlink():
            raise RefusedSource("a link: links are not followed") from error
        raise RefusedSource(f"the file cannot be opened: {error.strerror}") from error
    status = os.fstat(handle)
    reason = None
    if not stat.S_ISREG(status.st_mode):
        reason = "not a regular file"
    elif not status.st_size:
        reason = EMPTY
    elif status.st_size > most_bytes:
        reason = TOO_LARGE.format(gb=most_bytes / GB)
    if reason is not None:
        os.close(handle)
        raise RefusedSource(reason)
    return handle
