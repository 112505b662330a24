"""Stages of the shutdown of a server process, for its components to wait for."""

import asyncio


class Shutdown:
    """Events that ``serving.gateway.calls`` sets once, in this order.

    Attributes:
        stopping: no new call begins; work that can end without loss ends.
        closing: every remaining call ends now, after a goodbye.
    """

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self.closing = asyncio.Event()
