"""The watch over a worker that is polled, by a clock that jumps."""

import asyncio
from collections.abc import Callable, Coroutine
from dataclasses import dataclass, field
from typing import Any

import pytest
from pydantic import ValidationError

from parley.core.errors import PeerError
from parley.models.omni.minicpm_worker.health import Health, parse_health
from parley.serving.pool.health import HealthWatch
from parley.serving.pool.pool import Pool
from parley.serving.pool.settings import PoolTuning, WorkerSpec
from tests.virtual_time import run

IDLE = Health(status="healthy", worker_status="idle", model_loaded=True)
SETTINGS = PoolTuning(health_ms=500, silent_ms=1_000, dead_ms=5_000)


@dataclass
class Peer:
    """Worker with scripted answers."""

    says: Callable[[], Coroutine[Any, Any, Health]]
    asked_ms: list[int] = field(default_factory=list)
    attended: int = 0
    ends: asyncio.Event = field(default_factory=asyncio.Event)

    async def ask(self) -> Health:
        self.asked_ms.append(round((asyncio.get_running_loop().time() - BEGAN_S[0]) * 1000))
        return await self.says()

    async def attend(self) -> None:
        self.attended += 1
        await self.ends.wait()


BEGAN_S = [0.0]


@dataclass
class Seen:
    """Reports of a watch."""

    words: list[tuple[int, str]] = field(default_factory=list)

    def add(self, word: str) -> None:
        self.words.append((round((asyncio.get_running_loop().time() - BEGAN_S[0]) * 1000), word))

    def first_ms(self, word: str) -> int:
        return next(at_ms for at_ms, told in self.words if told == word)

    def count(self, word: str) -> int:
        return [told for _, told in self.words].count(word)


async def idle() -> Health:
    return IDLE


async def hangs() -> Health:
    await asyncio.Event().wait()
    raise AssertionError


async def refused() -> Health:
    raise ConnectionRefusedError


async def breaks() -> Health:
    raise PeerError("half an answer")


def watched(peer: Peer, for_ms: int, *then: tuple[int, Callable[[HealthWatch], None]]) -> Seen:
    """Return the reports of a watch that runs for that long, with actions in between."""
    seen = Seen()

    async def scenario() -> None:
        loop = asyncio.get_running_loop()
        BEGAN_S[0] = loop.time()
        watch = HealthWatch(
            SETTINGS,
            peer,
            on_health=lambda health, _asked_s: seen.add(health.state),
            on_silent=lambda: seen.add("silent"),
            on_dead=lambda: seen.add("dead"),
            patience_ms=lambda: SETTINGS.dead_ms,
        )
        watching = asyncio.create_task(watch.run())
        for at_ms, act in then:
            loop.call_later(at_ms / 1000, act, watch)
        await asyncio.sleep(for_ms / 1000)
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)

    run(scenario())
    return seen


def turns(peer: Peer, says: Callable[[], Coroutine[Any, Any, Health]]) -> Callable[[HealthWatch], None]:
    def turn(_watch: HealthWatch) -> None:
        peer.says = says

    return turn


def test_it_is_asked_at_a_steady_pace() -> None:
    peer = Peer(idle)
    seen = watched(peer, 2_100)
    assert peer.asked_ms == [0, 500, 1_000, 1_500, 2_000] and seen.count("idle") == 5 and peer.attended == 1


def test_one_that_hangs_is_silent_soon_and_gone_later() -> None:
    peer = Peer(idle)
    seen = watched(peer, 12_000, (100, turns(peer, hangs)))
    # Requested at 500 and given up at 1500; nothing has been received since 0, which is 6000 at the fourth
    # time.
    assert seen.first_ms("silent") == 1_500 and seen.first_ms("dead") == 6_000 and seen.count("dead") == 1


def test_one_that_refuses_connections_is_gone_at_once_and_comes_back() -> None:
    peer = Peer(idle)
    seen = watched(peer, 3_000, (600, turns(peer, refused)), (2_100, turns(peer, idle)))
    assert seen.first_ms("dead") == 1_000 and seen.count("dead") == 1 and seen.count("silent") == 0
    assert (2_500, "idle") in seen.words


