"""A full-duplex engine in a pipeline with the playout clock and a track, on virtual time."""

import io

import numpy as np
import pytest
from PIL import Image
from pipecat.frames.frames import (
    InputAudioRawFrame,
    InterruptionFrame,
    LLMContextFrame,
    LLMFullResponseEndFrame,
    LLMFullResponseStartFrame,
    TTSAudioRawFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from pipecat.processors.aggregators.llm_context import LLMContext

from parley.core.units import Vote
from parley.processors.duplex.omni import DuplexPauseFrame, DuplexResumeFrame
from tests.fakes.duplex_call import Call, play, script
from tests.fakes.executor import TimedExecutor
from tests.fakes.omni import OmniScript
from tests.fakes.track_output import RATE_HZ

UNIT_MS = 80


def test_what_the_engine_says_is_heard_and_its_words_are_in_the_books() -> None:
    call = play(Call(script("lll" + "s" * 20 + "l")), lambda call: call.talk(4))
    [reply] = call.replies
    assert reply.text == " ".join(str(unit) for unit in range(3, 23)) and not reply.truncated
    [(began_ms, ended_ms)] = call.sounds_ms()
    assert ended_ms - began_ms == 20 * UNIT_MS
    # Unit 3 has ended, and its audio leaves at once.
    assert began_ms - 4 * UNIT_MS <= 60
    kinds = [type(frame) for frame in call.watch.frames]
    assert kinds.count(LLMFullResponseStartFrame) == kinds.count(LLMFullResponseEndFrame) == 1


def test_silence_of_the_engine_is_not_sent_and_every_vote_is_told() -> None:
    call = play(Call(script("lllsslllssl")), lambda call: call.talk(2))
    assert len(call.ticks) >= 24 and [tick.vote for tick in call.ticks[:5]] == [
        *[Vote.LISTEN] * 3,
        *[Vote.SPEAK] * 2,
    ]
    audio = [frame for frame in call.taken.frames if isinstance(frame, TTSAudioRawFrame)]
    assert sum(len(frame.audio) for frame in audio) == 4 * UNIT_MS * RATE_HZ // 1000 * 2
    assert len(call.replies) == 2


def test_an_engine_that_yields_falls_silent_and_what_was_heard_is_known() -> None:
    # Two units whose audio comes late: most of the second one waits when the yield comes.
    took = iter([900.0, 0.0, 0.0])

    def took_s(name: str) -> float:
        return next(took, 0.0) / 1000 if name == "_hear_and_say" else 0.0

    call = Call(script("ssyl", unit_ms=1_000), executors=lambda: TimedExecutor(took_s))
    play(call, lambda call: call.talk(6))
    [reply] = call.replies
    assert reply.truncated and reply.text == "0" and reply.unheard == "1"
    [(began_ms, ended_ms)] = call.sounds_ms()
    assert 1_900 <= began_ms <= 2_000 and ended_ms <= 3_000 + 150


def test_a_caller_who_interrupts_stops_it_and_has_the_engine_listen() -> None:
    async def caller(call: Call) -> None:
        await call.talk(2.5)
        await call.give(UserStartedSpeakingFrame())
        await call.give(InterruptionFrame())
        await call.talk(2)
        await call.give(UserStoppedSpeakingFrame())
        await call.talk(2)

    call = play(Call(script("s", unit_ms=1_000)), caller)
    first, *_ = call.replies
    assert first.truncated and first.unheard
    # Audio leaves here 40 ms ahead of the track's own lead.
    assert call.sounds_ms()[0][1] - 2_500 <= 150
    forced = [tick for tick in call.ticks if tick.forced]
    assert 2 <= len(forced) <= 3 and all(tick.vote in (Vote.YIELD, Vote.LISTEN) for tick in forced)
    assert [tick.vote for tick in call.ticks][-1] is Vote.SPEAK


def test_what_was_on_its_way_when_it_was_interrupted_is_not_said() -> None:
    async def caller(call: Call) -> None:
        await call.talk(1.05)
        # The engine is at its first unit.
        await call.give(InterruptionFrame())
        await call.talk(2)

    call = play(Call(script("s", unit_ms=1_000), costs_ms={"hear_and_say": 400}), caller)
    assert call.ticks[0].vote is Vote.SPEAK and call.ticks[1].forced
    assert all(began_ms > 3_000 for began_ms, _ in call.sounds_ms())


def test_a_turn_of_the_caller_over_a_silent_bot_has_no_one_listen_by_force() -> None:
    async def caller(call: Call) -> None:
        await call.talk(0.5)
        await call.give(UserStartedSpeakingFrame())
        await call.give(InterruptionFrame())
        await call.talk(2)

    call = play(Call(script("l" * 20 + "b" + "l")), caller)
    assert not any(tick.forced for tick in call.ticks)
    # The bot may emit a backchannel while the caller goes on.
    assert len(call.sounds_ms()) == 1


def test_words_in_pieces_are_announced_whole() -> None:
    async def caller(call: Call) -> None:
        await call.talk(2.2)
        await call.give(InterruptionFrame())
        await call.talk(0.2)

    texts = [" hel", "lo wor", "ld again ", " and", "more "]
    call = play(Call(script("s", unit_ms=1_000, text=lambda unit: texts[unit])), caller)
    [reply, *_] = call.replies
    # Two units of four were written when the caller interrupted, and one of them was heard.
    assert f"{reply.text} {reply.unheard}".split() == ["hello", "wor"] and reply.truncated


def test_a_hum_takes_no_turn() -> None:
    call = play(Call(script("llllbl")), lambda call: call.talk(2))
    assert len(call.sounds_ms()) == 1 and call.replies == []
    assert not any(isinstance(frame, LLMFullResponseStartFrame) for frame in call.watch.frames)


def test_questions_end_here() -> None:
    async def caller(call: Call) -> None:
        await call.give(LLMContextFrame(LLMContext()))
        await call.talk(1)

    call = play(Call(script("l")), caller)
    assert not any(isinstance(frame, LLMContextFrame) for frame in call.watch.frames)
    assert not any(isinstance(frame, InputAudioRawFrame) for frame in call.watch.frames)


@pytest.mark.parametrize(
    ("broken", "costs_ms"),
    [
        (script("sss", fails_at=2), {}),
        (script("sss", spoils=lambda audio: audio * np.float32(np.nan)), {}),
        (script("sss", spoils=lambda audio: np.tile(audio, 3)), {}),
        (script("sss"), {"open_engine": None}),
        (script("sss"), {"prepare": None}),
        (script("sss"), {"hear_and_say": None}),
        (script("sss"), {"finalize": None}),
    ],
    ids=["raises", "NaN", "wrong rate", "does not open", "prepare hangs", "hangs", "finalize hangs"],
)
def test_after_an_engine_that_fails_the_caller_hears_an_apology_and_the_next_one(
    broken: OmniScript, costs_ms: dict[str, float | None]
) -> None:
    engines = iter([costs_ms, {}, {}, {}])

    def executors() -> TimedExecutor:
        costs = next(engines)
        return TimedExecutor(lambda name: None if costs.get(name.strip("_"), 0) is None else 0.0)

    call = Call(broken, script("llls"), executors=executors, tick={"prepare_ms": 2_000, "hang_ms": 500})
    call.history = (("user", "hello"),)
    play(call, lambda call: call.talk(8))
    assert len(call.apologies) == 1 and call.given_up == 0
    [second] = call.hosts[1].engines
    assert second.prepared[0].history == (("user", "hello"),)
    assert call.sounds_ms()[-1][1] > 7_000


def test_when_every_engine_fails_the_conversation_is_given_up() -> None:
    call = Call(script("l", fails_at=1), most_failures=3)
    play(call, lambda call: call.talk(4))
    # The bot does not apologise again before something else was said.
    assert (len(call.apologies), call.given_up) == (1, 1)


def test_failures_that_lie_far_apart_are_forgotten() -> None:
    call = Call(script("l", fails_at=20), most_failures=2, recovered_units=10)
    play(call, lambda call: call.talk(10))
    assert len(call.apologies) >= 5 and call.given_up == 0


def test_nothing_is_heard_in_a_pause_and_a_long_one_is_told() -> None:
    async def caller(call: Call) -> None:
        await call.talk(1)
        await call.give(DuplexPauseFrame())
        await call.talk(2)
        units = len(call.ticks)
        # The reply that was being spoken has ended, in the playout clock as well.
        [reply] = call.replies
        assert reply.truncated and not call.duplex.is_speaking
        await call.talk(2)
        assert len(call.ticks) == units
        await call.give(DuplexResumeFrame())
        await call.talk(1)
        assert len(call.ticks) > units and call.pauses_expired == 0
        # A pause does not last longer than the server allows.
        await call.give(DuplexPauseFrame(pause_ms=10_000_000))
        await call.talk(61)
        assert call.pauses_expired == 1

    play(Call(script("s")), caller)


def picture(width: int, height: int) -> bytes:
    out = io.BytesIO()
    Image.new("RGB", (width, height)).save(out, "JPEG")
    return out.getvalue()


@pytest.mark.parametrize(
    ("image", "seen"), [(picture(64, 48), True), (b"no picture", False), (picture(8_000, 6_250), False)]
)
def test_pictures_are_seen_and_what_is_none_does_no_harm(image: bytes, seen: bool) -> None:
    call = play(Call(script("llls")), lambda call: call.talk(1, image=image))
    assert any(tick.frames for tick in call.ticks) is seen
    assert (call.duplex.refused_pictures > 0) is not seen
    assert call.sounds_ms()


def test_a_caller_of_another_rate_is_heard() -> None:
    call = play(Call(script("l")), lambda call: call.talk(4, rate_hz=8_000))
    assert sum(tick.heard_ms for tick in call.ticks[2:]) >= 80 * (len(call.ticks) - 3)


def test_what_is_being_said_is_said_to_its_end_when_the_call_ends() -> None:
    call = play(Call(script("s" * 2 + "l", unit_ms=1_000)), lambda call: call.talk(2.2))
    [reply] = call.replies
    assert reply.text == "0 1" and call.sounds_ms()[-1][1] >= 2_900


def test_minutes_end_without_drift() -> None:
    # ``evals.duplex_bench`` needs half an hour.
    call = play(Call(script("s", unit_ms=1_000)), lambda call: call.talk(3 * 60))
    paced = call.duplex.paced
    assert paced is not None and paced.holes == paced.lost_samples == 0
    assert [tick.late_us for tick in call.ticks if tick.late_us > 1] == []
    [(began_ms, ended_ms)] = call.sounds_ms()
    assert ended_ms - began_ms == 1_000 * sum(tick.vote is Vote.SPEAK for tick in call.ticks)
