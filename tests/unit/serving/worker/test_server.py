"""A worker and its clients, over real sockets; the engine is scripted."""

import asyncio
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from websockets.asyncio.client import ClientConnection, connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from parley.core.errors import CapacityError, ConfigError, EngineError
from parley.core.units import Vote
from parley.models.omni import Preparation
from parley.models.omni.hosted.engine import WorkerOmniHost
from parley.protocols.worker_tokens import Claim, sign
from parley.runtime.engine_hosting.codec import decode, encode
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType
from parley.serving.worker.hosting import Hosted
from parley.serving.worker.lifecycle import LifecycleState
from tests.fakes.omni import OmniScript, ScriptedOmniHost
from tests.fakes.worker import SECRET, Served, worker

QUIET = np.zeros(1_280, np.float32)


def eventually(holds: Callable[[], object], within_s: float = 5) -> None:
    deadline_s = time.monotonic() + within_s
    while not holds():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def first(
    served: Served, type_: MessageType = MessageType.LEASE, secret: str = SECRET, **changes: Any
) -> EngineMessage:
    known = {"worker": "worker", "incarnation": "", "session_id": "s", "epoch": 0, "expires_s": 2**40}
    claim = Claim(**(known | changes))
    return EngineMessage(type_, facts=claim.facts(sign(secret.encode(), claim)))


async def say(socket: ClientConnection, type_: MessageType, number: int = 0, **facts: Any) -> None:
    await socket.send(encode(EngineMessage(type_, number, facts)))


async def hear(socket: ClientConnection) -> EngineMessage:
    async with asyncio.timeout(5):
        return decode(await socket.recv())


async def leased(served: Served, **changes: Any) -> ClientConnection:
    await asyncio.to_thread(eventually, lambda: served.server.state is not LifecycleState.LOADING)
    socket = await connect(served.url)
    await socket.send(encode(first(served, **changes)))
    answer = await hear(socket)
    assert answer.type is MessageType.LEASED, answer
    return socket


async def refused(served: Served, message: EngineMessage | str) -> tuple[str, int]:
    """Return the reason and the code of the close."""
    async with connect(served.url) as socket:
        await socket.send(message if isinstance(message, str) else encode(message))
        answer = await hear(socket)
        assert answer.type is MessageType.REFUSED
        with pytest.raises(ConnectionClosed) as closed:
            await hear(socket)
        assert closed.value.rcvd is not None
        return answer.facts["because"], closed.value.rcvd.code


def test_a_conversation_is_held_and_given_back() -> None:
    scripted = ScriptedOmniHost()
    with worker(scripted) as served:
        host = WorkerOmniHost(served.settings())
        assert (host.sessions, host.takes_frames) == (1, True)
        engine = host.open_engine()
        assert served.server.state is LifecycleState.DUPLEX_ACTIVE
        voice = np.full(100, 0.5, np.float32)
        said = Preparation("Be kind.", voice, None, (("user", "hello"),), {"tone_hz": 300.0})
        engine.prepare(said)
        picture = np.arange(2 * 3 * 3, dtype=np.uint8).reshape(2, 3, 3)
        votes = []
        for number in range(4):
            engine.prefill(QUIET + number / 10, [picture] if number else [])
            result = engine.generate(force_listen=number == 1)
            engine.finalize()
            votes.append(result.vote)
        inner = scripted.engines[-1]
        assert (
            votes == [Vote.LISTEN] * 3 + [Vote.SPEAK] and result.text == " 3" and len(result.audio) == 1_920
        )
        assert inner.seen == [0, 1, 1, 1] and inner.forced == [1]
        assert np.allclose(inner.heard[2], 0.2) and inner.prepared[0].history == said.history
        assert np.array_equal(inner.prepared[0].llm_ref_audio, voice)  # type: ignore[arg-type]
        engine.cleanup()
        assert served.server.state is LifecycleState.IDLE and not inner.is_open
        # The same again with the same engine.
        engine.prepare(Preparation())
        engine.cleanup()


def test_who_comes_while_someone_has_it_is_told() -> None:
    with worker(ScriptedOmniHost()) as served:
        host = WorkerOmniHost(served.settings())
        engine = host.open_engine()
        with pytest.raises(CapacityError, match="1 slots are in use"):
            host.open_engine()
        engine.cleanup()
        host.open_engine().cleanup()


