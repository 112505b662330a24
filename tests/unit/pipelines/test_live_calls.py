"""Live calls: their list, what a listener hears, and when that ends."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import numpy as np
import pytest

from parley.audio.live_stereo import BLOCK_MS, MOST_MS
from parley.configs.deployment import Deployment
from parley.core.call_events import OperatorListened, PrivatePauseBegan, PrivatePauseEnded
from parley.core.errors import PeerError
from parley.pipelines.call import Call, LiveCall
from parley.pipelines.live_calls import RATE_HZ, ListedCall, LiveCalls
from parley.pipelines.modes import DESK
from parley.session_store.compaction import Compactor
from parley.session_store.conversations import Conversations
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from tests import virtual_time

HEADER_BYTES = 44
BLOCK_S = BLOCK_MS / 1_000
PACKET_MS = 20
CALLER, BOT = (np.full(RATE_HZ * PACKET_MS // 1_000, value, dtype="<i2") for value in (1_000, 2_000))


@asynccontextmanager
async def calls_of(folder: Path) -> AsyncIterator[Callable[[str], Call]]:
    """Yield what makes calls of one session."""
    store = await SessionStore.open(StoreTuning(url=f"sqlite:///{folder}/sessions.db"))
    opened = Conversations(store, compactor=Compactor())
    try:
        async with opened.open() as conversation:
            yield lambda name: Call(
                conversation, "webrtc", LiveCall(conversation.clock, rate_hz=RATE_HZ), call_id=name
            )
    finally:
        await opened.close()
        await store.close()


def happens(folder: Path, scenario: Callable[[LiveCalls, Callable[[str], Call]], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with calls_of(folder) as make:
            await scenario(LiveCalls(can_listen=True), make)

    virtual_time.run(whole())


async def talk(call: Call, seconds: float) -> None:
    """Have both sides sound in real time."""
    for _ in range(round(seconds * 1_000 / PACKET_MS)):
        call.live.on_caller_audio(CALLER.tobytes(), RATE_HZ)
        call.live.on_packet(BOT.tobytes())
        await asyncio.sleep(PACKET_MS / 1_000)


def found(calls: LiveCalls, call_id: str) -> ListedCall:
    call = calls.find(call_id)
    assert call is not None
    return call


def sides(heard: list[bytes]) -> tuple[np.ndarray, np.ndarray]:
    both = np.frombuffer(b"".join(heard)[HEADER_BYTES:], "<i2").reshape(-1, 2)
    return both[:, 0], both[:, 1]


def test_a_listener_hears_both_sides_in_real_time_until_the_call_ends(tmp_path: Path):
    async def scenario(calls: LiveCalls, make: Callable[[str], Call]) -> None:
        call, heard, listened = make("a"), list[bytes](), list[bool]()
        call.events.subscribe(OperatorListened, lambda event: listened.append(event.is_on))

        async def listen() -> None:
            async for chunk in found(calls, "a").listen():
                heard.append(chunk)

        with calls.opened(call, "cascade"):
            listening = asyncio.create_task(listen())
            await asyncio.sleep(1)
            assert [each.listeners for each in calls.listed()] == [1]
            await talk(call, 2)
            await asyncio.sleep(1)
        await listening
        caller, bot = sides(heard)
        assert heard[0][:4] == b"RIFF"
        assert len(caller) == pytest.approx(4 * RATE_HZ, abs=2 * BLOCK_S * RATE_HZ)
        assert (np.count_nonzero(caller == 1_000), np.count_nonzero(bot == 2_000)) == (2 * RATE_HZ,) * 2
        # In one piece each, and not long after it was said.
        for side in (caller, bot):
            sound = np.flatnonzero(side)
            assert sound[-1] - sound[0] == 2 * RATE_HZ - 1 and 1 <= sound[0] / RATE_HZ <= 1.3
        assert listened == [True, False]
        assert calls.listed() == [] and calls.find("a") is None

    happens(tmp_path, scenario)


def test_a_listener_who_leaves_is_recorded_and_hears_and_costs_nothing_more(tmp_path: Path):
    async def scenario(calls: LiveCalls, make: Callable[[str], Call]) -> None:
        call, listened = make("a"), list[bool]()
        call.events.subscribe(OperatorListened, lambda event: listened.append(event.is_on))
        with calls.opened(call, "cascade"):
            chunks = found(calls, "a").listen()
            assert listened == []
            await anext(chunks)
            assert listened == [True]
            await chunks.aclose()
            assert listened == [True, False]
            assert [each.listeners for each in calls.listed()] == [0]
            await talk(call, 1)
        assert listened == [True, False]

    happens(tmp_path, scenario)


def test_a_listener_who_reads_slowly_is_never_further_behind_than_the_bound(tmp_path: Path):
    async def scenario(calls: LiveCalls, make: Callable[[str], Call]) -> None:
        call = make("a")
        with calls.opened(call, "cascade"):
            chunks = found(calls, "a").listen()
            heard = [await anext(chunks) for _ in range(2)]
            await talk(call, 30)
            began_s = asyncio.get_running_loop().time()
            heard += [await anext(chunks) for _ in range(MOST_MS // BLOCK_MS)]
            assert asyncio.get_running_loop().time() - began_s <= BLOCK_S
            await chunks.aclose()
        assert np.count_nonzero(sides(heard)[0]) == MOST_MS * RATE_HZ // 1_000

    happens(tmp_path, scenario)


def test_a_private_pause_is_silent_for_those_who_listen_and_for_those_who_come(tmp_path: Path):
    async def scenario(calls: LiveCalls, make: Callable[[str], Call]) -> None:
        call, early, late = make("a"), list[bytes](), list[bytes]()

        async def listen(heard: list[bytes]) -> None:
            async for chunk in found(calls, "a").listen():
                heard.append(chunk)

        with calls.opened(call, "cascade"):
            tasks = [asyncio.create_task(listen(early))]
            await talk(call, 1)
            call.events.publish(PrivatePauseBegan(call.events.now_ms(), "operator"))
            tasks.append(asyncio.create_task(listen(late)))
            await talk(call, 3)
            call.events.publish(PrivatePauseEnded(call.events.now_ms(), "operator"))
            await talk(call, 1)
            await asyncio.sleep(1)
        await asyncio.gather(*tasks)
        # What still waited when the pause began is dropped.
        assert 1.5 * RATE_HZ <= np.count_nonzero(sides(early)[0]) <= 2 * RATE_HZ
        for side in sides(late):
            assert np.count_nonzero(side) == RATE_HZ

    happens(tmp_path, scenario)


def test_calls_are_listed_the_newest_first_and_ended_by_their_id(tmp_path: Path):
    async def scenario(calls: LiveCalls, make: Callable[[str], Call]) -> None:
        first, second = make("first"), make("second")
        with calls.opened(first, "cascade") as older, calls.opened(second, "duplex") as newer:
            assert [(each.call_id, each.mode, each.transport) for each in calls.listed()] == [
                ("second", "duplex", "webrtc"),
                ("first", "cascade", "webrtc"),
            ]
            found(calls, "first").end()
            assert calls.find("third") is None
            assert older.ending.is_set() and not newer.ending.is_set()

    happens(tmp_path, scenario)


def test_a_call_without_audio_is_listed_and_ended_and_never_heard(tmp_path: Path):
    async def scenario(calls: LiveCalls, make: Callable[[str], Call]) -> None:
        spoken = make("spoken")
        with (
            calls.opened(spoken, "cascade"),
            calls.opened_silent("written", "s1", "chat") as chat,
            calls.opened_silent("desk", "s2", "webrtc", DESK) as desk,
        ):
            assert [
                (each.call_id, each.session_id, each.transport, each.mode, each.has_audio, each.listeners)
                for each in calls.listed()
            ] == [
                ("desk", "s2", "webrtc", "desk", False, 0),
                ("written", "s1", "chat", "text", False, 0),
                ("spoken", spoken.conversation.session_id, "webrtc", "cascade", True, 0),
            ]
            with pytest.raises(PeerError, match="no audio"):
                found(calls, "written").listen()
            found(calls, "written").end()
            assert chat.ending.is_set() and not desk.ending.is_set()
        assert calls.listed() == []

    happens(tmp_path, scenario)


def test_the_setting_does_not_go_with_redaction():
    given = {"operations": {"listen_in": True}, "privacy": {"redact": ["payment_card"]}}
    with pytest.raises(ValueError, match="leave out one of them"):
        Deployment.model_validate(given)
