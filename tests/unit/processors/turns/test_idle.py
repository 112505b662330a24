"""Events that delay the keeper of a call's silences, and events that end it."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from pipecat.frames.frames import EndFrame, Frame, InterruptionFrame, TTSSpeakFrame

from parley.core.call_events import (
    CallEnding,
    CallerJoined,
    CallEvent,
    FloorLeft,
    FloorTaken,
    GoodbyeDue,
    ReplyAnnounced,
    ReplyFinished,
    ReplyOpened,
    ReplyStarted,
    TextTyped,
    TurnEnded,
    TurnEndRequested,
    TurnStarted,
    VoiceEnded,
    VoiceStarted,
    VoiceSuspected,
    Wait,
    WaitBegan,
    WaitEnded,
    WordsOwed,
)
from parley.core.timeline import HeardMark, HeardReply
from parley.processors.turns.floor import Floor
from parley.processors.turns.idle import AGAIN_MS, OWED_MS, IdleMonitor
from parley.runtime.event_stream import CallEvents
from parley.runtime.loop_clock import LoopClock
from parley.turn_taking.idle import IdleTuning
from tests import virtual_time

CHOSEN = IdleTuning()
NEVER_MS = 86_400_000


def reply(text: str, reply_id: str = "r") -> HeardReply:
    return HeardReply(
        reply_id=reply_id, text=text, unheard="", truncated=False, mark=HeardMark(reply_id, 1_000, 1),
        in_context=True, started_us=0, ended_us=0,
    )  # fmt: skip


class Bench:
    """A keeper and its output, with the time since the beginning."""

    def __init__(self, settings: IdleTuning | None = CHOSEN, *, timeout_ms: int = NEVER_MS) -> None:
        self.clock = LoopClock()
        self.began_ms = self.clock.now_ms()
        self.quiet_since_ms = self.began_ms
        self.said: list[tuple[int, Frame]] = []
        self.events = CallEvents()
        self.endings: list[CallEnding] = []
        self.events.subscribe(CallEnding, self.endings.append)
        self.keeper = IdleMonitor(
            self.events,
            settings,
            floor=Floor(self.events),
            timeout_ms=timeout_ms,
            idle_ms=lambda: self.clock.now_ms() - self.quiet_since_ms,
        )

    def publish(self, kind: Callable[..., CallEvent], *facts: object) -> None:
        self.events.publish(kind(self.events.now_ms(), *facts))

    def opens(self, reply_id: str) -> None:
        self.events.publish(ReplyOpened(self.events.now_ms(), reply_id))

    def finishes(self, text: str, reply_id: str) -> None:
        self.events.publish(ReplyFinished(self.events.now_ms(), reply(text, reply_id)))

    async def say(self, frame: Frame) -> None:
        self.said.append((self.clock.now_ms() - self.began_ms, frame))
        if isinstance(frame, TTSSpeakFrame):
            # Heard at once, and short.
            self.events.publish(ReplyAnnounced(self.events.now_ms(), "prompt", False))
            self.events.publish(ReplyStarted(self.events.now_ms(), "prompt"))
            self.finishes(frame.text, "prompt")

    @property
    def at_ms(self) -> list[int]:
        return [at_ms for at_ms, _ in self.said]


def held(bench: Callable[[], Bench], script: Callable[[Bench], Awaitable[None]], *, for_s: float) -> Bench:
    """Run a keeper during a script for that long, or to the end of the call."""

    async def scenario() -> Bench:
        made = bench()
        made.publish(CallerJoined)
        running = asyncio.create_task(made.keeper.run(made.say))
        await script(made)
        await asyncio.wait({running}, timeout=for_s)
        if not running.done():
            running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return made

    return virtual_time.run(scenario())


async def nothing(_bench: Bench) -> None:
    """Do nothing, as a silent caller."""


@pytest.mark.parametrize("why", [Wait.QUEUE, Wait.PERSON])
def test_who_waits_for_a_line_or_a_person_is_not_asked_and_stays(why: Wait):
    async def waits(bench: Bench) -> None:
        bench.publish(WaitBegan, why)
        await asyncio.sleep(95)
        assert bench.said == []
        bench.publish(WaitEnded, why)

    made = held(lambda: Bench(timeout_ms=60_000), waits, for_s=8)
    # The silence begins when the wait has ended.
    assert made.at_ms == [95_000 + CHOSEN.prompt_after_ms]


def test_a_silent_call_is_prompted_and_ended_in_good_order():
    bench = held(Bench, nothing, for_s=200)
    *prompts, end = [frame for _, frame in bench.said]
    assert [frame.text for frame in prompts if isinstance(frame, TTSSpeakFrame)] == [
        *CHOSEN.prompts,
        CHOSEN.goodbye,
    ]
    assert all(isinstance(frame, TTSSpeakFrame) and frame.append_to_context for frame in prompts)
    assert isinstance(end, EndFrame)
    assert bench.at_ms == [7_000, 17_500, 33_250, 53_250, 55_250]
    assert [ending.reason for ending in bench.endings] == ["goodbye"]


def test_before_someone_is_there_no_one_is_asked():
    async def scenario() -> Bench:
        bench = Bench()
        running = asyncio.create_task(bench.keeper.run(bench.say))
        await asyncio.sleep(60)
        bench.publish(CallerJoined)
        await asyncio.sleep(8)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        return bench

    assert virtual_time.run(scenario()).at_ms == [67_000]


def test_without_settings_only_the_timeout_ends_the_call():
    bench = held(lambda: Bench(None, timeout_ms=300_000), nothing, for_s=400)
    [(at_ms, frame)] = bench.said
    assert at_ms == 300_000 and isinstance(frame, EndFrame)
    assert [ending.reason for ending in bench.endings] == ["silence"]


def test_a_sound_puts_the_timeout_off():
    async def sound(bench: Bench) -> None:
        await asyncio.sleep(200)
        bench.quiet_since_ms = bench.clock.now_ms()

    assert held(lambda: Bench(None, timeout_ms=300_000), sound, for_s=400).at_ms == [500_000]


def test_an_answer_that_is_owed_is_no_silence_of_the_caller():
    async def wait(bench: Bench) -> None:
        bench.publish(TurnEnded, "what is it")
        bench.publish(WaitBegan, Wait.ANSWER)
        await asyncio.sleep(200)
        bench.publish(WaitEnded, Wait.ANSWER)

    # Longer than the policy alone believes an answer to be on its way.
    assert held(Bench, wait, for_s=10).at_ms == [207_000]


def test_a_reply_between_two_others_is_not_the_end_of_the_bots_turn():
    async def two(bench: Bench) -> None:
        bench.opens("a")
        bench.opens("b")
        await asyncio.sleep(5)
        bench.finishes("First.", "a")
        await asyncio.sleep(10)
        bench.finishes("Second.", "b")

    assert held(Bench, two, for_s=8).at_ms == [22_000]


def test_a_turn_that_is_open_is_waited_for():
    async def turn(bench: Bench) -> None:
        bench.publish(TurnStarted)
        await asyncio.sleep(9)
        bench.publish(TurnEnded, "")

    bench = held(Bench, turn, for_s=3)
    [at_ms] = bench.at_ms
    assert 9_000 <= at_ms <= 9_000 + AGAIN_MS


def test_a_reply_that_is_about_to_be_said_on_is_waited_for():
    async def cut(bench: Bench) -> None:
        bench.publish(FloorTaken)
        await asyncio.sleep(8.2)
        bench.publish(FloorLeft)

    [at_ms] = held(Bench, cut, for_s=2).at_ms
    assert 8_200 <= at_ms <= 8_200 + AGAIN_MS


def test_a_possible_voice_puts_a_prompt_off():
    async def onset(bench: Bench) -> None:
        await asyncio.sleep(6.9)
        bench.publish(VoiceSuspected)

    assert held(Bench, onset, for_s=3).at_ms == [6_900 + AGAIN_MS]


def test_a_caller_whose_words_are_owed_is_not_prompted():
    async def speaks(bench: Bench) -> None:
        bench.publish(WordsOwed, True)
        await asyncio.sleep(9)
        assert bench.said == []
        bench.publish(WordsOwed, False)

    assert held(Bench, speaks, for_s=1).at_ms == [pytest.approx(9_000, abs=AGAIN_MS)]


def test_words_that_never_come_do_not_hold_the_line():
    async def dies(bench: Bench) -> None:
        bench.publish(WordsOwed, True)

    made = held(Bench, dies, for_s=200)
    assert made.at_ms[0] == pytest.approx(OWED_MS, abs=AGAIN_MS)
    assert isinstance(made.said[-1][1], EndFrame)


def test_typed_text_is_the_callers_turn():
    async def types(bench: Bench) -> None:
        await asyncio.sleep(6)
        bench.publish(TextTyped, "hello")
        bench.opens("a")
        await asyncio.sleep(1)
        bench.finishes("Hello.", "a")

    assert held(Bench, types, for_s=60).at_ms[0] == 7_000 + CHOSEN.patience_ms


def test_a_voice_that_never_ends_has_its_turn_ended_again_and_again():
    ended_ms: list[int] = []

    async def voice(bench: Bench) -> None:
        bench.events.subscribe(TurnEndRequested, lambda event: ended_ms.append(event.at_ms - bench.began_ms))
        bench.publish(VoiceStarted, 100)
        bench.publish(TurnStarted)
        await asyncio.sleep(250)
        bench.publish(TurnEnded, "")
        bench.publish(VoiceEnded, 100)

    bench = held(Bench, voice, for_s=1)
    assert ended_ms == [120_000, 240_000]
    assert bench.said == []


def test_what_begins_during_the_farewell_ends_with_it_and_does_not_postpone_the_end():
    """Speech of a source that does not know of the goodbye, such as a colleague's sentence."""

    class Slow(Bench):
        async def say(self, frame: Frame) -> None:
            self.said.append((self.clock.now_ms() - self.began_ms, frame))
            if isinstance(frame, TTSSpeakFrame):
                self.opens("farewell")

    async def leaves(bench: Bench) -> None:
        due: list[GoodbyeDue] = []
        bench.events.subscribe(GoodbyeDue, due.append)
        bench.keeper.leave("Goodbye.")
        bench.keeper.leave("Goodbye again.")
        assert len(due) == 1
        await asyncio.sleep(1)
        bench.opens("late")
        await asyncio.sleep(1)
        bench.finishes("Goodbye.", "farewell")

    made = held(Slow, leaves, for_s=30)
    assert [type(frame) for _, frame in made.said] == [TTSSpeakFrame, InterruptionFrame, EndFrame]
    assert made.at_ms == [0, 2_000, 2_000]


def test_a_farewell_waits_a_moment_for_the_end_of_the_callers_turn_and_then_ends_it():
    async def leaves(bench: Bench, ends_after_s: float) -> list[TurnEndRequested]:
        requested: list[TurnEndRequested] = []
        bench.events.subscribe(TurnEndRequested, requested.append)
        bench.publish(TurnStarted)
        bench.keeper.leave("Goodbye.")
        await asyncio.sleep(ends_after_s)
        bench.publish(TurnEnded, "I have a question.")
        return requested

    async def ends_soon(bench: Bench) -> None:
        assert await leaves(bench, 1.2) == []

    async def goes_on(bench: Bench) -> None:
        [end] = await leaves(bench, 9)
        assert not end.waits_for_words

    assert held(Bench, ends_soon, for_s=20).at_ms == [1_200, 1_200]
    assert held(Bench, goes_on, for_s=20).at_ms == [2_000, 2_000]
