"""The backchannels that the keeper plays, and the events that stop them."""

import asyncio
from collections.abc import Awaitable, Callable

import numpy as np
from pipecat.frames.frames import Frame, OutputAudioRawFrame

from parley.core.call_events import (
    CallEvent,
    FinalWords,
    PauseJudged,
    ReplyOpened,
    TurnEndDue,
    TurnEnded,
    TurnStarted,
    VoiceEnded,
    VoiceStarted,
    VoiceSuspected,
    Wait,
    WaitBegan,
)
from parley.processors.turns.backchannel import AGAIN_MS, PIECE_MS, BackchannelSpeaker
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock
from parley.turn_taking.backchannel import BackchannelPolicy, BackchannelTuning
from tests import virtual_time

RATE_HZ = 16_000
LENGTH_MS = 400


class Bench:
    """A keeper and its output, with the time since the beginning."""

    def __init__(self, sound: Callable[[str], bytes | None]) -> None:
        self.clock = LoopClock()
        self.began_ms = self.clock.now_ms()
        self.played: list[tuple[int, Frame]] = []
        self.events = CallEvents()
        self.keeper = BackchannelSpeaker(
            self.events, BackchannelPolicy(BackchannelTuning()), sound=sound, rate_hz=RATE_HZ, say=self.play
        )

    def publish(self, kind: Callable[..., CallEvent], *facts: object) -> None:
        self.events.publish(kind(self.events.now_ms(), *facts))

    async def play(self, frame: Frame) -> None:
        self.played.append((self.clock.now_ms() - self.began_ms, frame))

    async def talk(self) -> None:
        """Talk for five seconds, and pause for 160 ms without sounding like the end."""
        self.publish(TurnStarted)
        self.publish(VoiceStarted, 0)
        await asyncio.sleep(5)
        await asyncio.sleep(0.16)
        self.publish(VoiceEnded, 160)
        self.publish(FinalWords, "so i went to the bank", None)
        self.publish(PauseJudged, 0.1)

    @property
    def pcm(self) -> np.ndarray:
        frames = [frame for _, frame in self.played if isinstance(frame, OutputAudioRawFrame)]
        return np.frombuffer(b"".join(frame.audio for frame in frames), dtype="<i2")


def loud(_text: str) -> bytes:
    return np.full(RATE_HZ * LENGTH_MS // 1000, 10_000, "<i2").tobytes()


def held(script: Callable[[Bench], Awaitable[None]], sound: Callable[[str], bytes | None] = loud) -> Bench:
    async def scenario() -> Bench:
        bench = Bench(sound)
        running = asyncio.create_task(bench.keeper.run())
        await script(bench)
        await asyncio.sleep(2)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return bench

    return virtual_time.run(scenario())


async def talk(bench: Bench) -> None:
    await bench.talk()


def test_a_hum_is_plain_audio_paced_as_it_is_played():
    bench = held(talk)
    assert {type(frame) for _, frame in bench.played} == {OutputAudioRawFrame}
    at_ms = [at_ms for at_ms, _ in bench.played]
    assert at_ms == [5_300, 5_300, 5_380, 5_460, 5_540]
    assert (bench.pcm == 10_000).all() and len(bench.pcm) == RATE_HZ * LENGTH_MS // 1000


def test_a_sound_that_is_not_kept_is_not_said():
    assert held(talk, lambda _text: None).played == []


def test_the_first_sign_of_a_voice_ends_a_hum_without_a_click():
    async def restart(bench: Bench) -> None:
        await bench.talk()
        await asyncio.sleep(0.2)
        bench.publish(VoiceSuspected)

    bench = held(restart)
    assert len(bench.pcm) < RATE_HZ * LENGTH_MS // 1000
    assert bench.pcm[-1] == 0
    # A fall of 10,000 over 20 ms.
    assert np.abs(np.diff(bench.pcm.astype(int))).max() <= 10_000 / (0.02 * RATE_HZ) + 1


def test_a_possible_voice_puts_a_hum_off():
    async def onset(bench: Bench) -> None:
        await bench.talk()
        await asyncio.sleep(0.1)
        bench.publish(VoiceSuspected)

    assert held(onset).played[0][0] == 5_260 + AGAIN_MS


def test_no_one_is_hummed_at_while_an_answer_is_on_its_way():
    async def waiting(bench: Bench) -> None:
        bench.publish(WaitBegan, Wait.ANSWER)
        await bench.talk()

    async def speaking(bench: Bench) -> None:
        bench.publish(ReplyOpened, "a")
        await bench.talk()

    assert held(waiting).played == held(speaking).played == []


def test_a_voice_that_is_nobodys_turn_is_not_hummed_at():
    async def no_turn(bench: Bench) -> None:
        await bench.talk()
        bench.publish(TurnEnded, "")

    assert held(no_turn).played == []


def test_a_turn_that_is_about_to_end_is_not_hummed_at():
    async def ends(bench: Bench) -> None:
        await bench.talk()
        bench.publish(TurnEndDue, bench.began_ms + 5_450)

    assert held(ends).played == []


def test_a_piece_fills_whole_chunks_of_the_output():
    bench = held(talk, lambda _text: bytes(2 * 1_000))
    assert len(bench.pcm) == RATE_HZ * PIECE_MS // 1000
