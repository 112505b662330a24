"""Recognisers and voices in a worker, and their clients, over real sockets."""

import asyncio
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from websockets.asyncio.client import connect

from parley.core.errors import CapacityError, EngineBusyError, EngineError
from parley.models.stt.hosted.engine import WorkerStt, WorkerSttSettings
from parley.models.tts import SpeechPiece
from parley.models.tts.hosted.engine import WorkerTts, WorkerTtsSettings
from parley.runtime.engine_hosting.codec import encode
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType
from parley.serving.worker.lifecycle import LifecycleState
from parley.serving.worker.streams import HostedRecogniser, HostedVoice
from tests.fakes.slow_streams import GatedStt, GatedTts
from tests.fakes.worker import OPENED_WITHIN_S, SECRET_ENV, Served, shared_secret, worker
from tests.unit.serving.worker.test_server import eventually, first, hear

QUIET = bytes(640)
HELD = b"\1" + bytes(639)


@pytest.fixture
def engine() -> Iterator[GatedStt]:
    made = GatedStt()
    yield made
    made.gate.set()


def recogniser(engine: GatedStt, streams: int = 2, **limits: Any) -> Any:
    return worker(lambda: HostedRecogniser(engine, "gated", streams=streams), **limits)


def voice(engine: GatedTts, streams: int = 4, **limits: Any) -> Any:
    return worker(lambda: HostedVoice(engine, "gated", streams=streams), **limits)


def reached(served: Served) -> dict[str, Any]:
    """Return an engine's settings for the worker, with the timeout that one interpreter for both needs."""
    return {"url": served.url, "secret_env": shared_secret(), "open_timeout_s": OPENED_WITHIN_S}


def ears(served: Served, **more: Any) -> WorkerStt:
    return WorkerStt(WorkerSttSettings.model_validate(reached(served) | more))


def mouth(served: Served, **more: Any) -> WorkerTts:
    return WorkerTts(WorkerTtsSettings.model_validate(reached(served) | more))


def said(engine: WorkerTts, text: str) -> bytes:
    pieces: list[bytes] = []

    def sink(piece: SpeechPiece) -> bool:
        pieces.append(piece.pcm)
        return True

    assert engine.synthesize(text, sink)
    return b"".join(pieces)


# Numbers of streams.


def test_one_stream_too_many_is_refused_with_the_reason_and_taken_when_one_is_given_back(
    engine: GatedStt,
) -> None:
    with recogniser(engine) as served:
        hosted = ears(served)
        one, two = hosted.open_stream(), hosted.open_stream()
        facts = served.server.facts()
        assert (facts["kind"], facts["state"], facts["streams"], engine.open) == ("stt", "busy", 2, 2)
        with pytest.raises(EngineBusyError, match="all 2 slots are in use"):
            hosted.open_stream()
        one.close()
        three = hosted.open_stream()
        assert served.server.facts()["streams"] == 2
        two.close()
        three.close()
        assert served.server.state is LifecycleState.IDLE and engine.open == 0


def test_each_stream_has_a_lease_of_its_own(engine: GatedStt) -> None:
    with recogniser(engine) as served:
        hosted = ears(served)
        streams = [hosted.open_stream(), hosted.open_stream()]
        assert len({held["session_id"] for held in served.server.facts()["held"]}) == 2
        for stream in streams:
            stream.close()


async def test_a_caller_who_vanishes_leaves_nothing_behind(engine: GatedStt) -> None:
    with recogniser(engine, lease_ms=300) as served:
        await asyncio.to_thread(ears, served)
        socket = await connect(served.url)
        await socket.send(encode(first(served)))
        assert (await hear(socket)).type is MessageType.LEASED
        await socket.send(encode(EngineMessage(MessageType.START, 1)))
        assert (await hear(socket)).type is MessageType.DONE and engine.open == 1
        socket.transport.abort()
        await asyncio.to_thread(
            eventually, lambda: engine.open == 0 and served.server.state is LifecycleState.IDLE
        )


