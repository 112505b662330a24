"""The end of a process, as its parent observes it."""

import os
import subprocess
import sys

import pytest

BUFFERED = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
SCRIPT = """
import logging.handlers, sys, threading, time
from parley.runtime.process_exit import exit_process

class Late:
    def __del__(self):
        print("torn down")

late = Late()
kept = logging.handlers.MemoryHandler(1_000, target=logging.StreamHandler(sys.stdout))
logging.getLogger().addHandler(kept)
threading.Thread(target=time.sleep, args=(60,)).start()
logging.getLogger().warning("logged")
print("done", end=", ")
exit_process(int(sys.argv[1]))
"""


@pytest.mark.parametrize("status", [0, 3])
def test_what_was_written_is_out_and_nothing_is_waited_for(status: int):
    ended = subprocess.run(
        [sys.executable, "-c", SCRIPT, str(status)], capture_output=True, text=True, timeout=30, env=BUFFERED
    )
    assert (ended.returncode, ended.stdout, ended.stderr) == (status, "done, logged\n", "")


def test_an_output_that_cannot_be_written_is_a_failure():
    script = (
        "import os; from parley.runtime.process_exit import exit_process; print('x'); os.close(1);"
        " exit_process(0)"
    )
    assert subprocess.run([sys.executable, "-c", script], timeout=30, env=BUFFERED).returncode == 1
