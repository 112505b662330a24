"""Definition of an attack, and the list of all attacks.

An attack is a coroutine function with a name, the defect for which it stands, and the setting of the server
that it needs. It runs in a process of its own, next to control calls that measure their own audio. It returns
the faults that it can judge itself (such as an answer that should have been refused).
"""

import asyncio
import random
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

import aiohttp
from websockets.asyncio.client import ClientConnection, connect

from parley.core.errors import ConfigError
from parley.evals.abuse.target import Target, own_address

REQUEST_S, OPEN_S = 15.0, 10.0


@dataclass(frozen=True, slots=True)
class Outcome:
    """Result of an attack.

    Attributes:
        sent: number of requests, messages, sockets or signals that left. 0 is a fault. None for an attack
            that has nothing to send.
        did: counts and figures, for the report.
        faults: results that the attacker must not get. Empty when the server behaved correctly.
    """

    sent: int | None
    did: dict[str, object] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class AttackRun:
    """Run of an attack against one server.

    Attributes:
        target: the server.
        seconds: length of the attack.
        dice: of everything random.
    """

    target: Target
    seconds: float
    dice: random.Random

    def client(self, number: int = 1, *, token: str = "") -> aiohttp.ClientSession:
        """Return an HTTP client with an address of its own.

        Args:
            number: of the address. The control callers have 127.0.0.1 to 127.0.0.3.
            token: sent as a bearer token.
        """
        return aiohttp.ClientSession(
            self.target.url,
            connector=aiohttp.TCPConnector(local_addr=(own_address(number), 0), limit=0),
            timeout=aiohttp.ClientTimeout(total=REQUEST_S),
            headers={"Authorization": f"Bearer {token}"} if token else {},
        )

    async def socket(
        self, path: str, number: int = 1, *, subprotocols: tuple[str, ...] = (), token: str = ""
    ) -> ClientConnection:
        """Open a socket from an address of its own. Raises as ``websockets.connect``."""
        return await connect(
            f"{self.target.socket_url}{path}",
            subprotocols=list(subprotocols) or None,  # type: ignore[arg-type]
            additional_headers={"Authorization": f"Bearer {token}"} if token else None,
            local_addr=(own_address(number), 0),
            max_size=None,
            open_timeout=OPEN_S,
            close_timeout=1.0,
            ping_interval=None,
        )

    async def raw(self, number: int = 1) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        """Open a plain connection from an address of its own."""
        async with asyncio.timeout(OPEN_S):
            return await asyncio.open_connection(
                "127.0.0.1", self.target.port, local_addr=(own_address(number), 0)
            )

    def ends_at(self) -> float:
        """Return the loop's time at which the attack is over."""
        return asyncio.get_running_loop().time() + self.seconds


Run = Callable[[AttackRun], Awaitable[Outcome]]


@dataclass(frozen=True, slots=True)
class Attack:
    """Attack of the list, a row of the report.

    Attributes:
        name: on the command line.
        covers: the defect for which it stands.
        run: the attack.
        setting: of the server, by name (``evals.abuse.settings``).
        controls: true when control calls are measured. An attack that ends or fills the server has none.
        ends_server: true when the server ends with it.
        least_s: shortest length, for effects that appear later than the requested time.
        judges_wait: true when answers must not take longer than without the attack.
        may_refuse: true when a control call that begins during the attack may be refused with 503.
    """

    name: str
    covers: str
    run: Run
    setting: str = "default"
    controls: bool = True
    ends_server: bool = False
    least_s: float = 0.0
    judges_wait: bool = False
    may_refuse: bool = False


_ATTACKS: dict[str, Attack] = {}


def add(attack: Attack) -> None:
    """Add an attack to the list.

    Raises:
        ConfigError: its name is taken.
    """
    if attack.name in _ATTACKS:
        raise ConfigError(f"two attacks have the name {attack.name}")
    _ATTACKS[attack.name] = attack


def attack(
    name: str,
    covers: str,
    *,
    setting: str = "default",
    controls: bool = True,
    ends_server: bool = False,
    least_s: float = 0.0,
    judges_wait: bool = False,
    may_refuse: bool = False,
) -> Callable[[Run], Run]:
    """Add the decorated function to the list; see ``Attack``."""

    def put(run: Run) -> Run:
        add(
            Attack(
                name,
                covers,
                run,
                setting=setting,
                controls=controls,
                ends_server=ends_server,
                least_s=least_s,
                judges_wait=judges_wait,
                may_refuse=may_refuse,
            )
        )
        return run

    return put


def attacks() -> dict[str, Attack]:
    """Return all attacks by name, in the order of the report."""
    # Imported here, because they add themselves to the list of this module.
    from parley.evals.abuse import attacks as _all

    _all.load()
    return dict(_ATTACKS)


def chosen(names: list[str] | None) -> list[Attack]:
    """Return the attacks of these names, or all; a name that ends in ``*`` is a prefix.

    Raises:
        ConfigError: no attack has such a name.
    """
    known = attacks()
    if not names:
        return list(known.values())
    found: dict[str, Attack] = {}
    for name in names:
        stem = name.removesuffix("*")
        fitting = {
            each: known[each] for each in known if each == name or (stem != name and each.startswith(stem))
        }
        if not fitting:
            raise ConfigError(f"there is no attack {name!r}; see --list")
        found |= fitting
    return list(found.values())
