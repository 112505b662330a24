"""Socket of one conversation to a worker, for a blocking thread: one question, its pieces, one answer.

The lease comes first: the worker describes itself and accepts the conversation, or refuses with a reason.
When the worker is dead, hung or violates the protocol, the socket is closed, and the worker cleans up by
itself. A stop of the waiting thread is noticed within ``POLL_S``. Not thread-safe. The library websockets
answers the worker's pings, which renew the lease, in a thread of its own.
"""

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import ExitStack, suppress
from http import HTTPStatus
from typing import Any

from websockets.exceptions import ConnectionClosed, InvalidStatus, WebSocketException
from websockets.sync.client import ClientConnection, connect

from parley.core.errors import CapacityError, EngineError, PeerError
from parley.runtime.blocking_socket import connect_for, tls_for
from parley.runtime.engine_hosting.codec import MOST_MESSAGE_BYTES, decode, encode
from parley.runtime.engine_hosting.messages import EngineFailure, EngineMessage, MessageType

# Longest time for which a stop of the waiting thread may go unnoticed.
POLL_S = 0.02
CLOSE_S = 0.5
# Greatest number of unread messages. Beyond it the library stops reading, pings included, and the lease ends:
# the rest of a clause that was stopped must stay below it.
MOST_UNREAD = 1_024
# Reasons for which the worker cannot take the conversation now, and may later.
FULL = ("busy", "not_ready")


def _never() -> bool:
    return False