async def test_what_makes_no_sense_is_answered_and_the_stream_goes_on(engine: GatedStt) -> None:
    with recogniser(engine) as served:
        await asyncio.to_thread(ears, served)
        async with connect(served.url) as socket:
            await socket.send(encode(first(served)))
            await hear(socket)
            for number, message in enumerate(
                [
                    EngineMessage(MessageType.SPEAK, 1, {"text": "hello"}),
                    EngineMessage(MessageType.PREFILL, 2),
                    EngineMessage(MessageType.AUDIO, 3, payload=QUIET),
                ],
                1,
            ):
                await socket.send(encode(message))
                answer = await hear(socket)
                assert (answer.type, answer.number) == (MessageType.FAILED, number)
            await socket.send(encode(EngineMessage(MessageType.START, 4)))
            assert (await hear(socket)).type is MessageType.DONE


@pytest.mark.parametrize("text", ["x" * 10_001, None, 7])
async def test_a_voice_says_no_novel_and_nothing_that_is_no_text(text: object) -> None:
    with voice(GatedTts()) as served:
        await asyncio.to_thread(mouth, served)
        async with connect(served.url) as socket:
            await socket.send(encode(first(served)))
            await hear(socket)
            await socket.send(encode(EngineMessage(MessageType.SPEAK, 1, {"text": text})))
            assert (await hear(socket)).type is MessageType.FAILED


# Slow engines, and engines that hang.


def test_a_call_that_hangs_holds_no_one_elses_stream(engine: GatedStt) -> None:
    with recogniser(engine) as served:
        hosted = ears(served, request_timeout_s=5)
        hangs, works = hosted.open_stream(), hosted.open_stream()
        hangs.start()
        works.start()
        engine.gate.clear()
        held = threading.Thread(target=lambda: hangs.feed(HELD), daemon=True)
        held.start()
        assert engine.entered.wait(5)
        partial = works.feed(QUIET)
        assert partial is not None and partial.text == "640"
        engine.gate.set()
        held.join(5)
        hangs.close()
        works.close()


def test_an_overdue_call_makes_the_worker_suspect_until_it_returns_and_the_others_go_on(
    engine: GatedStt,
) -> None:
    with recogniser(engine, call_ms=200, grace_ms=5_000) as served:
        hosted = ears(served, request_timeout_s=5)
        hangs, works = hosted.open_stream(), hosted.open_stream()
        hangs.start()
        works.start()
        engine.gate.clear()
        with pytest.raises(EngineError, match="hung"):
            hangs.feed(HELD)
        assert served.server.state is LifecycleState.SUSPECT
        assert works.feed(QUIET) is not None
        with pytest.raises(EngineBusyError, match="suspect"):
            hosted.open_stream()
        engine.gate.set()
        eventually(lambda: served.server.state is LifecycleState.BUSY)
        assert engine.open == 1 and works.feed(QUIET) is not None
        hosted.open_stream().close()
        works.close()
        assert served.server.state is LifecycleState.IDLE


def test_a_call_that_never_returns_ends_the_worker_with_its_status(engine: GatedStt) -> None:
    with recogniser(engine, call_ms=100, grace_ms=100) as served:
        hosted = ears(served, request_timeout_s=5)
        hangs, works = hosted.open_stream(), hosted.open_stream()
        hangs.start()
        engine.gate.clear()
        with pytest.raises(EngineError):
            hangs.feed(HELD)
        eventually(lambda: served.server.state is LifecycleState.DEAD)
        with pytest.raises(EngineError):
            works.start()


def test_a_worker_that_does_not_answer_is_given_up_at_the_deadline(engine: GatedStt) -> None:
    with recogniser(engine) as served:
        stream = ears(served, request_timeout_s=0.3).open_stream()
        stream.start()
        engine.gate.clear()
        with pytest.raises(EngineError, match="not answered in time"):
            stream.feed(HELD)
        engine.gate.set()
        stream.close()


def test_a_defect_of_the_engine_ends_a_call_of_one_stream_and_is_not_told(engine: GatedStt) -> None:
    with recogniser(engine) as served:
        hosted = ears(served)
        stream = hosted.open_stream()
        stream.start()
        with pytest.raises(EngineError, match="the engine raised ValueError$"):
            stream.feed(b"\2" + bytes(639))
        stream.close()
        hosted.open_stream().close()


# Drain.


def test_a_worker_that_drains_lets_its_streams_go_on_and_takes_no_more(engine: GatedStt) -> None:
    with recogniser(engine) as served:
        hosted = ears(served)
        speaks, rests = hosted.open_stream(), hosted.open_stream()
        speaks.start()
        served.loop.call_soon_threadsafe(served.server.drain)
        eventually(lambda: served.server.state is LifecycleState.DRAINING)
        with pytest.raises(EngineBusyError, match="draining"):
            hosted.open_stream()
        # A stream between two utterances loses nothing by going elsewhere.
        with pytest.raises(EngineError, match="drained|lost"):
            rests.start()
        speaks.feed(QUIET)
        assert speaks.finish().text == "640"
        eventually(lambda: served.server.state is LifecycleState.DEAD)


