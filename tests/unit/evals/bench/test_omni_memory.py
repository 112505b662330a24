import json
import multiprocessing
import subprocess
import sys
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from parley.evals.bench.omni_memory import main, measure
from tests.fakes.omni import ScriptedOmni, ScriptedOmniHost

# A conversation of six units, when it is retained, takes about 40 KiB.
MOST_BYTES_PER_SESSION = 10 * 1024


@pytest.mark.slow
def test_conversations_with_moshi_leave_nothing_behind(tmp_path: Path):
    pytest.importorskip("transformers", reason="needs the extra 'moshi'")
    figures = tmp_path / "out.json"
    # In a process of its own: memory that other tests release late does not count.
    command = [*(sys.executable, "-m", "parley.evals.bench", "omni_memory"), *("--json", str(figures))]
    found = subprocess.run(
        [*command, "--sessions", "20", "--units", "6", "--warm-up", "20"],
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert found.returncode == 0, found.stderr
    assert "20 conversations of 6 units" in found.stdout
    result = json.loads(figures.read_text())
    assert len(result["rss_bytes"]) == 11
    assert result["growth_bytes_per_session"] < MOST_BYTES_PER_SESSION


# That much is always requested anew from the system; less may fit into freed memory.
LEAK_BYTES = 33 * 2**20


@dataclass(slots=True)
class LeakingHost(ScriptedOmniHost):
    """Host that leaks ``LEAK_BYTES`` of each conversation."""

    kept: list[np.ndarray] = field(default_factory=list)

    def open_engine(self) -> ScriptedOmni:
        self.kept.append(np.ones(LEAK_BYTES // 8))
        return super(LeakingHost, self).open_engine()


def measured_leak() -> dict[str, Any]:
    return measure(LeakingHost(), sessions=5, units=2, warm_up=1)


def test_what_is_kept_is_seen():
    # Memory that other tests of this process have left is released at times of the system's own.
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as pool:
        result = pool.submit(measured_leak).result(timeout=60)
    assert result["growth_bytes_per_session"] == pytest.approx(LEAK_BYTES, rel=0.1)
    assert result["slope_bytes_per_session"] == pytest.approx(LEAK_BYTES, rel=0.1)


def test_a_model_that_is_not_there_is_an_error_of_one_line(capsys):
    assert main(["--model", "/no/such/moshi"]) == 2
    assert capsys.readouterr().err.count("\n") == 1
