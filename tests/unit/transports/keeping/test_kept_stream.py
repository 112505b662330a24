"""A call whose stream and conversation are in two processes: both sides in one virtual time."""

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from itertools import count, islice
from typing import Any

from parley.audio.holding_tone import holding_tone
from parley.core.call_events import (
    PrivatePauseBegan,
    PrivatePauseEnded,
    ReplyOpened,
    TurnEnded,
    TurnStarted,
)
from parley.protocols.kept_streams import APOLOGY, FILLER, HandedOver
from parley.runtime.conversation_settings import ConversationProcessTuning
from parley.runtime.engine_hosting.codec import FrameReader, encode_frame
from parley.runtime.engine_hosting.messages import EngineMessage
from parley.runtime.event_stream import CallEvents
from parley.transports.keeping.kept_stream import KeptStream
from parley.transports.keeping.remote_stream import AHEAD_MS, RemoteStream
from parley.transports.twilio.protocol import TwilioProtocol
from tests import virtual_time
from tests.unit.transports.twilio.test_stream import Ears
from tests.unit.transports.twilio.twilio_side import NOISE, SPEECH, TwilioSide, audio

A_SECOND = SPEECH * 50
CALL = {"call_sid": "CA1", "network": "twilio"}
# Loud audio of the caller, and two clauses that differ from all other sound.
VOICE, HOLDING, SORRY = b"\x20" * 160, b"\x30" * 160, b"\x31" * 160


class HandedSide(TwilioSide):
    """Twilio's side of a connection that was handed over."""

    async def open(self) -> None:
        self.begin()


@dataclass
class Split:
    """A call in two halves, which exchange frames as two processes do.

    Attributes:
        side: Twilio's.
        kept: half of the media process.
        remote: half of the present conversation process.
    """

    side: HandedSide
    settings: ConversationProcessTuning = field(default_factory=ConversationProcessTuning)
    clauses: Mapping[str, bytes] = field(default_factory=lambda: {FILLER: HOLDING * 10, APOLOGY: SORRY * 10})

    def __post_init__(self) -> None:
        self.kept = KeptStream(
            self.side,
            HandedOver(1, 7, "twilio", "CA1", dict(CALL), ""),
            line=None,
            protocol=TwilioProtocol(),
            settings=self.settings,
            clauses=self.clauses,
            send=self.to_conversation,
        )
        self.remote = self.new_remote()

    def new_remote(self) -> RemoteStream:
        return RemoteStream(7, None, send=self.to_media, forget=lambda _number: None)

    def to_media(self, message: EngineMessage, number: int) -> None:
        [(_, passed)] = FrameReader().feed(encode_frame(message, number))
        asyncio.get_running_loop().call_soon(self.kept.take, passed)

    def to_conversation(self, message: EngineMessage) -> None:
        [(_, passed)] = FrameReader().feed(encode_frame(message, 7))
        asyncio.get_running_loop().call_soon(self.remote.take, passed)

    def replace(self) -> Ears:
        """Give the call to a new process; return its listener."""
        self.remote = self.new_remote()
        self.kept.resume(self.to_conversation)
        ears = Ears()
        self.remote.listen(ears)
        return ears

    def played_from(self, packet: bytes) -> list[float]:
        return [at_s for at_s, data in self.side.played if data == packet]


@asynccontextmanager
async def split(**settings: Any) -> AsyncIterator[Split]:
    halves = Split(HandedSide(), ConversationProcessTuning(**settings))
    running = asyncio.create_task(halves.kept.run())
    assert await halves.remote.open() is not None
    try:
        yield halves
    finally:
        await halves.remote.close()
        halves.kept.end("the test is over")
        await running


def run(scenario: Coroutine[Any, Any, None]) -> None:
    virtual_time.run(scenario)


def test_audio_keys_and_playout_pass_through_both_halves():
    async def scenario() -> None:
        async with split() as halves:
            played = bytearray()
            ears = Ears(played.extend)
            halves.remote.listen(ears)
            halves.side.send_event("dtmf", dtmf={"track": "inbound_track", "digit": "5"})
            assert await halves.remote.say(A_SECOND)
            halves.remote.end_reply()
            assert await halves.remote.played_out(5)
            assert bytes(played) == A_SECOND and len(halves.played_from(SPEECH)) == 50
            assert ears.keys == "5" and halves.remote.keys.get_nowait()[0] == "5"
            assert len(ears.heard) > 16_000 * 0.9 and ears.delays
            assert halves.remote.quiet_ms < 100

    run(scenario())


def test_keys_that_the_bot_presses_follow_its_speech():
    async def scenario() -> None:
        async with split() as halves:
            halves.remote.listen(Ears())
            await halves.remote.say(SPEECH * 5)
            assert halves.remote.press(VOICE * 10)
            await halves.remote.say(SPEECH * 5)
            assert await halves.remote.played_out(5)
            tones, speech = halves.played_from(VOICE), halves.played_from(SPEECH)
            assert len(tones) == len(speech) == 10
            assert speech[4] < tones[0] and tones[-1] < speech[5]

    run(scenario())


