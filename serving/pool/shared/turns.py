"""Task that keeps one gateway and one shared line the same, whatever holds the line.

It waits for changes of the gateway (``SharedScheduler``), for news of the line and for the clock, and takes a
step for each: the changes go there, grants and refusals come back. It reads the whole line at intervals that
grow with its length. The holder of the line may be slow or away: the changes wait, in their order, and
requests are refused after ``no_worker_ms`` without it.
"""

import asyncio
from abc import ABC, abstractmethod
from collections.abc import Callable

from loguru import logger

from parley.serving.pool.settings import SharedPoolSettings
from parley.serving.pool.shared.scheduler import SharedScheduler
from parley.serving.scheduler.types import Effect

RETRY_S = 0.25
CLOSE_S = 2.0
# Least pause between two readings of the whole line, and the part of it for each request: a long line takes
# some hundredths of the loop's time, however often it changes.
LOOK_S, LOOK_OF_REQUEST_S = 0.05, 0.000_1
# The same while no caller of this gateway waits.
IDLE_LOOK_S = 1.0


class LineTask(ABC):
    """Task of one gateway and line.

    Args:
        settings: of the shared pool.
        line: name of the line.
        scheduler: of the gateway.
        on_effects: called on the loop with what was granted and refused, and with nothing when the places
            have changed.

    Attributes:
        holder: what holds the line, for messages.
        errors: those by which the holder does not answer.
    """

    holder: str
    errors: tuple[type[Exception], ...]

    def __init__(
        self,
        settings: SharedPoolSettings,
        line: str,
        scheduler: SharedScheduler,
        on_effects: Callable[[list[Effect]], None],
    ) -> None:
        self._settings = settings
        self._line = f"{settings.name}.{line}"
        self._scheduler = scheduler
        self._on_effects = on_effects
        self._task: asyncio.Task[None] | None = None
        self._loop: asyncio.AbstractEventLoop | None = None
        self._wake = asyncio.Event()
        self._is_joined = False
        # Time of the last step that looked for everything.
        self._polled_s = 0.0
        self._has_news = False
        self._is_stale = True
        self._looked_s = 0.0
        self._look_s = LOOK_S

    def start(self) -> None:
        """Start the task; the owner calls ``close``."""
        self._loop = asyncio.get_running_loop()
        self._scheduler.when_changed(self._changed)
        self._task = asyncio.create_task(self._run(), name=f"pool.{self._line}")

    async def close(self) -> None:
        """End the task, and leave the line."""
        task, self._task = self._task, None
        self._scheduler.when_changed(lambda: None)
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        try:
            async with asyncio.timeout(CLOSE_S):
                await self._leave()
        except self.errors as error:
            logger.warning(f"{self._line}: left without notice: {type(error).__name__}")
            self._abandon()

    # What the holder of the line decides.

    @abstractmethod
    async def _connect(self) -> None:
        """Make a connection where there is none."""

    @abstractmethod
    def _abandon(self) -> None:
        """End a connection that does not answer."""

    @abstractmethod
    async def _step(self, *, is_due: bool) -> None:
        """Bring the changes to the line and the news back; ``is_due``: look for everything."""

    @abstractmethod
    async def _look(self) -> int:
        """Read the whole line; return the number of requests in it."""

    @abstractmethod
    async def _leave(self) -> None:
        """Leave the line, and end the connection where there is one."""

    @abstractmethod
    def _check_connection(self) -> None:
        """Raise one of ``errors`` when the connection has ended."""

    def _is_starting(self) -> bool:
        """Return whether the holder cannot answer yet, which is reported elsewhere."""
        return False

    # The task.

    def _changed(self) -> None:
        """Wake the task; in any thread."""
        loop = self._loop
        if loop is not None and not loop.is_closed():
            loop.call_soon_threadsafe(self._wake.set)

    async def _run(self) -> None:
        reported = ""
        while True:
            try:
                await self._connect()
                await self._turn()
                reported = ""
            except self.errors as error:
                reason = f"{type(error).__name__}: {error}".removesuffix(": ")
                if reason != reported and not self._is_starting():
                    reported = reason
                    logger.warning(f"{self._line}: {self.holder} does not answer: {reason}")
                self._lose_connection()
                self._deliver(self._scheduler.due(self._now_ms()))
                await asyncio.sleep(RETRY_S)
            except Exception as error:
                # The outermost level of the task: calls would wait for ever if it ended.
                logger.opt(exception=error).error(f"{self._line}: a step failed, starting again")
                self._lose_connection()
                await asyncio.sleep(RETRY_S)

    def _lose_connection(self) -> None:
        self._abandon()
        self._scheduler.on_reached(False)

    async def _turn(self) -> None:
        """Wait until there is something to do, and do it."""
        await self._wait()
        now_s = self._now_s()
        self._deliver(self._scheduler.due(self._now_ms()))
        is_due = self._has_news or now_s >= self._polled_s + self._settings.poll_s
        if is_due or not self._is_joined or self._scheduler.has_changes:
            self._has_news = False
            await self._step(is_due=is_due)
        if self._is_stale and self._now_s() >= self._look_due_s():
            self._is_stale = False
            length = await self._look()
            self._looked_s = self._now_s()
            self._look_s = LOOK_S + LOOK_OF_REQUEST_S * length
            self._on_effects([])

    async def _wait(self) -> None:
        due_s = [self._polled_s + self._settings.poll_s]
        if (due_ms := self._scheduler.next_due_ms()) is not None:
            due_s.append(due_ms / 1_000 - self._now_ms() / 1_000 + self._now_s())
        if self._is_stale:
            due_s.append(self._look_due_s())
        if self._is_joined and not self._scheduler.has_changes and not self._has_news:
            try:
                async with asyncio.timeout_at(min(due_s)):
                    await self._wake.wait()
            except TimeoutError:
                pass
        self._wake.clear()
        self._check_connection()

    def _look_due_s(self) -> float:
        pause_s = self._look_s if self._scheduler.is_waiting_here else max(self._look_s, IDLE_LOOK_S)
        return self._looked_s + pause_s

    def _deliver(self, effects: list[Effect]) -> None:
        if effects:
            self._on_effects(effects)

    @staticmethod
    def _now_s() -> float:
        return asyncio.get_running_loop().time()

    def _now_ms(self) -> int:
        return self._scheduler.now_ms()
