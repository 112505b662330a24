"""The product with a telephone line, in a process of its own, and the calls in its sessions."""

import asyncio
import json
import re
import time
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

from parley.evals.harness import sessions
from parley.evals.harness.launcher import PRODUCT, Server, launched
from parley.evals.harness.phone_network import AUTH_TOKEN, PUBLIC, Front, front_of

# Speech at the end of a call is committed a moment later.
SETTLE_S = 0.5
IGNORED = "a message of a telephone stream is ignored"
_CUT = re.compile(r"^(\S+ \S+) \| DEBUG .*BargeInStartStrategy\S*: Cut\(")


@dataclass
class Telephone:
    """A server and the other end of its line.

    Attributes:
        server: its process.
        front: address for callers.
        log: of the server.
    """

    server: Server
    front: Front
    log: Path

    def ignored(self) -> list[str]:
        """Return the log lines about messages of callers that the server ignored as wrong."""
        return [line for line in self.log.read_text(errors="replace").splitlines() if IGNORED in line]

    def cuts_s(self) -> list[float]:
        """Return the times at which cuts were decided, wall clock; the server must log at DEBUG."""
        lines = self.log.read_text(errors="replace").splitlines()
        found = [match[1] for match in map(_CUT.match, lines) if match is not None]
        return [datetime.strptime(at, "%Y-%m-%d %H:%M:%S.%f").timestamp() for at in found]

    async def newest(self) -> Sequence[Mapping[str, Any]]:
        """Return the timeline of the session that began last."""
        await asyncio.sleep(SETTLE_S)
        return await sessions.newest(self.server.url)


@asynccontextmanager
async def telephone(
    folder: Path, *arguments: str, greeting: str | None = None, more: str = ""
) -> AsyncIterator[Telephone]:
    """Run a server with a telephone line, signatures checked, and a front that signs.

    Args:
        folder: for its files.
        arguments: of ``bot.py``.
        greeting: of the bot, for which every call waits. None uses the deployment's.
        more: YAML of the deployment.

    Raises:
        PeerError: it does not start.
    """
    greeted = "" if greeting is None else f"bot: {{greeting: {json.dumps(greeting)}}}\n"
    deployment, log = _files(folder, greeted + more)
    given = ("--config", str(deployment), *arguments)
    async with (
        launched(PRODUCT, log, *given, environment={"TWILIO_AUTH_TOKEN": AUTH_TOKEN}) as server,
        front_of(server.url) as front,
    ):
        yield Telephone(server, front, log)


def _files(folder: Path, more: str) -> tuple[Path, Path]:
    """Write the deployment; return its path and that of the log."""
    folder.mkdir(parents=True, exist_ok=True)
    deployment, log = folder / "phone.yaml", folder / "server.log"
    store = json.dumps(f"sqlite:///{folder.resolve()}/sessions-{time.time_ns()}.db")
    deployment.write_text(
        f"phone: {{public_url: '{PUBLIC}'}}\nserver: {{sessions_per_minute: 10000, open: true}}\n"
        f"remembering: {{store: {{url: {store}}}}}\n{more}"
    )
    return deployment, log


def turns(events: Sequence[Mapping[str, Any]], kind: str) -> list[Mapping[str, Any]]:
    """Return the payloads of one kind, in order."""
    return [event["payload"] for event in events if event["kind"] == kind]
