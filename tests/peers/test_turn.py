"""Credentials for a TURN server against a real coturn, as a page gets them from ``POST /start``."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest
import pytest_asyncio
from aioice import stun, turn

from parley.core.errors import ConfigError
from parley.evals.harness.launcher import free_port
from parley.serving.gateway.webrtc.turn_credentials import TurnCredentials, TurnServer, turn_credentials
from parley.serving.gateway.webrtc.turn_settings import TURN_SECRET_ENV, TurnSettings
from tests.unit.serving.test_gateway import Calls, make, serve
from tests.unpacked import program, surroundings

SECRET = "a-secret-of-both-servers"
UNAUTHORIZED = 401
WITHIN_S = 60.0


@pytest_asyncio.fixture
async def place(tmp_path: Path) -> AsyncIterator[tuple[str, int]]:
    """Run coturn, and return its address."""
    coturn = program("turnserver")
    port = free_port()
    arguments = [
        *("-n", "--no-cli", "--no-tls", "--no-dtls", "--listening-ip=127.0.0.1", "--relay-ip=127.0.0.1"),
        *(f"--listening-port={port}", "--realm=talk.example.org", "--allow-loopback-peers"),
        *("--use-auth-secret", f"--static-auth-secret={SECRET}", f"--userdb={tmp_path}/turndb"),
        *(f"--pidfile={tmp_path}/turn.pid", "--log-file=stdout", "--simple-log"),
    ]
    with (tmp_path / "coturn.log").open("wb") as log:
        server = await asyncio.create_subprocess_exec(
            coturn, *arguments, stdout=log, stderr=log, env=surroundings()
        )
        try:
            yield "127.0.0.1", port
        finally:
            server.terminate()
            await server.wait()


class Heard(asyncio.DatagramProtocol):
    """Datagrams that arrive."""

    def __init__(self) -> None:
        self.datagrams: asyncio.Queue[bytes] = asyncio.Queue()

    def datagram_received(self, data: bytes, _address: Any) -> None:
        self.datagrams.put_nowait(data)


async def allocate(place: tuple[str, int], given: TurnCredentials) -> Any:
    """Return a relayed transport, once the server is up."""
    async with asyncio.timeout(WITHIN_S):
        while True:
            try:
                transport, _ = await turn.create_turn_endpoint(
                    asyncio.DatagramProtocol, place, given.user, given.password
                )
            except (stun.TransactionTimeout, ConnectionError):
                continue
            return transport


def server_of(**settings: Any) -> TurnServer:
    return TurnServer(
        TurnSettings(urls=("turn:talk.example.org:3478",), **settings), environment={TURN_SECRET_ENV: SECRET}
    )


async def test_a_page_gets_credentials_with_which_coturn_relays(
    place: tuple[str, int], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(TURN_SECRET_ENV, SECRET)
    url = f"turn:{place[0]}:{place[1]}"
    app = make(Calls(), turn=TurnSettings(urls=(url,)), ice_servers=("stun:talk.example.org:3478",))
    async with serve(app) as client:
        started = (await client.post("/start", json={"body": {}})).json()
        path = f"/sessions/{started['sessionId']}/api/ice"
        again = (await client.post(path, json={})).json()
        assert (await client.post("/sessions/unknown/api/ice", json={})).status_code == 404
    first = started["iceConfig"]["iceServers"]
    assert [each["urls"] for each in first] == [["stun:talk.example.org:3478"], [url]]
    # Before ICE is restarted: other credentials, which are valid as long again.
    assert first[1]["username"] != again["iceServers"][1]["username"]
    for each in (first[1], again["iceServers"][1]):
        transport = await allocate(place, TurnCredentials(each["username"], each["credential"]))
        assert transport.get_extra_info("sockname")[0] == "127.0.0.1"
        transport.close()


async def test_an_expired_user_opens_no_path_and_an_open_one_goes_on(place: tuple[str, int]):
    loop = asyncio.get_running_loop()
    until_s = int(time.time()) + 3
    given = turn_credentials(SECRET, until_s, "ann")
    transport = await allocate(place, given)
    peer, heard = await loop.create_datagram_endpoint(Heard, local_addr=("127.0.0.1", 0))
    while time.time() <= until_s + 1:
        await asyncio.sleep(0.1)
    with pytest.raises(stun.TransactionFailed) as refused:
        await allocate(place, given)
    assert refused.value.response.attributes["ERROR-CODE"][0] == UNAUTHORIZED
    # A permission for a new peer is requested with the expired user.
    transport.sendto(b"still here", peer.get_extra_info("sockname"))
    async with asyncio.timeout(WITHIN_S):
        assert await heard.datagrams.get() == b"still here"
    transport.close()
    peer.close()


async def test_coturn_refuses_a_user_of_another_secret(place: tuple[str, int]):
    await allocate(place, server_of().credentials())
    wrong = turn_credentials("another secret 0123456789", int(time.time()) + 60, "ann")
    with pytest.raises(stun.TransactionFailed) as refused:
        await allocate(place, wrong)
    assert refused.value.response.attributes["ERROR-CODE"][0] == UNAUTHORIZED


async def test_the_password_is_the_one_that_openssl_computes():
    given = turn_credentials(SECRET, 1_800_000_000, "ann")
    assert given.user == "1800000000:ann"
    command = f"printf %s {given.user} | openssl dgst -sha1 -hmac {SECRET} -binary | openssl base64"
    process = await asyncio.create_subprocess_shell(command, stdout=asyncio.subprocess.PIPE)
    output, _ = await process.communicate()
    assert given.password == output.decode().strip()


def test_a_server_without_the_secret_does_not_start():
    settings = TurnSettings(urls=("turn:talk.example.org:3478",))
    for environment in ({}, {TURN_SECRET_ENV: "short"}):
        with pytest.raises(ConfigError, match=f"set {TURN_SECRET_ENV} to the secret"):
            TurnServer(settings, environment=environment)


@pytest.mark.parametrize("url", ["stun:talk.example.org", "turn:", "turn:a b", "turn:a?transport=sctp"])
def test_an_address_that_is_none_is_refused(url: str):
    with pytest.raises(ValueError, match="urls"):
        TurnSettings(urls=(url,))
