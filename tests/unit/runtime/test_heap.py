"""Memory that is returned to the system."""

import gc
import subprocess
import sys
from pathlib import Path

import pytest

from parley.core.errors import ConfigError
from parley.runtime.heap import without_collection

ROOT = Path(__file__).resolve().parents[3]
# Blocks of many sizes, so that retained blocks lie among freed ones.
PROGRAM = """
from parley.core.errors import ConfigError
from parley.runtime.heap import bound_heap, trim_heap
def rss_mb():
    return int(open("/proc/self/statm").read().split()[1]) * 4096 / 1e6
assert bound_heap()
before = rss_mb()
blocks = [bytes(1_000 + number % 7_000) for number in range(40_000)]
kept = blocks[::100]
held = rss_mb()
del blocks
trim_heap()
print(before, held, rss_mb())
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="glibc's allocator")
def test_memory_that_was_freed_goes_back_although_some_of_it_is_kept():
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM], cwd=ROOT, capture_output=True, text=True, check=True, timeout=60
    )
    before, held, after = map(float, done.stdout.split())
    assert held - before > 100
    assert after - before < 0.2 * (held - before)


def test_the_collector_works_again_after_a_start_that_failed():
    with pytest.raises(ConfigError), without_collection():
        assert not gc.isenabled()
        raise ConfigError("nothing to load")
    assert gc.isenabled()
