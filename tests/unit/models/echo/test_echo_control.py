"""Echo control of one call, with the real canceller and with one that removes nothing."""

import threading
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

from parley.audio.echo_alignment import Knowledge
from parley.core.errors import EngineError
from parley.core.media import float_to_pcm16, pcm16_to_float
from parley.models.echo.control import EchoControl, EchoFrame
from parley.models.echo.webrtc import WebRtcEcho
from tests.fakes.echo import CountingEcho, FailingEcho, PassingEcho, WaitingEcho
from tests.speakerphone import RATE_HZ, echo, spoken
from tests.voices import say

BEGAN_US = 3_000_000


def us(samples: int) -> int:
    return BEGAN_US + samples * 1_000_000 // RATE_HZ


def call(
    control: EchoControl, near: np.ndarray, far: np.ndarray, *, sizes: tuple[int, ...] = (320,)
) -> tuple[np.ndarray, list[EchoFrame]]:
    """Run a call: 20 ms of the bot at a time; the microphone in pieces of the given sizes."""
    heard, played = float_to_pcm16(near), float_to_pcm16(far)
    received = at = number = 0
    out: list[bytes] = []
    levels: list[EchoFrame] = []
    while at < len(near):
        ends = min(at + sizes[number % len(sizes)], len(near))
        while received < min(ends, len(far)):
            control.played(played[2 * received : 2 * received + 640], RATE_HZ, us(received))
            received += 320
        pcm, seen = control.process(heard[2 * at : 2 * ends], us(ends))
        out.append(pcm)
        levels += seen
        at, number = ends, number + 1
    return pcm16_to_float(b"".join(out)), levels


def loss_db(near: np.ndarray, left: np.ndarray) -> float:
    return 10 * float(np.log10(np.mean(near[: len(left)] ** 2) / max(float(np.mean(left**2)), 1e-12)))


@pytest.mark.parametrize("delay_ms", [20.0, 600.0])
def test_the_bot_is_gone_from_its_first_word_on(delay_ms: float) -> None:
    far = spoken(6)
    near = echo(far, delay_ms)
    left, levels = call(EchoControl(WebRtcEcho()), near, far)
    first = slice(0, RATE_HZ + int(delay_ms * 16))
    steady = slice(3 * RATE_HZ, len(left))
    assert loss_db(near[first], left[first]) > 20
    assert loss_db(near[steady], left[steady]) > 35
    assert levels[-1].knowledge is Knowledge.ECHO


def test_a_clock_that_is_200_ppm_fast_changes_nothing() -> None:
    far = spoken(8)
    near = echo(far, 120.0, drift_ppm=200.0)
    left, _ = call(EchoControl(WebRtcEcho()), near, far)
    assert loss_db(near[4 * RATE_HZ :], left[4 * RATE_HZ :]) > 35


def test_a_caller_who_talks_over_the_bot_is_heard() -> None:
    far = spoken(6)
    heard = echo(far, 80.0)
    voice = pcm16_to_float(say("no wait i meant something else", "rms"))[: 2 * RATE_HZ]
    voice *= 4 * np.sqrt(np.mean(heard**2) / np.mean(voice**2))
    at = 4 * RATE_HZ
    near = heard.copy()
    near[at : at + len(voice)] += voice
    left, _ = call(EchoControl(WebRtcEcho()), near, far)
    assert np.mean(left[at : at + len(voice)] ** 2) > 0.5 * np.mean(voice**2)


def test_before_the_echo_is_found_no_one_is_heard() -> None:
    far = spoken(2)
    left, levels = call(EchoControl(WebRtcEcho()), echo(far, 300.0), far)
    guarded = [at for at, one in enumerate(levels) if one.guarded]
    assert guarded
    assert max(guarded) < 120
    loud = [levels[at] for at in guarded[1:] if levels[at].heard_db > -60]
    assert all(one.left_db < one.heard_db - 30 for one in loud)


def test_without_an_echo_the_caller_is_heard_as_recorded() -> None:
    far = spoken(5)
    near = np.resize(pcm16_to_float(say("i do have a headset", "rms")), len(far)).astype(np.float32)
    control = EchoControl(PassingEcho())
    left, levels = call(control, near, far)
    assert levels[-1].knowledge is Knowledge.NO_ECHO
    late = slice(4 * RATE_HZ, len(left))
    assert np.array_equal(left[late], pcm16_to_float(float_to_pcm16(near))[: len(left)][late])


