"""Requests to addresses that a client has chosen: the public ones, and those that the deployment permits."""

import asyncio
import gzip
import ipaddress
import socket
import ssl
import threading
from collections.abc import Sequence
from ipaddress import ip_address
from pathlib import Path

import httpx2
import pytest
from aiohttp import web

from parley.models.tools.guarded_http import (
    MOST_RESPONSE_BYTES,
    NOT_FOUND_IN_TIME,
    NOT_PUBLIC,
    AddressGuard,
    GuardedTransport,
    is_public,
)
from tests.fakes.certificates import self_signed_certificate, server_context
from tests.fakes.silent_host import silent_host


@pytest.mark.parametrize(
    "address",
    [
        "0.0.0.0",
        "10.1.2.3",
        "100.64.0.1",
        "127.0.0.1",
        "168.63.129.16",
        "169.254.169.254",
        "172.16.0.1",
        "192.168.0.1",
        "198.18.0.1",
        "224.0.0.1",
        "255.255.255.255",
        "::",
        "::1",
        "::7f00:1",
        "::ffff:127.0.0.1",
        "::ffff:10.0.0.1",
        "64:ff9b::a9fe:a9fe",
        "64:ff9b:1::1",
        "2001:0:7f00:1::1",
        "2001:db8::1",
        "2002:7f00:1::1",
        "2002:a9fe:a9fe::",
        "fc00::1",
        "fd00:ec2::254",
        "fe80::1",
        "fec0::1",
        "ff02::1",
    ],
)
def test_an_address_that_is_not_of_the_internet_is_none(address: str):
    assert not is_public(ip_address(address))


@pytest.mark.parametrize("address", ["8.8.8.8", "2606:4700::1111", "64:ff9b::808:808", "::ffff:8.8.8.8"])
def test_an_address_of_the_internet_is_one(address: str):
    assert is_public(ip_address(address))


@pytest.mark.parametrize(
    "host", ["127.0.0.1", "localhost", "127.1", "2130706433", "0x7f.1", "[::1]", "a.invalid"]
)
async def test_a_host_of_this_machine_is_refused_however_it_is_written(host: str):
    with pytest.raises(httpx2.ConnectError, match=NOT_PUBLIC):
        await AddressGuard(["127.0.0.1:80"]).addresses_of(host, 8_080)


class Site:
    """Server on this machine.

    Attributes:
        hosts: the ``Host`` of each request.
    """

    def __init__(self, context: ssl.SSLContext | None = None) -> None:
        self._context = context
        self.hosts: list[str] = []

    async def __aenter__(self) -> "Site":
        app = web.Application()
        app.router.add_post("/{kind}", self._answer)
        self._runner = web.AppRunner(app)
        await self._runner.setup()
        await web.TCPSite(self._runner, "127.0.0.1", 0, ssl_context=self._context).start()
        self.port = self._runner.addresses[0][1]
        return self

    async def __aexit__(self, *_error: object) -> None:
        await self._runner.cleanup()

    async def _answer(self, request: web.Request) -> web.StreamResponse:
        self.hosts.append(request.host)
        match request.match_info["kind"]:
            case "near":
                raise web.HTTPTemporaryRedirect("/json")
            case "far":
                raise web.HTTPTemporaryRedirect(f"http://127.0.0.1:{self.port}/json")
            case "long":
                return web.Response(body=b" " * (MOST_RESPONSE_BYTES + 1), content_type="application/json")
            case "zip":
                headers = {"Content-Encoding": "gzip"}
                return web.Response(
                    body=gzip.compress(b"{}"), content_type="application/json", headers=headers
                )
            case "accepted":
                return web.Response(status=202, text="Accepted")
            case "page":
                return web.Response(text="<html>", content_type="text/html")
            case _:
                return web.json_response({})


def client_of(site: Site, host: str, *, verify: ssl.SSLContext | bool = True) -> httpx2.AsyncClient:
    guard = AddressGuard([f"{host}:{site.port}"])
    return httpx2.AsyncClient(transport=GuardedTransport(guard, verify=verify), trust_env=False)


async def test_what_a_server_sends_is_bounded_and_of_the_protocols_form():
    async with Site() as site, client_of(site, "localhost") as client:
        url = f"http://localhost:{site.port}"
        assert (await client.post(f"{url}/json")).json() == {}
        # The name that was resolved is still the host of the request.
        assert site.hosts == [f"localhost:{site.port}"]
        # As Express answers a notification.
        assert (await client.post(f"{url}/accepted")).status_code == 202
        for kind, fault in (
            ("long", "over 1048576 bytes"),
            ("zip", "compressed"),
            ("page", "neither JSON nor"),
        ):
            with pytest.raises(httpx2.TransportError, match=fault):
                await client.post(f"{url}/{kind}")


