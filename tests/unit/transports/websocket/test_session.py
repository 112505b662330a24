"""A client of a socket, in virtual time: permitted messages, and a client that does not read."""

import asyncio
import base64
import json
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any

import pytest

from parley.audio.ogg import OggWriter
from parley.protocols.client_protocol import (
    Action,
    Began,
    Codec,
    Format,
    Pictures,
    ProtocolError,
    QueueUpdate,
    ReplyBegan,
    SessionUpdate,
    Speech,
    Typed,
)
from parley.protocols.openai_realtime import OpenAIRealtime
from parley.protocols.unmute import Unmute
from parley.transports.websocket.codecs import PcmEncoder
from parley.transports.websocket.session import SocketCall, SocketTuning
from tests.virtual_time import run


class ScriptedPeer:
    """The client's side of a socket on virtual time: a script of messages, and whether it reads.

    Attributes:
        sent: messages that it has read.
        closed: how its socket was closed.
        reads: set while it reads.
    """

    def __init__(self, said: list[tuple[float, str | ProtocolError]], *, stays_s: float = 60) -> None:
        self._said = said
        self._stays_s = stays_s
        self.sent: list[dict[str, Any]] = []
        self.closed: tuple[int, str] | None = None
        self.reads = asyncio.Event()
        self.reads.set()

    async def receive(self) -> str | None:
        if not self._said:
            await asyncio.sleep(self._stays_s)
            return None
        wait_s, text = self._said.pop(0)
        await asyncio.sleep(wait_s)
        if isinstance(text, ProtocolError):
            raise text
        return text

    async def send(self, text: str) -> bool:
        await self.reads.wait()
        self.sent.append(json.loads(text))
        return True

    async def close(self, code: int, reason: str) -> None:
        self.closed = (code, reason)

    def codes(self) -> list[str]:
        return [message["error"]["code"] for message in self.sent if message["type"] == "error"]


def held(
    peer: ScriptedPeer,
    during: Callable[[SocketCall], Awaitable[None]],
    *,
    check: Callable[[Action], None] | None = None,
    **settings: Any,
) -> SocketCall:
    """Run a client's session around a script."""
    sessions: list[SocketCall] = []

    async def scene() -> None:
        session = SocketCall(
            peer, OpenAIRealtime("m"), settings=SocketTuning(**settings), rate_hz=16_000, check=check
        )
        sessions.append(session)
        session.open()
        session.happen(Began("s"))
        await during(session)
        await session.close()

    run(scene())
    return sessions[0]


def event(type_: str, **fields: Any) -> str:
    return json.dumps({"type": type_, **fields})


def typed(text: str) -> Iterator[tuple[float, str]]:
    content = [{"type": "input_text", "text": text}]
    yield (
        0.01,
        event("conversation.item.create", item={"type": "message", "role": "user", "content": content}),
    )
    yield 0.01, event("response.create")


async def second(_session: SocketCall) -> None:
    await asyncio.sleep(1)


def test_a_client_is_greeted_and_closed_in_good_order():
    peer = ScriptedPeer([])
    held(peer, second)
    assert [message["type"] for message in peer.sent] == ["session.created"]
    assert peer.closed == (1000, "stopped")


def test_the_session_is_announced_before_anything_that_the_client_sent_is_answered():
    update = event("session.update", session={"type": "realtime"})
    peer = ScriptedPeer([(0.0, update), (0.0, "no json")])

    async def scene() -> None:
        session = SocketCall(peer, OpenAIRealtime("m"), rate_hz=16_000)
        session.open()
        await asyncio.sleep(1)
        assert peer.sent == []
        session.happen(Began("s"))
        await asyncio.sleep(1)
        await session.close()

    run(scene())
    assert [message["type"] for message in peer.sent] == ["session.created", "session.updated", "error"]


def test_a_session_that_never_begins_answers_before_it_ends():
    peer = ScriptedPeer([(0.0, "no json")])

    async def scene() -> None:
        session = SocketCall(peer, OpenAIRealtime("m"), rate_hz=16_000)
        session.open()
        await asyncio.sleep(1)
        session.over("error", "no room")
        await session.close()

    run(scene())
    assert [message["error"]["code"] for message in peer.sent] == ["invalid_json", "error"]


