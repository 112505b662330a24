"""Supervised child process that exchanges frames on a socket: load, heartbeat, end.

Inputs: messages of the owner, to streams of the child. Outputs: the child's messages through ``on_message``
and the end of each life through ``on_end``, both on the loop. The child is started clean (no fork of this
process) and gets no secrets from the environment. ``load`` is its first message, and its answer means that
the engine is ready.

Hung: a child that sends nothing and neither uses nor waits for a processor or a disk for ``hung_ms`` is
killed. It is pinged all the time; a busy machine is not a reason to kill it. End: the socket is closed, which
asks the child to exit; it is killed after ``close_timeout_s``.
"""

import asyncio
import socket
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loguru import logger
from pydantic import Field

from parley.core.errors import ConfigError, EngineError, PeerError
from parley.core.strict_model import StrictModel
from parley.runtime.engine_hosting.codec import RECEIVE_BYTES, FrameReader, encode_frame
from parley.runtime.engine_hosting.messages import EngineFailure, EngineMessage, MessageType
from parley.runtime.engine_hosting.supervisor import RestartPauses, Supervisor, child_environment

# A child counts as hung after this many looks at it without a sign, while it neither used a processor nor
# waited for one or for a disk. Looks are counted instead of time: while this loop is blocked, it cannot
# notice a sign of the child.
HUNG_LOOKS = 4


class ChildSettings(StrictModel):
    """Deadlines of one child."""

    start_timeout_s: float = Field(default=30, gt=0, le=7_200, description="longest time to load the engine")
    close_timeout_s: float = Field(
        default=2, gt=0, le=60, description="time to close, after which the child process is killed"
    )
    hung_ms: int = Field(
        default=1_000,
        ge=100,
        le=60_000,
        description="time after which a child process is killed if it reports nothing and neither uses nor "
        "waits for a processor (Linux)",
    )
    restart_min_ms: int = Field(
        default=200,
        ge=10,
        le=60_000,
        description="pause before the second restart; the first restart is immediate",
    )
    restart_max_ms: int = Field(
        default=10_000, ge=10, le=600_000, description="longest pause between restarts"
    )


@dataclass(frozen=True, slots=True)
class ChildInheritance:
    """Resources of this process that every life of a child gets, which is a program of ours and no engine.

    It also writes to the standard output of this process.

    Attributes:
        environment: all of its environment variables, secrets included.
        descriptors: open descriptors; their numbers come before that of the socket in its command line.
    """

    environment: Mapping[str, str] = field(repr=False)
    descriptors: tuple[int, ...] = ()