def test_a_reply_is_hardly_ahead_of_its_playout():
    async def scenario() -> None:
        async with split() as halves:
            halves.remote.listen(Ears())
            loop = asyncio.get_running_loop()
            began_s = loop.time()
            for _ in range(25):
                await halves.remote.say(SPEECH * 2)
            # As in one process, and by ``AHEAD_MS`` more.
            assert 1.0 - (loop.time() - began_s) < 0.2 + AHEAD_MS / 1000

    run(scenario())


def test_an_interruption_drops_all_of_its_run_and_nothing_of_the_next():
    async def scenario() -> None:
        async with split() as halves:
            played = bytearray()
            halves.remote.listen(Ears(played.extend))
            saying = asyncio.create_task(halves.remote.say(A_SECOND))
            await asyncio.sleep(0.5)
            halves.remote.clear()
            assert not await saying
            before = len(played)
            await asyncio.sleep(0.5)
            assert len(played) == before < len(A_SECOND)
            await halves.remote.say(VOICE * 10)
            assert await halves.remote.played_out(5)
            assert bytes(played[before:]) == VOICE * 10
            assert len(halves.side.cleared_at_s) == 1

    run(scenario())


def test_a_lost_process_costs_its_caller_a_filler_and_the_new_one_goes_on():
    async def scenario() -> None:
        async with split() as halves:
            halves.remote.listen(Ears())
            saying = asyncio.create_task(halves.remote.say(A_SECOND))
            await asyncio.sleep(0.5)
            lost_s = asyncio.get_running_loop().time()
            halves.kept.lose()
            saying.cancel()
            await asyncio.sleep(2.0)
            assert max(halves.played_from(SPEECH)) < lost_s + 0.1
            fillers = halves.played_from(HOLDING)
            assert len(fillers) == 10 and lost_s < fillers[0] < lost_s + 1.0
            assert halves.side.closed is None
            played = bytearray()
            halves.replace()
            halves.remote.listen(Ears(played.extend))
            assert await halves.remote.open() is not None and halves.remote.call == CALL
            await halves.remote.say(VOICE * 10)
            assert await halves.remote.played_out(5)
            # The filler is not reported to the process as its own speech.
            assert bytes(played) == VOICE * 10
            assert len(halves.played_from(HOLDING)) == 10

    run(scenario())


def test_a_second_death_during_the_filler_leaves_the_next_process_its_playout():
    async def scenario() -> None:
        async with split() as halves:
            halves.kept.lose()
            await asyncio.sleep(0.5)
            halves.replace()
            await asyncio.sleep(0.02)
            # The filler has begun and is not over.
            assert 0 < len(halves.played_from(HOLDING)) < 10
            halves.kept.lose()
            await asyncio.sleep(2.0)
            played = bytearray()
            halves.replace()
            halves.remote.listen(Ears(played.extend))
            await halves.remote.say(VOICE * 10)
            assert await halves.remote.played_out(5)
            assert bytes(played) == VOICE * 10

    run(scenario())


def test_words_of_a_private_pause_are_not_heard_by_the_new_process_in_which_it_goes_on():
    async def scenario() -> None:
        async with private_call() as (halves, speak):
            events = CallEvents()
            halves.remote.follow(events)
            await speak(20)
            events.publish(TurnStarted(events.now_ms()))
            events.publish(PrivatePauseBegan(events.now_ms(), "operator"))
            await speak(20)
            halves.kept.lose()
            await speak(20)
            ears = halves.replace()
            await asyncio.sleep(0.5)
            assert ears.heard == b"" and halves.remote.paused_by == "operator"
            # A process that dies before its call has begun the pause again does not end it.
            halves.kept.lose()
            await speak(20)
            ears = halves.replace()
            events = CallEvents()
            await asyncio.sleep(0.1)
            halves.remote.follow(events, keeps_pause=True)
            events.publish(PrivatePauseBegan(events.now_ms(), "operator"))
            events.publish(PrivatePauseEnded(events.now_ms(), "operator"))
            await asyncio.sleep(0.1)
            assert ears.heard == b"" and halves.remote.paused_by == ""
            halves.kept.lose()
            await speak(20)
            ears = halves.replace()
            await asyncio.sleep(0.5)
            assert ears.heard and halves.remote.paused_by == ""

    run(scenario())


@asynccontextmanager
async def private_call() -> AsyncIterator[tuple[Split, Callable[[int], Coroutine[Any, Any, None]]]]:
    """Yield a call without a filler, and a function with which its caller speaks a number of packets."""
    halves = Split(HandedSide(audio_s=0), ConversationProcessTuning(filler=""), clauses={})
    running = asyncio.create_task(halves.kept.run())
    assert await halves.remote.open() is not None
    halves.remote.listen(Ears())
    numbers = count(2)

    async def speak(packets: int) -> None:
        for number in islice(numbers, packets):
            halves.side.incoming.put_nowait(audio(number, number * 20, VOICE))
            await asyncio.sleep(0.02)

    yield halves, speak
    halves.kept.end("")
    await running


