"""Bodies of ``POST /start``, kept for the offer that follows.

Decides how much memory strangers may use, and for how long. A body is kept as JSON text of bounded size. A
session without a call expires after ``expire_s`` of the loop's clock, and there are at most ``max_sessions``
of them. When that many wait, the client (address) with the most loses its oldest one: a flood displaces only
its own sessions. A session in a call is never dropped; its time starts again when the call ends. Owns no
task: expired sessions are removed when the next one comes.
"""

import asyncio
import json
import secrets
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from parley.core.grants import ANONYMOUS, ClientIdentity


@dataclass(eq=False)
class StartedSession:
    """Started session.

    Attributes:
        client: address of the client that started it.
        body_json: body of the client, as JSON.
        expires_s: loop time after which it is removed, unless it is in use.
        identity: of the client that started it, whose credential was used up by that.
        opening: true while an offer of it is being answered.
        call: its latest conversation.
        pc_id: its latest connection.
    """

    client: str
    body_json: bytes
    expires_s: float
    identity: ClientIdentity = ANONYMOUS
    opening: bool = False
    call: asyncio.Task[None] | None = None
    pc_id: str = ""

    @property
    def in_use(self) -> bool:
        """True when it has a conversation, or is about to."""
        return self.opening or (self.call is not None and not self.call.done())

    @contextmanager
    def being_opened(self) -> Iterator[None]:
        """Prevent a second offer from opening it meanwhile."""
        self.opening = True
        try:
            yield
        finally:
            self.opening = False

    def body(self) -> dict[str, Any]:
        """Return the body of the client."""
        body: dict[str, Any] = json.loads(self.body_json)
        return body


class StartedSessions:
    """Started sessions of this process.

    Args:
        max_sessions: maximum number that wait for their offer.
        expire_s: longest wait of one.
    """

    def __init__(self, *, max_sessions: int, expire_s: float) -> None:
        self._max_sessions = max_sessions
        self._expire_s = expire_s
        self._sessions: dict[str, StartedSession] = {}

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, body_json: bytes, *, client: str, identity: ClientIdentity = ANONYMOUS) -> str:
        """Keep a body; return the id of its session."""
        now_s = asyncio.get_running_loop().time()
        waiting = {}
        for session_id, session in list(self._sessions.items()):
            if session.in_use:
                continue
            if session.expires_s <= now_s:
                del self._sessions[session_id]
            else:
                waiting[session_id] = session
        if len(waiting) >= self._max_sessions:
            greediest = Counter(session.client for session in waiting.values()).most_common(1)[0][0]
            del self._sessions[next(key for key, session in waiting.items() if session.client == greediest)]
        session_id = secrets.token_urlsafe(16)
        self._sessions[session_id] = StartedSession(client, body_json, now_s + self._expire_s, identity)
        return session_id

    def get(self, session_id: str) -> StartedSession | None:
        """Return the session; None if it is unknown or has expired."""
        session = self._sessions.get(session_id)
        if session is None or session.in_use:
            return session
        if session.expires_s <= asyncio.get_running_loop().time():
            del self._sessions[session_id]
            return None
        return session

    def called(self, session: StartedSession, pc_id: str, call: asyncio.Task[None] | None) -> None:
        """Record the connection of a session, and its conversation where a new one has begun."""
        session.pc_id = pc_id
        if call is None or call is session.call:
            return

        def ended(_call: asyncio.Task[None]) -> None:
            session.expires_s = asyncio.get_running_loop().time() + self._expire_s

        session.call = call
        call.add_done_callback(ended)
