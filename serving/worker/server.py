"""Worker process: loads its engine, reports its state, and serves conversations.

The engine has a number of places for concurrent conversations. Inputs: sockets of the worker link. A
``lease`` is a conversation (``conversation``). A ``watch`` receives the worker's state, at once and at every
change, and may order it to drain, or to drop what it keeps of a deleted session. Output: ``run`` returns the
exit status when the worker has drained or cannot continue. A thread that hangs in native code is the reason
why the process then ends by force.

Access needs a token (``protocols.worker_tokens``), and pages of browsers have none: a handshake with an
Origin is refused. The leases and this process's own clock decide which client holds the engine; a gateway's
view is an estimate. For a full worker, slow clients and lost ones see ``conversation``. Sockets that send
nothing are closed after ``open_ms``, and watchers above their number are refused.
"""

import asyncio
import resource
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from http import HTTPStatus
from pathlib import Path
from typing import Any

from loguru import logger
from websockets.asyncio.server import Server, ServerConnection, serve
from websockets.exceptions import ConnectionClosed
from websockets.http11 import Request, Response

from parley.core.errors import AgentError, IllegalTransition, PeerError
from parley.protocols.facts import to_facts
from parley.protocols.worker_tokens import Claim, claimed, is_signed
from parley.runtime.engine_hosting.codec import MOST_MESSAGE_BYTES, decode, encode
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType, failed
from parley.runtime.engine_thread import EngineThread
from parley.runtime.loop_clock import LoopClock
from parley.serving.worker.conversation import SEND_S, CloseReason, EngineHungError, WorkerConversation
from parley.serving.worker.hosting import Hosted, LeaseHolder, Load
from parley.serving.worker.leases import LeaseRefused, Leases, RefusedBecause
from parley.serving.worker.lifecycle import LifecycleEvent, LifecycleState, follow
from parley.serving.worker.settings import WorkerServerSettings
from parley.telemetry.device_memory import DeviceMemory, DeviceMemoryReader
from parley.telemetry.worker_traces import WorkerTraces

# A lease is a few hundred bytes.
FIRST_BYTES = 8_192
# Interval at which the memory of the devices is read: Prometheus asks for it every 15 s.
DEVICES_S = 5.0
# Consecutive conversations that cannot be opened: the engine's error is then not caused by a single one.
MOST_BROKEN = 3
TRY_AGAIN_LATER, POLICY_VIOLATION, PROTOCOL_ERROR = 1013, 1008, 1002
EXIT_DRAINED, EXIT_LOAD_FAILED, EXIT_HUNG, EXIT_BROKEN = 0, 3, 4, 5


