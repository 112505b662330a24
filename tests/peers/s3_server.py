"""A server of S3 on loopback: moto's, as a process that can be stopped, killed and started again."""

import os
import signal
import socket
import subprocess
import sys
import time
from typing import Self

import httpx

from parley.recording.settings import S3Settings

BUCKET = "recordings"
START_S = 60.0


class S3Server:
    """Process of ``moto.server``; a context. Its buckets are gone when it ends.

    Attributes:
        url: its address.
    """

    def __init__(self) -> None:
        with socket.create_server(("127.0.0.1", 0)) as free:
            self._port = free.getsockname()[1]
        self.url = f"http://127.0.0.1:{self._port}"
        self._process: subprocess.Popen[bytes] | None = None

    @property
    def settings(self) -> S3Settings:
        """Settings of a deployment that records into its bucket."""
        return S3Settings(bucket=BUCKET, prefix="parley/calls", endpoint=self.url)

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()

    def start(self) -> None:
        """Start the process, and make the bucket."""
        self._process = subprocess.Popen(
            (sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(self._port)),
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "PYTHONWARNINGS": "ignore"},
        )
        until_s = time.monotonic() + START_S
        while True:
            try:
                httpx.put(f"{self.url}/{BUCKET}", timeout=10).raise_for_status()
                return
            except httpx.TransportError:
                assert self._process.poll() is None and time.monotonic() < until_s, "moto does not start"
                time.sleep(0.1)

    def kill(self) -> None:
        """Kill the process."""
        if self._process is not None:
            self._process.kill()
            self._process.wait()
            self._process = None

    def freeze(self) -> None:
        """Let the process accept connections and answer nothing."""
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def thaw(self) -> None:
        """Go on."""
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)
