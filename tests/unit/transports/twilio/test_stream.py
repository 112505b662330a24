"""A media stream over a line with delays, marks and stalls, and a peer that misbehaves."""

import asyncio
import base64
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from typing import Any

import pytest
from loguru import logger

from parley.core.media import PCM_BYTES_PER_SAMPLE
from parley.processors.playout.heard import HeardClock, PlayoutSettings
from parley.transports.twilio.stream import PhoneStream, PhoneTuning
from tests import virtual_time
from tests.unit.transports.twilio.twilio_side import NOISE, SPEECH, TwilioSide, audio

A_SECOND = SPEECH * 50


def run(scenario: Coroutine[Any, Any, None]) -> None:
    virtual_time.run(scenario)


class Ears:
    """Listener that records the caller's audio and keys."""

    def __init__(self, played: Callable[[bytes], object] = bytes) -> None:
        self.played = played
        self.heard = bytearray()
        self.keys = ""
        self.delays: list[tuple[int, int]] = []
        self.is_over = False

    def hear(self, pcm: bytes) -> None:
        self.heard += pcm

    def key(self, digit: str) -> None:
        self.keys += digit

    def delay(self, delay_ms: int, unplayed_ms: int) -> None:
        self.delays.append((delay_ms, unplayed_ms))

    def over(self) -> None:
        self.is_over = True


@asynccontextmanager
async def call(side: TwilioSide, *, comfort: bool = True, **settings: Any) -> AsyncIterator[PhoneStream]:
    stream = PhoneStream(
        side, PhoneTuning(**settings), comfort=(lambda: NOISE) if comfort else None, call_sid="CA1"
    )
    side.begin()
    await stream.open()
    stream.listen(Ears())
    try:
        yield stream
    finally:
        await stream.close()


def now_s() -> float:
    return asyncio.get_running_loop().time()


@pytest.fixture
def log() -> Any:
    lines: list[str] = []
    sink = logger.add(lambda line: lines.append(str(line)), level="INFO", format="{message}")
    yield lines
    logger.remove(sink)


# Heard audio.


@pytest.mark.parametrize("ways_s", [(0.0, 0.0), (0.15, 0.15), (0.05, 0.3), (0.3, 0.05)])
@pytest.mark.parametrize("marks", [True, False])
def test_what_was_heard_at_a_barge_in_is_what_was_played_when_the_clear_got_there(
    ways_s: tuple[float, float], marks: bool
):
    async def scenario() -> None:
        side = TwilioSide(*ways_s, returns_marks=marks)
        async with call(side) as stream:
            heard_clock = HeardClock(PlayoutSettings(flushes=True))
            heard_clock.set_unplayed_ms(0)

            def note(mu_law: bytes) -> None:
                heard_clock.played(len(mu_law) * 125, round(now_s() * 1_000_000))

            ears = Ears(note)
            stream.listen(ears)
            for name in ("r1", "r2"):
                await asyncio.sleep(1.0)
                heard_clock.open(name)
                heard_clock.part_begins(name)
                heard_clock.queued(name, 5_000_000)
                heard_clock.speaks(name)
                speaking = asyncio.create_task(say(stream, heard_clock))
                await asyncio.sleep(2.337)
                for delay_ms, unplayed_ms in ears.delays[-1:]:
                    heard_clock.set_delay_ms(delay_ms)
                    heard_clock.set_unplayed_ms(unplayed_ms)
                at_s, before_ms = now_s(), side.heard_ms(now_s() - 2.5 - ways_s[0])
                stream.clear()
                [reply] = heard_clock.interrupted(round(at_s * 1_000_000))
                speaking.cancel()
                await asyncio.sleep(1.0)
                really_ms = side.heard_ms(side.cleared_at_s[-1]) - before_ms
                assert abs(reply.mark.audio_ms - really_ms) <= 20, (name, ears.delays[-3:])
            if marks:
                # The delay itself is the whole path: its time is correct, its amount is not.
                assert abs(stream.marks.delay_ms - 1000 * sum(ways_s)) <= 25

    async def say(stream: PhoneStream, heard_clock: HeardClock) -> None:
        for _ in range(10):
            heard_clock.written(500_000, round(now_s() * 1_000_000))
            await stream.say(SPEECH * 25)
            stream.mark()

    run(scenario())


