"""Resources held without use: lines by silent sockets, descriptors by requests that never end.

Attackers have an address of their own. A newcomer with another address, who is unrelated to them, must get in
while they hold their resources, and an unused line must be released within ``GIVEN_BACK_S``.
"""

import asyncio
from contextlib import suppress
from functools import partial

import aiohttp
from aiortc import RTCConfiguration, RTCPeerConnection, RTCSessionDescription
from websockets.asyncio.client import ClientConnection
from websockets.exceptions import ConnectionClosed, InvalidStatus

from parley.evals.abuse.attacks.requests import GONE
from parley.evals.abuse.registry import Attack, AttackRun, Outcome, add, attack
from parley.evals.abuse.routes import TELEPHONE, sockets
from parley.evals.abuse.samples import path_of

SILENT_SOCKETS, HALF_HEADS = 40, 1_500
SILENT_PEERS, PING_S = 12, 1.0
GIVEN_BACK_S = 40.0
NEWCOMER, NEWCOMER_AGAIN_S = 200, 2.0
CONNECT_S = 10.0


async def silent_sockets(run: AttackRun, *, path: str, subprotocols: tuple[str, ...] = ()) -> Outcome:
    """Open more sockets than there are lines from one address, send nothing, and record when they
    are closed.
    """
    loop = asyncio.get_running_loop()
    begun_s, closed_s, refused, held = loop.time(), [], 0, []

    async def wait_closed(socket: ClientConnection) -> None:
        with suppress(ConnectionClosed):
            async for _ in socket:
                pass
        closed_s.append(loop.time() - begun_s)

    waiting: list[asyncio.Task[None]] = []
    for _ in range(SILENT_SOCKETS):
        if loop.time() - begun_s > run.seconds / 2:
            break
        try:
            socket = await run.socket(path, subprotocols=subprotocols)
        except GONE:
            refused += 1
            continue
        held.append(socket)
        waiting.append(asyncio.create_task(wait_closed(socket), name="silent.closed"))
    newcomer_s = await _newcomer(run, within_s=min(run.seconds, GIVEN_BACK_S))
    if waiting:
        await asyncio.wait(waiting, timeout=max(0.0, begun_s + run.seconds - loop.time()))
    open_still = sum(not task.done() for task in waiting)
    for task in waiting:
        task.cancel()
    await asyncio.gather(*waiting, *(socket.close() for socket in held), return_exceptions=True)
    did: dict[str, object] = {
        "refused": refused,
        "closed": len(closed_s),
        "slowest_s": round(max(closed_s, default=0.0), 1),
        "newcomer_s": newcomer_s,
    }
    faults = []
    if newcomer_s is None:
        faults.append("a newcomer from another address gets no line")
    if open_still:
        faults.append(f"{open_still} silent sockets hold a line for more than {run.seconds:.0f} s")
    return Outcome(len(held), did, faults)


async def _newcomer(run: AttackRun, *, within_s: float) -> float | None:
    """Return the seconds until the socket of another client was accepted; None when none was in time."""
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    while loop.time() - begun_s < within_s:
        with suppress(*GONE):
            async with await run.socket("/v1/realtime?model=parley-cascade", NEWCOMER):
                return round(loop.time() - begun_s, 1)
        await asyncio.sleep(NEWCOMER_AGAIN_S)
    return None


for _entry in sockets():
    # Unmute's dialect and the MiniCPM server's have the path of OpenAI's.
    _kinds: dict[str, tuple[str, tuple[str, ...]]] = {_entry.path: (path_of(_entry), ())}
    if _entry.path == "/v1/realtime":
        _kinds = {
            "/v1/realtime?model": ("/v1/realtime?model=parley-cascade", ()),
            "/v1/realtime?mode": ("/v1/realtime?mode=audio", ()),
            "/v1/realtime unmute": ("/v1/realtime", ("realtime",)),
        }
    if _entry.path.startswith(TELEPHONE):
        # Refused before it is accepted: an anonymous client has no token for it.
        continue
    for _name, (_path, _subprotocols) in _kinds.items():
        add(
            Attack(
                f"silent:{_name}",
                "sockets that say nothing hold every line",
                partial(silent_sockets, path=_path, subprotocols=_subprotocols),
                least_s=GIVEN_BACK_S,
            )
        )


class SilentPeer:
    """A peer of a WebRTC call that takes audio, pings once a second, and sends neither media nor a message.

    Attributes:
        over: set when the connection is closed.
    """

    def __init__(self) -> None:
        self.over = asyncio.Event()
        self._connected = asyncio.Event()
        self._connection = RTCPeerConnection(RTCConfiguration(iceServers=[]))
        self._connection.addTransceiver("audio", direction="recvonly")
        self._channel = self._connection.createDataChannel("rtvi-ai")
        self._pinging: asyncio.Task[None] | None = None
        self._connection.on("connectionstatechange", self._on_state)
        self._channel.on("close", self.over.set)

    def _on_state(self) -> None:
        match self._connection.connectionState:
            case "connected":
                self._connected.set()
            case "failed" | "closed":
                self.over.set()

    async def dial(self, client: aiohttp.ClientSession) -> int:
        """Offer a call and wait until it is connected; return the status of the answer.

        Raises:
            TimeoutError: it does not connect.
        """
        await self._connection.setLocalDescription(await self._connection.createOffer())
        local = self._connection.localDescription
        async with client.post("/api/offer", json={"sdp": local.sdp, "type": local.type}) as response:
            if response.status != 200:
                return response.status
            answer = await response.json()
        await self._connection.setRemoteDescription(RTCSessionDescription(answer["sdp"], answer["type"]))
        async with asyncio.timeout(CONNECT_S):
            await self._connected.wait()
        self._pinging = asyncio.create_task(self._ping(), name="silent.ping")
        return 200

    async def hang_up(self) -> None:
        """Close the connection."""
        if self._pinging is not None:
            self._pinging.cancel()
        with suppress(TimeoutError):
            async with asyncio.timeout(CONNECT_S):
                await self._connection.close()

    async def _ping(self) -> None:
        while not self.over.is_set():
            if self._channel.readyState == "open":
                self._channel.send("ping")
            await asyncio.sleep(PING_S)


