"""A worker process and the socket to it, for a thread that waits: one question, one answer, one deadline.

The worker is started clean, in its own Python environment, with what of our environment variables it needs
and no secrets. It ends when its socket ends, so it does not outlive this process; it is killed when it does
not answer in time. (It cannot be tied to the thread that starts it, as other engines' processes are: that
thread is of one conversation.)

Not thread-safe but for ``kill``.
"""

import os
import select
import socket
import subprocess
import time
from collections import deque
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from loguru import logger

from core.errors import ConfigError, EngineError
from models.omni.minicpm_o.wire import RECEIVE_BYTES, FrameReader, Kind, WireFrame, encode
from runtime.engine_hosting.supervisor import PASSED_ENVIRONMENT, PASSED_TO_MODELS

ENGINE = "minicpm_o"
# So long a stop may go unseen by whoever waits.
POLL_S = 0.02


def _never() -> bool:
    return False


class WorkerLink:
    """One life of a worker.

    Args:
        python: executable of its environment.
        module: that is run.
        close_timeout_s: after it the worker is killed.

    Raises:
        ConfigError: there is no such executable.
    """

    def __init__(self, python: str, module: str, *, close_timeout_s: float) -> None:
        self._close_timeout_s = close_timeout_s
        self._number = 0
        self._frames = FrameReader()
        self._arrived: deque[WireFrame] = deque()
        self._socket, theirs = socket.socketpair()
        self._socket.setblocking(False)
        try:
            self._process = subprocess.Popen(
                [python, "-P", "-m", module, str(theirs.fileno())],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                pass_fds=(theirs.fileno(),),
                env=_environment(),
            )
        except OSError as error:
            self._socket.close()
            raise ConfigError(f"{ENGINE}: {python!r} cannot be run: {error.strerror}") from error
        finally:
            theirs.close()

    @property
    def is_alive(self) -> bool:
        """Whether it may be asked."""
        return self._socket.fileno() >= 0 and self._process.poll() is None

    @property
    def asked(self) -> int:
        """How many questions it was asked, all of them sent."""
        return self._number

    @property
    def pid(self) -> int:
        """Of the process."""
        return self._process.pid

    def ask(
        self,
        kind: Kind,
        facts: Mapping[str, Any] | None = None,
        payload: bytes = b"",
        *,
        within_s: float,
        is_stopped: Callable[[], bool] = _never,
    ) -> WireFrame | None:
        """The answer; None when ``is_stopped`` says so first: the answer is nobody's then.

        Raises:
            ConfigError: the worker finds a setting wrong.
            EngineError: the worker fails, ends, or does not answer in time. In the last two cases it is dead.
        """
        deadline_s = time.monotonic() + within_s
        number = self.send(kind, facts, payload, within_s=within_s)
        return self.answer(number, kind, deadline_s=deadline_s, is_stopped=is_stopped)

    def send(
        self, kind: Kind, facts: Mapping[str, Any] | None = None, payload: bytes = b"", *, within_s: float
    ) -> int:
        """Ask, and do not wait. The number of the question.

        Raises:
            EngineError: the worker is dead, or does not read.
        """
        number = self._number + 1
        left = memoryview(encode(kind, number, facts, payload))
        deadline_s = time.monotonic() + within_s
        while left:
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise self._dead(f"{kind.name.lower()} is not read within {within_s:g} s")
            try:
                if select.select([], [self._socket], [], left_s)[1]:
                    left = left[self._socket.send(left) :]
            except (OSError, ValueError) as error:
                raise self._dead("the worker is gone") from error
        self._number = number
        return number

    def answer(
        self,
        number: int,
        kind: Kind,
        *,
        deadline_s: float,
        is_stopped: Callable[[], bool] = _never,
    ) -> WireFrame | None:
        """The answer to a question that was sent; see ``ask``. ``deadline_s`` is of the monotonic clock."""
        while not is_stopped():
            while self._arrived:
                frame = self._arrived.popleft()
                # A smaller number: somebody was stopped and did not wait for it.
                if frame.number == number:
                    return self._taken(frame)
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise self._dead(f"{kind.name.lower()} is not answered in time")
            self._receive(min(left_s, POLL_S))
        # A worker that is dead is stopped as well; the next question finds out.
        with suppress(EngineError):
            self.send(Kind.STOP, within_s=POLL_S)
        return None

    def close(self) -> None:
        """End it: by its socket, or by force at the deadline."""
        self._socket.close()
        try:
            self._process.wait(self._close_timeout_s)
        except subprocess.TimeoutExpired:
            self.kill()

    def kill(self) -> None:
        """End it now, whatever it does. When this returns its memory is free, or it hangs in a driver."""
        self._socket.close()
        self._process.kill()
        try:
            self._process.wait(self._close_timeout_s)
        except subprocess.TimeoutExpired:
            logger.error(f"{ENGINE}: the worker {self.pid} cannot be killed: it holds its device")

    def _receive(self, within_s: float) -> None:
        try:
            if not select.select([self._socket], [], [], within_s)[0]:
                return
            data = self._socket.recv(RECEIVE_BYTES)
        except (OSError, ValueError) as error:
            raise self._dead("the worker is gone") from error
        if not data:
            raise self._dead("the worker ended")
        try:
            self._arrived += self._frames.feed(data)
        except ValueError as error:
            raise self._dead("the worker says nothing that can be read") from error

    @staticmethod
    def _taken(frame: WireFrame) -> WireFrame:
        if frame.kind is Kind.DONE:
            return frame
        facts = frame.facts
        message = str(facts.get("message"))
        if facts.get("class") == "ConfigError":
            raise ConfigError(message)
        raise EngineError(message, engine=ENGINE, retryable=bool(facts.get("retryable")))

    def _dead(self, message: str) -> EngineError:
        self.kill()
        return EngineError(f"{ENGINE}: {message} (exit code {self._process.returncode})", engine=ENGINE)


def _environment() -> dict[str, str]:
    names = (*PASSED_ENVIRONMENT, *PASSED_TO_MODELS)
    environment = {name: os.environ[name] for name in names if name in os.environ}
    # The worker finds our modules wherever it is started from.
    environment["PYTHONPATH"] = str(Path(__file__).resolve().parents[3])
    return environment