def test_what_has_its_time_at_a_clear_is_told_before_the_rest_is_forgotten():
    async def scenario() -> None:
        side, played = TwilioSide(), bytearray()
        async with call(side, comfort=False, lead_ms=200) as stream:
            stream.listen(Ears(played.extend))
            saying = asyncio.create_task(stream.say(A_SECOND))
            await asyncio.sleep(0.5)
            # The loop is late: nothing ran for 100 ms.
            stream._clock = Later(stream._clock, 100_000)  # type: ignore[assignment]
            stream.clear()
            assert 0.58 <= len(played) / 8000 <= 0.64
            assert not await saying

    class Later:
        def __init__(self, clock: Any, by_us: int) -> None:
            self._clock, self._by_us = clock, by_us

        def now_us(self) -> int:
            return self._clock.now_us() + self._by_us

    run(scenario())


def test_a_clear_goes_before_packets_that_are_due_and_a_slow_socket_holds_back_no_books():
    async def scenario() -> None:
        side, received = TwilioSide(returns_marks=False), []
        async with call(side, lead_ms=200) as stream:
            stream.listen(Ears(received.append))
            await asyncio.sleep(0.1)
            side.takes_s = 0.03
            saying = asyncio.create_task(stream.say(SPEECH * 30))
            # Each packet takes longer than it plays: one is always due, and the writer never rests.
            await asyncio.sleep(1.0)
            assert len(received) > 20
            before = len(side.got)
            stream.clear()
            await asyncio.sleep(0.1)
            events = [said["event"] for _, said in side.got[before:]]
            # The packet that was being sent, and then nothing of the reply.
            assert events.index("clear") <= 1
            behind = [
                said for _, said in side.got[before + events.index("clear") :] if said["event"] == "media"
            ]
            assert SPEECH not in [base64.b64decode(said["media"]["payload"]) for said in behind]
            await saying

    run(scenario())


def test_what_stands_in_a_stalled_connection_is_not_played_and_noise_does_not_keep_it():
    async def scenario() -> None:
        side, played = TwilioSide(0.05, 0.05), bytearray()
        async with call(side) as stream:
            stream.listen(Ears(played.extend))
            for _ in range(4):
                await stream.say(SPEECH * 25)
                stream.mark()
            await asyncio.sleep(1.0)
            assert len(played) == 4 * 25 * 160
            began_s = now_s()
            side.stalled_until_s = began_s + 4.0
            talking = asyncio.create_task(talk(stream))
            await asyncio.sleep(3.5)
            # Of three seconds and a half a little more than a mark's length and its tolerance.
            told_s = len(played) / 8000 - 2.0
            assert told_s < 1.4, told_s
            await talking
            await asyncio.sleep(8.0)
            # All of it was played in the end, and reported.
            assert len(played) / 8000 == pytest.approx(2.0 + 5.0)
            assert stream.marks.excess_ms > 3_000
            # New speech is sent at once.
            said_s = now_s()
            await stream.say(SPEECH * 25)
            stream.mark()
            await asyncio.sleep(1.0)
            [first_s, *_] = [at_s for at_s, data in side.played if data == SPEECH and at_s > said_s]
            assert first_s - said_s < 0.15
            assert stream.marks.excess_ms < 50

    async def talk(stream: PhoneStream) -> None:
        for _ in range(10):
            await stream.say(SPEECH * 25)
            stream.mark()

    run(scenario())


def test_nothing_is_sent_into_a_line_from_which_nothing_comes_but_speech():
    async def scenario() -> None:
        side = TwilioSide(audio_s=1.0)
        async with call(side) as stream:
            await asyncio.sleep(3.0)
            assert len(side.played) * 0.02 == pytest.approx(1.2, abs=0.1)
            assert 1_900 <= stream.quiet_ms <= 2_100
            await stream.say(A_SECOND)
            await asyncio.sleep(1.0)
            assert side.heard_ms(now_s()) == pytest.approx(1_000, abs=1)

    run(scenario())


def test_marks_that_are_lost_hold_nothing_back_for_ever():
    async def scenario() -> None:
        side, played = TwilioSide(0.05, 0.05), bytearray()
        async with call(side, comfort=False) as stream:
            stream.listen(Ears(played.extend))
            await stream.say(SPEECH * 25)
            stream.mark()
            await asyncio.sleep(1.0)
            side.returns_marks = False
            for _ in range(4):
                await stream.say(SPEECH * 25)
                stream.mark()
            await asyncio.sleep(14.0)
            assert len(played) == 5 * 25 * 160

    run(scenario())


