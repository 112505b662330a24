"""A program whose wall clock another process sets."""

import json
import os
import subprocess
import sys
from pathlib import Path

from parley.evals.abuse.shifted_clock import shift
from parley.evals.harness.launcher import ROOT

DAYS_40_S = 40 * 86_400
PROGRAM = """
import json, sys, time
for _ in sys.stdin:
    print(json.dumps([time.time(), time.time_ns(), sys.argv[1:], __name__]), flush=True)
"""


def test_the_clock_of_a_running_program_goes_by_the_file(tmp_path: Path):
    clock, program = tmp_path / "clock", tmp_path / "program.py"
    shift(clock, 0.0)
    program.write_text(PROGRAM)
    right = os.stat(program).st_mtime
    command = [
        sys.executable,
        "-m",
        "parley.evals.abuse.shifted_clock",
        str(clock),
        str(program),
        "--port",
        "1",
    ]
    with subprocess.Popen(
        command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as running:
        assert running.stdin is not None and running.stdout is not None
        for ahead_s in (0, DAYS_40_S, 0):
            shift(clock, float(ahead_s))
            running.stdin.write("\n")
            running.stdin.flush()
            seconds, nanoseconds, arguments, name = json.loads(running.stdout.readline())
            # Within an hour of the file's own time: no day of the forty is missing.
            assert 0 <= seconds - right - ahead_s < 3_600
            assert 0 <= nanoseconds / 1e9 - right - ahead_s < 3_600
        assert (arguments, name) == (["--port", "1"], "__main__")
        running.stdin.close()