def test_a_host_waits_until_the_engine_is_loaded() -> None:
    may_load = threading.Event()

    def load() -> Hosted:
        from parley.serving.worker.hosting import HostedOmni

        assert may_load.wait(10)
        return HostedOmni(ScriptedOmniHost(), "scripted")

    with worker(load) as served:
        threading.Timer(0.3, may_load.set).start()
        WorkerOmniHost(served.settings()).open_engine().cleanup()
        assert may_load.is_set()


async def test_no_one_has_a_worker_that_loads() -> None:
    may_load = threading.Event()

    def load() -> Hosted:
        assert may_load.wait(10)
        raise EngineError("no weights", engine="scripted")

    with worker(load) as served:
        assert await refused(served, first(served)) == ("not_ready", 1013)
        may_load.set()
        eventually(lambda: served.server.state is LifecycleState.DEAD)


def test_the_engines_own_errors_arrive_as_what_they_are() -> None:
    with worker(ScriptedOmniHost(OmniScript(fails_at=1))) as served:
        host = WorkerOmniHost(served.settings())
        engine = host.open_engine()
        with pytest.raises(ConfigError, match="unknown settings"):
            engine.prepare(Preparation(settings={"colour": "red"}))
        engine.prepare(Preparation())
        engine.prefill(QUIET)
        engine.generate()
        engine.finalize()
        engine.prefill(QUIET)
        with pytest.raises(EngineError):
            engine.generate()
        engine.cleanup()
        assert served.server.state is LifecycleState.IDLE


# Ends of a conversation.


async def test_a_client_that_vanishes_leaves_a_clean_worker() -> None:
    scripted = ScriptedOmniHost()
    with worker(scripted) as served:
        socket = await leased(served)
        await say(
            socket, MessageType.PREPARE, 1, system_prompt="", history=[], settings={}, voices=[None, None]
        )
        assert (await hear(socket)).type is MessageType.DONE
        socket.transport.abort()
        await asyncio.to_thread(eventually, lambda: served.server.state is LifecycleState.IDLE, 1)
        assert not scripted.engines[-1].is_open


async def test_a_lease_that_no_one_renews_ends_by_the_workers_clock() -> None:
    with worker(ScriptedOmniHost(), lease_ms=1_000) as served:
        socket = await leased(served)
        # It stays open as long as it answers pings.
        await asyncio.sleep(2.5)
        assert served.server.state is LifecycleState.DUPLEX_ACTIVE
        # The process is alive, but reads nothing any more.
        socket.transport.pause_reading()
        await asyncio.to_thread(eventually, lambda: served.server.state is LifecycleState.IDLE, 3)
        socket.transport.abort()


async def test_a_newer_owner_of_the_session_takes_it_over() -> None:
    with worker(ScriptedOmniHost()) as served:
        older = await leased(served, epoch=3)
        newer = await leased(served, epoch=4)
        received = await hear(older)
        assert (received.type, received.facts["message"]) == (MessageType.REVOKED, "superseded")
        assert await refused(served, first(served, epoch=3)) == ("stale", 1008)
        assert await refused(served, first(served, session_id="x", epoch=9)) == ("busy", 1013)
        await newer.close()


@pytest.mark.parametrize(("most_ms", "requested_ms"), [(1_000, 3_600_000), (600_000, 300)])
async def test_a_pause_ends_by_itself_and_no_later_than_it_may(most_ms: int, requested_ms: int) -> None:
    with worker(ScriptedOmniHost(), pause_ms=most_ms) as served:
        socket = await leased(served)
        await say(socket, MessageType.PAUSE, pause_ms=requested_ms)
        await asyncio.to_thread(eventually, lambda: served.server.state is LifecycleState.DUPLEX_PAUSED, 1)
        await say(socket, MessageType.RESUME)
        await asyncio.to_thread(eventually, lambda: served.server.state is LifecycleState.DUPLEX_ACTIVE, 1)
        await say(socket, MessageType.PAUSE, pause_ms=requested_ms)
        await say(socket, MessageType.PREFILL, 1, samples=0, frames=[])
        answer = await hear(socket)
        assert answer.type is MessageType.FAILED and "paused" in answer.facts["message"]
        received = await hear(socket)
        assert (received.type, received.facts["message"]) == (MessageType.REVOKED, "pause_expired")
        await asyncio.to_thread(eventually, lambda: served.server.state is LifecycleState.IDLE, 1)


