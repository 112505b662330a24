"""Stages of the end of a server process, for all that has to end with it."""

import asyncio


class Shutdown:
    """Set once, in this order, by ``serving.gateway.calls``.

    Attributes:
        stopping: no new call begins; what can end without loss does.
        closing: every call that is left ends now, after a goodbye.
    """

    def __init__(self) -> None:
        self.stopping = asyncio.Event()
        self.closing = asyncio.Event()
