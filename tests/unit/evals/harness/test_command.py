"""The end of a measurement that is interrupted or terminated."""

import signal
import subprocess
import sys

import pytest

# A measurement that has started something and stops it in the end.
MEASUREMENT = """
import asyncio
from parley.evals.harness.command import exit_code

async def measure():
    try:
        print("started", flush=True)
        await asyncio.Event().wait()
    finally:
        print("stopped", flush=True)
    return 0

raise SystemExit(exit_code(lambda: asyncio.run(measure())))
"""


@pytest.mark.parametrize("sent", [signal.SIGTERM, signal.SIGINT])
def test_a_measurement_that_is_ended_from_outside_stops_what_it_started(sent: signal.Signals):
    with subprocess.Popen(
        [sys.executable, "-c", MEASUREMENT], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    ) as child:
        try:
            assert child.stdout is not None
            assert child.stdout.readline() == "started\n"
            child.send_signal(sent)
            output, errors = child.communicate(timeout=30)
        finally:
            child.kill()
    assert (output, errors, child.returncode) == ("stopped\n", "interrupted\n", 130)
