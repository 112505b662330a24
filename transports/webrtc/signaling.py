"""WebRTC signalling: answers offers, decides who may open a browser call, and refuses bad offers.

Inputs: offer and trickle-ICE requests of the Pipecat clients. Outputs: an answer, and one ``on_call`` for
each new connection, awaited before the answer. When ``on_call`` raises, the offer is refused and the
connection closed. ``on_call`` starts the conversation and returns. A later failure of the conversation is not
reported to the peer here; the task that runs it hangs up.

Holds the live connections by ``pc_id``. A closed one is dropped at once; one whose peer has not connected
after ``connect_s`` is closed. A description that aiortc cannot negotiate is a PeerError on every path. A
failed first negotiation, or one that was to replace the peer connection, closes what it had opened. Hanging
up never fails and has a deadline, after which the sockets are closed by force.

An offer is checked before anything is built for it: the size of its text (``offer_bounds``), then its fields.
``check_json`` is for code that has more to check first. At most ``BUILDING`` peer connections are under
construction at a time. A call is renegotiated ``RENEGOTIATIONS`` times a minute and takes ``MAX_CANDIDATES``
candidates.
"""

import asyncio
import re
from collections import Counter, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import replace

from aiortc import RTCIceServer, RTCPeerConnection
from aiortc.exceptions import InternalError, InvalidAccessError, InvalidStateError, OperationError
from aiortc.rtcicetransport import parse_stun_turn_uri
from aiortc.sdp import SessionDescription, candidate_from_sdp
from loguru import logger
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
from pydantic import BaseModel, ConfigDict, Field

from parley.core.errors import CapacityError, ConfigError, PeerError
from parley.transports.client_budget import ClientShare
from parley.transports.pipecat_internals import (
    answer_checks_promptly,
    check_datagram_lengths,
    check_stun_lengths,
    emit,
    free_late_transactions,
    ice_transports,
    stop_connecting,
)
from parley.transports.webrtc.channel_guard import SHARE, ChannelGuard
from parley.transports.webrtc.event_channel import EventConnection
from parley.transports.webrtc.offer_bounds import MAX_SDP_CHARS, check_bounds
from parley.transports.webrtc.offer_codecs import is_opus, opus_first
from parley.transports.webrtc.release import release_connection, release_peer_connection

OnCall = Callable[[SmallWebRTCConnection, dict[str, object]], Awaitable[None]]
# Building a connection takes some 10 ms of the loop; further ones wait in order, ``BUILDING_S`` at most.
BUILDING, BUILDING_S = 4, 5.0
# A page renegotiates when it adds a camera or a screen, or has changed its network.
RENEGOTIATIONS, RENEGOTIATIONS_S = 20, 60.0
# Candidates trickled to one peer connection; a browser has two to ten for each of its addresses.
MAX_CANDIDATES = 100
# Browsers send a copy of each packet in the next one (in-band forward error correction) only when the answer
# asks for it (RFC 7587, 6.1), and while packets are reported as lost. aiortc's answer has no parameters.
OPUS_MAP = re.compile(r"a=rtpmap:(\d+) opus/48000/2\r\n")
COPIES = r"a=fmtp:\g<1> minptime=10;useinbandfec=1\r\n"
# An offer whose peer never connects holds a pipeline; the stock 60 s are too long for that.
CONNECT_TIMEOUT_S = 15.0
HANG_UP_S = 3.0
# Errors that aiortc raises on a description that parses and cannot be negotiated: its own, none of which is a
# ValueError, and those that its code runs into. OSError is not among them: it is a fault of this machine.
NEGOTIATION_ERRORS = (
    InternalError,
    InvalidAccessError,
    InvalidStateError,
    OperationError,
    ValueError,
    LookupError,
    # aiortc looks for an rtpmap of every fmtp and rtcp-fb.
    StopIteration,
    AttributeError,
    TypeError,
    AssertionError,
)


