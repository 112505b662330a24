"""Disk of the session store that is slow, hangs, or takes no writes any more.

A slow commit must hold up its own turn and nothing else: the server answers, and a caller is understood. A
commit that does not end, and a database that cannot be written, are judged like a full disk.
"""

import asyncio
import random
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from parley.evals.abuse.attacks.requests import new_session, type_turn
from parley.evals.abuse.attacks.storage import HealthWatch, outage
from parley.evals.abuse.faulty_store import set_faults
from parley.evals.abuse.registry import AttackRun
from parley.evals.abuse.target import Setting, Target, serving
from parley.evals.chaos.stopped_server import GREETING, VOICE, understood
from parley.evals.harness.questions import Utterance
from parley.evals.harness.speech import Speakers

if TYPE_CHECKING:
    from parley.evals.chaos.rows import ChaosRun

# Duration of a commit: of a disk that others use as well, and longer than any request may take.
SLOW_S, HUNG_S = 0.5, 600.0
TURNS = 3
TYPED = "What are your opening hours?"
SPOKEN = "what does a replacement card cost"


async def read_only_database(run: "ChaosRun") -> list[str]:
    """Make the database take no writes for a while; return the faults."""
    folder = run.folder / "read-only"
    faults = _disk(folder)
    async with serving(folder, Setting(store_faults=faults)) as target:
        return (await outage(_run_of(target, run), _refusing(faults))).faults


async def slow_disk(run: "ChaosRun") -> list[str]:
    """Type and speak while commits are slow, and type while they hang; return the faults."""
    folder = run.folder / "slow-disk"
    faults = _disk(folder)
    setting = Setting({"bot": {"greeting": GREETING}}, store_faults=faults)
    async with serving(folder, setting) as target:
        attack = _run_of(target, run)
        set_faults(faults, commit_s=SLOW_S)
        found = [*await typed_turns(attack), *await _spoken(target, folder)]
        set_faults(faults)
        hung = await outage(attack, _hanging(faults))
    return [*found, *(f"hung: {each}" for each in hung.faults)]


async def typed_turns(attack: AttackRun) -> list[str]:
    """Return the faults of typed turns, and of the server's health during them."""
    async with attack.client() as client:
        session = await new_session(client)
        async with HealthWatch(client) as health:
            statuses = [await type_turn(client, session, TYPED) for _ in range(TURNS)]
    found = [] if set(statuses) == {200} else [f"typed turns get {statuses}"]
    return found + health.faults()


async def _spoken(target: Target, folder: Path) -> list[str]:
    """Return the faults of a spoken question."""
    speakers = Speakers(folder / "speech")
    spoken = await asyncio.to_thread(speakers.speak, Utterance((SPOKEN,), 0, *VOICE, 0))
    words = await understood(target, spoken, None)
    return [] if words == SPOKEN else [f"{words!r} instead of {SPOKEN!r}"]


@contextmanager
def _refusing(faults: Path) -> Iterator[None]:
    set_faults(faults, is_read_only=True)
    try:
        yield
    finally:
        set_faults(faults)


@contextmanager
def _hanging(faults: Path) -> Iterator[None]:
    set_faults(faults, commit_s=HUNG_S)
    try:
        yield
    finally:
        set_faults(faults)


def _disk(folder: Path) -> Path:
    """Return the file of a sound disk."""
    folder.mkdir(parents=True, exist_ok=True)
    faults = folder / "disk"
    set_faults(faults)
    return faults


def _run_of(target: Target, run: "ChaosRun") -> AttackRun:
    return AttackRun(target, 0.0, random.Random(run.seed))