# The end of speech.


@pytest.mark.parametrize("marks", [True, False])
def test_who_waits_for_the_last_word_waits_until_it_was_played(marks: bool):
    async def scenario() -> None:
        side = TwilioSide(0.1, 0.1, returns_marks=marks)
        async with call(side) as stream:
            await asyncio.sleep(0.5)
            await stream.say(A_SECOND)
            assert await stream.played_out(5.0)
            assert side.heard_ms(now_s()) == pytest.approx(1_000, abs=1)

    run(scenario())


def test_who_waits_for_the_last_word_is_told_that_it_was_dropped_or_that_no_one_is_there():
    async def scenario() -> None:
        side = TwilioSide(0.1, 0.1)
        async with call(side) as stream:
            for end in (stream.clear, lambda: side.incoming.put_nowait(None)):
                saying = asyncio.create_task(stream.say(A_SECOND))
                waiting = asyncio.create_task(stream.played_out(5.0))
                await asyncio.sleep(0.3)
                began_s = now_s()
                end()
                assert not await waiting and not await saying
                assert now_s() - began_s < 0.05
            assert not await stream.played_out(5.0) and not await stream.say(A_SECOND)

    run(scenario())


def test_a_line_that_takes_too_long_is_not_waited_for():
    async def scenario() -> None:
        side = TwilioSide(0.1, 0.1)
        async with call(side) as stream:
            await asyncio.sleep(0.5)
            side.stalled_until_s = now_s() + 60
            await stream.say(SPEECH * 25)
            began_s = now_s()
            assert not await stream.played_out(5.0)
            assert now_s() - began_s == pytest.approx(5.0)
            assert not stream._waits

    run(scenario())


# Keys.


def test_tones_leave_in_their_turn_and_are_nobodys_speech():
    async def scenario() -> None:
        side, played, tone = TwilioSide(), bytearray(), b"\x21" * 500
        async with call(side, comfort=False) as stream:
            stream.listen(Ears(played.extend))
            await stream.say(SPEECH * 3)
            began_s = now_s()
            assert stream.press(tone) and now_s() == began_s
            await stream.say(SPEECH * 2)
            await asyncio.sleep(0.5)
            assert bytes(played) == SPEECH * 5
            sent = b"".join(data for _, data in side.played)
            assert sent == SPEECH * 3 + tone + b"\xff" * 140 + SPEECH * 2
            assert all(stream.press(tone * 16) for _ in range(21)) and not stream.press(tone)

    run(scenario())


def test_keys_are_pressed_to_their_end_a_caller_who_speaks_meanwhile():
    async def scenario() -> None:
        side, tone = TwilioSide(), b"\x21" * 800
        async with call(side, comfort=False) as stream:
            assert all(stream.press(tone) for _ in range(5))
            waits = asyncio.create_task(stream.say(SPEECH * 30))
            await asyncio.sleep(0.2)
            stream.clear()
            assert not await waits
            await asyncio.sleep(1)
            # The speech after them is dropped; no key is withdrawn.
            assert b"".join(data for _, data in side.played) == tone * 5
            assert side.cleared_at_s == []
            # Later speech is cleared as before.
            talks = asyncio.create_task(stream.say(SPEECH * 30))
            await asyncio.sleep(0.2)
            stream.clear()
            assert not await talks
            await asyncio.sleep(0.1)
            assert len(side.cleared_at_s) == 1

    run(scenario())


# Ends of a stream.


def test_books_that_fail_end_no_call(log: list[str]):
    async def scenario() -> None:
        def fail(_mu_law: bytes) -> None:
            raise ValueError("no such book")

        side = TwilioSide()
        async with call(side) as stream:
            stream.listen(Ears(fail))
            await stream.say(A_SECOND)
            await asyncio.sleep(1.0)
            assert not stream.gone.is_set() and side.heard_ms(now_s()) == pytest.approx(1_000, abs=1)

    run(scenario())
    assert sum("caller has heard failed" in line for line in log) == 1


