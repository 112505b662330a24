"""Calls of telephone carriers other than Twilio: a caller over the carrier's own webhook and messages."""

import asyncio
import itertools
from collections import deque
from collections.abc import AsyncIterator, Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any

import httpx
import numpy as np
import pytest
import pytest_asyncio
import yaml
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed

from parley.evals.harness.phone_speech import PACKET, packets, quiet, samples_of
from parley.protocols.twilio_media import PACKET_BYTES, RATE_HZ
from parley.serving.gateway.phone.carriers import CARRIERS
from tests.carriers import NETWORKS, PUBLIC, Network, environment
from tests.peers.operations_gateway import BEARER
from tests.peers.phone_caller import likeness
from tests.peers.server import RunningServer, running_server
from tests.peers.test_phone import GREETED_S, LOUD, QUESTION, SAID
from tests.voices import say

pytestmark = pytest.mark.asyncio(loop_scope="module")

each = pytest.mark.parametrize("kind", NETWORKS, ids=lambda kind: kind.name)
# The tests share a server, which has seen every call that it was notified of.
CALL_IDS = (f"call-{number}" for number in itertools.count(1))
# Who has said something is quiet for no longer before it is over.
PAUSE_S = 1.0


@dataclass
class Heard:
    """Record of a call.

    Attributes:
        mu_law: audio that was played.
        marks: names of the marks that were sent; ``reached`` holds those that were played.
        clears: number of clears that were received.
        closed: the server has ended the call.
    """

    mu_law: bytearray = field(default_factory=bytearray)
    marks: list[str] = field(default_factory=list)
    reached: list[str] = field(default_factory=list)
    clears: int = 0
    closed: bool = False