@attack(
    "silent:webrtc",
    "WebRTC calls that connect, ping, and send neither media nor a message hold their lines",
    least_s=GIVEN_BACK_S,
)
async def silent_webrtc(run: AttackRun) -> Outcome:
    """Open calls from one address that send nothing, and record when the server ends them."""
    loop = asyncio.get_running_loop()
    begun_s, lasted_s, held, statuses = loop.time(), [], [], []

    async def wait_over(peer: SilentPeer) -> None:
        opened_s = loop.time()
        await peer.over.wait()
        lasted_s.append(loop.time() - opened_s)

    waiting: list[asyncio.Task[None]] = []
    try:
        async with run.client() as client:
            for _ in range(SILENT_PEERS):
                peer = SilentPeer()
                held.append(peer)
                with suppress(*GONE):
                    statuses.append(await peer.dial(client))
                    if statuses[-1] == 200:
                        waiting.append(asyncio.create_task(wait_over(peer), name="silent.over"))
        newcomer_s = await _newcomer(run, within_s=GIVEN_BACK_S)
        if waiting:
            await asyncio.wait(waiting, timeout=max(0.0, begun_s + run.seconds - loop.time()))
        open_still = sum(not task.done() for task in waiting)
    finally:
        for task in waiting:
            task.cancel()
        await asyncio.gather(*waiting, *(peer.hang_up() for peer in held), return_exceptions=True)
    did: dict[str, object] = {
        "refused": sum(status != 200 for status in statuses),
        "connected": len(waiting),
        "slowest_s": round(max(lasted_s, default=0.0), 1),
        "newcomer_s": newcomer_s,
    }
    faults = []
    if newcomer_s is None:
        faults.append("a newcomer from another address gets no line")
    if not waiting:
        faults.append(f"no call connects: {sorted(set(statuses))}")
    if open_still:
        faults.append(f"{open_still} silent calls hold a line for more than {run.seconds:.0f} s")
    return Outcome(len(waiting), did, faults)


@attack(
    "half-heads", "1,500 half-sent request heads take all descriptors and no client gets in", least_s=15.0
)
async def half_heads(run: AttackRun) -> Outcome:
    """Open connections that send half of a request, from one address, and request /health from another."""
    writers: list[asyncio.StreamWriter] = []
    refused = 0
    ends_s = run.ends_at()
    for _ in range(HALF_HEADS):
        if asyncio.get_running_loop().time() > ends_s:
            break
        try:
            _, writer = await run.raw()
            writer.write(b"GET /health HTTP/1.1\r\nHost: localhost\r\nX-A: ")
            writers.append(writer)
        except OSError:
            refused += 1
        if len(writers) % 50 == 0:
            await asyncio.sleep(0.01)
    faults: list[str] = []
    async with run.client(NEWCOMER) as client:
        try:
            async with client.get("/health") as response:
                status = response.status
        except GONE as error:
            status = 0
            faults.append(f"/health is not answered to another address: {type(error).__name__}")
    newcomer_s = await _newcomer(run, within_s=run.seconds)
    if newcomer_s is None:
        faults.append("a newcomer from another address gets no line")
    for writer in writers:
        writer.close()
    did = {"refused": refused, "health": status, "newcomer_s": newcomer_s}
    return Outcome(len(writers), dict(did), faults)


@attack("one-address", "one address holds all lines with calls that say little", least_s=10.0)
async def one_address(run: AttackRun) -> Outcome:
    """Begin a session on as many sockets as are accepted: a newcomer with another address gets in."""
    held: list[ClientConnection] = []
    refused = 0
    ends_s = run.ends_at()
    for _ in range(SILENT_SOCKETS):
        if asyncio.get_running_loop().time() > ends_s:
            break
        try:
            socket = await run.socket("/v1/realtime?model=parley-cascade")
            await socket.send('{"type":"input_audio_buffer.clear"}')
            held.append(socket)
        except InvalidStatus:
            refused += 1
        except GONE:
            refused += 1
    newcomer_s = await _newcomer(run, within_s=run.seconds)
    await asyncio.gather(*(socket.close() for socket in held), return_exceptions=True)
    faults = [] if newcomer_s is not None else ["a newcomer from another address gets no line"]
    return Outcome(len(held), {"refused": refused, "newcomer_s": newcomer_s}, faults)
