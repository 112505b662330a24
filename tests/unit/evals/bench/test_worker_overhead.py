"""The figures of the command, and a run of it."""

import json
import subprocess
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import cast

import pytest

from parley.evals.bench.speech_waits import heard, percentiles, spoken
from parley.models.stt import Transcript
from parley.runtime.stream_threads import StreamThreads
from tests import virtual_time
from tests.fakes.stt import ScriptedStt, ScriptedSttSettings
from tests.fakes.tts import ToneTts
from tests.in_place_engine import InPlaceEngine
from tests.voices import silence, tone

ROOT = Path(__file__).parents[4]


def test_a_partial_is_counted_from_the_beginning_of_the_audio_and_a_final_from_its_end() -> None:
    engine = InPlaceEngine[Transcript](ScriptedStt(), lambda heard: cast(Transcript, heard))
    # A word is 200 ms of voice: the first partial comes with the piece that fills it.
    waits = virtual_time.run(heard(engine, [silence(100) + tone(500)], streams=3, each=2))
    assert waits.lost == 0 and len(waits.whole_ms) == 6
    assert waits.first_ms == pytest.approx([280] * 6, abs=1) and waits.whole_ms == pytest.approx(
        [0] * 6, abs=1
    )


async def test_an_engine_that_is_slow_is_seen() -> None:
    slow = StreamThreads[Transcript](ScriptedStt(ScriptedSttSettings(work_ms=400)), name="slow")
    waits = await heard(slow, [silence(20) + tone(300)], streams=1, each=1)
    # Its partial is made after the audio's end and is not delivered: the first result is the final.
    assert waits.lost == 0 and waits.whole_ms[0] >= 300
    assert waits.first_ms[0] >= 320 + waits.whole_ms[0]


async def test_what_is_not_understood_is_counted_as_lost() -> None:
    engine = StreamThreads[Transcript](ScriptedStt(), name="deaf")
    waits = await heard(engine, [silence(40)], streams=2, each=1)
    assert waits.lost == 2 and waits.summary()["whole_ms"] is None


async def test_clauses_that_wait_for_a_thread_have_waited_for_their_first_audio() -> None:
    gate = threading.Event()
    threading.Timer(0.2, gate.set).start()
    voice = ToneTts(before_piece=lambda: gate.wait(10))
    with ThreadPoolExecutor(1) as executor:
        waits = await spoken(voice, executor, ["hello there"], streams=2, each=1)
    assert waits.lost == 0 and len(waits.first_ms) == 2
    assert all(first <= whole for first, whole in zip(waits.first_ms, waits.whole_ms, strict=True))


def test_percentiles_of_few() -> None:
    assert percentiles([]) is None
    assert percentiles([3.0]) == {"p50": 3.0, "p99": 3.0}
    assert percentiles([float(number) for number in range(101)]) == {"p50": 50.0, "p99": 99.0}


@pytest.mark.slow
def test_the_command_measures_both_and_loses_nothing() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "parley.evals.bench", "worker_overhead", "--streams", "2", "--each", "1"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr[-2_000:]
    found = json.loads(done.stdout)
    for stage in ("stt", "tts"):
        for how in ("2 embedded", "2 hosted"):
            assert found[stage][how]["measured"] == 2 and found[stage][how]["lost"] == 0