class Line:
    """Caller in real time: sends packets, plays the bot's audio, returns marks when they are reached."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._ahead: deque[bytes | str] = deque()
        self.heard = Heard()

    def silence_until(self, is_true: Callable[[], bool], *, within_s: float = 60) -> Iterator[bytes]:
        for packet in quiet(within_s):
            if is_true():
                return
            yield packet

    def listening(self, *, within_s: float = 60) -> Iterator[bytes]:
        """Say nothing until the bot has said something from now on, and has paused."""
        begun = len(self.heard.mu_law)

        def has_paused() -> bool:
            loud = np.flatnonzero(np.abs(samples_of(bytes(self.heard.mu_law[begun:]))) > LOUD)
            return bool(loud.size) and len(self.heard.mu_law) - begun - loud[-1] > PAUSE_S * RATE_HZ

        return self.silence_until(has_paused, within_s=within_s)

    async def hold(self, url: str, said: Iterable[bytes], keys: str = "") -> Heard:
        """Call, send all packets, and hang up."""
        network = self._network
        async with httpx.AsyncClient(base_url=url) as client:
            webhook = network.webhook()
            answer = await client.request(
                webhook.method, webhook.path, content=webhook.body, headers=webhook.headers
            )
        assert answer.status_code == 200, answer.text
        address = network.media_url(answer)
        assert address.startswith("wss://talk.example.org/")
        path = address.removeprefix("wss://talk.example.org")
        async with connect(f"{url.replace('http', 'ws')}{path}", max_size=2**20) as socket:
            for message in network.beginning():
                await socket.send(message)
            ear = asyncio.create_task(self._listen(socket))
            try:
                await self._talk(socket, said, keys)
            except ConnectionClosed:
                self.heard.closed = True
            finally:
                ear.cancel()
                await asyncio.gather(ear, return_exceptions=True)
        return self.heard

    async def _talk(self, socket: ClientConnection, said: Iterable[bytes], keys: str) -> None:
        loop, network = asyncio.get_running_loop(), self._network
        began_s, waiting = loop.time(), b""
        for number, packet in enumerate(said):
            await asyncio.sleep(max(0.0, began_s + (number + 1) * 0.02 - loop.time()))
            waiting += packet
            if len(waiting) == network.packets * PACKET_BYTES:
                await socket.send(network.audio(waiting))
                waiting = b""
            if number % 10 == 0 and number // 10 < len(keys):
                await socket.send(network.key(keys[number // 10]))
            await self._play(socket)
        if (end := network.end()) is not None:
            await socket.send(end)

    async def _play(self, socket: ClientConnection) -> None:
        """Play the next 20 ms, with the marks that are reached."""
        packet = b""
        while self._ahead and len(packet) < PACKET_BYTES:
            what = self._ahead.popleft()
            if isinstance(what, str):
                self.heard.reached.append(what)
                await socket.send(self._network.mark_back(what))
                continue
            room = PACKET_BYTES - len(packet)
            packet += what[:room]
            if len(what) > room:
                self._ahead.appendleft(what[room:])
        self.heard.mu_law += packet or PACKET

    async def _listen(self, socket: ClientConnection) -> None:
        async for message in socket:
            taken = self._network.taken(message)
            if taken.mu_law:
                self._ahead.append(taken.mu_law)
            if taken.mark:
                self.heard.marks.append(taken.mark)
                self._ahead.append(taken.mark)
            if taken.clears:
                self.heard.clears += 1
                dropped = [each for each in self._ahead if isinstance(each, str)]
                self._ahead.clear()
                for name in dropped if self._network.returns_marks_at_clear else ():
                    await socket.send(self._network.mark_back(name))
        self.heard.closed = True


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    """Run a server that takes calls of every carrier."""
    folder = tmp_path_factory.mktemp("phone")
    config = folder / "phone.yaml"
    networks = [network.name for network in NETWORKS]
    config.write_text(yaml.safe_dump({"phone": {"public_url": PUBLIC, "carriers": networks}}))
    own = {"PARLEY_CALL_KEYS": "k" * 32, "PARLEY_STORE_URL": f"sqlite:///{folder}/sessions.db"}
    with pytest.MonkeyPatch.context() as monkeypatch:
        for name, value in (environment() | own).items():
            monkeypatch.setenv(name, value)
        async with running_server("--config", str(config)) as running:
            yield running


def line_of(kind: type[Network]) -> Line:
    return Line(kind(next(CALL_IDS)))


def sound(heard: Heard) -> np.ndarray:
    return samples_of(bytes(heard.mu_law)).astype(np.float64)


async def session_ids(server: RunningServer) -> list[str]:
    """Newest first."""
    async with httpx.AsyncClient(base_url=server.url, headers=BEARER) as client:
        return [each["id"] for each in (await client.get("/api/sessions")).json()["sessions"]]


async def timeline(server: RunningServer, session_id: str) -> list[dict[str, Any]]:
    async with httpx.AsyncClient(base_url=server.url, headers=BEARER) as client:
        return (await client.get(f"/api/sessions/{session_id}/timeline")).json()["events"]


@each
async def test_a_caller_of_each_network_asks_and_hears_the_answer(server: RunningServer, kind: type[Network]):
    before, line = await session_ids(server), line_of(kind)

    def says() -> Iterator[bytes]:
        yield from line.listening(within_s=GREETED_S)
        yield from packets(say(QUESTION))
        yield from line.listening(within_s=10)

    heard = await line.hold(server.url, says())
    assert not heard.closed
    assert likeness(sound(heard), "On Saturdays they are open from ten until two.") > SAID
    # All marks were reached, which the session knows: nothing of what was said is doubted.
    assert heard.marks and set(heard.reached) == set(heard.marks)
    [session_id] = set(await session_ids(server)).difference(before)
    events = await timeline(server, session_id)
    turns = [each["payload"] for each in events if each["kind"] in ("user_turn", "bot_turn")]
    assert {each["transport"] for each in turns} == {"phone"}
    assert QUESTION.lower().rstrip("?") in [each["text"] for each in turns]
    answers = [each["payload"] for each in events if each["kind"] == "bot_turn"]
    assert not any(each["truncated"] for each in answers)


@each
async def test_a_caller_who_interrupts_or_presses_keys_is_heard_and_the_line_is_cleared(
    server: RunningServer, kind: type[Network]
):
    before, line = await session_ids(server), line_of(kind)
    # During the greeting, which takes seconds: words, and then keys of a menu.
    stop = packets(say("Wait a moment please, I have another question."))
    heard = await line.hold(server.url, [*quiet(1.5), *stop, *quiet(2)])
    assert heard.clears >= 1
    [session_id] = set(await session_ids(server)).difference(before)
    events = await timeline(server, session_id)
    greeting = next(each["payload"] for each in events if each["kind"] == "bot_turn")
    assert greeting["truncated"]

    before, line = await session_ids(server), line_of(kind)
    newest: list[dict[str, Any]] = []

    async def until_understood() -> None:
        while not any("1 2 3" in str(each["payload"].get("text")) for each in newest):
            await asyncio.sleep(0.2)
            for session_id in set(await session_ids(server)).difference(before):
                newest[:] = await timeline(server, session_id)

    understood = asyncio.create_task(until_understood())
    await line.hold(server.url, line.silence_until(understood.done, within_s=9), keys="123")
    understood.cancel()
    assert any("1 2 3" in str(each["payload"].get("text")) for each in newest), newest


async def test_the_status_names_the_networks_that_are_served(server: RunningServer):
    async with httpx.AsyncClient(base_url=server.url) as client:
        status = (await client.get("/status")).json()
    assert status["transports"] == [
        "webrtc", "websocket", "realtime_webrtc", "telnyx", "plivo", "vonage", "exotel", "text", "pipecat",
        "eval",
    ]  # fmt: skip
    assert [path for path in status["sockets"] if path.endswith("/media/{token}")] == [
        f"/{name}/media/{{token}}" for name in sorted(CARRIERS) if name != "twilio"
    ]
