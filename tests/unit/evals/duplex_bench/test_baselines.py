"""The controls: each behaves as its name says, for any input."""

from pathlib import Path

import numpy as np
import pytest

from parley.evals.duplex_bench.baselines import Phrase, baselines
from parley.evals.duplex_bench.clips import SHIPPED, Clip, Part, load
from parley.evals.duplex_bench.runner import Take, step
from parley.evals.duplex_bench.spoken import RATE_HZ, by_level
from parley.models.vad.silero import SileroVad


def tone(ms: int) -> Phrase:
    samples = RATE_HZ * ms // 1000
    return Phrase((0.3 * np.sin(np.arange(samples) * 0.2)).astype(np.float32), RATE_HZ, (("so", 0),))


@pytest.fixture(scope="module")
def vad() -> SileroVad:
    return SileroVad()


@pytest.fixture(scope="module")
def question() -> Clip:
    return load(SHIPPED, (Part.TURN,), most=1)[0]


def take(name: str, clip: Clip, vad: SileroVad, *, seed: int = 1) -> Take:
    return step(baselines(tone(2_000), tone(300), vad, seed=seed)[name], clip)


def test_one_always_talks_and_one_never_does(question: Clip, vad: SileroVad) -> None:
    talks, is_silent = take("always_talk", question, vad), take("always_silent", question, vad)
    (segment,) = by_level(talks.bot)
    assert segment.began_ms <= 200 and segment.ended_ms >= len(talks.bot) / 16 - 50
    assert not is_silent.bot.any()


@pytest.mark.parametrize(("name", "silence_ms"), [("timer_300", 300), ("timer", 600), ("timer_1000", 1_000)])
def test_a_timer_begins_so_long_after_the_voice(
    name: str, silence_ms: int, question: Clip, vad: SileroVad
) -> None:
    assert question.event is not None
    segment = by_level(take(name, question, vad).bot)[0]
    # Voice activity detects the end some windows late, a unit has 80 ms, and the audio leaves 40 ms later.
    assert 0 <= segment.began_ms - question.event.ended_ms - silence_ms <= 280


def test_a_timer_falls_silent_when_the_caller_talks_on(vad: SileroVad) -> None:
    clip = load(SHIPPED, (Part.INTERRUPTION,), most=1)[0]
    assert clip.event is not None
    said = baselines(tone(20_000), tone(300), vad, seed=1)["timer"]
    first, *_ = by_level(step(said, clip).bot)
    assert clip.event.began_ms + 300 <= first.ended_ms <= clip.event.began_ms + 800


def test_the_listener_at_random_hums_as_often_as_it_is_told_and_alike_for_a_seed(vad: SileroVad) -> None:
    clip = Clip(Part.BACKCHANNEL, "b/1", Path("nowhere"))
    host = baselines(tone(2_000), tone(300), vad, seed=3)["random_backchannel"]
    minute = np.zeros(60 * RATE_HZ, np.float32)
    hums = [len(by_level(step(host, clip, minute).bot)) for _ in range(10)]
    # 0.1 a second while silent; two that overlap count once: about 5.8 a minute.
    assert np.mean(hums) == pytest.approx(5.8, abs=1.5)
    again = baselines(tone(2_000), tone(300), vad, seed=3)["random_backchannel"]
    assert len(by_level(step(again, clip, minute).bot)) == hums[0]