def test_a_unit_that_takes_too_long_makes_the_worker_suspect_until_all_is_given_back() -> None:
    # It returns when it is stopped.
    with worker(ScriptedOmniHost(OmniScript(hangs_at=1)), unit_ms=200) as served:
        engine = WorkerOmniHost(served.settings()).open_engine()
        engine.prepare(Preparation())
        engine.prefill(QUIET)
        engine.generate()
        engine.finalize()
        engine.prefill(QUIET)
        with pytest.raises(EngineError, match="hung"):
            engine.generate()
        engine.cleanup()
        eventually(lambda: served.server.state is LifecycleState.IDLE)


async def test_a_worker_that_drains_lets_its_conversation_go_on_and_takes_no_other() -> None:
    with worker(ScriptedOmniHost()) as served:
        socket = await leased(served)
        async with connect(served.url) as watching:
            await watching.send(encode(first(served, MessageType.WATCH, session_id="")))
            assert (await hear(watching)).facts["state"] == "duplex_active"
            await say(watching, MessageType.DRAIN)
            while (await hear(watching)).facts["state"] != "draining":
                pass
            assert await refused(served, first(served, session_id="x")) == ("not_ready", 1013)
            await say(socket, MessageType.RELEASE, 1)
            assert (await hear(socket)).type is MessageType.DONE
        await asyncio.to_thread(eventually, lambda: served.server.state is LifecycleState.DEAD, 2)


# Refused messages.


@pytest.mark.parametrize(
    ("change", "because", "code"),
    [
        ({"secret": "another secret of the tests"}, "unauthorised", 1008),
        ({"worker": "another"}, "unauthorised", 1008),
        ({"expires_s": 1_000}, "unauthorised", 1008),
        ({"incarnation": "an older process"}, "other_incarnation", 1013),
        ({"session_id": ""}, "unreadable", 1002),
        ({"type_": MessageType.PREPARE}, "unreadable", 1002),
        ({"type_": MessageType.WATCH}, "unreadable", 1002),
    ],
)
async def test_who_may_not_have_it_is_told_why(change: dict[str, Any], because: str, code: int) -> None:
    with worker(ScriptedOmniHost()) as served:
        await asyncio.to_thread(eventually, lambda: served.server.state is LifecycleState.IDLE)
        assert await refused(served, first(served, **change)) == (because, code)


async def test_a_token_that_was_changed_is_none() -> None:
    with worker(ScriptedOmniHost()) as served:
        forged = first(served)
        forged = EngineMessage(forged.type, facts={**forged.facts, "session_id": "somebody else's"})
        assert await refused(served, forged) == ("unauthorised", 1008)


@pytest.mark.parametrize("said", ["hello", "{}", '{"type": "lease"}', "[1]"])
async def test_who_says_nothing_that_can_be_read_is_told(said: str) -> None:
    with worker(ScriptedOmniHost()) as served:
        assert await refused(served, said) == ("unreadable", 1002)


async def test_who_says_nothing_at_all_is_hung_up() -> None:
    with worker(ScriptedOmniHost(), open_ms=200) as served:
        async with connect(served.url) as socket:
            with pytest.raises(ConnectionClosed):
                await hear(socket)


async def test_who_has_not_said_who_they_are_may_say_little() -> None:
    with worker(ScriptedOmniHost()) as served:
        async with connect(served.url) as socket:
            await socket.send("x" * 100_000)
            with pytest.raises(ConnectionClosed) as closed:
                await hear(socket)
        assert closed.value.rcvd is not None and closed.value.rcvd.code == 1009
        # A client with a lease may send a second of audio, and a picture.
        picture = np.zeros((600, 800, 3), np.uint8)
        engine = WorkerOmniHost(served.settings()).open_engine()
        engine.prepare(Preparation())
        engine.prefill(QUIET, [picture])
        engine.generate()
        engine.cleanup()