def test_a_voice_that_drains_ends_after_the_clause_that_it_speaks() -> None:
    speaks, may_go_on = threading.Event(), threading.Event()

    def before(text: str, number: int) -> None:
        if number == 2:
            speaks.set()
            assert may_go_on.wait(10)

    with voice(GatedTts(before)) as served:
        hosted = mouth(served)
        heard: list[bytes] = []
        speaking = threading.Thread(target=lambda: heard.append(said(hosted, "aaaa")))
        speaking.start()
        assert speaks.wait(5)
        served.loop.call_soon_threadsafe(served.server.drain)
        eventually(lambda: served.server.state is LifecycleState.DRAINING)
        may_go_on.set()
        speaking.join(5)
        assert heard == [b"a" * 640 * 4]
        # The stream that is kept for the next clause does not hold it any longer.
        eventually(lambda: served.server.state is LifecycleState.DEAD)
        hosted.close()


# Abandoned speech.


def test_barge_in_stops_the_voice_and_nothing_of_it_is_in_the_next_clause() -> None:
    second = threading.Event()

    def before(text: str, number: int) -> None:
        if text[0] == "a" and number == 2:
            assert second.wait(10)

    engine = GatedTts(before)
    with voice(engine, streams=1) as served:
        hosted = mouth(served)
        taken: list[bytes] = []

        def sink(piece: SpeechPiece) -> bool:
            taken.append(piece.pcm)
            return b"".join(taken).count(b"a") < 1_280

        assert hosted.synthesize("a" * 50, sink) is False
        heard: list[bytes] = []
        speaking = threading.Thread(target=lambda: heard.append(said(hosted, "bbbb")))
        speaking.start()
        # The worker has received the barge-in, and has the next clause waiting after the engine's call.
        [conversation] = served.server._conversations.values()
        eventually(lambda: conversation._stopped == 1 and not conversation._questions.empty())
        second.set()
        speaking.join(5)
        assert heard == [b"b" * 640 * 4]
        assert engine.stopped == ["a" * 50] and engine.made["a" * 50] == 3
        hosted.close()


def test_a_listener_who_leaves_while_the_engine_makes_nothing_is_not_waited_for() -> None:
    may_go_on = threading.Event()
    has_left = threading.Event()

    def before(text: str, number: int) -> None:
        if number == 1:
            # Set inside the engine: a clause that is abandoned before it is begun is never begun.
            has_left.set()
            assert may_go_on.wait(60)

    engine = GatedTts(before)
    with voice(engine) as served:
        hosted = mouth(served)
        assert hosted.synthesize("a" * 50, lambda _piece: not has_left.is_set()) is False
        [conversation] = served.server._conversations.values()
        eventually(lambda: conversation._stopped == 1)
        may_go_on.set()
        eventually(lambda: engine.stopped == ["a" * 50])
        hosted.close()


async def test_a_listener_who_does_not_read_holds_no_one_else_and_has_its_clause_broken_off() -> None:
    """A listener that does not read does not block the others.

    The engine never waits: one voice may be locked for all.
    """
    engine = GatedTts()
    limits = {"waiting_bytes": 65_536, "call_ms": 60_000}
    with voice(engine, **limits) as served:
        hosted = await asyncio.to_thread(mouth, served)
        async with connect(served.url, max_queue=1) as socket:
            await socket.send(encode(first(served)))
            await hear(socket)
            socket.transport.pause_reading()
            # 12 MB of speech, for a client that reads only as much as the sockets' buffers hold.
            text = "z" * 9_999
            await socket.send(encode(EngineMessage(MessageType.SPEAK, 1, {"text": text})))
            # Less than ``call_ms``, after which the listener's clause is broken off.
            async with asyncio.timeout(30):
                assert await asyncio.to_thread(said, hosted, "aaaa") == b"a" * 640 * 4
            await asyncio.to_thread(eventually, lambda: engine.made.get(text, 0) > 0)
            socket.transport.abort()
        await asyncio.to_thread(eventually, lambda: served.server.facts()["streams"] == 1)
        assert engine.made[text] < len(text)
        await asyncio.to_thread(hosted.close)