# What a client with events of its own may send: as much as over a socket.
EVENT_SHARE = ClientShare()


class OfferRequest(BaseModel):
    """Body of ``POST /api/offer``; ``requestData`` has the fields of a call.

    Field names are those of Pipecat's clients, which send others that are ignored.
    """

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    sdp: str = Field(min_length=1, max_length=MAX_SDP_CHARS)
    type: str = Field(pattern="^offer$")
    pc_id: str | None = Field(None, max_length=200)
    restart_pc: bool | None = None
    request_data: dict[str, object] | None = Field(None, alias="requestData")


class CandidateBody(BaseModel):
    """ICE candidate of a peer; an empty ``candidate`` ends the list (RFC 8840)."""

    candidate: str = Field(max_length=2_000)
    sdp_mid: str = Field(max_length=200)
    sdp_mline_index: int = Field(ge=0, le=64)


class CandidatesRequest(BaseModel):
    """Body of ``PATCH /api/offer``."""

    pc_id: str = Field(max_length=200)
    candidates: list[CandidateBody] = Field(max_length=100)


class Signaling:
    """WebRTC signalling of one process.

    Args:
        on_call: takes a new connection and starts its conversation; raising refuses the call.
        max_calls: most connections at a time.
        ice_servers: STUN urls given to the peer connections.
        connect_s: time within which an answered peer must connect.
        hang_up_s: longest time for closing one connection.
        building_s: longest wait of an offer for its peer connection to be built.

    Raises ConfigError for an ICE server that no call could use.
    """

    def __init__(
        self,
        on_call: OnCall,
        *,
        max_calls: int,
        ice_servers: list[str] | None = None,
        connect_s: float = CONNECT_TIMEOUT_S,
        hang_up_s: float = HANG_UP_S,
        building_s: float = BUILDING_S,
    ) -> None:
        check_stun_lengths()
        check_datagram_lengths()
        answer_checks_promptly()
        free_late_transactions()
        self._on_call = on_call
        self._max_calls = max_calls
        self._ice_servers = [ice_server(url) for url in ice_servers or []]
        self._connect_s = connect_s
        self._hang_up_s = hang_up_s
        self._building_s = building_s
        self._connections: dict[str, SmallWebRTCConnection] = {}
        self._opening = 0
        self._building = asyncio.Semaphore(BUILDING)
        self._renegotiating: set[SmallWebRTCConnection] = set()
        # Loop times of the latest renegotiations, and candidates of the present peer connection.
        self._renegotiated: dict[SmallWebRTCConnection, deque[float]] = {}
        self._candidates: Counter[SmallWebRTCConnection] = Counter()
        self._deadlines: dict[SmallWebRTCConnection, asyncio.TimerHandle] = {}
        self._guards: dict[SmallWebRTCConnection, ChannelGuard] = {}
        self._ending: set[asyncio.Task[None]] = set()

    @property
    def open_calls(self) -> int:
        """Number of connections that are up or being negotiated."""
        return len(self._connections) + self._opening

    def is_open(self, pc_id: str) -> bool:
        """Return whether ``pc_id`` names a live call."""
        return pc_id in self._connections

    def check_json(self, body: dict[str, object]) -> dict[str, object]:
        """Check an offer and build nothing; return the client's data for its call.

        Raises:
            ValidationError: wrong fields (pydantic's).
            PeerError: the SDP is too large, or cannot be negotiated.
        """
        request = OfferRequest.model_validate(body)
        check_sdp(request.sdp)
        return request.request_data or {}

    async def offer_json(self, body: dict[str, object], *, has_events: bool = False) -> dict[str, str]:
        """Call ``offer`` with a parsed body. Raises pydantic's ValidationError for wrong fields."""
        return await self.offer(OfferRequest.model_validate(body), has_events=has_events)

    async def candidates_json(self, body: dict[str, object]) -> None:
        """Call ``add_candidates`` with a parsed body. Raises pydantic's ValidationError for wrong fields."""
        await self.add_candidates(CandidatesRequest.model_validate(body))

    async def offer(self, request: OfferRequest, *, has_events: bool = False) -> dict[str, str]:
        """Answer an offer: a new call, or a renegotiation when ``pc_id`` names a live one.

        With ``has_events`` the data channel of a new call has the events of the client's own protocol
        (``EventConnection``).

        Raises:
            PeerError: the SDP cannot be negotiated, or the call is being renegotiated already, or too often.
            CapacityError: too many calls, or too many that begin.
        """
        check_sdp(request.sdp)
        known = self._connections.get(request.pc_id or "")
        if known is not None:
            return await self._renegotiate(known, request)
        if self.open_calls >= self._max_calls:
            raise CapacityError(
                f"all {self._max_calls} lines are in use, try again later", limit=self._max_calls
            )
        self._opening += 1
        try:
            return await self._open(request, EventConnection if has_events else SmallWebRTCConnection)
        finally:
            self._opening -= 1

    async def _open(self, request: OfferRequest, kind: type[SmallWebRTCConnection]) -> dict[str, str]:
        connection = kind(
            ice_servers=self._ice_servers,
            # Our own timeout comes first: Pipecat's cancels itself in the middle of closing, and begins only
            # with ICE.
            connection_timeout_secs=int(self._connect_s) + 5,
        )

        @connection.event_handler("closed")
        async def on_closed(closed: SmallWebRTCConnection) -> None:
            self._forget(closed)

        started = False
        try:
            async with self._place_to_build():
                with negotiation("the offer cannot be negotiated"):
                    await connection.initialize(sdp=opus_first(request.sdp), type=request.type)
            self._guard(connection)
            answer = _answer(connection)
            self._connections[connection.pc_id] = connection
            self._expect_peer(connection)
            await self._on_call(connection, request.request_data or {})
            started = True
            return answer
        finally:
            if not started:
                await self.hang_up(connection)

    @asynccontextmanager
    async def _place_to_build(self) -> AsyncIterator[None]:
        try:
            async with asyncio.timeout(self._building_s):
                await self._building.acquire()
        except TimeoutError:
            raise CapacityError("too many calls are starting at once, try again", limit=BUILDING) from None
        try:
            yield
        finally:
            self._building.release()

    def _count_renegotiation(self, known: SmallWebRTCConnection) -> None:
        now_s = asyncio.get_running_loop().time()
        latest = self._renegotiated.setdefault(known, deque(maxlen=RENEGOTIATIONS))
        if len(latest) == RENEGOTIATIONS and now_s - latest[0] < RENEGOTIATIONS_S:
            raise PeerError(
                f"this call was renegotiated {RENEGOTIATIONS} times within a minute: wait before the next"
            )
        latest.append(now_s)

    async def _renegotiate(self, known: SmallWebRTCConnection, request: OfferRequest) -> dict[str, str]:
        if known in self._renegotiating:
            raise PeerError("this call is being renegotiated: wait for the answer")
        self._count_renegotiation(known)
        self._renegotiating.add(known)
        restart = bool(request.restart_pc)
        replaced = known.pc
        begun = answered = False
        try:
            async with self._place_to_build():
                begun = True
                if restart:
                    stop_connecting(replaced)
                with negotiation("the offer cannot be negotiated"):
                    await known.renegotiate(
                        sdp=opus_first(request.sdp), type=request.type, restart_pc=restart
                    )
            if known in self._connections.values():
                self._guard(known)
            answer = _answer(known)
            if restart:
                self._rename(known)
            answered = True
            return answer
        finally:
            self._renegotiating.discard(known)
            if known.pc is not replaced:
                await release_peer_connection(replaced, within_s=self._hang_up_s)
            if restart and begun and not answered:
                # The old peer connection is gone and the new one failed. Without a restart the call goes on
                # as it was.
                await self.hang_up(known)

    def _guard(self, connection: SmallWebRTCConnection) -> None:
        """Bound the traffic of the data channel, also that of a new peer connection."""
        guard = self._guards.get(connection)
        if guard is None:
            events = connection.events if isinstance(connection, EventConnection) else None
            guard = self._guards[connection] = ChannelGuard(
                refuse=connection.send_app_message,
                on_flood=lambda: self._end(connection),
                events=events,
                share=SHARE if events is None else EVENT_SHARE,
            )
        guard.attach(connection.pc.sctp)

    def _end(self, connection: SmallWebRTCConnection) -> None:
        task = asyncio.create_task(self.hang_up(connection), name=f"hang_up.{connection.pc_id}")
        self._ending.add(task)
        task.add_done_callback(self._ending.discard)

    def _rename(self, connection: SmallWebRTCConnection) -> None:
        """Register a connection under its new ``pc_id`` after a restart; its peer has to connect again."""
        if connection not in self._connections.values():
            raise PeerError("the call has ended")
        guard = self._guards.pop(connection)
        renegotiated = self._renegotiated.get(connection)
        self._forget(connection)
        self._connections[connection.pc_id] = connection
        self._guards[connection] = guard
        if renegotiated is not None:
            self._renegotiated[connection] = renegotiated
        self._expect_peer(connection)

    def _expect_peer(self, connection: SmallWebRTCConnection) -> None:
        loop = asyncio.get_running_loop()
        self._deadlines[connection] = loop.call_later(self._connect_s, self._check_connected, connection)

    def _check_connected(self, connection: SmallWebRTCConnection) -> None:
        self._deadlines.pop(connection, None)
        if connection.pc.connectionState == "connected":
            return
        logger.info(f"the peer did not connect within {self._connect_s} s, hanging up")
        self._end(connection)

    def _forget(self, connection: SmallWebRTCConnection) -> None:
        # By identity: the connection may have another pc_id by now than the one it is held under.
        for pc_id in [pc_id for pc_id, held in self._connections.items() if held is connection]:
            del self._connections[pc_id]
        self._renegotiated.pop(connection, None)
        self._candidates.pop(connection, None)
        deadline = self._deadlines.pop(connection, None)
        if deadline is not None:
            deadline.cancel()
        guard = self._guards.pop(connection, None)
        if guard is not None:
            guard.detach()

    async def hang_up(self, connection: SmallWebRTCConnection) -> None:
        """Close a connection, in any state, and free its line. Does not raise."""
        stop_connecting(connection.pc)
        try:
            async with asyncio.timeout(self._hang_up_s):
                await connection.disconnect()
        except Exception as error:
            # The boundary of one call. aiortc's close() gives up at the first transport that a failed
            # negotiation left half made, and waits for ever when it is called again.
            logger.warning(f"a connection could not be closed properly: {type(error).__name__}: {error}")
            await _stop_transports(connection.pc, within_s=self._hang_up_s)
            # No event came, and the conversation waits for one.
            await emit(connection, "closed")
        finally:
            self._forget(connection)
        await release_connection(connection, within_s=self._hang_up_s)

    async def add_candidates(self, request: CandidatesRequest) -> None:
        """Add trickled candidates.

        Raises:
            PeerError: no such call, a candidate that does not parse or cannot be added, or too many of them.
        """
        connection = self._connections.get(request.pc_id)
        if connection is None:
            raise PeerError("there is no such call")
        self._candidates[connection] += len(request.candidates)
        if self._candidates[connection] > MAX_CANDIDATES:
            raise PeerError(f"over {MAX_CANDIDATES} candidates for one call")
        for body in request.candidates:
            with negotiation("not an ICE candidate"):
                if not body.candidate:
                    await connection.add_ice_candidate(None)
                    continue
                candidate = candidate_from_sdp(body.candidate.removeprefix("candidate:"))
                await connection.add_ice_candidate(
                    replace(candidate, sdpMid=body.sdp_mid, sdpMLineIndex=body.sdp_mline_index)
                )

    async def close(self) -> None:
        """Hang up every call, all at the same time."""
        await asyncio.gather(*(self.hang_up(connection) for connection in list(self._connections.values())))
        if self._ending:
            await asyncio.wait(self._ending)
        logger.debug("signaling is closed")


