"""Failures below the session store: a wrong clock, a full disk, an unavailable store.

No client causes these. The judged properties are those that a client can observe. Stored turns are kept, and
a typed turn is refused in time and accepted again afterwards. ``/ready`` reports that the store is
unavailable, and ``/health`` does not change.
"""

import asyncio
import resource
import sqlite3
from collections.abc import Iterator
from contextlib import AbstractContextManager, closing, contextmanager, suppress
from pathlib import Path

import aiohttp

from parley.evals.abuse.attacks.requests import new_session, status_of, type_turn
from parley.evals.abuse.registry import AttackRun, Outcome, attack
from parley.evals.abuse.shifted_clock import shift
from parley.evals.abuse.target import Target

WRONG_S, AHEAD_DAYS = 12.0, 40.0
SECONDS_A_DAY = 86_400.0
# Text by which ``session_store.retention`` reports a jump of the wall clock.
JUMP = "days from its expected time"
# ``StoreTuning.turn_deadline_s``, and 1.5 s for the request itself.
REFUSED_S = 6.5
# Every probe of ``/ready`` reads the store again after 2 s.
NOTICED_S, BACK_S, LOOK_S = 8.0, 15.0, 0.5
HEALTH_S = 1.0
QUESTION = "What are your opening hours?"
# More than one page of the database, so that a free page is not enough.
LONG = QUESTION + " I ask because I am on my way." * 200


@attack(
    "wrong-clock",
    "a clock that is 40 days ahead for 12 s deletes today's session by retention_days: 30",
    setting="retention",
    controls=False,
    least_s=WRONG_S + 10.0,
)
async def wrong_clock(run: AttackRun) -> Outcome:
    """Type a turn, set the server's clock ahead for a while, and read the session."""
    clock = Path(run.target.facts["clock"])
    async with run.client() as client:
        session = await new_session(client)
        typed = await type_turn(client, session, QUESTION)
        shift(clock, AHEAD_DAYS * SECONDS_A_DAY)
        try:
            await asyncio.sleep(WRONG_S)
            ahead = await status_of(client, "GET", f"/api/sessions/{session}/timeline")
        finally:
            shift(clock, 0.0)
        # Retention checks once a second here.
        await asyncio.sleep(3.0)
        after = await status_of(client, "GET", f"/api/sessions/{session}/timeline")
        again = await type_turn(client, session, QUESTION)
    faults = (
        []
        if await asyncio.to_thread(_saw_jump, run.target)
        else ["retention did not see the wrong clock: nothing was attacked"]
    )
    if (typed, ahead, after, again) != (200, 200, 200, 200):
        faults.append(f"a session of today: typed {typed}, read {ahead} and {after}, typed again {again}")
    return Outcome(1, {"typed": typed, "ahead": ahead, "after": after, "again": again}, faults)


@attack(
    "full-disk",
    "a typed turn on a full disk hangs for 90 s before it is refused",
    controls=False,
    least_s=20.0,
)
async def full_disk(run: AttackRun) -> Outcome:
    """Limit the size of the server's files (RLIMIT_FSIZE), type, and lift the limit again."""
    return await outage(run, _without_room(run.target))


@attack(
    "store-away",
    "health stays ok when the session store is away, and nothing says that it is",
    controls=False,
    least_s=20.0,
)
async def store_away(run: AttackRun) -> Outcome:
    """Lock the database from another process, type, and unlock it again."""
    return await outage(run, _locked(_database(run.target)))


@contextmanager
def _without_room(target: Target) -> Iterator[None]:
    """Forbid growth to the log of the database and to every larger file."""
    before = resource.prlimit(target.pid, resource.RLIMIT_FSIZE)
    # A log that was longer before is overwritten from its beginning, and would not have to grow.
    with closing(sqlite3.connect(_database(target))) as other:
        other.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    written = Path(f"{_database(target)}-wal").stat().st_size
    resource.prlimit(target.pid, resource.RLIMIT_FSIZE, (written, before[1]))
    try:
        yield
    finally:
        resource.prlimit(target.pid, resource.RLIMIT_FSIZE, before)


