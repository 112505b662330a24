"""Messages of a client that are for one part of a call."""

from collections.abc import Callable
from typing import Any

from pipecat.pipeline.worker import PipelineWorker


def on_client_message(worker: PipelineWorker, kind: str, take: Callable[[object], None]) -> None:
    """Pass the data of each message of this type to ``take``; the client decides what it is."""

    @worker.rtvi.event_handler("on_client_message")
    async def on_message(_rtvi: Any, message: Any) -> None:
        if message.type == kind:
            take(message.data)