@pytest.mark.parametrize("part", ["send", "comfort"])
def test_a_writer_that_fails_ends_the_call_and_says_so(part: str, log: list[str]):
    async def scenario() -> None:
        side = TwilioSide()

        def fail() -> bytes:
            raise ValueError("no noise")

        stream = PhoneStream(side, comfort=fail if part == "comfort" else None)
        side.begin()
        await stream.open()
        side.fails = part == "send"
        saying = asyncio.create_task(stream.say(A_SECOND))
        async with asyncio.timeout(1.0):
            await stream.gone.wait()
            assert not await saying
        assert stream.end[0] == "error"
        await stream.close()

    run(scenario())
    assert any("a phone stream failed" in line for line in log)


def test_a_caller_without_audio_is_gone_whatever_else_comes():
    async def scenario() -> None:
        side = TwilioSide(audio_s=1.0)
        async with call(side, silent_s=5.0) as stream:
            began_s = now_s()
            for _ in range(100):
                await asyncio.sleep(0.1)
                side.send_event("dtmf", dtmf={"track": "inbound_track", "digit": "1"})
                side.send_event("mark", mark={"name": "x"})
                side.incoming.put_nowait("{}")
                if stream.gone.is_set():
                    break
            assert stream.end[0] == "silent" and 5.8 <= now_s() - began_s <= 6.2

    run(scenario())


def test_the_stream_of_another_call_does_not_begin(log: list[str]):
    async def scenario() -> None:
        side = TwilioSide(call_sid="CA2")
        stream = PhoneStream(side, call_sid="CA1")
        side.begin()
        assert await stream.open() is None
        assert stream.end[0] == "wrong_call"
        await stream.close(stream.end[1])
        assert side.closed is not None

    run(scenario())
    assert any("another call" in line for line in log)


def test_a_call_that_never_begins_is_over():
    async def scenario() -> None:
        side = TwilioSide()
        stream = PhoneStream(side, PhoneTuning(start_s=3.0))
        began_s = now_s()
        assert await stream.open() is None and now_s() - began_s == pytest.approx(3.0)
        assert stream.end[0] == "no_start"
        await stream.close()

    run(scenario())


def test_a_flood_of_what_cannot_be_read_is_a_line_a_second_and_ends_only_when_it_is_in_a_row(log: list[str]):
    async def scenario() -> None:
        side = TwilioSide()
        async with call(side) as stream:
            for _ in range(100):
                await asyncio.sleep(0.02)
                for _ in range(5):
                    side.incoming.put_nowait("no json")
            await asyncio.sleep(0.1)
            assert not stream.gone.is_set() and stream.refused == 500
            for _ in range(60):
                side.incoming.put_nowait("no json")
            await asyncio.sleep(0.01)
            assert stream.end[0] == "refused"

    run(scenario())
    assert 2 <= sum("is ignored" in line for line in log) <= 4
    assert any("more before it" in line for line in log)


def test_wrong_places_are_logged_once_and_heard(log: list[str]):
    async def scenario() -> None:
        side = TwilioSide(audio_s=0)
        async with call(side) as stream:
            ears = Ears()
            stream.listen(ears)
            for number in range(2, 102):
                side.incoming.put_nowait(audio(number, 10**12 if number == 10 else 20 * number))
                await asyncio.sleep(0.02)
            assert len(ears.heard) / PCM_BYTES_PER_SAMPLE / 8 == pytest.approx(2_000, abs=40)

    run(scenario())
    assert sum("counted anew" in line for line in log) == 1


def test_what_came_before_anybody_listened_is_heard_and_so_is_the_end():
    async def scenario() -> None:
        side, ears = TwilioSide(audio_s=0.5), Ears()
        stream = PhoneStream(side)
        side.begin()
        await stream.open()
        await asyncio.sleep(1.0)
        side.send_event("dtmf", dtmf={"track": "inbound_track", "digit": "5"})
        side.send_event("stop", stop={})
        await asyncio.sleep(0.1)
        stream.listen(ears)
        assert len(ears.heard) == 8_000 and ears.keys == "5" and ears.is_over
        await stream.close()

    run(scenario())


def test_what_is_sent_is_what_was_said():
    async def scenario() -> None:
        side = TwilioSide()
        said = base64.b64decode("AAECAwQFBgc=") * 100
        async with call(side, comfort=False) as stream:
            await stream.say(said)
            assert await stream.played_out(2.0)
            assert b"".join(data for _, data in side.played) == said

    run(scenario())