@contextmanager
def _locked(database: Path) -> Iterator[None]:
    with closing(sqlite3.connect(database, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        try:
            yield
        finally:
            other.execute("ROLLBACK")


def _saw_jump(target: Target) -> bool:
    return JUMP in Path(target.log).read_text(errors="replace")


def _database(target: Target) -> Path:
    """Return the file of the sessions, as ``target.deployment`` places it."""
    return Path(target.log).with_name("sessions.db")


@contextmanager
def _timed(seconds: list[float]) -> Iterator[None]:
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    try:
        yield
    finally:
        seconds.append(round(loop.time() - begun_s, 1))


class HealthWatch:
    """Answers of ``/health`` while a context lasts.

    Args:
        client: of the server.

    Attributes:
        longest_s: longest time that an answer took.
    """

    def __init__(self, client: aiohttp.ClientSession) -> None:
        self._client = client
        self._bad: list[str] = []
        self._answers = 0
        self.longest_s = 0.0

    async def __aenter__(self) -> "HealthWatch":
        self._looking = asyncio.create_task(self._look(), name="storage.health")
        return self

    async def __aexit__(self, *_error: object) -> None:
        self._looking.cancel()
        [ended] = await asyncio.gather(self._looking, return_exceptions=True)
        if isinstance(ended, Exception):
            self._bad.append(f"/health could not be watched: {type(ended).__name__}")

    def faults(self) -> list[str]:
        """Return the first answer that is wrong or late, or that there was none."""
        if not self._bad and not self._answers:
            return ["/health was not answered"]
        return self._bad[:1]

    async def _look(self) -> None:
        loop = asyncio.get_running_loop()
        while True:
            began_s, status = loop.time(), 0
            try:
                status = await status_of(self._client, "GET", "/health")
                self._answers += 1
            finally:
                # Also of a request that the end of the watch has cut off.
                took_s = loop.time() - began_s
                self.longest_s = max(self.longest_s, round(took_s, 1))
                if took_s > HEALTH_S or (status != 200 and not _is_ending()):
                    self._bad.append(f"/health: {status} after {took_s:.1f} s")
            await asyncio.sleep(LOOK_S)


def _is_ending() -> bool:
    task = asyncio.current_task()
    return task is not None and task.cancelling() > 0


async def outage(run: AttackRun, trouble: AbstractContextManager[None]) -> Outcome:
    """Type a turn before, during and after a time in which the store accepts nothing."""
    took_s: list[float] = []
    ready: list[int] = []

    async def look(client: aiohttp.ClientSession) -> None:
        while True:
            ready.append(await status_of(client, "GET", "/ready"))
            await asyncio.sleep(LOOK_S)

    async with run.client() as client:
        session = await new_session(client)
        before = await type_turn(client, session, QUESTION)
        looking = asyncio.create_task(look(client), name="storage.look")
        try:
            async with HealthWatch(client) as health:
                with trouble:
                    ready.clear()
                    with _timed(took_s):
                        during = await type_turn(client, session, LONG)
                    # It is still unavailable, and nothing is written at this moment.
                    await asyncio.sleep(NOTICED_S)
                    said_away = 503 in ready
                after, ready_after = await _back(client, session)
        finally:
            looking.cancel()
            await asyncio.gather(looking, return_exceptions=True)
    did: dict[str, object] = {
        "before": before,
        "during": during,
        "refused_s": took_s[0],
        "ready": sorted(set(ready)),
        "after": after,
        "ready after": ready_after,
        "health_s": health.longest_s,
    }
    faults = []
    if before != 200:
        faults.append(f"a turn before gets {before}: nothing is measured")
    if during != 503 or took_s[0] > REFUSED_S:
        faults.append(f"a typed turn gets {during} after {took_s[0]} s, 503 within {REFUSED_S:g} s is asked")
    if not said_away:
        faults.append("/ready does not say that the store is away")
    if (after, ready_after) != (200, 200):
        faults.append(f"afterwards a typed turn gets {after} and /ready {ready_after}")
    faults += health.faults()
    return Outcome(1, did, faults)


async def _back(client: aiohttp.ClientSession, session: str) -> tuple[int, int]:
    """Return the status of a typed turn and of ``/ready`` once both are 200, or after ``BACK_S``."""
    typed = ready = 0
    with suppress(TimeoutError):
        async with asyncio.timeout(BACK_S):
            while (typed, ready) != (200, 200):
                typed = await type_turn(client, session, QUESTION)
                ready = await status_of(client, "GET", "/ready")
                await asyncio.sleep(LOOK_S)
    return typed, ready