def test_where_there_is_no_echo_nothing_is_cancelled_and_one_that_begins_later_is() -> None:
    far = spoken(10)
    late = 4 * RATE_HZ
    near = echo(far, 120.0)
    near[:late] = 0.0
    engine = CountingEcho()
    _, levels = call(EchoControl(engine), near, far)
    known = [one.knowledge for one in levels]
    without = known.count(Knowledge.NO_ECHO)
    assert without > 200 and known[-1] is Knowledge.ECHO
    # The first frame without a bot still fades to the noise suppressor's output.
    assert engine.frames == len(levels) - without + 1
    # With the real canceller: the headset has been put down.
    left, levels = call(EchoControl(WebRtcEcho()), near, far)
    found = next(at for at, one in enumerate(levels) if one.knowledge is Knowledge.ECHO) * 160
    assert found - late < RATE_HZ
    assert loss_db(near[found:][:RATE_HZ], left[found:][:RATE_HZ]) > 20
    assert loss_db(near[found + 2 * RATE_HZ :], left[found + 2 * RATE_HZ :]) > 30


@pytest.mark.parametrize("sizes", [(320,), (160,), (1_000,), (7, 481, 3)])
def test_pieces_have_no_seams(sizes: tuple[int, ...]) -> None:
    """Without a bot the output does not depend on the arrival of pieces; it is the same to the sample."""
    near = np.resize(pcm16_to_float(say("hello can you hear me", "rms")), 2 * RATE_HZ).astype(np.float32)
    quiet = np.zeros(0, np.float32)
    whole, _ = call(EchoControl(WebRtcEcho()), near, quiet, sizes=(len(near),))
    pieces, levels = call(EchoControl(WebRtcEcho()), near, quiet, sizes=sizes)
    assert np.array_equal(pieces, whole)
    assert len(levels) == 200


def test_the_bots_rate_is_its_own() -> None:
    far = spoken(6)
    near = echo(far, 60.0)
    control = EchoControl(WebRtcEcho())
    # 48 kHz from 16 kHz: each sample three times is good enough for what is tested.
    wide = float_to_pcm16(np.repeat(far, 3))
    out: list[bytes] = []
    heard = float_to_pcm16(near)
    for at in range(0, len(near) - 319, 320):
        control.played(wide[6 * at : 6 * at + 1_920], 48_000, us(at))
        out.append(control.process(heard[2 * at : 2 * at + 640], us(at + 320))[0])
    left = pcm16_to_float(b"".join(out))
    assert loss_db(near[3 * RATE_HZ :], left[3 * RATE_HZ :]) > 35


def test_pieces_may_be_told_from_another_thread() -> None:
    far = spoken(4)
    near = echo(far, 60.0)
    control = EchoControl(WebRtcEcho())
    heard, played = float_to_pcm16(near), float_to_pcm16(far)
    with ThreadPoolExecutor(1) as other:
        for at in range(0, len(near) - 319, 320):
            other.submit(control.played, played[2 * at : 2 * at + 640], RATE_HZ, us(at)).result()
            _, levels = control.process(heard[2 * at : 2 * at + 640], us(at + 320))
    assert levels[-1].knowledge is Knowledge.ECHO


def test_a_bot_that_no_one_listens_to_costs_no_memory() -> None:
    control = EchoControl(PassingEcho())
    for number in range(5_000):
        control.played(bytes(640), RATE_HZ, us(320 * number))
    pcm, _ = control.process(bytes(640), us(320 * 5_000))
    assert len(pcm) == 640


def test_a_failing_engine_says_so() -> None:
    control = EchoControl(FailingEcho(2))
    control.process(bytes(640), us(320))
    with pytest.raises(EngineError):
        control.process(bytes(640), us(640))


def test_nothing_is_heard_of_a_call_that_is_over() -> None:
    control = EchoControl(PassingEcho())
    control.close()
    assert control.process(bytes(640), us(320)) == (b"", [])


def test_a_call_ends_after_the_piece_that_a_thread_works_on() -> None:
    working, may_end = threading.Event(), threading.Event()
    control = EchoControl(WaitingEcho(working, may_end))
    with ThreadPoolExecutor(2) as threads:
        piece = threads.submit(control.process, bytes(640), us(320))
        assert working.wait(5)
        ending = threads.submit(control.close)
        may_end.set()
        assert len(piece.result(5)[0]) == 640
        ending.result(5)
    assert control.is_closed
