"""Offers to answers: who may open a browser call, and what a bad offer is told.

In: offer and trickle-ICE requests of the Pipecat clients. Out: an answer, and one ``on_call`` for each new
connection, which is awaited so that a call that cannot start is refused instead of answered. Holds the live
connections by ``pc_id`` and nothing else; a closed one is dropped at once. A failed negotiation closes what
it had opened.
"""

from collections.abc import Awaitable, Callable

from aiortc import RTCIceServer
from aiortc.sdp import SessionDescription, candidate_from_sdp
from loguru import logger
from pipecat.transports.smallwebrtc.connection import SmallWebRTCConnection
from pydantic import BaseModel, ConfigDict, Field

from core.errors import CapacityError, PeerError

OnCall = Callable[[SmallWebRTCConnection, dict[str, object]], Awaitable[None]]
# Far above what a browser offers for audio, video, screen and data; not measured.
MAX_SDP_CHARS = 64_000
# An offer whose peer never connects holds a pipeline: not for the stock 60 s.
CONNECT_TIMEOUT_S = 15


class OfferRequest(BaseModel):
    """Body of ``POST /api/offer``. Field names are those of Pipecat's clients, which send others that we
    ignore.
    """

    model_config = ConfigDict(extra="ignore", populate_by_name=True)

    sdp: str = Field(min_length=1, max_length=MAX_SDP_CHARS)
    type: str = Field(pattern="^offer$")
    pc_id: str | None = Field(None, max_length=200)
    restart_pc: bool | None = None
    request_data: dict[str, object] | None = Field(None, alias="requestData")


class CandidateBody(BaseModel):
    """One ICE candidate; an empty ``candidate`` ends the list (RFC 8840)."""

    candidate: str = Field(max_length=2_000)
    sdp_mid: str = Field(max_length=200)
    sdp_mline_index: int = Field(ge=0, le=64)


class CandidatesRequest(BaseModel):
    """Body of ``PATCH /api/offer``."""

    pc_id: str = Field(max_length=200)
    candidates: list[CandidateBody] = Field(max_length=100)


class Signaling:
    """The WebRTC doorway of one process.

    Args:
        on_call: takes a new connection and starts its conversation; raising refuses the call.
        max_calls: connections at a time.
        ice_servers: STUN and TURN urls given to the peer connections.
    """

    def __init__(self, on_call: OnCall, *, max_calls: int, ice_servers: list[str] | None = None) -> None:
        self._on_call = on_call
        self._max_calls = max_calls
        self._ice_servers = [RTCIceServer(urls=url) for url in ice_servers or []]
        self._connections: dict[str, SmallWebRTCConnection] = {}
        self._opening = 0

    @property
    def open_calls(self) -> int:
        """Connections that are up or being negotiated."""
        return len(self._connections) + self._opening

    async def offer_json(self, body: dict[str, object]) -> dict[str, str]:
        """``offer`` from a parsed body. Raises pydantic's ValidationError for wrong fields."""
        return await self.offer(OfferRequest.model_validate(body))

    async def candidates_json(self, body: dict[str, object]) -> None:
        """``add_candidates`` from a parsed body. Raises pydantic's ValidationError for wrong fields."""
        await self.add_candidates(CandidatesRequest.model_validate(body))

    async def offer(self, request: OfferRequest) -> dict[str, str]:
        """Answer an offer: a new call, or a renegotiation when ``pc_id`` names a live one.

        Raises:
            PeerError: the SDP cannot be negotiated.
            CapacityError: too many calls.
        """
        check_sdp(request.sdp)
        known = self._connections.get(request.pc_id or "")
        if known is not None:
            await known.renegotiate(sdp=request.sdp, type=request.type, restart_pc=bool(request.restart_pc))
            return _answer(known)
        if self.open_calls >= self._max_calls:
            raise CapacityError(
                f"every line is taken ({self._max_calls} in all), try again later", limit=self._max_calls
            )
        self._opening += 1
        try:
            return await self._open(request)
        finally:
            self._opening -= 1

    async def _open(self, request: OfferRequest) -> dict[str, str]:
        connection = SmallWebRTCConnection(
            ice_servers=self._ice_servers, connection_timeout_secs=CONNECT_TIMEOUT_S
        )
        started = False
        try:
            try:
                await connection.initialize(sdp=request.sdp, type=request.type)
            except (ValueError, KeyError, IndexError, AttributeError, AssertionError) as error:
                # What aiortc raises on a description that parses and cannot be negotiated.
                raise PeerError(f"the offer cannot be negotiated: {type(error).__name__}: {error}") from error
            pc_id = connection.pc_id

            @connection.event_handler("closed")
            async def on_closed(closed: SmallWebRTCConnection) -> None:
                self._connections.pop(pc_id, None)

            self._connections[pc_id] = connection
            await self._on_call(connection, request.request_data or {})
            started = True
            return _answer(connection)
        finally:
            if not started:
                self._connections.pop(connection.pc_id, None)
                await connection.disconnect()

    async def add_candidates(self, request: CandidatesRequest) -> None:
        """Add trickled candidates.

        Raises:
            PeerError: no such call, or a candidate that does not parse.
        """
        connection = self._connections.get(request.pc_id)
        if connection is None:
            raise PeerError("no such call")
        for body in request.candidates:
            if not body.candidate:
                await connection.add_ice_candidate(None)
                continue
            try:
                candidate = candidate_from_sdp(body.candidate.removeprefix("candidate:"))
            except (ValueError, IndexError, AssertionError) as error:
                raise PeerError(f"not an ICE candidate: {error}") from error
            candidate.sdpMid = body.sdp_mid
            candidate.sdpMLineIndex = body.sdp_mline_index
            await connection.add_ice_candidate(candidate)

    async def close(self) -> None:
        """Hang up every call."""
        for connection in list(self._connections.values()):
            await connection.disconnect()
        self._connections.clear()
        logger.debug("signaling closed")


def check_sdp(sdp: str) -> None:
    """Refuse what is not an offer with audio.

    Raises:
        PeerError: says what is missing.
    """
    try:
        description = SessionDescription.parse(sdp)
    except (ValueError, KeyError, IndexError, AssertionError, AttributeError, TypeError) as error:
        raise PeerError(f"the offer is not an SDP: {type(error).__name__}") from error
    if not sdp.startswith("v=0"):
        raise PeerError("the offer is not an SDP: it must begin with v=0")
    if not description.media or description.media[0].kind != "audio":
        raise PeerError("the offer's first media section must be audio")
    for media in description.media:
        # Without these aiortc answers, and fails later in a task of its own.
        if media.dtls is None or not media.dtls.fingerprints:
            raise PeerError("the offer carries no DTLS fingerprint")
        if media.ice is None or not media.ice.usernameFragment or not media.ice.password:
            raise PeerError("the offer carries no ICE credentials")


def _answer(connection: SmallWebRTCConnection) -> dict[str, str]:
    answer = connection.get_answer()
    if answer is None:
        raise PeerError("the connection produced no answer")
    return answer