def test_streams_that_no_clause_has_are_given_back_in_time() -> None:
    with voice(GatedTts()) as served:
        hosted = mouth(served, keep_s=0.2)
        said(hosted, "aa")
        assert served.server.facts()["streams"] == 1
        said(hosted, "bb")
        # The stream is the same one.
        assert served.server.facts()["streams"] == 1
        eventually(lambda: served.server.state is LifecycleState.IDLE)
        hosted.close()


def test_an_engines_error_reaches_a_caller_who_asked_and_the_clause_is_tried_once_more() -> None:
    fails = [True, False, True, True]

    def before(text: str, number: int) -> None:
        if number == 0 and fails.pop(0):
            raise EngineError("no breath", engine="gated")

    with voice(GatedTts(before)) as served:
        hosted = mouth(served)
        assert said(hosted, "aa") == b"a" * 1_280
        with pytest.raises(EngineError, match="no breath"):
            said(hosted, "bb")
        hosted.close()


def test_a_clause_that_broke_off_is_not_said_twice() -> None:
    def before(text: str, number: int) -> None:
        if number == 2:
            raise EngineError("no breath", engine="gated")

    engine = GatedTts(before)
    with voice(engine) as served:
        hosted = mouth(served)
        taken: list[bytes] = []

        def sink(piece: SpeechPiece) -> bool:
            taken.append(piece.pcm)
            return True

        with pytest.raises(EngineError, match="no breath"):
            hosted.synthesize("aaaa", sink)
        assert b"".join(taken) == b"a" * 1_280
        hosted.close()


def test_a_voice_that_is_full_is_not_asked_by_every_clause() -> None:
    with voice(GatedTts(), streams=1) as served:
        has, wants = mouth(served), mouth(served, rest_ms=60_000)
        said(has, "aa")
        with pytest.raises(EngineBusyError, match="1 slots are in use"):
            said(wants, "bb")
        has.close()
        eventually(lambda: served.server.state is LifecycleState.IDLE)
        with pytest.raises(EngineError, match="a moment ago"):
            said(wants, "bb")


def test_a_worker_that_was_started_again_is_spoken_to_anew() -> None:
    """A worker that was restarted can be used as soon as it has loaded its engine.

    The stream that was kept belongs to a process that is gone.
    """
    with voice(GatedTts()) as served:
        port = served.server.port
        hosted = mouth(served)
        said(hosted, "aa")
    with voice(GatedTts(), port=port) as again:
        # It listens before it has loaded its engine, and refuses streams until then.
        eventually(lambda: again.server.state is LifecycleState.IDLE)
        assert said(hosted, "bb") == b"b" * 1_280
    hosted.close()


def test_a_recogniser_is_no_voice(engine: GatedStt) -> None:
    from parley.core.errors import ConfigError

    with recogniser(engine) as served, pytest.raises(ConfigError, match="of kind 'stt', not 'tts'"):
        mouth(served)


def test_what_waits_to_be_taken_is_bounded_in_the_worker_itself() -> None:
    """Unread audio is bounded in the worker.

    The engine's call ends with the error.
    """
    errors: list[BaseException] = []

    class Tells(GatedTts):
        def synthesize(self, text: str, sink: Callable[[SpeechPiece], bool]) -> bool:
            try:
                return super().synthesize(text, sink)
            except CapacityError as error:
                errors.append(error)
                raise

    async def ask() -> None:
        with voice(Tells(), waiting_bytes=65_536) as served:
            await asyncio.to_thread(mouth, served)
            async with connect(served.url, max_queue=1) as socket:
                await socket.send(encode(first(served)))
                await hear(socket)
                socket.transport.pause_reading()
                await socket.send(encode(EngineMessage(MessageType.SPEAK, 1, {"text": "z" * 9_999})))
                await asyncio.to_thread(eventually, lambda: errors)
                socket.transport.abort()

    asyncio.run(ask())
    assert "does not read" in str(errors[0])


def test_the_secret_is_asked_for_before_anything_else(monkeypatch: pytest.MonkeyPatch) -> None:
    from parley.core.errors import ConfigError

    monkeypatch.setenv(SECRET_ENV, "short")
    settings = WorkerSttSettings(url="ws://127.0.0.1:9", secret_env=SECRET_ENV)
    with pytest.raises(ConfigError, match="at least 16 characters"):
        settings.check()
