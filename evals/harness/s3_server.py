"""A server of S3 on loopback: moto's, as a process that can be stopped, killed and started again.

It needs the extra ``dev``.
"""

import os
import signal
import socket
import subprocess
import sys
import time
from typing import Self
from xml.etree import ElementTree

import httpx

from parley.recording.settings import S3Settings
from parley.runtime.object_store import ObjectStore

BUCKET = "recordings"
CREDENTIALS = ("key", "secret")
START_S = 60.0
_MOST_BYTES = 100_000_000
_NAMESPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


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

    @property
    def environment(self) -> dict[str, str]:
        """Variables with which a process reaches it by AWS's own names."""
        key, secret = CREDENTIALS
        return {"AWS_ENDPOINT_URL": self.url, "AWS_ACCESS_KEY_ID": key, "AWS_SECRET_ACCESS_KEY": secret}

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

    def keep_versions(self) -> None:
        """Keep every version of each object from now on."""
        wanted = f'<VersioningConfiguration xmlns="{_NAMESPACE}"><Status>Enabled</Status>'
        content = f"{wanted}</VersioningConfiguration>"
        httpx.put(f"{self.url}/{BUCKET}?versioning", content=content, timeout=10).raise_for_status()

    def versions(self, beginning: str) -> dict[str, int]:
        """Return the number of versions of each object below a name, by the rest of their names."""
        counts: dict[str, int] = {}
        marker: dict[str, str] = {}
        while True:
            query = {"versions": "", "prefix": beginning, **marker}
            answer = httpx.get(f"{self.url}/{BUCKET}", params=query, timeout=60).raise_for_status()
            page = ElementTree.fromstring(answer.text)
            for each in page.iterfind(f"{{{_NAMESPACE}}}Version"):
                name = each.findtext(f"{{{_NAMESPACE}}}Key", "").removeprefix(beginning)
                counts[name] = counts.get(name, 0) + 1
            if page.findtext(f"{{{_NAMESPACE}}}IsTruncated") != "true":
                return counts
            marker = {
                option: page.findtext(f"{{{_NAMESPACE}}}Next{field}", "")
                for option, field in (("key-marker", "KeyMarker"), ("version-id-marker", "VersionIdMarker"))
            }

    def put(self, name: str, content: bytes) -> None:
        """Write an object."""
        self._store().put(name, content)

    def content(self, name: str) -> bytes:
        """Return an object."""
        return self._store().read(name, 0, _MOST_BYTES)

    def _store(self) -> ObjectStore:
        return ObjectStore(BUCKET, option="moto", endpoint=self.url, credentials=CREDENTIALS)