def test_a_tone_stands_for_words_that_were_not_prepared():
    async def scenario() -> None:
        halves = Split(HandedSide(), clauses={})
        running = asyncio.create_task(halves.kept.run())
        assert await halves.remote.open() is not None
        halves.kept.lose()
        await asyncio.sleep(1.5)
        assert {tone[:160], tone[320:480]} <= {data for _, data in halves.side.played}
        halves.kept.end("")
        await running

    tone = holding_tone()
    run(scenario())


def test_keys_that_are_pressed_in_the_gap_reach_the_new_process():
    async def scenario() -> None:
        async with split() as halves:
            halves.kept.lose()
            for digit in "12":
                halves.side.send_event("dtmf", dtmf={"track": "inbound_track", "digit": digit})
            await asyncio.sleep(0.1)
            ears = halves.replace()
            await asyncio.sleep(0.1)
            assert ears.keys == "12"

    run(scenario())


def test_a_filler_waits_for_a_caller_who_speaks():
    async def scenario() -> None:
        halves = Split(HandedSide(audio_s=0))
        running = asyncio.create_task(halves.kept.run())
        assert await halves.remote.open() is not None
        halves.remote.listen(Ears())
        lost_s = asyncio.get_running_loop().time()
        halves.kept.lose()
        for number in range(2, 77):
            halves.side.incoming.put_nowait(audio(number, number * 20, VOICE if number < 52 else NOISE))
            await asyncio.sleep(0.02)
        assert 1.3 < halves.played_from(HOLDING)[0] - lost_s < 1.7
        halves.kept.end("")
        await running

    run(scenario())


def test_words_that_are_not_committed_are_heard_by_the_new_process():
    async def scenario() -> None:
        halves = Split(HandedSide(audio_s=0))
        running = asyncio.create_task(halves.kept.run())
        assert await halves.remote.open() is not None
        halves.remote.listen(Ears())
        events = CallEvents()
        halves.remote.follow(events)
        number = 1

        async def speak(packets: int, sound: bytes) -> None:
            nonlocal number
            for _ in range(packets):
                number += 1
                halves.side.incoming.put_nowait(audio(number, number * 20, sound))
                await asyncio.sleep(0.02)

        await speak(20, VOICE)
        events.publish(TurnStarted(events.now_ms()))
        await speak(20, VOICE)
        events.publish(TurnEnded(events.now_ms(), "one"))
        events.publish(ReplyOpened(events.now_ms(), "r1"))
        await speak(30, NOISE)
        events.publish(TurnStarted(events.now_ms()))
        await speak(20, VOICE)
        halves.kept.lose()
        await speak(5, VOICE)
        await speak(30, NOISE)
        ears = halves.replace()
        await asyncio.sleep(1.0)
        loud = [each for each in packets_of(ears.heard) if max(each) > 1]
        # The second turn, of which 5 packets came in the gap, and nothing of the first.
        assert len([each for each in packets_of(ears.heard) if each == packets_of(ears.heard)[35]]) >= 25
        assert len(loud) and len(ears.heard) // 320 <= 30 + 25 + 30
        halves.kept.end("")
        await running

    run(scenario())


def packets_of(pcm: bytes | bytearray) -> list[bytes]:
    return [bytes(pcm[at : at + 320]) for at in range(0, len(pcm), 320)]


def test_a_call_that_no_process_takes_ends_with_an_apology():
    async def scenario() -> None:
        halves = Split(HandedSide(), ConversationProcessTuning(longest_gap_s=25, filler_every_s=10))
        running = asyncio.create_task(halves.kept.run())
        assert await halves.remote.open() is not None
        lost_s = asyncio.get_running_loop().time()
        halves.kept.lose()
        await running
        assert len(halves.played_from(HOLDING)) == 30
        assert halves.played_from(SORRY)[0] - lost_s > 24.9
        assert halves.side.closed is not None and halves.side.closed[0] == 1000

    run(scenario())


def test_either_side_ends_the_call_of_the_other():
    async def scenario() -> None:
        async with split() as halves:
            ears = Ears()
            halves.remote.listen(ears)
            halves.side.send_event("stop", stop={"accountSid": "AC1", "callSid": "CA1"})
            async with asyncio.timeout(1):
                await halves.remote.gone.wait()
            assert ears.is_over and halves.remote.end[0] == "stopped"
        async with split() as halves:
            await halves.remote.close("the call is over")
            await asyncio.sleep(0.1)
            assert halves.side.closed == (1000, "the call is over")

    run(scenario())


def test_a_caller_who_hangs_up_in_the_gap_is_gone():
    async def scenario() -> None:
        halves = Split(HandedSide())
        running = asyncio.create_task(halves.kept.run())
        assert await halves.remote.open() is not None
        halves.kept.lose()
        assert halves.kept.is_lost
        halves.side.send_event("stop", stop={"accountSid": "AC1", "callSid": "CA1"})
        await running
        assert not halves.kept.is_lost

    run(scenario())
