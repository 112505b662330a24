"""Child's side of the socket of an ``EngineChild``: read questions, answer them, exit with the owner.

One thread reads, another works: a ping, a ``stop`` and the end of the owner's process are noticed while the
engine computes. At most ``WAITING`` questions wait, and the owner sends one at a time; more is a defect of
the owner, and ends this process. Standard library only, because the child may have its own Python
environment.
"""

import os
import queue
import socket
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any, NoReturn

from parley.core.errors import AgentError, EngineError, PeerError
from parley.runtime.engine_hosting.codec import RECEIVE_BYTES, FrameReader, encode_frame
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType, failed

WAITING = 8

# Returns facts and payload of the answer to a question; raises AgentError.
CarryOut = Callable[[EngineMessage], tuple[Mapping[str, Any], bytes]]


def _ignore() -> None:
    """Do nothing, where a running computation cannot be stopped."""


class ChildServer:
    """Server of one engine on one connected socket, until it is closed.

    Args:
        connection: socket to the owner.
        carry_out: answers a question, on the thread that calls ``serve``.
        name: registry name of the engine, for errors.
        stop: ends a running computation early; called on the thread that reads.
    """

    def __init__(
        self,
        connection: socket.socket,
        carry_out: CarryOut,
        *,
        name: str,
        stop: Callable[[], None] = _ignore,
    ) -> None:
        self._connection = connection
        self._carry_out, self._stop = carry_out, stop
        self._name = name
        self._sending = threading.Lock()
        self._questions: queue.Queue[EngineMessage] = queue.Queue(WAITING)

    def serve(self) -> NoReturn:
        """Serve questions; the process ends with the socket."""
        threading.Thread(target=self._read, name="link", daemon=True).start()
        while True:
            self._send(self._answer(self._questions.get()))

    def _answer(self, question: EngineMessage) -> EngineMessage:
        try:
            facts, payload = self._carry_out(question)
            return EngineMessage(MessageType.DONE, question.number, facts, payload)
        except AgentError as error:
            return failed(question.number, error)
        except Exception as error:
            # Boundary of the process: the owner must be notified of any exception of the engine's code.
            traceback.print_exc()
            said = f"the model raised {type(error).__name__}"
            return failed(question.number, EngineError(said, engine=self._name))

    def _send(self, message: EngineMessage) -> None:
        with self._sending:
            self._connection.sendall(encode_frame(message))

    def _read(self) -> None:
        frames = FrameReader()
        code = 0
        try:
            while data := self._connection.recv(RECEIVE_BYTES):
                for _, message in frames.feed(data):
                    if message.type is MessageType.PING:
                        self._send(EngineMessage(MessageType.PONG))
                    elif message.type is MessageType.STOP:
                        self._stop()
                    else:
                        self._questions.put_nowait(message)
        except (OSError, PeerError, queue.Full):
            code = 1
        # Exit at once, even while the engine computes: the result has no receiver.
        os._exit(code)
