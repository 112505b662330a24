"""Ctrl-C before a command can stop in order, and after."""

import subprocess
import sys
from pathlib import Path

import pytest

# A package whose import takes an interrupt and hides it, as callbacks of C code do.
SWALLOWS = """
import os, signal
try:
    os.kill(os.getpid(), signal.SIGINT)
except KeyboardInterrupt:
    pass
"""
PREAMBLE = """
import asyncio, os, signal, sys
# As from a shell at a terminal, also where the tests run in the background.
signal.signal(signal.SIGINT, signal.default_int_handler)
from parley.runtime import event_loop
from parley.runtime.interrupts import end_at_once, end_at_once_during_imports, stopping_in_order

def press():
    os.kill(os.getpid(), signal.SIGINT)

async def stop():
    try:
        press()
        await asyncio.sleep(60)
    finally:
        print("stopped")
"""


def ended(tmp_path: Path, script: str) -> tuple[int, str, str]:
    """Return the exit status of a script, and what it wrote."""
    (tmp_path / "swallows.py").write_text(SWALLOWS)
    code = f"import sys; sys.path.append({str(tmp_path)!r})\n{PREAMBLE}{script}\n"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    return done.returncode, done.stdout, done.stderr


@pytest.mark.parametrize("begin", ["end_at_once()", "end_at_once(), end_at_once_during_imports()"])
def test_an_interrupt_during_an_import_ends_the_process(begin: str, tmp_path: Path):
    script = f"{begin}\nprint('begun', end='')\nimport swallows\nprint('lost')"
    assert ended(tmp_path, script) == (130, "begun", "")


def test_an_interrupt_before_there_is_anything_to_stop_ends_the_process(tmp_path: Path):
    assert ended(tmp_path, "end_at_once()\npress()\nprint('lost')") == (130, "", "")


def test_work_that_undoes_itself_gets_the_exception(tmp_path: Path):
    script = (
        "end_at_once()\nend_at_once_during_imports()\n"
        "try:\n    press()\nexcept KeyboardInterrupt:\n    print('undone')"
    )
    assert ended(tmp_path, script) == (0, "undone\n", "")


@pytest.mark.parametrize("run", ["event_loop.run", "event_loop.run_asyncio"])
def test_the_task_of_an_event_loop_is_cancelled(run: str, tmp_path: Path):
    script = (
        f"end_at_once()\ntry:\n    {run}(stop())\nexcept KeyboardInterrupt:\n    print('interrupted')\n"
        "sys.stdout.flush()\npress()\nprint('lost')"
    )
    assert ended(tmp_path, script) == (130, "stopped\ninterrupted\n", "")


def test_a_process_that_ignores_interrupts_still_does(tmp_path: Path):
    script = (
        "signal.signal(signal.SIGINT, signal.SIG_IGN)\nend_at_once()\nend_at_once_during_imports()\n"
        "with stopping_in_order():\n    press()\nprint('went on')"
    )
    assert ended(tmp_path, script) == (0, "went on\n", "")
