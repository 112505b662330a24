import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from parley.runtime.atomic_file import replace_file, sweep

ROOT = Path(__file__).parents[3]
# Writes for ever, each time a file of one repeated letter.
WRITER = """
import itertools, sys
from pathlib import Path
from parley.runtime.atomic_file import replace_file
for letter in itertools.cycle(b"abcdefgh"):
    replace_file(Path(sys.argv[1]), bytes([letter]) * 2_000_000)
    print("written", flush=True)
"""


def test_a_file_gets_its_content_and_its_folder(tmp_path: Path):
    path = tmp_path / "a" / "b" / "small.json"
    replace_file(path, b"one")
    replace_file(path, b"two")
    assert path.read_bytes() == b"two"
    assert os.listdir(path.parent) == ["small.json"]


def test_a_write_that_fails_leaves_the_old_content_and_nothing_else(tmp_path: Path):
    path = tmp_path / "small.json"
    path.mkdir()
    (path / "kept").write_bytes(b"old")
    with pytest.raises(OSError, match="directory"):
        replace_file(path, b"new")
    assert os.listdir(tmp_path) == ["small.json"] and os.listdir(path) == ["kept"]


def test_a_writer_that_is_killed_leaves_a_whole_file(tmp_path: Path):
    path = tmp_path / "small.json"
    for _ in range(5):
        writer = subprocess.Popen(
            [sys.executable, "-c", WRITER, str(path)], cwd=ROOT, stdout=subprocess.PIPE, text=True
        )
        assert writer.stdout is not None
        assert writer.stdout.readline() == "written\n"
        time.sleep(0.02)
        writer.send_signal(signal.SIGKILL)
        writer.wait()
        writer.stdout.close()
        content = path.read_bytes()
        assert len(content) == 2_000_000 and len(set(content)) == 1
    sweep(path)
    assert os.listdir(tmp_path) == ["small.json"]