class ConversationLink:
    """Blocking connection to a worker for one conversation.

    Args:
        url: address of the worker.
        first: first message, a lease or a watch, with the token that authorises it.
        open_s: longest wait until the lease is taken.
        write_s: longest write of a message.
        engine: registry name of the engine, for errors.

    Attributes:
        facts: the worker's description of itself and its engine.

    Raises:
        CapacityError: the worker is in use.
        EngineError: the worker is not reached, or refuses the lease.
    """

    def __init__(self, url: str, first: EngineMessage, *, open_s: float, write_s: float, engine: str) -> None:
        self._engine = engine
        self._number = 0
        self._is_open = True
        self._lock = threading.Lock()
        self._exit = ExitStack()
        deadline_s = time.monotonic() + open_s
        try:
            connecting = connect(
                url,
                sock=connect_for(url, open_s=open_s, write_s=write_s),
                ssl=tls_for(url),
                open_timeout=open_s,
                close_timeout=CLOSE_S,
                ping_interval=None,
                max_size=MOST_MESSAGE_BYTES,
                max_queue=MOST_UNREAD,
                compression=None,
            )
            self._socket: ClientConnection = self._exit.enter_context(connecting)
        except (OSError, TimeoutError, InvalidStatus, WebSocketException) as error:
            message = f"{engine}: the worker is not reached: {type(error).__name__}"
            if (
                isinstance(error, InvalidStatus)
                and error.response.status_code == HTTPStatus.SERVICE_UNAVAILABLE
            ):
                # The answer of its server to everyone from the moment on at which it closes.
                message = f"{engine}: the connection to the worker is lost: it is shutting down"
            raise EngineError(message, engine=engine) from error
        self._send(first)
        answer = self._receive(deadline_s, "the first message is not answered in time", _never)
        assert answer is not None
        if answer.type is MessageType.REFUSED:
            self.close()
            message = f"{engine}: the worker refuses: {answer.facts.get('message')}"
            if answer.facts.get("because") in FULL:
                raise CapacityError(message, limit=1)
            raise EngineError(message, engine=engine)
        if answer.type not in (MessageType.LEASED, MessageType.STATE):
            raise self._dead("the worker sent an unexpected answer")
        self.facts = answer.facts

    @property
    def is_open(self) -> bool:
        """True until the link was closed or failed."""
        return self._is_open

    @property
    def asked(self) -> int:
        """Number of questions sent."""
        return self._number

    def ask(
        self,
        type_: MessageType,
        facts: Mapping[str, Any] | None = None,
        payload: bytes = b"",
        *,
        within_s: float,
        is_stopped: Callable[[], bool] = _never,
    ) -> EngineMessage | None:
        """Return the answer, or None when ``is_stopped`` returned true first; the answer is then dropped.

        Raises:
            ConfigError: the worker rejects a setting.
            EngineError: the worker fails, is gone, revokes the lease, or does not answer in time.
        """
        deadline_s = time.monotonic() + within_s
        number = self.put(type_, facts, payload)
        while True:
            answer = self._receive(deadline_s, f"{type_.value} is not answered in time", is_stopped)
            if answer is None:
                # The worker's engine is stopped as well; an answer that it still sends is dropped.
                with suppress(EngineError):
                    self._send(EngineMessage(MessageType.STOP))
                return None
            if self._is_of(answer, number):
                return self._taken(answer)

    def put(self, type_: MessageType, facts: Mapping[str, Any] | None = None, payload: bytes = b"") -> int:
        """Send a question without waiting; return its number, for ``heard``.

        Raises:
            EngineError: the worker is gone.
        """
        self._number += 1
        self._send(EngineMessage(type_, self._number, facts or {}, payload))
        return self._number

    def heard(self, number: int, *, within_s: float) -> EngineMessage | None:
        """Return the next piece or the answer of a question; None when neither comes in time.

        Messages of an earlier question are dropped.

        Raises:
            EngineError: the worker fails, is gone, or revokes the lease.
        """
        deadline_s = time.monotonic() + within_s
        while (left_s := deadline_s - time.monotonic()) > 0:
            message = self._next(left_s)
            if message is not None and self._is_of(message, number):
                return message if message.type is MessageType.PIECE else self._taken(message)
        return None

    def given_up(self, message: str) -> EngineError:
        """Close the link to a worker that does not behave as it should; return the error to raise."""
        return self._dead(message)

    def next(self, type_: MessageType, *, within_s: float) -> EngineMessage:
        """Return the next unsolicited message of a type.

        Raises:
            EngineError: the worker is gone, or sends no such message in time.
        """
        deadline_s = time.monotonic() + within_s
        while True:
            message = self._receive(deadline_s, f"no {type_.value} comes in time", _never)
            assert message is not None
            if message.type is type_:
                return message

    def notify(self, type_: MessageType, facts: Mapping[str, Any] | None = None) -> None:
        """Send a message that has no answer.

        Raises:
            EngineError: the worker is gone.
        """
        self._send(EngineMessage(type_, facts=facts or {}))

    def close(self) -> None:
        """Close the link; the worker cleans up. Callable from any thread; takes about ``CLOSE_S`` at most."""
        self._is_open = False
        with suppress(OSError, WebSocketException):
            self._exit.close()

    def _send(self, message: EngineMessage) -> None:
        try:
            data = encode(message)
            with self._lock:
                self._socket.send(data)
        except (OSError, ConnectionClosed, ValueError) as error:
            raise self._dead("the connection to the worker is lost") from error

    def _receive(self, deadline_s: float, late: str, is_stopped: Callable[[], bool]) -> EngineMessage | None:
        while not is_stopped():
            left_s = deadline_s - time.monotonic()
            if left_s <= 0:
                raise self._dead(late)
            message = self._next(min(left_s, POLL_S))
            if message is not None:
                return message
        return None

    def _next(self, within_s: float) -> EngineMessage | None:
        try:
            return decode(self._socket.recv(timeout=within_s))
        except TimeoutError:
            return None
        except (OSError, ConnectionClosed) as error:
            raise self._dead("the connection to the worker is lost") from error
        except PeerError as error:
            raise self._dead("the worker sent an unreadable message") from error

    def _is_of(self, message: EngineMessage, number: int) -> bool:
        """Return whether a message belongs to a question; raise EngineError when it revokes the lease."""
        if message.type is MessageType.REVOKED:
            raise self._dead(f"the worker revoked the lease: {message.facts.get('message')}")
        return message.number == number

    def _taken(self, message: EngineMessage) -> EngineMessage:
        if message.type is MessageType.DONE:
            return message
        raise EngineFailure.read(message.facts).error(self._engine)

    def _dead(self, message: str) -> EngineError:
        self.close()
        return EngineError(f"{self._engine}: {message}", engine=self._engine)
