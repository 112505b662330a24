"""Speakerphone calls on virtual time: the whole pipeline, with the real canceller and flite's voice.

The fake detector takes everything above -50 dBFS for a voice, which real ones do not: any rest of the bot's
voice at that level would cut it off.
"""

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.models.echo import EchoCanceller
from parley.models.echo.webrtc import WebRtcEcho
from parley.models.tts.flite import FliteSettings, FliteTts
from parley.pipelines.voice import cascade, echo
from parley.pipelines.voice.echo import CallFrontEnd
from tests.fakes.echo import ClosedEcho, FailingEcho
from tests.sim.call import RunningCall, SimulatedCall, silence, simulate
from tests.sim.room import Room, TelephoneLine
from tests.voices import say

QUIETEST = 10 ** (-50 / 20)
GREETING = (
    "Hello, this is the help line of the bank. You can ask me about cards, transfers and opening hours. "
    "What would you like to know today?"
)


@pytest.fixture
def fronts(monkeypatch: pytest.MonkeyPatch) -> list[CallFrontEnd]:
    """Record the front end of each call."""
    kept: list[CallFrontEnd] = []

    async def opening(*arguments: Any, **more: Any) -> CallFrontEnd:
        kept.append(await echo.with_echo_control(*arguments, **more))
        return kept[-1]

    monkeypatch.setattr(cascade, "with_echo_control", opening)
    return kept


def listen(
    tmp_path: Path,
    *,
    room: Room,
    caller: list[np.ndarray] | None = None,
    echo: EchoCanceller | None = None,
    transport: str = "local",
    **more: Any,
) -> SimulatedCall:
    return simulate(
        caller or [silence(2_000)],
        tmp_path,
        greeting=GREETING,
        speaks=FliteTts(FliteSettings.model_validate({"voice": "slt"})),
        room=room,
        echo=echo or WebRtcEcho(),
        transport=transport,
        quietest=QUIETEST,
        # A bot that answers its own voice would never end.
        limit_s=15,
        **more,
    )


def spoken(text: str, level_dbfs: float) -> np.ndarray:
    samples = np.frombuffer(say(text, "rms"), "<i2").astype(np.float32) / 32_768
    return (samples * 10 ** (level_dbfs / 20) / np.sqrt(np.mean(samples**2))).astype(np.float32)


def heard_whole(call: SimulatedCall) -> bool:
    """Return whether the greeting was said to its end and no echo was taken for a caller."""
    return [(turn.bot_text, turn.interrupted) for turn in call.turns] == [(GREETING, False)]


@pytest.mark.parametrize(
    ("delay_ms", "drift_ppm"), [(80.0, 0.0), (600.0, 0.0), (80.0, 200.0), (250.0, -200.0)]
)
def test_the_bot_does_not_cut_itself_off(tmp_path: Path, delay_ms: float, drift_ppm: float):
    """The greeting survives a delay of up to 600 ms and clocks that drift by 200 ppm."""
    assert heard_whole(listen(tmp_path, room=Room(delay_ms, drift_ppm=drift_ppm)))


@pytest.mark.parametrize(
    ("delay_ms", "loss_db"), [(100.0, 15.0), (200.0, 25.0), (300.0, 15.0), (300.0, 20.0)]
)
def test_a_telephone_that_returns_the_bots_voice_does_not_cut_it_off(
    tmp_path: Path, delay_ms: float, loss_db: float
):
    line = TelephoneLine(delay_ms, loss_db=loss_db)
    assert heard_whole(listen(tmp_path, room=line, transport="twilio"))


def test_a_telephone_without_echo_control_does(tmp_path: Path):
    line = TelephoneLine(200.0, loss_db=15.0)
    assert listen(tmp_path, room=line, transport="twilio", echo_mode="off").turns[0].interrupted


def test_over_a_telephone_that_returns_the_bots_voice_the_caller_is_understood(tmp_path: Path):
    caller = [spoken("what are your opening hours on saturday", -20), silence(1_000)]
    line = TelephoneLine(200.0, loss_db=15.0)
    call = listen(tmp_path, room=line, caller=caller, transport="twilio")
    assert [turn.interrupted for turn in call.turns[:2]] == [False, False]
    assert call.turns[1].user_text
    assert len(call.model.asked) == 1


def test_without_echo_control_it_does(tmp_path: Path, fronts: list[CallFrontEnd]):
    call = listen(tmp_path, room=Room(80.0), echo_mode="off")
    assert call.turns[0].interrupted
    assert fronts == [CallFrontEnd()]


def test_a_browser_that_cancels_the_echo_gets_no_second_canceller(tmp_path: Path, fronts: list[CallFrontEnd]):
    call = listen(tmp_path, room=Room(80.0), transport="webrtc", peer_cancels_echo=True)
    assert fronts == [CallFrontEnd()]
    # The microphone is used unchanged: a peer that declared its signal wrongly is heard in full.
    assert call.turns[0].interrupted


def test_a_browser_that_says_it_does_not_gets_one(tmp_path: Path):
    assert heard_whole(listen(tmp_path, room=Room(80.0), transport="webrtc", peer_cancels_echo=False))


def test_a_caller_who_speaks_after_the_greeting_is_understood(tmp_path: Path):
    caller = [spoken("what are your opening hours on saturday", -20), silence(1_000)]
    call = listen(tmp_path, room=Room(120.0), caller=caller)
    assert [turn.interrupted for turn in call.turns] == [False, False]
    assert call.turns[1].user_text
    assert len(call.model.asked) == 1


def test_the_call_knows_the_bots_own_voice_and_words(tmp_path: Path, fronts: list[CallFrontEnd]):
    seen: list[tuple[bool, bool, bool, bool]] = []

    async def look(_running: RunningCall) -> None:
        # In the middle of the greeting's second sentence.
        await asyncio.sleep(4)
        voice, are_own = fronts[0].self_voice, fronts[0].are_own
        assert voice is not None
        assert are_own is not None
        own, other, unsaid = (
            "you can ask me about",
            "can i ask you about",
            "what would you like to know today",
        )
        seen.append((voice.is_own(), are_own(own), are_own(other), are_own(unsaid)))

    listen(tmp_path, room=Room(80.0), concurrently=look)
    assert seen == [(True, True, False, False)]


@pytest.mark.parametrize("engine", [ClosedEcho(), FailingEcho(0), FailingEcho(250)])
def test_a_failing_engine_leaves_the_caller_heard(
    tmp_path: Path, fronts: list[CallFrontEnd], engine: EchoCanceller
):
    """A canceller that cannot be opened, that fails at once, or that fails in mid-call, on a headset."""
    caller = [spoken("what are your opening hours on saturday", -20), silence(1_000)]
    call = listen(tmp_path, room=Room(80.0, loss_db=80.0), caller=caller, echo=engine)
    assert call.turns[-1].user_text
    assert len(call.model.asked) == 1
    [front] = fronts
    assert front.self_voice is None or not front.self_voice.is_own()