class CountingGuard(AddressGuard):
    """Guard that counts the look-ups."""

    lookups = 0

    async def addresses_of(self, host: str, port: int) -> Sequence[str]:
        self.lookups += 1
        return await super().addresses_of(host, port)


async def test_a_host_is_looked_up_again_only_when_it_cannot_be_reached():
    async with Site() as site:
        guard = CountingGuard([f"localhost:{site.port}"])
        async with httpx2.AsyncClient(transport=GuardedTransport(guard)) as client:
            for _ in range(3):
                await client.post(f"http://localhost:{site.port}/json", headers={"Connection": "close"})
            assert guard.lookups == 1
            await site.__aexit__()
            for lookups in (1, 2):
                with pytest.raises(httpx2.ConnectError, match="cannot be reached"):
                    await client.post(f"http://localhost:{site.port}/json")
                assert guard.lookups == lookups


async def test_each_step_of_a_redirect_is_checked():
    async with Site() as site, client_of(site, "localhost") as client:
        url = f"http://localhost:{site.port}"
        assert (await client.post(f"{url}/near", follow_redirects=True)).json() == {}
        with pytest.raises(httpx2.ConnectError, match=NOT_PUBLIC):
            await client.post(f"{url}/far", follow_redirects=True)
        assert len(site.hosts) == 3


async def test_a_certificate_has_to_be_that_of_the_name_and_not_of_the_address(tmp_path: Path):
    path = self_signed_certificate(tmp_path)
    trusting = ssl.create_default_context(cafile=path)
    async with Site(server_context(path)) as site:
        # It names the address alone.
        async with client_of(site, "127.0.0.1", verify=trusting) as client:
            assert (await client.post(f"https://127.0.0.1:{site.port}/json")).json() == {}
        async with client_of(site, "localhost", verify=trusting) as client:
            with pytest.raises(httpx2.ConnectError, match="cannot be reached") as refused:
                await client.post(f"https://localhost:{site.port}/json")
        assert "Hostname mismatch" in str(refused.value.__cause__)


class ManyAddresses(AddressGuard):
    """Guard of a host that has four addresses."""

    async def addresses_of(self, host: str, port: int) -> Sequence[str]:
        return [f"127.0.0.{number}" for number in range(1, 5)]


async def test_a_host_that_is_silent_is_not_reached_and_few_of_its_addresses_are_tried():
    tried: list[str] = []

    async def trace(name: str, _info: object) -> None:
        if name == "connection.connect_tcp.started":
            tried.append(name)

    with silent_host() as port:
        async with httpx2.AsyncClient(transport=GuardedTransport(ManyAddresses(), connects_s=0.2)) as client:
            with pytest.raises(httpx2.ConnectError, match="cannot be reached"):
                await client.post(
                    f"http://localhost:{port}/",
                    timeout=httpx2.Timeout(5, connect=0.15),
                    extensions={"trace": trace},
                )
    assert 1 <= len(tried) <= 2


async def test_a_client_with_a_slow_name_server_has_one_look_up_at_a_time():
    begun, answers = threading.Semaphore(0), threading.Event()

    def look_up(host: str, _port: int) -> list[ipaddress.IPv4Address | ipaddress.IPv6Address]:
        if host != "slow.example":
            return [ipaddress.ip_address("127.0.0.1")]
        begun.release()
        answers.wait(30)
        raise socket.gaierror("not known")

    slow = AddressGuard(look_up=look_up, resolve_s=0.5)
    other = AddressGuard(["quick.example:80"], look_up=look_up, resolve_s=10)
    try:
        for _ in range(5):
            with pytest.raises(httpx2.ConnectError, match=NOT_FOUND_IN_TIME):
                await slow.addresses_of("slow.example", 80)
        assert begun.acquire(blocking=False) and not begun.acquire(blocking=False)
        assert await other.addresses_of("quick.example", 80) == ["127.0.0.1"]
        # The name server answers, and the next look-up is made.
        waiting = asyncio.create_task(slow.addresses_of("quick.example", 80))
        answers.set()
        with pytest.raises(httpx2.ConnectError, match=NOT_PUBLIC):
            await waiting
    finally:
        answers.set()
