"""Servers as processes of their own: the error when one does not start, and no process that outlives it."""

import asyncio
import os
import sys
from pathlib import Path

import psutil
import pytest

from parley.core.errors import PeerError
from parley.evals.harness.launcher import free_port, started

# A server that answers every request with 200, and has a child, as a server with a recogniser has.
SERVES = """
import subprocess, sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Healthy(BaseHTTPRequestHandler):
    def do_GET(self):
        self.send_response(200)
        self.end_headers()

    def log_message(self, *_said):
        pass

print(subprocess.Popen(["sleep", "600"]).pid, flush=True)
HTTPServer(("127.0.0.1", int(sys.argv[1])), Healthy).serve_forever()
"""


async def ended(process: int) -> None:
    """Return when the process of this descriptor has ended, whether or not its parent has collected it."""
    over = asyncio.Event()
    asyncio.get_running_loop().add_reader(process, over.set)
    try:
        async with asyncio.timeout(5):
            await over.wait()
    finally:
        asyncio.get_running_loop().remove_reader(process)
        os.close(process)


async def test_a_server_that_ends_is_an_error_with_its_last_line(tmp_path: Path) -> None:
    ends = [sys.executable, "-c", "print('loading'); print('no such engine'); raise SystemExit(2)"]
    with pytest.raises(PeerError, match="the server ended with 2: no such engine"):
        async with started(ends, free_port(), tmp_path / "log"):
            pass


async def test_a_server_is_ended_with_its_children_and_its_log_goes_on(tmp_path: Path) -> None:
    log = tmp_path / "log"
    for _ in range(2):
        port = free_port()
        async with started([sys.executable, "-c", SERVES, str(port)], port, log) as server:
            child = int(log.read_text().split()[-1])
            assert server.pid is not None and server.cpu_s() is not None
            assert psutil.Process(child).ppid() == server.pid
            child_end = os.pidfd_open(child)
        assert not psutil.pid_exists(server.pid)
        await ended(child_end)
    assert len(log.read_text().split()) == 2


async def test_what_fails_alongside_a_server_ends_it(tmp_path: Path) -> None:
    port = free_port()
    with pytest.raises(KeyError):
        async with started([sys.executable, "-c", SERVES, str(port)], port, tmp_path / "log") as server:
            raise KeyError
    assert server.pid is not None and not psutil.pid_exists(server.pid)