def test_what_is_wrong_is_answered_and_the_next_is_taken():
    peer = ScriptedPeer([(0.1, "{"), (0.1, ProtocolError("bytes", code="invalid_payload")), *typed("Tea.")])
    done: list[Action] = []

    async def during(session: SocketCall) -> None:
        async def act(action: Action) -> None:
            done.append(action)

        await session.attend(act)
        await asyncio.sleep(1)

    held(peer, during)
    assert peer.codes() == ["invalid_json", "invalid_payload"]
    assert done == [Typed("Tea.")]


def test_too_many_wrong_messages_in_a_row_end_the_call():
    peer = ScriptedPeer([(0.1, "{")] * 10)
    session = held(peer, second, most_refusals=3)
    assert len(peer.codes()) == 3
    assert peer.closed is not None
    assert peer.closed[0] == 1008
    assert session.gone.is_set()


def test_messages_that_come_too_fast_are_refused_until_time_has_passed():
    clear = event("input_audio_buffer.clear")
    peer = ScriptedPeer([*[(0.0, clear)] * 15, (1.0, clear)])
    held(peer, lambda _session: asyncio.sleep(2), burst_messages=10, messages_per_s=10)
    assert set(peer.codes()) == {"rate_limited"}
    assert peer.sent[-1]["type"] == "input_audio_buffer.cleared"
    assert len([m for m in peer.sent if m["type"].endswith("cleared")]) == 11


def test_a_client_that_keeps_the_loop_busy_is_read_more_slowly_and_loses_nothing():
    peer = ScriptedPeer([message for number in range(20) for message in typed(f"Tea {number}.")])
    done: list[int] = []

    async def during(session: SocketCall) -> None:
        came = 0

        async def act(_action: Action) -> None:
            nonlocal came
            came += 1
            until_ns = time.thread_time_ns() + 30_000_000
            while time.thread_time_ns() < until_ns:
                pass

        await session.attend(act)
        for wait_s in (1, 30):
            await asyncio.sleep(wait_s)
            done.append(came)

    held(peer, during, busy_ms_per_s=50)
    # A burst of 250 ms, and one that began within it.
    assert 8 <= done[0] <= 11
    assert done[1] == 20


def test_a_client_that_sends_more_bytes_than_its_share_is_read_more_slowly():
    clear = event("input_audio_buffer.clear", event_id="x" * 40_000)
    peer = ScriptedPeer([(0.0, clear)] * 10)
    held(peer, second, bytes_per_s=10_000, burst_bytes=100_000)
    assert len([m for m in peer.sent if m["type"].endswith("cleared")]) == 3


def test_a_client_that_does_not_read_is_given_up_when_too_much_waits():
    peer = ScriptedPeer([])

    async def during(session: SocketCall) -> None:
        peer.reads.clear()
        for number in range(100):
            session.happen(ReplyBegan(f"reply-{number}"))
        assert session.gone.is_set()
        peer.reads.set()

    held(peer, during, most_unsent_bytes=10_000)
    assert peer.closed == (1013, "what you were sent was not read")


def test_a_client_that_takes_too_long_over_one_message_is_given_up():
    peer = ScriptedPeer([])

    async def during(session: SocketCall) -> None:
        peer.reads.clear()
        session.happen(ReplyBegan("a"))
        await asyncio.sleep(2.5)
        assert session.gone.is_set()

    held(peer, during, send_s=2)
    assert peer.closed == (1013, "what you were sent was not read")


def test_what_comes_before_anybody_acts_is_done_in_order_and_one_that_fails_holds_up_no_other():
    peer = ScriptedPeer([*typed("One."), *typed("Two."), *typed("Three.")])
    done: list[str] = []

    async def during(session: SocketCall) -> None:
        await asyncio.sleep(0.5)

        async def act(action: Action) -> None:
            assert isinstance(action, Typed)
            if action.text == "Two.":
                raise ProtocolError("not that", code="not_supported")
            done.append(action.text)

        await session.attend(act)
        await asyncio.sleep(0.5)

    held(peer, during)
    assert done == ["One.", "Three."]
    assert peer.codes() == ["not_supported"]


def test_what_a_deployment_cannot_do_is_refused_before_any_of_it_is_done():
    def check(action: Action) -> None:
        if isinstance(action, SessionUpdate | Pictures):
            raise ProtocolError("not here", code="not_supported", param="session.tools")

    peer = ScriptedPeer([(0.1, event("session.update", session={"instructions": "Be kind."}))])
    session = held(peer, second, check=check)
    assert session.requested == SessionUpdate()
    assert [message["type"] for message in peer.sent] == ["session.created", "error"]


