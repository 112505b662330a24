"""Checks of STUN and TURN servers, by the requests that a browser sends them (RFC 8489, RFC 8656)."""

import asyncio
from collections.abc import Sequence
from typing import Any

from aioice import stun, turn
from aiortc.rtcicetransport import parse_stun_turn_uri

from parley.command.doctor.results import CheckResult, fail, good
from parley.core.errors import ConfigError, PeerError

# Retransmissions of a binding request; a server that is up answers the first one in milliseconds.
TRY_S, TRIES = 0.5, 5
ALLOCATE_S = 5.0
# The environment holds the password of --turn.
TURN_PASSWORD_ENV = "PARLEY_TURN_PASSWORD"


class _Answers(asyncio.DatagramProtocol):
    """Answers to one binding request."""

    def __init__(self, request: stun.Message) -> None:
        self._request = request
        self.answer: asyncio.Future[stun.Message] = asyncio.get_running_loop().create_future()

    def datagram_received(self, data: bytes, addr: Any) -> None:
        try:
            message = stun.parse_message(data)
        except ValueError:
            return
        if message.transaction_id == self._request.transaction_id and not self.answer.done():
            self.answer.set_result(message)

    def error_received(self, exc: Exception) -> None:
        # The port is closed: the machine says so at once.
        if not self.answer.done():
            self.answer.set_exception(PeerError(f"it cannot be reached: {exc}"))


async def check_stun(url: str) -> Sequence[CheckResult]:
    """Send a binding request to a STUN server; report the address that it sees."""
    host, port = _place_of(url)
    request = stun.Message(stun.Method.BINDING, stun.Class.REQUEST)
    loop = asyncio.get_running_loop()
    transport, answers = await loop.create_datagram_endpoint(
        lambda: _Answers(request), remote_addr=(host, port)
    )
    try:
        for _ in range(TRIES):
            transport.sendto(bytes(request))
            await asyncio.wait({answers.answer}, timeout=TRY_S)
            if answers.answer.done():
                break
        else:
            answers.answer.cancel()
            step = "check server.ice_servers and the firewall (UDP out)"
            return [fail(f"{url} does not answer a binding request", step)]
        answer = answers.answer.result()
    finally:
        transport.close()
    seen = answer.attributes.get("XOR-MAPPED-ADDRESS")
    if answer.message_class is not stun.Class.RESPONSE or seen is None:
        return [fail(f"{url} refuses a binding request", "name a STUN server in server.ice_servers")]
    return [good(f"{url} answers; it sees this machine at {seen[0]}")]


async def check_turn(url: str, user: str, password: str) -> Sequence[CheckResult]:
    """Allocate a relayed address at a TURN server, and release it."""
    host, port = _place_of(url)
    parts = parse_stun_turn_uri(url)
    try:
        async with asyncio.timeout(ALLOCATE_S):
            transport, _ = await turn.create_turn_endpoint(
                asyncio.DatagramProtocol,
                (host, port),
                user,
                password,
                ssl=parts["scheme"] == "turns",
                transport=parts.get("transport") or "udp",
            )
    except TimeoutError:
        return [fail(f"{url} does not answer within {ALLOCATE_S:g} s", "check its address and the firewall")]
    except stun.TransactionTimeout:
        return [fail(f"{url} does not answer", "check its address and the firewall")]
    except (stun.TransactionError, ConnectionError) as error:
        step = f"check the user, {TURN_PASSWORD_ENV} and the clock (an expired user is refused)"
        return [fail(f"{url} refuses an allocation: {error}", step)]
    relayed = transport.get_extra_info("sockname")
    transport.close()
    return [good(f"{url} has allocated {relayed[0]} port {relayed[1]}")]


def _place_of(url: str) -> tuple[str, int]:
    """Return host and port of a STUN or TURN url.

    Raises:
        ConfigError: it is not one.
    """
    try:
        parts = parse_stun_turn_uri(url)
    except ValueError as error:
        raise ConfigError(f"{url!r} does not have the form stun:host:port or turn:host:port") from error
    return str(parts["host"]), int(parts["port"])
