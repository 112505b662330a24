"""The server under attack: ``bot.py`` as a process of its own, with a telephone line and a folder of its own.

``Target`` has the data that an attacker's process needs, and travels as JSON. Settings are a deployment's
defaults: a server that is hardened against the attack would show little.
"""

import asyncio
import base64
import json
import os
import secrets
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from parley.core.errors import PeerError
from parley.evals.abuse.footprint import Footprint, footprint
from parley.evals.harness.launcher import PRODUCT, command, free_port, started
from parley.evals.harness.phone_network import AUTH_TOKEN, PUBLIC
from parley.evals.harness.questions import LONG_SPEECH
from parley.serving.gateway.phone.carriers import CARRIERS
from parley.serving.gateway.settings import ServerTuning

OPERATOR_TOKEN_ENV = "PARLEY_ADMIN_TOKEN"
KEYS_ENV = "PARLEY_CALL_KEYS"
# Default limit of descriptors of a process; a server may raise it.
LIMITED = 'ulimit -S -n 1024 && exec "$@"'
# Lines of a server's log that a client must not be able to cause.
FAILURES = (
    "a conversation failed",
    "a request failed",
    "a typed turn failed",
    "ASGI callable returned",
    "Task exception was never retrieved",
)


@dataclass(frozen=True, slots=True)
class Setting:
    """Settings of a server beyond the defaults.

    Attributes:
        deployment: parts of the deployment, by name.
        environment: variables.
        facts: data that an attack of this setting needs (addresses of peers).
        operator_token: true when the environment names the operator's token.
        keys: of applications.
        clock: file that shifts the server's wall clock (``evals.abuse.shifted_clock``). None for the right
            time.
        store_faults: file that slows the session store or makes it read-only (``evals.abuse.faulty_store``).
            None for a sound disk.
    """

    deployment: Mapping[str, Any] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    facts: Mapping[str, str] = field(default_factory=dict)
    operator_token: bool = True
    keys: tuple[str, ...] = ()
    clock: Path | None = None
    store_faults: Path | None = None


@dataclass(frozen=True, slots=True)
class Target:
    """A server that answers.

    Attributes:
        url: its root.
        pid: its process.
        log: its output.
        operator_token: of the operator. Empty when there is none.
        keys: of applications.
        auth_token: Twilio's, which signs webhooks.
        facts: see ``Setting``.
    """

    url: str
    pid: int
    log: str
    operator_token: str = ""
    keys: tuple[str, ...] = ()
    auth_token: str = AUTH_TOKEN
    facts: Mapping[str, str] = field(default_factory=dict)

    @property
    def port(self) -> int:
        """Port of the server."""
        return int(self.url.rpartition(":")[2])

    @property
    def socket_url(self) -> str:
        """Root for sockets."""
        return self.url.replace("http", "ws", 1)

    async def footprint(self) -> Footprint:
        """Return its present resources."""
        return await footprint(self.url, self.pid)

    def failures(self) -> int:
        """Return the number of lines in its log that a client must not be able to cause."""
        lines = Path(self.log).read_text(errors="replace").splitlines()
        return sum(any(mark in line for mark in FAILURES) for line in lines)

    def as_json(self) -> str:
        """Return the target as JSON, for another process."""
        return json.dumps(asdict(self))

    @classmethod
    def from_json(cls, text: str) -> "Target":
        """Parse the output of ``as_json``."""
        given = json.loads(text)
        return cls(**{**given, "keys": tuple(given["keys"])})


@asynccontextmanager
async def serving(folder: Path, setting: Setting) -> AsyncIterator[Target]:
    """Run a server of this setting until the end of the context.

    Args:
        folder: for its files. Created when it is missing.
        setting: beyond the defaults.

    Raises:
        PeerError: it does not start.
    """
    port, config, log = free_port(), folder / "abuse.yaml", folder / "server.log"
    await asyncio.to_thread(_prepare, folder, config, log, setting.deployment)
    token = secrets.token_urlsafe(32) if setting.operator_token else ""
    environment = {
        "TWILIO_AUTH_TOKEN": AUTH_TOKEN,
        **_carrier_secrets(),
        OPERATOR_TOKEN_ENV: token,
        KEYS_ENV: ",".join(setting.keys),
        **setting.environment,
    }
    python, *program = command(PRODUCT, port, "--config", str(config))
    if setting.clock is not None:
        program = ["-m", "parley.evals.abuse.shifted_clock", str(setting.clock), *program]
    if setting.store_faults is not None:
        program = ["-m", "parley.evals.abuse.faulty_store", str(setting.store_faults), *program]
    limited = ("/bin/sh", "-c", LIMITED, "sh", python, *program)
    async with started(limited, port, log, environment=environment) as server:
        if server.pid is None:
            raise PeerError("the server has no process")
        token = token or generated_token(folder)
        yield Target(server.url, server.pid, str(log), token, setting.keys, facts=setting.facts)


def _carrier_secrets() -> dict[str, str]:
    """Return random secrets for the networks with which attackers have no account."""
    key = Ed25519PrivateKey.generate().public_key().public_bytes_raw()
    names = [variable for name in CARRIERS for variable in CARRIERS.row(name).env]
    secret = {name: secrets.token_urlsafe(32) for name in names}
    return {**secret, "TELNYX_PUBLIC_KEY": base64.b64encode(key).decode()}


def _prepare(folder: Path, config: Path, log: Path, more: Mapping[str, Any]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    log.unlink(missing_ok=True)
    config.write_text(json.dumps(deployment(folder, more)))


def deployment(folder: Path, more: Mapping[str, Any]) -> dict[str, Any]:
    """Return the deployment of a server under attack, as JSON, which is YAML."""
    parts: dict[str, Any] = {
        # The question of a control call comes during an attack of 20 s.
        "bot": {"greeting": LONG_SPEECH},
        "duplex": {"tick_log": None},
        "operations": {"data_dir": str(folder.resolve() / "data")},
        "phone": {"public_url": PUBLIC, "carriers": list(CARRIERS)},
        "remembering": {"store": {"url": f"sqlite:///{folder.resolve()}/sessions.db"}},
        # A server that others reach and that requires no key must state that this is intended.
        "server": {"open": True} if "open" in ServerTuning.model_fields else {},
    }
    return {name: part for name, part in _merged(parts, more).items() if part is not None}


def _merged(parts: Mapping[str, Any], more: Mapping[str, Any]) -> dict[str, Any]:
    merged = dict(parts)
    for name, part in more.items():
        known = merged.get(name)
        if isinstance(known, Mapping) and isinstance(part, Mapping):
            merged[name] = _merged(known, part)
        else:
            merged[name] = part
    return merged


def generated_token(folder: Path) -> str:
    """Return the token that a server without one has generated for its operator; empty when there is none."""
    for path in sorted(folder.rglob("*token*")):
        if path.is_file() and not path.stat().st_mode & 0o077:
            return path.read_text().strip()
    return ""


def own_address(number: int) -> str:
    """Return a loopback address for one client alone."""
    return f"127.{os.getpid() % 200 + 20}.{number // 250 + 1}.{number % 250 + 1}"
