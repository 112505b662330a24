"""Memory of CUDA devices, as far as it can be read without one."""

import asyncio
import sys
import threading

import pytest
from loguru import logger

from parley.telemetry.device_memory import DeviceMemory, DeviceMemoryReader, read_device_memory, used_cuda

GB = 10**9


class Devices:
    """Three devices, as ``torch.cuda`` reports them; the second one is not used by this process."""

    def __init__(self) -> None:
        self.asked: list[int] = []
        self.answers = threading.Event()
        self.answers.set()
        self.fails = False

    def is_initialized(self) -> bool:
        return True

    def device_count(self) -> int:
        return 3

    def memory_reserved(self, device: int) -> int:
        return 0 if device == 1 else GB

    def mem_get_info(self, device: int) -> tuple[int, int]:
        self.asked.append(device)
        assert self.answers.wait(30)
        if self.fails:
            raise RuntimeError("CUDA error: an illegal memory access was encountered")
        return 60 * GB - device, 80 * GB


USED = (DeviceMemory("cuda:0", 20 * GB, 80 * GB), DeviceMemory("cuda:2", 20 * GB + 2, 80 * GB))


def test_only_devices_that_this_process_uses_are_asked():
    devices = Devices()
    assert read_device_memory(devices) == USED
    assert devices.asked == [0, 2]


async def test_a_driver_that_does_not_answer_holds_up_nothing_and_is_asked_once():
    devices = Devices()
    devices.answers.clear()
    reader = DeviceMemoryReader(lambda: devices, read_s=0.05)
    try:
        assert await asyncio.gather(reader.read(), reader.read()) == [(), ()]
        assert await reader.read() == ()
        assert devices.asked == [0]
        devices.answers.set()
        async with asyncio.timeout(10):
            while await reader.read() != USED:
                await asyncio.sleep(0)
    finally:
        reader.close()


async def test_a_driver_that_fails_is_logged_once():
    devices, lines = Devices(), []
    devices.fails = True
    reader, sink = DeviceMemoryReader(lambda: devices), logger.add(lines.append, format="{message}")
    try:
        assert [await reader.read() for _ in range(3)] == [(), (), ()]
        assert len(lines) == 1 and "illegal memory access" in lines[0]
        devices.fails = False
        assert await reader.read() == USED
    finally:
        logger.remove(sink)
        reader.close()


async def test_without_a_device_in_use_nothing_is_asked_and_no_thread_is_started():
    torch = pytest.importorskip("torch")
    if torch.cuda.is_initialized():
        pytest.skip("this process uses a device")
    before = threading.active_count()
    reader = DeviceMemoryReader()
    assert used_cuda() is None and await reader.read() == ()
    assert threading.active_count() == before
    reader.close()


def test_without_torch_or_while_it_is_imported_there_is_none(monkeypatch: pytest.MonkeyPatch):
    for present in (None, threading):
        monkeypatch.setitem(sys.modules, "torch", present)
        assert used_cuda() is None