class EngineChild(Supervisor):
    """Child process of one engine; ``Supervisor`` restarts it.

    Args:
        command: command line of the child; the descriptor of its end of the socket is appended.
        load: facts of the first message.
        limits: deadlines.
        name: registry name of the engine, for errors and logs.
        on_message: called with the stream and each message, except answers to ``load`` and pings.
        on_end: called when a life is over.
        on_device: the child runs a large model (``child_environment``).
        ends_for_good: a child that ends while it loads is a final failure and is not restarted.
        inheritance: of a child that is no engine; None: it gets no secrets, and its output is dropped.

    Attributes:
        loaded: facts of the answer to the last ``load``.
        last_sign_s: loop time of the last data from the child.
    """

    def __init__(
        self,
        command: Sequence[str],
        load: Mapping[str, Any],
        *,
        limits: ChildSettings,
        name: str,
        on_message: Callable[[int, EngineMessage], None],
        on_end: Callable[[], None],
        on_device: bool = False,
        ends_for_good: bool = False,
        inheritance: ChildInheritance | None = None,
    ) -> None:
        self.loaded: Mapping[str, Any] = {}
        self.last_sign_s = 0.0
        least_ms, most_ms = limits.restart_min_ms, limits.restart_max_ms
        pauses = RestartPauses(0, least_ms, most_ms, settled_ms=most_ms)
        super().__init__(self._live_once, name=name, pauses=pauses, start_timeout_s=limits.start_timeout_s)
        self._command, self._load, self._child_limits = command, load, limits
        self._on_message, self._on_end = on_message, on_end
        self._on_device, self._ends_for_good = on_device, ends_for_good
        self._inheritance = inheritance
        self._process: asyncio.subprocess.Process | None = None
        self._writer: asyncio.StreamWriter | None = None
        self._unanswered_since_s: float | None = None
        self._is_pinged = False

    @property
    def pid(self) -> int | None:
        """Process id of the child; None without one."""
        return self._process.pid if self._process else None

    @property
    def unsent_bytes(self) -> int:
        """Size of the messages that the child has not read yet, as far as they are queued here."""
        writer = self._writer
        return 0 if writer is None else writer.transport.get_write_buffer_size()

    def send(self, message: EngineMessage, stream: int = 0) -> None:
        """Queue a message for the child; has no effect without one. The owner bounds the queue."""
        if self._writer is None or self._writer.is_closing():
            return
        if self._unanswered_since_s is None:
            self._unanswered_since_s = asyncio.get_running_loop().time()
        self._writer.write(encode_frame(message, stream))

    def kill(self, reason: str) -> None:
        """Kill the present child, and log the reason."""
        if self._process is not None and self._process.returncode is None:
            logger.error(f"{self.name}: {reason}; killing the process")
            self._process.kill()

    def kill_if_silent(self, longest_s: float) -> None:
        """Kill a child that was sent something and has been silent for ``longest_s``."""
        if self._unanswered_since_s is not None:
            now_s = asyncio.get_running_loop().time()
            quiet_s = now_s - max(self.last_sign_s, self._unanswered_since_s)
            if quiet_s >= longest_s:
                self.kill(f"the engine process gives no sign for {quiet_s:.1f} s")

    async def _live_once(self) -> None:
        """Run one life of the child from start to end; the child has exited when this returns or raises."""
        ours, theirs = socket.socketpair()
        try:
            self._process = await self._spawned(theirs)
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        heartbeat: asyncio.Task[None] | None = None
        try:
            reader, self._writer = await asyncio.open_connection(sock=ours)
            self.send(EngineMessage(MessageType.LOAD, facts=self._load))
            heartbeat = asyncio.create_task(self._beat(self._process), name=f"{self.name}.heartbeat")
            await self._read(reader)
        except PeerError as error:
            raise EngineError(f"{self.name}: {error}", engine=self.name) from error
        finally:
            if heartbeat is not None:
                heartbeat.cancel()
            was_ready = self.is_ready
            self.mark_down()
            self._on_end()
            await self._reap()
        if self._ends_for_good and not was_ready:
            raise self.error("the worker ended while it was loading", retryable=False)

    async def _spawned(self, theirs: socket.socket) -> asyncio.subprocess.Process:
        given = self._inheritance
        passed = (*(() if given is None else given.descriptors), theirs.fileno())
        try:
            return await asyncio.create_subprocess_exec(
                *(*self._command, *map(str, passed)),
                stdin=asyncio.subprocess.DEVNULL,
                stdout=asyncio.subprocess.DEVNULL if given is None else None,
                pass_fds=passed,
                env=child_environment(on_device=self._on_device) if given is None else given.environment,
            )
        except (FileNotFoundError, PermissionError, NotADirectoryError) as error:
            message = f"{self.name}: {self._command[0]!r} cannot be run: {error.strerror}"
            raise ConfigError(message) from error

    async def _read(self, reader: asyncio.StreamReader) -> None:
        frames = FrameReader()
        # A child that died with data unread, such as a ping, resets the connection: the same end.
        with suppress(ConnectionResetError):
            while data := await reader.read(RECEIVE_BYTES):
                self.last_sign_s = asyncio.get_running_loop().time()
                self._unanswered_since_s = None
                for stream, message in frames.feed(data):
                    self._take(stream, message)

    def _take(self, stream: int, message: EngineMessage) -> None:
        if message.type is MessageType.PONG:
            self._is_pinged = False
        elif self.is_ready:
            self._on_message(stream, message)
        elif message.type is MessageType.DONE:
            self.loaded = message.facts
            self.mark_ready()
        elif message.type is MessageType.FAILED:
            raise EngineFailure.read(message.facts).error(self.name, prefix=f"{self.name}: ")

    async def _beat(self, process: asyncio.subprocess.Process) -> None:
        """Kill a child that is stopped, deadlocked or waits for an event that never comes. Runs until
        cancelled.
        """
        looks, self._is_pinged = 0, False
        before: tuple[float, int | None] = (0.0, None)
        while True:
            await asyncio.sleep(self._child_limits.hung_ms / 1000 / HUNG_LOOKS)
            if not self.is_ready or process.returncode is not None:
                # Loading has a deadline of its own.
                continue
            if not self._is_pinged:
                # Not every message has an answer.
                self._is_pinged, looks = True, 0
                self.send(EngineMessage(MessageType.PING))
                continue
            now = self.last_sign_s, processor_ticks(process.pid)
            is_still = now == before and now[1] is not None and not waits_for_processor(process.pid)
            looks = looks + 1 if is_still else 0
            before = now
            if looks >= HUNG_LOOKS:
                self.kill("the engine process stands")
                return

    async def _reap(self) -> None:
        """Close the socket, which asks the child to exit; kill the child at the deadline."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()
        process, self._process = self._process, None
        if process is None:
            return
        try:
            # A missed deadline is no error here. If it were raised during a cancellation, it would replace
            # it.
            with suppress(TimeoutError):
                async with asyncio.timeout(self._child_limits.close_timeout_s):
                    await process.wait()
        finally:
            if process.returncode is None:
                process.kill()
                await process.wait()


def waits_for_processor(pid: int) -> bool:
    """Return whether a thread of a process waits for a processor or a disk: neither means that it hangs.

    On a busy machine a thread waits for seconds for either of them.
    """
    try:
        tasks = list(Path(f"/proc/{pid}/task").iterdir())
        states = [(task / "stat").read_text().rpartition(")")[2].split()[0] for task in tasks]
        # "D" waits for a disk, or for swapped memory; a kill would have to wait for it too.
        return any(state in ("R", "D") for state in states)
    except OSError:
        # A thread has just ended, so it was running.
        return True


def processor_ticks(pid: int) -> int | None:
    """Return the processor time that a process has used, in clock ticks; None when it cannot be read."""
    try:
        # Fields after the command name, which may itself hold spaces and brackets.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return int(fields[11]) + int(fields[12])