def test_a_connection_that_ends_is_a_reason_to_ask() -> None:
    peer = Peer(idle)

    def dies(_watch: HealthWatch) -> None:
        peer.says = refused
        peer.ends.set()

    seen = watched(peer, 1_000, (620, dies))
    assert seen.first_ms("dead") == 620


def test_a_process_that_breaks_off_while_it_ends_is_asked_again_at_once() -> None:
    peer = Peer(idle)

    def dies(_watch: HealthWatch) -> None:
        peer.says = breaks
        peer.ends.set()

    seen = watched(peer, 1_000, (620, dies), (630, turns(peer, refused)))
    assert seen.first_ms("dead") == 640


def test_a_peer_that_ends_every_connection_is_no_storm() -> None:
    peer = Peer(idle)
    peer.ends.set()
    watched(peer, 10_000)
    assert len(peer.asked_ms) <= 42 and peer.attended <= 21


def test_one_that_talks_nonsense_is_silent_and_asked_at_its_pace() -> None:
    peer = Peer(breaks)
    seen = watched(peer, 10_100)
    assert len(peer.asked_ms) <= 24 and seen.first_ms("silent") == 0 and seen.count("dead") == 1


def test_it_is_asked_now_when_someone_wants_to_know() -> None:
    peer = Peer(idle)
    watched(peer, 400, (120, HealthWatch.again))
    assert peer.asked_ms == [0, 120]


@pytest.mark.parametrize(
    ("status", "doing", "loaded", "state"),
    [
        ("healthy", "idle", True, "idle"),
        ("healthy", "duplex_active", True, "duplex_active"),
        ("healthy", "busy_chat", True, "busy_chat"),
        ("healthy", "loading", True, "loading"),
        ("initializing", "loading", False, "loading"),
        ("error", "idle", False, "error"),
        ("healthy", "idle", False, "error"),
        ("healthy", "error", True, "error"),
        ("healthy", "dancing", True, "error"),
    ],
)
def test_it_is_idle_when_model_and_worker_say_so(status: str, doing: str, loaded: bool, state: str) -> None:
    health = Health(status=status, worker_status=doing, model_loaded=loaded)
    assert health.state == state and health.is_idle is (state == "idle")


@pytest.mark.parametrize("data", [b"", b"[]", b"{}", b'{"status": 1}', b"\xff", b"[" * 100_000])
def test_a_health_that_cannot_be_read_is_the_peers_error(data: bytes) -> None:
    with pytest.raises(PeerError):
        parse_health(data)


def test_no_secret_is_needed_for_workers_that_take_no_token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("PARLEY_WORKER_SECRET", raising=False)
    spec = WorkerSpec(name="far", url="http://gpu0:22400", kind="minicpm_o_server")
    assert Pool(PoolTuning(workers=(spec,))).workers() == {"far": {}}


@pytest.mark.parametrize(
    ("fields", "message"),
    [
        ({"url": "ws://gpu0:22400", "kind": "minicpm_o_server"}, "expected http:// or https://"),
        ({"url": "http://gpu0:22400"}, "expected ws:// or wss://"),
        ({"url": "ftp://gpu0", "kind": "minicpm_o_server"}, "match pattern"),
        ({"engine": "moshi", "kind": "minicpm_o_server"}, "expected a url"),
        ({"url": "http://g", "kind": "minicpm_o_server", "limits": {"streams": 2}}, "started here"),
        ({"url": "ws://g", "settings": {"sees": True}}, "started here"),
        (
            {"url": "http://g", "kind": "minicpm_o_server", "settings": {"colour": "red"}},
            "settings.colour: .*known settings: ca_file, sampling, sees",
        ),
        (
            {"url": "http://g", "kind": "minicpm_o_server", "settings": {"sampling": {"top_p": 7}}},
            "settings.sampling.top_p: .*less than or equal to 1",
        ),
        ({"url": "http://g", "kind": "minicpm_o_server", "settings": {"sessions": 4}}, "settings.sessions"),
    ],
)
def test_a_worker_that_makes_no_sense_is_told_at_load(fields: dict[str, Any], message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        WorkerSpec.model_validate({"name": "far", **fields})
