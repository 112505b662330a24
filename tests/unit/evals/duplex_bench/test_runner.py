"""The bot's audio as it is heard, on the clock of the clip."""

import asyncio
from pathlib import Path

import numpy as np
import pytest

from parley.core.errors import EngineError
from parley.core.units import Vote
from parley.evals.duplex_bench.clips import Clip, Part
from parley.evals.duplex_bench.mouth import LEAD_MS, Mouth
from parley.evals.duplex_bench.runner import AHEAD_MS, Take, play, play_all, step
from parley.evals.duplex_bench.spoken import RATE_HZ, by_level
from parley.models.omni import UnitResult
from tests import virtual_time
from tests.fakes.executor import TimedExecutor
from tests.fakes.omni import OmniScript, ScriptedOmni, ScriptedOmniHost

CLIP = Clip(Part.TURN, "turn/1", Path("nowhere"))
BOT_HZ = 24_000
UNIT = np.full(80 * BOT_HZ // 1000, 0.3, np.float32)


def mouth(length_ms: int = 2_000) -> Mouth:
    return Mouth(BOT_HZ, 80, length_ms)


def loud_ms(audio: np.ndarray, rate_hz: int = BOT_HZ) -> tuple[int, int]:
    found = np.flatnonzero(np.abs(audio) > 0.05)
    return round(int(found[0]) * 1000 / rate_hz), round((int(found[-1]) + 1) * 1000 / rate_hz)


def test_a_unit_is_heard_after_its_result_and_the_next_one_after_it() -> None:
    bot = mouth()
    bot.say(UnitResult(Vote.SPEAK, " one", UNIT), 400_000)
    # A little late, and still in time.
    bot.say(UnitResult(Vote.SPEAK, " two", UNIT), 495_000)
    bot.say(UnitResult(Vote.LISTEN, end_of_turn=True), 560_000)
    audio, words = bot.heard()
    assert loud_ms(audio) == (400 + LEAD_MS, 560 + LEAD_MS)
    assert [(word.text, word.began_ms) for word in words] == [
        ("one", pytest.approx(440, abs=25)),
        ("two", pytest.approx(520, abs=25)),
    ]
    assert bot.holes == 0


def test_a_result_that_comes_too_late_is_a_hole() -> None:
    bot = mouth()
    bot.say(UnitResult(Vote.SPEAK, "", UNIT), 400_000)
    bot.say(UnitResult(Vote.SPEAK, "", UNIT), 600_000)
    bot.say(UnitResult(Vote.LISTEN, end_of_turn=True), 680_000)
    audio, _ = bot.heard()
    assert loud_ms(audio) == (440, 720) and bot.holes == 1
    assert not np.any(audio[520 * BOT_HZ // 1000 : 639 * BOT_HZ // 1000])


def test_what_has_not_left_is_not_heard_of_a_bot_that_yields_nor_its_words() -> None:
    bot = mouth()
    bot.say(UnitResult(Vote.SPEAK, " one", UNIT), 400_000)
    bot.say(UnitResult(Vote.SPEAK, " two", UNIT), 480_000)
    bot.say(UnitResult(Vote.YIELD, end_of_turn=True), 480_000)
    bot.say(UnitResult(Vote.SPEAK, " three", UNIT), 1_000_000)
    bot.say(UnitResult(Vote.LISTEN, end_of_turn=True), 1_080_000)
    audio, words = bot.heard()
    # The piece that was due at 520 ms had left 40 ms before.
    assert not np.any(audio[540 * BOT_HZ // 1000 : 1_039 * BOT_HZ // 1000])
    assert [word.text for word in words][0] == "one" and words[-1].text == "three"
    # Its unit is heard from there on; a leading space has its share of the unit.
    assert words[-1].began_ms == pytest.approx(1_040, abs=20)


def test_silence_before_a_reply_is_not_played() -> None:
    bot = mouth()
    half = UNIT.copy()
    half[: len(half) // 2] = 0
    bot.say(UnitResult(Vote.SPEAK, "", half), 400_000)
    bot.say(UnitResult(Vote.LISTEN, end_of_turn=True), 480_000)
    assert loud_ms(bot.heard()[0]) == (440, 480)


def test_what_is_heard_after_the_end_or_before_the_beginning_is_not_in_the_clip() -> None:
    bot = mouth(1_000)
    bot.say(UnitResult(Vote.SPEAK, " early", UNIT), -100_000)
    bot.say(UnitResult(Vote.LISTEN, end_of_turn=True), -20_000)
    bot.say(UnitResult(Vote.SPEAK, " late", UNIT), 930_000)
    audio, words = bot.heard()
    assert len(audio) == BOT_HZ and loud_ms(audio)[1] <= 1_000
    assert [word.text for word in words] == ["late"]


def speaks_from(unit: int, count: int) -> OmniScript:
    return OmniScript(votes=lambda n: Vote.SPEAK if unit <= n < unit + count else Vote.LISTEN)


def test_an_engine_without_a_clock_says_a_unit_when_it_has_heard_it() -> None:
    take = step(ScriptedOmniHost(speaks_from(10, 5)), CLIP, np.zeros(2 * RATE_HZ, np.float32))
    (segment,) = by_level(take.bot)
    # Eleven units are heard then.
    assert segment.began_ms == pytest.approx(11 * 80 + LEAD_MS, abs=3)
    assert segment.length_ms == pytest.approx(400, abs=12)
    assert len(take.bot) == len(take.caller)


def caller() -> np.ndarray:
    """Return a second of silence, a step, and silence."""
    audio = np.zeros(3 * RATE_HZ, np.float32)
    audio[RATE_HZ : 2 * RATE_HZ] = 0.2
    return audio


def played(host: ScriptedOmniHost, audio: np.ndarray, took_ms: float = 0.0) -> Take:
    def took_s(name: str) -> float:
        return took_ms / 1000 if "hear_and_say" in name else 0.0

    return virtual_time.run(play(host, CLIP, audio, executors=lambda: TimedExecutor(took_s)))


class KeepingHost(ScriptedOmniHost):
    """Host that keeps the engine's input after the engine has been returned and has cleared it."""

    def open_engine(self) -> ScriptedOmni:
        engine = super().open_engine()
        self.kept = engine.heard = _Kept()
        return engine


class _Kept(list[np.ndarray]):
    def clear(self) -> None:
        pass


def test_at_the_pace_of_the_clock_the_caller_is_heard_whole_and_in_order() -> None:
    host = KeepingHost(OmniScript(votes=lambda unit: Vote.LISTEN))
    take = played(host, caller())
    loud = np.flatnonzero(np.concatenate(host.kept) > 0.1)
    assert loud[-1] - loud[0] + 1 == RATE_HZ
    assert not take.bot.any() and take.missed == 0 and max(take.late_us) <= 1


def test_what_an_engine_says_is_as_late_as_it_took() -> None:
    delays = []
    for took_ms in (0.0, 30.0):
        take = played(ScriptedOmniHost(speaks_from(15, 5)), caller(), took_ms)
        (segment,) = by_level(take.bot)
        delays.append(segment.began_ms)
        assert np.percentile(take.took_us, 50) == pytest.approx(took_ms * 1000, abs=1)
    assert delays[1] - delays[0] == pytest.approx(30, abs=2)
    # The first sample is in the second unit: fourteen more are due, and the caller is a little ahead.
    assert delays[0] == pytest.approx(15 * 80 - 80 + AHEAD_MS + LEAD_MS, abs=3)


def test_an_engine_that_fails_is_an_error_and_not_a_silent_bot() -> None:
    with pytest.raises(EngineError):
        played(ScriptedOmniHost(OmniScript(fails_at=5)), caller())


def test_clips_side_by_side_come_back_in_their_order() -> None:
    async def run() -> list[Take]:
        host = ScriptedOmniHost(OmniScript(sessions=2))
        clips = [
            (Clip(Part.TURN, f"turn/{n}", Path("nowhere")), caller()[: RATE_HZ * (3 - n)]) for n in (0, 1, 2)
        ]
        return await play_all(host, clips, side=None, at_once=3)

    assert [take.clip.name for take in asyncio.run(run())] == ["turn/0", "turn/1", "turn/2"]
