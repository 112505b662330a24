"""Pipecat bot module: a foreign runner brings conversations, one at a time, to ``bot``."""

import asyncio
import os
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING

from parley.configs.load import load_deployment

if TYPE_CHECKING:
    from pipecat.runner.types import RunnerArguments

    from parley.pipelines.engines.engines import Engines
    from parley.session_store.conversations import Conversations


class _Process:
    """Shared state of a foreign runner's conversations (Pipecat's imports ``bot.py`` and calls ``bot``).

    Such a runner has no place for objects that are loaded once, so this module holds them: one deployment per
    process.
    """

    def __init__(self) -> None:
        self._lock = asyncio.Lock()
        self._open = AsyncExitStack()
        self._shared: tuple[Engines, Conversations] | None = None

    async def get(self) -> "tuple[Engines, Conversations]":
        from parley.pipelines.engines.engines import Engines
        from parley.pipelines.sessions import open_conversations

        async with self._lock:
            if self._shared is None:
                deployment = load_deployment(os.environ.get("PARLEY_CONFIG", "embedded"))
                engines = await Engines.load(deployment, duplex=True)
                opened = open_conversations(deployment, engines.answering)
                self._shared = engines, await self._open.enter_async_context(opened)
            return self._shared


_process = _Process()


async def bot(runner_args: "RunnerArguments") -> None:
    """Hold one conversation: Pipecat's entry point."""
    from parley.pipelines.dispatch import run_session

    engines, conversations = await _process.get()
    await run_session(engines, conversations, runner_args)