async def test_strangers_are_few() -> None:
    with worker(ScriptedOmniHost(), strangers=2, open_ms=2_000) as served:
        async with connect(served.url), connect(served.url):
            await asyncio.sleep(0.1)
            async with connect(served.url) as third:
                assert (await hear(third)).facts["because"] == "busy"


async def test_an_engine_that_opens_nothing_any_more_ends_its_process() -> None:
    class Broken(ScriptedOmniHost):
        def open_engine(self) -> Any:
            if self.engines:
                raise RuntimeError("the device is gone")
            return ScriptedOmniHost.open_engine(self)

    with worker(Broken()) as served:
        for _ in range(3):
            # A request before the cleanup of the one before is refused for lack of a place.
            await asyncio.to_thread(eventually, lambda: served.server.state is LifecycleState.IDLE)
            # After the third the worker ends, and either side may close the socket first.
            because, code = await refused(served, first(served))
            assert because == "not_ready" and code in (1000, 1001)
        await asyncio.to_thread(eventually, lambda: served.server.state is LifecycleState.DEAD)


async def test_no_page_of_a_browser_reaches_a_worker() -> None:
    with worker(ScriptedOmniHost()) as served:
        with pytest.raises(InvalidStatus) as refusal:
            await connect(served.url, origin="http://localhost:7860")  # type: ignore[arg-type]
        assert refusal.value.response.status_code == 403


async def test_what_cannot_be_read_in_a_conversation_ends_that_one_alone() -> None:
    with worker(ScriptedOmniHost()) as served:
        socket = await leased(served)
        await socket.send(b"\xff" * 20)
        assert (await hear(socket)).type is MessageType.FAILED
        await asyncio.to_thread(eventually, lambda: served.server.state is LifecycleState.IDLE, 1)
        await (await leased(served)).close()


@pytest.mark.parametrize(
    ("type_", "facts"),
    [
        (MessageType.PREFILL, {"samples": 9, "frames": []}),
        (MessageType.PREFILL, {}),
        (MessageType.PREFILL, {"samples": 0, "frames": [[1_000_000, 1_000_000]]}),
        (MessageType.PREPARE, {"system_prompt": "", "history": 3, "settings": {}, "voices": [None, None]}),
        (MessageType.GENERATE, {}),
        (MessageType.DRAIN, {}),
        (MessageType.LEASE, {}),
    ],
)
async def test_a_question_that_makes_no_sense_is_answered_and_the_conversation_goes_on(
    type_: MessageType, facts: dict[str, Any]
) -> None:
    with worker(ScriptedOmniHost()) as served:
        socket = await leased(served)
        await say(socket, type_, 7, **facts)
        answer = await hear(socket)
        assert (answer.type, answer.number) == (MessageType.FAILED, 7)
        await say(
            socket, MessageType.PREPARE, 8, system_prompt="", history=[], settings={}, voices=[None, None]
        )
        assert (await hear(socket)).type is MessageType.DONE
        await socket.close()


async def test_watchers_are_told_what_changes_and_are_bounded() -> None:
    with worker(ScriptedOmniHost(), watchers=1, state_ms=10_000) as served:
        await asyncio.to_thread(eventually, lambda: served.server.state is LifecycleState.IDLE)
        async with connect(served.url) as watching:
            await watching.send(encode(first(served, MessageType.WATCH, session_id="")))
            facts = (await hear(watching)).facts
            assert facts["incarnation"] == served.server.incarnation and facts["engine"]["unit_ms"] == 80
            assert facts["held"] == [] and facts["rss_bytes"] > 1_000_000
            assert facts["devices"] == []
            assert await refused(served, first(served, MessageType.WATCH, session_id="")) == ("busy", 1013)
            socket = await leased(served, epoch=5)
            facts = (await hear(watching)).facts
            assert facts["held"] == [{"session_id": "s", "epoch": 5, "is_over": False}]
            await socket.close()
            states = {(await hear(watching)).facts["state"]}
            while "idle" not in states:
                states.add((await hear(watching)).facts["state"])
            assert states == {"busy", "idle"}