@contextmanager
def negotiation(fault: str) -> Iterator[None]:
    """Turn errors that aiortc raises over the peer's data into a PeerError that begins with ``fault``."""
    try:
        yield
    except NEGOTIATION_ERRORS as error:
        raise PeerError(f"{fault}: {type(error).__name__}: {str(error)[:200]}") from error


def ice_server(url: str) -> RTCIceServer:
    """Return the server at a STUN url.

    Raises:
        ConfigError: it is not a STUN url. A TURN server is refused too: it needs credentials, which
            ``server.turn`` makes for each call.
    """
    try:
        scheme = parse_stun_turn_uri(url)["scheme"]
    except ValueError as error:
        raise ConfigError(
            f"server.ice_servers: {url!r} does not have the form stun:host:port ({error})"
        ) from error
    if scheme not in ("stun", "stuns"):
        raise ConfigError(f"server.ice_servers: {url!r}: only STUN servers are supported; set server.turn")
    return RTCIceServer(urls=url)


def check_sdp(sdp: str) -> None:
    """Refuse a text that is not an offer with audio.

    Raises:
        PeerError: the message names what is missing, or exceeds a bound.
    """
    check_bounds(sdp)
    with negotiation("the offer is not an SDP"):
        description = SessionDescription.parse(sdp)
    if not sdp.startswith("v=0"):
        raise PeerError("the offer is not SDP: it must begin with v=0")
    # The data channel is no medium: a client that has made it before its tracks may have it first.
    tracks = [section for section in description.media if section.kind != "application"]
    if not tracks or tracks[0].kind != "audio":
        raise PeerError("the offer's first media section must be audio")
    if not any(is_opus(codec) for codec in tracks[0].rtp.codecs):
        raise PeerError("the offer has no Opus (opus/48000/2), the only codec in which the agent speaks")
    for media in description.media:
        # Without these aiortc answers, and fails later in a task of its own.
        if media.dtls is None or not media.dtls.fingerprints:
            raise PeerError("the offer has no DTLS fingerprint")
        if media.ice is None or not media.ice.usernameFragment or not media.ice.password:
            raise PeerError("the offer has no ICE credentials")
    mids = [media.rtp.muxId for media in description.media]
    if len(set(mids)) < len(mids):
        raise PeerError("two media sections of the offer have the same mid")
    for group in description.group:
        # aiortc removes the transports of the others before it notices that there is none to share.
        if group.semantic == "BUNDLE" and not set(group.items) <= set(mids):
            raise PeerError("the offer bundles a media section that it does not have")


def _answer(connection: SmallWebRTCConnection) -> dict[str, str]:
    answer: dict[str, str] | None = connection.get_answer()
    if answer is None:
        raise PeerError("the connection produced no answer")
    return {**answer, "sdp": OPUS_MAP.sub(rf"\g<0>{COPIES}", answer["sdp"])}


async def _stop_transports(connection: RTCPeerConnection, *, within_s: float) -> None:
    """Close the sockets of a peer connection that cannot be closed."""
    stops = [asyncio.ensure_future(transport.stop()) for transport in ice_transports(connection)]
    if not stops:
        return
    _, running = await asyncio.wait(stops, timeout=within_s)
    for stop in running:
        stop.cancel()
    for stop in stops:
        if stop.done() and not stop.cancelled() and stop.exception():
            logger.warning(f"a socket may still be open: {stop.exception()!r}")
