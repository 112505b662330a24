"""Decode untrusted audio files to PCM, in a process that may be harmed by them (``decoder_child``).

Output: 16-bit mono PCM at ``RATE_HZ``, or a VoiceError with the reason. However a file behaves, the process
has ended when ``decode`` returns. It is killed after ``decode_s``, its memory is limited, and no more is read
from it than the maximum. The number of concurrent decodings is limited; a further one is refused.
"""

import asyncio
import math
import os
import sys
from contextlib import suppress
from pathlib import Path

from parley.core.errors import AgentError
from parley.core.media import ms_to_samples
from parley.runtime.engine_hosting.supervisor import PASSED_ENVIRONMENT
from parley.serving.gateway.limits import ConcurrencyLimit
from parley.serving.gateway.reference_voices.decoder_child import (
    EXIT_NOT_AUDIO,
    EXIT_TOO_LARGE,
    EXIT_TOO_LONG,
)
from parley.serving.gateway.reference_voices.settings import VoiceTuning

RATE_HZ = 16_000
CHILD = Path(__file__).with_name("decoder_child.py")


class VoiceError(AgentError):
    """A reference voice is not accepted, or does not exist.

    Attributes:
        status: of the answer.
    """

    def __init__(self, message: str, *, status: int) -> None:
        super().__init__(message)
        self.status = status


class VoiceDecoder:
    """Decoder of audio files, for one process of a gateway.

    Args:
        settings: bounds.
    """

    def __init__(self, settings: VoiceTuning) -> None:
        self._settings = settings
        self._places = ConcurrencyLimit(
            settings.decodes, f"{settings.decodes} audio files are being decoded, try again in a moment"
        )

    async def decode(self, data: bytes) -> bytes:
        """Return the PCM of a whole file.

        Raises:
            VoiceError: 400, no audio; 413, too much of it.
            CapacityError: the maximum number of files is being decoded.
        """
        with self._places.take():
            status, pcm = await self._decode(data)
        settings = self._settings
        too_long = VoiceError(f"the audio is longer than {settings.max_s:g} s", status=413)
        if status == EXIT_TOO_LONG or len(pcm) > 2 * self._most_samples:
            raise too_long
        if status in (0, EXIT_NOT_AUDIO) and not pcm:
            raise VoiceError("the file is not audio in a supported format", status=400)
        if status == EXIT_TOO_LARGE:
            raise VoiceError("decoding this file takes more memory than allowed", status=413)
        if status != 0:
            # Killed by its own limits, or by its input.
            raise VoiceError("this file cannot be decoded within the limits", status=400)
        if len(pcm) < 2 * ms_to_samples(settings.min_ms, RATE_HZ):
            raise VoiceError(f"the audio is shorter than {settings.min_ms} ms", status=400)
        return pcm

    @property
    def _most_samples(self) -> int:
        return math.ceil(self._settings.max_s * RATE_HZ)

    async def _decode(self, data: bytes) -> tuple[int, bytes]:
        settings = self._settings
        numbers = (RATE_HZ, self._most_samples, settings.decode_memory_bytes, math.ceil(settings.decode_s))
        process = await asyncio.create_subprocess_exec(
            # Isolated: nothing of this folder, of the environment or of the user is imported.
            *(sys.executable, "-I", str(CHILD), *map(str, numbers)),
            cwd="/",
            env={name: os.environ[name] for name in PASSED_ENVIRONMENT if name in os.environ},
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.DEVNULL,
        )
        assert process.stdin is not None and process.stdout is not None
        try:
            async with asyncio.timeout(settings.decode_s):
                feeding = asyncio.create_task(_feed(process.stdin, data), name="voice.feed")
                try:
                    # One additional byte shows that there is more.
                    pcm = await _read(process.stdout, 2 * self._most_samples + 1)
                finally:
                    feeding.cancel()
                    await asyncio.gather(feeding, return_exceptions=True)
                if len(pcm) > 2 * self._most_samples:
                    return EXIT_TOO_LONG, b""
                return await process.wait(), pcm
        except TimeoutError:
            raise VoiceError(
                f"decoding this file takes longer than {settings.decode_s:g} s", status=413
            ) from None
        finally:
            if process.returncode is None:
                with suppress(ProcessLookupError):
                    process.kill()
                await process.wait()


async def _feed(stdin: asyncio.StreamWriter, data: bytes) -> None:
    with suppress(ConnectionError):
        stdin.write(data)
        await stdin.drain()
        stdin.close()


async def _read(stdout: asyncio.StreamReader, most_bytes: int) -> bytes:
    pcm = bytearray()
    while len(pcm) < most_bytes and (piece := await stdout.read(min(65_536, most_bytes - len(pcm)))):
        pcm += piece
    return bytes(pcm)
