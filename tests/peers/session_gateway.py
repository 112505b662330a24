"""The gateway with its sessions API: a real store in a folder, and turns that are answered on request of a
test.

``application`` is for ``httpx.ASGITransport``; ``served`` runs it in uvicorn on a loopback socket.
"""

import asyncio
from collections import defaultdict
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
from fastapi import FastAPI
from pipecat.runner.types import RunnerArguments

from parley.core.grants import ANONYMOUS, ClientIdentity
from parley.core.pictures import PictureFile
from parley.core.privacy import VaultSettings
from parley.serving.gateway.annotations_api import AnnotationEntries
from parley.serving.gateway.app import create_app
from parley.serving.gateway.auth.audit import AuditLog
from parley.serving.gateway.phone.caller_directory import CallerDirectory
from parley.serving.gateway.phone.caller_settings import CallerSettings
from parley.serving.gateway.recording_routes import SessionRecordings
from parley.serving.gateway.replays.jobs import ReplayJobs
from parley.serving.gateway.session_api import AnswerTyped, TurnEvent
from parley.serving.gateway.settings import ServerTuning
from parley.session_store.compaction import Compactor
from parley.session_store.conversations import Conversations, SessionContexts
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from parley.session_store.vault import Vault, VaultKeys
from parley.transports.webrtc.signaling import Signaling
from tests.peers.operations_gateway import BEARER, TOKEN
from tests.served_app import served_app

# Number that callers of a gateway with a directory of numbers call.
LINE = "+15550199"


class Turns:
    """Typed turns, one at a time in each session, answered once ``answer`` is set.

    Attributes:
        asked: typed texts, those being answered and those that wait.
        ended: turns that have ended, in whatever way.
        answer: set it to let turns be answered.
    """

    def __init__(self) -> None:
        self.asked: list[str] = []
        self.ended = 0
        self.answer = asyncio.Event()
        self._answering: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._news = asyncio.Condition()

    async def __call__(
        self,
        session_id: str,
        text: str,
        *,
        key: str | None,
        identity: ClientIdentity = ANONYMOUS,
        pictures: Sequence[PictureFile] = (),
    ) -> AsyncGenerator[TurnEvent, None]:
        self.asked.append(text)
        await self._notify()
        try:
            async with self._answering[session_id]:
                yield TurnEvent("turn", {"text": text})
                await self.answer.wait()
                yield TurnEvent("done", {"text": "yes"})
        finally:
            self.ended += 1
            await self._notify()

    async def until(self, condition: Callable[[], bool], *, within_s: float = 60) -> None:
        async with asyncio.timeout(within_s), self._news:
            await self._news.wait_for(condition)

    async def _notify(self) -> None:
        async with self._news:
            self._news.notify_all()


async def no_call(_arguments: RunnerArguments) -> None:
    raise AssertionError("no call is made here")


@asynccontextmanager
async def application(
    folder: Path,
    type_turn: AnswerTyped,
    *,
    audit: AuditLog | None = None,
    annotations: AnnotationEntries | None = None,
    recordings: SessionRecordings | None = None,
    replays: ReplayJobs | None = None,
    modes: Sequence[str] = (),
    vault_keys: VaultKeys | None = None,
    contexts: SessionContexts | None = None,
    callers: CallerSettings | None = None,
    url: str = "",
    **settings: Any,
) -> AsyncIterator[tuple[FastAPI, SessionStore]]:
    bounds = ServerTuning(**{"drain_s": 0, "stop_requests_s": 0, **settings})
    store = await SessionStore.open(StoreTuning(url=url or f"sqlite:///{folder}/sessions.db"))
    vault = None if vault_keys is None else Vault(store, VaultSettings(), vault_keys)
    conversations = Conversations(store, compactor=Compactor(), vault=vault, contexts=contexts)
    book = None if callers is None else CallerDirectory(store, callers, number=LINE)
    try:
        app = create_app(
            bounds,
            run_call=no_call,
            describe=dict,
            open_door=lambda on_call: Signaling(on_call, max_calls=1, hang_up_s=0.2),
            conversations=conversations,
            type_turn=type_turn,
            annotations=annotations,
            recordings=recordings,
            replays=replays,
            modes=modes,
            book=book,
            operator_token=TOKEN,
            audit=audit,
        )
        yield app, store
    finally:
        await conversations.close()
        await store.close()


def client_of(app: FastAPI, *, address: str = "127.0.0.1", operator: bool = False) -> httpx.AsyncClient:
    """Return a client at this address, without sockets."""
    transport = httpx.ASGITransport(app, client=(address, 1234))
    headers = BEARER if operator else {}
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", headers=headers)


@dataclass
class Reader:
    """An answer that is read from its own socket.

    Attributes:
        status: status code of the answer.
        head: the rest of its head, in lower case.
    """

    status: int
    head: str
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter

    def vanish(self) -> None:
        self.writer.transport.abort()

    async def until(self, text: str) -> None:
        async with asyncio.timeout(60):
            await self.reader.readuntil(text.encode())


@dataclass
class Server:
    """A server on a loopback socket."""

    port: int

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    async def send(self, method: str, path: str, body: bytes = b"", *headers: str) -> asyncio.StreamWriter:
        """Send a request without waiting for its answer."""
        _, writer = await self._sent(method, path, body, *headers)
        return writer

    async def read(self, method: str, path: str, body: bytes = b"", *headers: str) -> Reader:
        """Send a request; read its answer up to the end of the head."""
        reader, writer = await self._sent(method, path, body, *headers)
        async with asyncio.timeout(60):
            head = (await reader.readuntil(b"\r\n\r\n")).decode().lower()
        return Reader(int(head.split()[1]), head, reader, writer)

    async def _sent(
        self, method: str, path: str, body: bytes, *headers: str
    ) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
        if not any(header.lower().startswith("transfer-encoding") for header in headers):
            headers = (*headers, f"Content-Length: {len(body)}")
        head = "\r\n".join([f"{method} {path} HTTP/1.1", "Host: localhost", *headers])
        writer.write(f"{head}\r\n\r\n".encode() + body)
        await writer.drain()
        return reader, writer


@asynccontextmanager
async def served(app: FastAPI) -> AsyncIterator[Server]:
    async with served_app(app, ServerTuning(stop_requests_s=0)) as here:
        yield Server(here.port)