def test_who_is_gone_ends_both_tasks_and_is_told_nothing_more():
    peer = ScriptedPeer([], stays_s=0.5)

    async def during(session: SocketCall) -> None:
        await asyncio.sleep(1)
        assert session.gone.is_set()
        session.happen(ReplyBegan("a"))

    held(peer, during)
    assert [message["type"] for message in peer.sent] == ["session.created"]


def test_a_client_that_still_sends_when_the_call_is_over_is_not_heard():
    append = event("input_audio_buffer.append", audio="AAAAAAAA")
    peer = ScriptedPeer([(0.01, append)] * 10_000)
    session = held(peer, second)
    assert session.line.held_ms == 0
    assert peer.codes() == []
    assert peer.closed == (1000, "stopped")


def test_a_turn_that_was_recorded_is_heard_at_once_where_the_pipeline_can():
    async def during(session: SocketCall) -> None:
        session.hear_at_once()
        await session._do(Speech(bytes(24_000 * 2 * 3), is_whole=True))
        heard = 0
        while isinstance(taken := session.take(), bytes):
            heard += len(taken)
        assert heard > 16_000 * 2 * 2.9

    held(ScriptedPeer([]), during)


@pytest.mark.parametrize("text", ["[]", '"x"', "1" * 10_000])
def test_no_json_ends_the_reader(text: str):
    peer = ScriptedPeer([(0.1, text), (0.1, event("input_audio_buffer.clear"))])
    held(peer, second)
    assert peer.sent[-1]["type"] == "input_audio_buffer.cleared"


def opus_messages(count: int, ms: int) -> list[tuple[float, str]]:
    encoder, format_ = PcmEncoder(), Format(Codec.OGG_OPUS, 24_000)
    pages = (encoder.encode(bytes(24 * ms * 2), 24_000, format_) for _ in range(count))
    return [
        (0.0, event("input_audio_buffer.append", audio=base64.b64encode(page).decode())) for page in pages
    ]


def opus_session(peer: ScriptedPeer, **settings: Any) -> SocketCall:
    return SocketCall(peer, Unmute(), settings=SocketTuning(**settings), rate_hz=16_000)


