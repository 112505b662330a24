"""Pipecat's clock on the time of the running loop, which may be virtual."""

import asyncio

from pipecat.clocks.base_clock import BaseClock


class PipecatClock(BaseClock):
    """Clock that starts with the loop."""

    def start(self) -> None:
        pass

    def get_time(self) -> int:
        return 1 + int(asyncio.get_running_loop().time() * 1e9)