class WorkerServer:
    """Server of one worker process.

    Args:
        settings: of the process.
        load: loads the engine; blocks.
        secret: with which tokens are signed.
        kind: of the engine, known before it is loaded.
        traces: makes the spans of requests; None: there are none.

    Attributes:
        incarnation: of this process.
        state: present state.
    """

    def __init__(
        self,
        settings: WorkerServerSettings,
        *,
        load: Load,
        secret: bytes,
        kind: str = "omni",
        traces: WorkerTraces | None = None,
    ) -> None:
        self._traces = traces or WorkerTraces()
        self.settings = settings
        self._kind = kind
        self.incarnation = uuid.uuid4().hex
        self.state = LifecycleState.LOADING
        self._load = load
        self._secret = secret
        self._hosted: Hosted | None = None
        self._leases = Leases(self.incarnation, slots=1, lease_ms=settings.lease_ms)
        self._clock = LoopClock()
        self._conversations: dict[str, WorkerConversation] = {}
        self._watchers: set[asyncio.Event] = set()
        self._over = asyncio.Event()
        # Sockets that have not sent their first message, and consecutive conversations that could not be
        # opened.
        self._strangers = self._broken = 0
        self._status = EXIT_DRAINED
        self._calls = 0
        self._leases_changed = asyncio.Event()
        self._device_reader = DeviceMemoryReader()
        self._devices: tuple[DeviceMemory, ...] = ()
        self._draining: asyncio.Task[None] | None = None
        self.port = settings.port

    async def run(self, *, on_listening: Callable[[int], None] = lambda _port: None) -> int:
        """Serve until the end; return the exit status.

        Args:
            on_listening: called with the port.

        Raises:
            OSError: it cannot listen there.
        """
        settings = self.settings
        async with serve(
            self._serve,
            settings.host,
            settings.port,
            process_request=self._refuse_pages,
            # For clients that are not authenticated yet; larger afterwards.
            max_size=FIRST_BYTES,
            max_queue=1,
            compression=None,
            open_timeout=settings.open_ms / 1000,
            # Leases have pings of their own.
            ping_interval=None,
            close_timeout=1,
        ) as server:
            self.port = _port(server)
            on_listening(self.port)
            work = [
                asyncio.create_task(self._load_engine(), name="worker.load"),
                asyncio.create_task(self._expire(), name="worker.leases"),
                asyncio.create_task(self._read_devices(), name="worker.devices"),
            ]
            try:
                await self._over.wait()
            finally:
                for task in work:
                    task.cancel()
                await asyncio.gather(*work, return_exceptions=True)
                self._device_reader.close()
                server.close(close_connections=True)
        if self._hosted is not None and self._status == EXIT_DRAINED:
            closing = EngineThread("close")
            closed = asyncio.wrap_future(closing.submit(self._hosted.close))
            closing.shutdown(wait=False)
            await asyncio.wait({closed}, timeout=settings.cleanup_ms / 1000)
        return self._status

    def drain(self) -> None:
        """Take no more conversations, let present ones continue for ``drain_ms``, and end."""
        if self._draining is None and not self._over.is_set():
            self._on(LifecycleEvent.DRAIN)
            self._draining = asyncio.create_task(self._drain(), name="worker.drain")

    def end(self) -> None:
        """End at once; clients are notified."""
        for each in self._conversations.values():
            each.revoke(CloseReason.DRAINED)
        self._end(EXIT_DRAINED)

    async def _drain(self) -> None:
        conversations = list(self._conversations.values())
        for each in conversations:
            each.drain()
        with suppress(TimeoutError):
            async with asyncio.timeout(self.settings.drain_ms / 1000):
                for each in conversations:
                    await each.closed()
        for each in conversations:
            each.revoke(CloseReason.DRAINED)
        for each in conversations:
            await each.closed()
        self._end(EXIT_DRAINED)

    def _end(self, status: int) -> None:
        self._status = self._status or status
        if self.state is not LifecycleState.DEAD:
            self._on(LifecycleEvent.EXIT)
        self._over.set()

    def _on(self, event: LifecycleEvent) -> None:
        before = self.state
        self.state = follow(before, event)
        if self.state is not before:
            logger.info(f"{self.settings.name}: {before.value} -> {self.state.value}")
        self._wake_watchers()

    def _wake_watchers(self) -> None:
        for watcher in self._watchers:
            watcher.set()

    # The engine.

    async def _load_engine(self) -> None:
        began_s = time.monotonic()
        try:
            # A thread that is not joined: a worker that is ordered to end does so even during a load.
            loading = EngineThread("load")
            loaded = loading.submit(self._load)
            loading.shutdown(wait=False)
            hosted = await asyncio.wrap_future(loaded)
        # the outermost level of the process: after any exception of its code it cannot continue
        except Exception as error:
            logger.opt(exception=None if isinstance(error, AgentError) else error).error(
                f"{self.settings.name}: cannot load the engine: {type(error).__name__}: {error}"
            )
            if self.state is LifecycleState.LOADING:
                self._on(LifecycleEvent.LOAD_FAILED)
            self._end(EXIT_LOAD_FAILED)
            return
        if self.state is not LifecycleState.LOADING:
            # It was ordered to end meanwhile.
            return
        self._hosted = hosted
        self._leases.resize(hosted.slots)
        logger.info(f"{self.settings.name}: loaded in {time.monotonic() - began_s:.1f} s")
        self._on(LifecycleEvent.LOADED)

    async def _expire(self) -> None:
        """End expired leases by this process's clock."""
        while True:
            self._leases_changed.clear()
            due_ms = self._leases.next_deadline_ms()
            with suppress(TimeoutError):
                left_s = None if due_ms is None else max(0.0, (due_ms - self._clock.now_ms()) / 1000)
                async with asyncio.timeout(left_s):
                    await self._leases_changed.wait()
            for held in self._leases.expired(self._clock.now_ms()):
                self._conversations[held.session_id].revoke(CloseReason.EXPIRED)

    async def _read_devices(self) -> None:
        """Read the memory of the devices every ``DEVICES_S``, for the state that watchers receive."""
        while True:
            self._devices = await self._device_reader.read()
            await asyncio.sleep(DEVICES_S)

    # Sockets.

    def _refuse_pages(self, socket: ServerConnection, request: Request) -> Response | None:
        if "Origin" in request.headers:
            return socket.respond(HTTPStatus.FORBIDDEN, "a worker accepts no requests from pages\\n")
        return None

    async def _serve(self, socket: ServerConnection) -> None:
        try:
            await self._meet(socket)
        except Exception as error:  # the outermost level of one socket: the others continue
            logger.opt(exception=error).error(
                f"{self.settings.name}: a socket failed: {type(error).__name__}"
            )
            raise

    async def _meet(self, socket: ServerConnection) -> None:
        if self._strangers >= self.settings.strangers:
            message = f"{self._strangers} others have not said yet what they want"
            await self._refuse(socket, RefusedBecause.BUSY, message, TRY_AGAIN_LATER)
            return
        self._strangers += 1
        try:
            claimed_by = await self._introduced(socket)
        finally:
            self._strangers -= 1
        if claimed_by is None:
            return
        first, claim = claimed_by
        socket.protocol.max_message_size = MOST_MESSAGE_BYTES
        if first is MessageType.WATCH and not claim.session_id:
            await self._be_watched(socket)
        elif first is MessageType.LEASE and claim.session_id:
            await self._be_leased(socket, claim)
        else:
            message = "neither a lease nor a watch"
            await self._refuse(socket, RefusedBecause.UNREADABLE, message, PROTOCOL_ERROR)

    async def _introduced(self, socket: ServerConnection) -> tuple[MessageType, Claim] | None:
        """Return the type and the claim of a first message; None where it was refused or did not come."""
        try:
            async with asyncio.timeout(self.settings.open_ms / 1000):
                first = decode(await socket.recv())
            claim, token = claimed(first.facts)
        except (ConnectionClosed, TimeoutError):
            return None
        except PeerError as error:
            await self._refuse(socket, RefusedBecause.UNREADABLE, str(error), PROTOCOL_ERROR)
            return None
        if not self._is_authorised(claim, token):
            message = "no token for this worker"
            await self._refuse(socket, RefusedBecause.UNAUTHORISED, message, POLICY_VIOLATION)
            return None
        return first.type, claim

    def _is_authorised(self, claim: Claim, token: str) -> bool:
        is_ours = claim.worker == self.settings.name
        return is_ours and is_signed(self._secret, claim, token, time.time())

    async def _refuse(
        self, socket: ServerConnection, because: RefusedBecause, message: str, code: int
    ) -> None:
        facts = {"because": because.value, "message": message}
        with suppress(ConnectionClosed, TimeoutError):
            async with asyncio.timeout(SEND_S):
                await socket.send(encode(EngineMessage(MessageType.REFUSED, facts=facts)))
                await socket.close(code, message)

    # Conversations.

    async def _be_leased(self, socket: ServerConnection, claim: Claim) -> None:
        try:
            hosted, conversation = await self._take(socket, claim)
        except LeaseRefused as refused:
            code = POLICY_VIOLATION if refused.because is RefusedBecause.STALE else TRY_AGAIN_LATER
            await self._refuse(socket, refused.because, str(refused), code)
            return
        self._conversations[claim.session_id] = conversation
        self._leases_changed.set()
        report_released = None
        try:
            self._on(LifecycleEvent.DUPLEX_LEASED if hosted.is_duplex else LifecycleEvent.TURN_LEASED)
            report_released = await conversation.run()
        except EngineHungError:
            logger.error(f"{self.settings.name}: a call of the engine does not return; the process ends")
            self._end(EXIT_HUNG)
        finally:
            self._calls += conversation.calls
            self._broken = self._broken + 1 if conversation.is_broken else 0
            del self._conversations[claim.session_id]
            self._leases.give_back(claim.session_id)
            self._on_given_back()
            self._wake_watchers()
        if report_released is not None:
            await report_released()
        if self._broken >= MOST_BROKEN:
            logger.error(
                f"{self.settings.name}: the engine can open no further conversation; the process ends"
            )
            self._end(EXIT_BROKEN)

    def _on_given_back(self) -> None:
        if self.state is LifecycleState.DEAD:
            return
        if not self._leases.held:
            self._on(LifecycleEvent.CLEANED)
        elif (
            self.state is LifecycleState.SUSPECT
            and self._draining is None
            and not any(each.is_overdue for each in self._conversations.values())
        ):
            self._on(LifecycleEvent.RETURNED)

    async def _take(self, socket: ServerConnection, claim: Claim) -> tuple[Hosted, WorkerConversation]:
        incarnation = claim.incarnation or self.incarnation
        hosted = self._ready()
        if incarnation == self.incarnation:
            await self._supersede(claim)
            # Its state may have changed by now.
            hosted = self._ready()
        held = self._leases.take(claim.session_id, claim.epoch, incarnation, self._clock.now_ms())
        conversation = WorkerConversation(
            socket,
            hosted,
            held,
            lessee=LeaseHolder(claim.session_id, self.settings.name, self.incarnation),
            settings=self.settings,
            on_event=self._on_if_it_may,
            renew=lambda: self._leases.renew(claim.session_id, claim.epoch, self._clock.now_ms()),
            introduce=self.facts,
            traces=self._traces.conversation(self.incarnation),
        )
        return hosted, conversation

    def _ready(self) -> Hosted:
        if self._draining is not None:
            raise LeaseRefused(RefusedBecause.NOT_READY, "the worker is draining")
        if self._hosted is None or self.state in (
            LifecycleState.LOADING,
            LifecycleState.DRAINING,
            LifecycleState.SUSPECT,
            LifecycleState.DEAD,
        ):
            raise LeaseRefused(RefusedBecause.NOT_READY, f"the worker is {self.state.value}")
        return self._hosted

    async def _supersede(self, claim: Claim) -> None:
        """End the conversation of an older owner of the session, and wait until it is cleaned up."""
        if self._leases.supersede(claim.session_id, claim.epoch) is None:
            return
        older = self._conversations[claim.session_id]
        older.revoke(CloseReason.SUPERSEDED)
        with suppress(TimeoutError):
            async with asyncio.timeout((self.settings.cleanup_ms + self.settings.grace_ms) / 1000):
                await older.closed()

    def _on_if_it_may(self, event: LifecycleEvent) -> None:
        """Apply an event if it is legal in the present state.

        One of many streams may end while another has made the worker suspect, or while the worker is ending.
        """
        with suppress(IllegalTransition):
            self._on(event)

    # Watchers.

    async def _be_watched(self, socket: ServerConnection) -> None:
        if len(self._watchers) >= self.settings.watchers:
            message = f"{self.settings.watchers} watch already"
            await self._refuse(socket, RefusedBecause.BUSY, message, TRY_AGAIN_LATER)
            return
        changed = asyncio.Event()
        self._watchers.add(changed)
        listening = asyncio.create_task(self._obey(socket), name="worker.watched")
        try:
            while not listening.done():
                changed.clear()
                async with asyncio.timeout(SEND_S):
                    await socket.send(encode(EngineMessage(MessageType.STATE, facts=self.facts())))
                with suppress(TimeoutError):
                    async with asyncio.timeout(self.settings.state_ms / 1000):
                        await changed.wait()
        except (ConnectionClosed, TimeoutError):
            return
        finally:
            self._watchers.discard(changed)
            listening.cancel()
            await asyncio.gather(listening, return_exceptions=True)

    async def _obey(self, socket: ServerConnection) -> None:
        with suppress(ConnectionClosed, PeerError, TimeoutError):
            async for data in socket:
                message = decode(data)
                if message.type is MessageType.DRAIN:
                    self.drain()
                elif message.type is MessageType.FORGET:
                    async with asyncio.timeout(SEND_S):
                        await socket.send(encode(self._forgotten(message)))

    def _forgotten(self, message: EngineMessage) -> EngineMessage:
        """Drop what is kept of a deleted session; return the answer."""
        session_id = message.facts.get("session_id")
        if not isinstance(session_id, str):
            return failed(message.number, PeerError("no session to forget"))
        if self._hosted is None:
            return EngineMessage(MessageType.DONE, message.number, {"contexts": 0})
        contexts = self._hosted.forget(session_id)
        conversation = self._conversations.get(session_id)
        if conversation is not None:
            # Its client ends it; what it is reading or writing now is not needed.
            conversation.interrupt()
        return EngineMessage(MessageType.DONE, message.number, {"contexts": contexts})

    def facts(self) -> dict[str, Any]:
        """Return the worker's state as facts."""
        conversations = self._conversations.values()
        return {
            "worker": self.settings.name,
            "incarnation": self.incarnation,
            "state": self.state.value,
            "kind": self._kind if self._hosted is None else self._hosted.kind,
            "streams": len(self._leases.held),
            "engine": None if self._hosted is None else self._hosted.offers(),
            "lease_ms": self.settings.lease_ms,
            "held": [
                {"session_id": held.session_id, "epoch": held.epoch, "is_over": held.is_over}
                for held in self._leases.held
            ],
            "calls": self._calls + sum(each.calls for each in conversations),
            "slowest_ms": round(max((each.slowest_ms for each in conversations), default=0.0), 1),
            "rss_bytes": _rss_bytes(),
            "device_bytes": _device_bytes(),
            "devices": [to_facts(each) for each in self._devices],
        }


def _port(server: Server) -> int:
    return int(next(iter(server.sockets)).getsockname()[1])


def _rss_bytes() -> int:
    """Return the memory of this process, as Linux reports it; elsewhere its maximum so far."""
    try:
        pages = int(Path("/proc/self/statm").read_text().split()[1])
    except OSError:
        most = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        return most if sys.platform == "darwin" else most * 1024
    return pages * resource.getpagesize()


def _device_bytes() -> int | None:
    """Return the device memory that torch has reserved; None without torch. Imports nothing."""
    # While another thread imports torch, it has no such attribute yet.
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    is_available = getattr(cuda, "is_available", None)
    if cuda is None or is_available is None or not is_available():
        return None
    return int(cuda.memory_reserved())