def test_opus_is_decoded_at_the_pace_of_speech_however_much_of_it_is_sent_at_once():
    peer = ScriptedPeer(opus_messages(10, 4_000), stays_s=10.0)
    decoded_ms: list[int] = []

    async def listen() -> None:
        session = opus_session(peer)
        session.open()
        for _ in range(40):
            while isinstance(taken := session.take(), bytes):
                assert len(taken) <= 16 * 2 * 220
                decoded_ms.append(len(taken) // 32)
            await asyncio.sleep(0.05)
        await session.close()

    run(listen())
    assert 1_900 <= sum(decoded_ms) <= 2_300


def test_opus_for_which_there_is_no_room_is_refused_undecoded():
    peer = ScriptedPeer(opus_messages(8, 4_000), stays_s=1.0)

    async def listen() -> None:
        session = opus_session(peer, line_ms=10_000)
        session.open()
        await asyncio.sleep(0.5)
        # With the two headers of the stream.
        assert session.line.held_ms == 8_005
        await session.close()

    run(listen())
    assert peer.codes() == ["too_fast"] * 6


def test_headers_without_sound_are_bounded_as_speech_is():
    heads = b"".join(OggWriter(1).page(b"OpusHead" + bytes(11), 0) for _ in range(500))
    append = event("input_audio_buffer.append", audio=base64.b64encode(heads).decode())
    peer = ScriptedPeer([*opus_messages(1, 4_000), *[(0.0, append)] * 20], stays_s=1.0)

    async def listen() -> None:
        session = opus_session(peer, line_ms=10_000)
        session.open()
        await asyncio.sleep(0.5)
        assert 4_000 <= session.line.held_ms <= 10_000
        await session.close()

    run(listen())
    assert "too_fast" in peer.codes()


def test_opus_that_cannot_be_decoded_is_refused_and_what_follows_is_heard():
    headless = PcmEncoder().encode(bytes(24 * 2 * 100), 24_000, Format(Codec.OGG_OPUS, 24_000))
    headless = headless[headless.index(b"OggS", 4) :]
    append = event("input_audio_buffer.append", audio=base64.b64encode(headless).decode())
    peer = ScriptedPeer([(0.0, append), *opus_messages(1, 100)], stays_s=1.0)
    heard: list[bytes] = []

    async def listen() -> None:
        session = opus_session(peer)
        session.open()
        for _ in range(10):
            while isinstance(taken := session.take(), bytes):
                heard.append(taken)
            await asyncio.sleep(0.05)
        await session.close()

    run(listen())
    assert set(peer.codes()) == {"invalid_payload"}
    assert len(b"".join(heard)) > 16 * 2 * 80


def test_speech_that_comes_faster_than_its_rate_is_refused_whatever_is_heard_of_it():
    piece = base64.b64encode(bytes(9_600)).decode()
    peer = ScriptedPeer([(0.01, event("input_audio_buffer.append", audio=piece))] * 60)

    async def during(session: SocketCall) -> None:
        # All audio is passed on at once: the line is never full.
        for _ in range(200):
            session.line.clear()
            await asyncio.sleep(0.005)

    held(peer, during, line_ms=4_000, audio_s_per_s=1)
    # Two lines at once, and the room that is freed meanwhile, to a piece: 8.6 s of the 12.
    assert set(peer.codes()) == {"too_fast"} and 17 <= len(peer.codes()) <= 18


async def until_gone(session: SocketCall) -> None:
    await asyncio.wait_for(session.gone.wait(), 10_000)


def gone_after_s(peer: ScriptedPeer, **settings: Any) -> float:
    """Return the time at which a client was dropped that would have stayed for an hour."""
    times: list[float] = []

    async def during(session: SocketCall) -> None:
        await until_gone(session)
        times.append(session.now_ms / 1000)

    held(peer, during, **settings)
    return times[0]


def test_a_client_that_says_nothing_is_given_up():
    peer = ScriptedPeer([], stays_s=3_600)
    assert gone_after_s(peer, open_s=30) == pytest.approx(30, abs=0.1)
    assert peer.closed == (1000, "timeout")


def test_a_client_that_says_nothing_that_matters_is_given_up_too():
    peer = ScriptedPeer([(1.0, "{}")] * 49, stays_s=3_600)
    assert gone_after_s(peer, open_s=30) == pytest.approx(30, abs=0.1)


def test_a_client_in_the_queue_for_a_line_has_its_time_from_the_moment_that_it_has_one():
    peer = ScriptedPeer([], stays_s=3_600)
    gone_s: list[float] = []

    async def during(session: SocketCall) -> None:
        for position in (2, 1):
            session.queued(QueueUpdate(position))
            await asyncio.sleep(100)
        assert not session.gone.is_set()
        session.queued(QueueUpdate(0))
        began_ms = session.now_ms
        await until_gone(session)
        gone_s.append((session.now_ms - began_ms) / 1000)

    held(peer, during, open_s=30)
    assert gone_s == [pytest.approx(30, abs=0.1)]


def test_a_client_that_has_spoken_has_longer_from_its_last_word_on():
    peer = ScriptedPeer(
        [(20.0, event("session.update", session={"type": "realtime"})), *typed("Tea.")], stays_s=3_600
    )
    assert gone_after_s(peer, open_s=30, idle_s=300) == pytest.approx(320, abs=1)


def test_a_client_that_listens_is_kept():
    peer = ScriptedPeer([*typed("Tea.")], stays_s=2_000)

    async def during(session: SocketCall) -> None:
        for number in range(10):
            await asyncio.sleep(100)
            session.happen(ReplyBegan(f"reply-{number}"))
        assert not session.gone.is_set()

    held(peer, during, open_s=30, idle_s=300)


def test_a_client_that_has_never_said_anything_is_not_kept_by_what_the_bot_says():
    peer = ScriptedPeer([], stays_s=2_000)
    gone: list[bool] = []

    async def during(session: SocketCall) -> None:
        for number in range(4):
            await asyncio.sleep(10)
            session.happen(ReplyBegan(f"reply-{number}"))
        gone.append(session.gone.is_set())

    held(peer, during, open_s=30, idle_s=300)
    assert gone == [True]


def test_the_first_word_is_told_once():
    words: list[None] = []

    async def scene() -> None:
        session = SocketCall(
            ScriptedPeer([(0.1, "{"), *typed("Tea."), *typed("Milk.")]),
            OpenAIRealtime("m"),
            rate_hz=16_000,
            on_first_word=lambda: words.append(None),
        )
        session.open()
        await asyncio.sleep(0.1)
        assert not words
        await asyncio.sleep(1)
        await session.close()

    run(scene())
    assert words == [None]
