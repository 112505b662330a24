"""Metrics of whole calls on virtual time, compared with the recording of both sides."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from tests.fakes.scrape import Scrape
from tests.sim.call import RATE_HZ, RunningCall, SimulatedCall, silence, simulate, voice

QUESTION = (silence(200), voice(800), silence(2_500))
LONG = " ".join(["ten"] * 40)


def measured(caller: Sequence[np.ndarray], folder: Path, **settings: object) -> tuple[SimulatedCall, Scrape]:
    """Return a call, and the metrics of its process after it."""
    processes = []

    async def look(running: RunningCall) -> None:
        processes.append(running.engines)

    call = simulate(caller, folder, concurrently=look, **settings)  # type: ignore[arg-type]
    [engines] = processes
    return call, Scrape(engines.metrics.render("")[0].decode())


def last_sound_s(call: SimulatedCall, *, before_s: float) -> float:
    """Return the moment of the caller's last sound before a moment."""
    loud = np.flatnonzero(np.abs(call.stereo[: int(before_s * RATE_HZ), 0]) > 0.01)
    return float(loud[-1]) / RATE_HZ


@pytest.mark.parametrize(("omni", "mode"), [(None, "cascade"), ([], "duplex")])
def test_the_stages_add_up_to_the_recorded_voice_to_voice(tmp_path: Path, omni: list | None, mode: str):
    call, metrics = measured(QUESTION, tmp_path, omni=omni)
    answer_s = call.bot_spans_ms()[0][0] / 1000
    recorded_s = answer_s - last_sound_s(call, before_s=answer_s)
    measured_s = metrics.value("parley_voice_to_voice_seconds_sum")
    stages_s = sum(
        value for (name, _), value in metrics.samples.items() if name == "parley_stage_seconds_sum"
    )
    assert metrics.value("parley_voice_to_voice_seconds_count") == 1
    assert measured_s == pytest.approx(recorded_s, abs=0.02)
    assert stages_s == pytest.approx(measured_s, abs=0.002)
    assert metrics.value("parley_calls_total", transport="file", mode=mode) == 1
    assert metrics.value("parley_calls_open", transport="file", mode=mode) == 0
    assert metrics.value("parley_turns_total") == 1
    assert metrics.value("unmute_vllm_request_length_words_count") == 1


def test_the_stop_of_an_interrupted_reply_is_the_recorded_one(tmp_path: Path):
    caller = (silence(200), voice(800), silence(3_000), voice(1_500), silence(4_000))
    call, metrics = measured(caller, tmp_path, scripts=[(LONG,), ("Sure.",)])
    cut_s = call.bot_spans_ms(gap_ms=200)[0][1] / 1000
    # The caller interrupts after four seconds.
    recorded_s = cut_s - 4.0
    assert metrics.value("parley_interruptions_total") == 1
    assert metrics.value("parley_barge_in_stop_seconds_count") == 1
    assert metrics.value("parley_barge_in_stop_seconds_sum") == pytest.approx(recorded_s, abs=0.05)
