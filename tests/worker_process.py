"""A worker in a process of its own, which ends with the test."""

import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
Worker = tuple[subprocess.Popen[str], str]


@contextmanager
def worker_process(
    command: Sequence[str], environment: Mapping[str, str], *, stderr: int | None = None
) -> Iterator[Worker]:
    """Run a command that prints the worker's address first; yield its process and the address.

    The address is empty when the worker ended without one.
    """
    process = subprocess.Popen(
        command,
        cwd=ROOT,
        env=environment,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=stderr,
        text=True,
    )
    try:
        assert process.stdout is not None
        yield process, process.stdout.readline().strip()
    finally:
        process.kill()
        process.communicate(timeout=10)
