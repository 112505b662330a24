"""Memory of the CUDA devices on which this process runs engines.

A device counts once torch has reserved memory of it here: asking for another one would create a context
there, of hundreds of megabytes. The driver reports the use of the whole device, by all processes. It may
answer late while the device works, so it is asked in a thread, one question at a time, and an answer that is
not there within ``READ_S`` is none. Without torch, or before it has begun to use a device, nothing is asked
and no thread is started. Engines that use a device without torch are not seen.
"""

import asyncio
import sys
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any, Protocol

from loguru import logger

from parley.runtime.engine_thread import EngineThread
from parley.telemetry.log_throttle import LogThrottle

READ_S = 1.0
LOG_EVERY_S = 600.0


@dataclass(frozen=True, slots=True)
class DeviceMemory:
    """Memory of one device.

    Attributes:
        device: its name in this process, as in the settings of engines.
        used_bytes: by all processes.
        total_bytes: of the device.
    """

    device: str
    used_bytes: int
    total_bytes: int


class Cuda(Protocol):
    """Functions of ``torch.cuda`` that are used here."""

    def is_initialized(self) -> bool: ...
    def device_count(self) -> int: ...
    def memory_reserved(self, device: int) -> int: ...
    def mem_get_info(self, device: int) -> tuple[int, int]: ...


def used_cuda() -> Cuda | None:
    """Return ``torch.cuda`` where this process uses a device by it; None otherwise. Imports nothing."""
    cuda: Any = getattr(sys.modules.get("torch"), "cuda", None)
    # While another thread imports torch, it has no such attribute yet.
    is_initialized = getattr(cuda, "is_initialized", None)
    return cuda if is_initialized is not None and is_initialized() else None


def read_device_memory(cuda: Cuda) -> tuple[DeviceMemory, ...]:
    """Return the memory of each device that this process uses. Asks the driver, and may block."""
    found = []
    for number in range(cuda.device_count()):
        if cuda.memory_reserved(number) > 0:
            free_bytes, total_bytes = cuda.mem_get_info(number)
            found.append(DeviceMemory(f"cuda:{number}", total_bytes - free_bytes, total_bytes))
    return tuple(found)


class DeviceMemoryReader:
    """Reader for an event loop.

    Args:
        cuda: returns ``torch.cuda`` where it is in use.
        read_s: longest wait for the driver.
    """

    def __init__(self, cuda: Callable[[], Cuda | None] = used_cuda, *, read_s: float = READ_S) -> None:
        self._cuda, self._read_s = cuda, read_s
        self._log = LogThrottle(LOG_EVERY_S)
        self._thread: EngineThread | None = None
        self._reading: Future[tuple[DeviceMemory, ...]] | None = None

    async def read(self) -> tuple[DeviceMemory, ...]:
        """Return the memory of each device in use; empty without one, or where the driver fails."""
        cuda = self._cuda()
        if cuda is None:
            return ()
        if self._thread is None:
            self._thread = EngineThread("device-memory")
        # A question that is not answered yet is not asked again: one waits for the driver at most.
        if self._reading is None or self._reading.done():
            self._reading = self._thread.submit(read_device_memory, cuda)
        reading = asyncio.wrap_future(self._reading)
        done, _ = await asyncio.wait({reading}, timeout=self._read_s)
        if not done:
            reading.add_done_callback(_forget)
            return ()
        try:
            return reading.result()
        except RuntimeError as error:
            line = self._log.line(f"the memory of the devices is unknown: {error}", time.monotonic())
            if line is not None:
                logger.warning("{}", line)
            return ()

    def close(self) -> None:
        """End the thread, without waiting for a driver that does not answer."""
        if self._thread is not None:
            self._thread.shutdown(wait=False)


def _forget(reading: "asyncio.Future[tuple[DeviceMemory, ...]]") -> None:
    """Take a late answer, so that its error is not reported as one that no code has seen."""
    if not reading.cancelled():
        reading.exception()
