"""A session store whose database is away for a while: stopped, frozen, or without space."""

import asyncio
import os
import resource
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path

import asyncpg
import pytest

from core.errors import ConfigError, FencedError, StoreUnavailableError
from session_store.events import Draft, Kind
from session_store.store import SessionStore, SessionWriter, StoreSettings
from tests.peers.postgres import (  # noqa: F401
    PostgresServer,
    own_postgres,
    own_postgres_url,
    postgres,
    postgres_url,
)
from tests.peers.server import free_port

DISK_BYTES = 3_000_000
TIMEOUT_S = 60


def said(text: str) -> Draft:
    return Draft(Kind.USER_TURN, {"text": text}, 1, 1, "user")


@asynccontextmanager
async def opened(url: str, **settings: float) -> AsyncIterator[SessionStore]:
    store = await SessionStore.open(StoreSettings(url=url, **settings))  # type: ignore[arg-type]
    try:
        yield store
    finally:
        await store.close()


class Talk:
    """Callers who commit one thing after the other, until they are told to stop.

    Attributes:
        acknowledged: how many each has had committed.
    """

    def __init__(self, writers: list[SessionWriter]) -> None:
        self.writers = writers
        self.acknowledged = [0] * len(writers)
        self._over = False
        self._tasks = [asyncio.create_task(self._talk(place)) for place in range(len(writers))]

    async def _talk(self, place: int) -> None:
        while not self._over:
            await self.writers[place].append(said(str(self.acknowledged[place])))
            self.acknowledged[place] += 1
            await asyncio.sleep(0.001)

    async def goes_on(self, count: int = 20) -> None:
        """Return when everybody has had so many more committed."""
        goals = [done + count for done in self.acknowledged]
        async with asyncio.timeout(TIMEOUT_S):
            while any(done < goal for done, goal in zip(self.acknowledged, goals, strict=True)):
                await asyncio.sleep(0.01)

    async def end(self) -> None:
        self._over = True
        await asyncio.gather(*self._tasks)

    async def check(self, store: SessionStore) -> None:
        """Everything that was acknowledged is there, once and in order."""
        for writer, count in zip(self.writers, self.acknowledged, strict=True):
            events = await store.events(writer.session_id, limit=1_000_000)
            assert [event.payload["text"] for event in events] == [str(number) for number in range(count)]
            assert [event.seq for event in events] == list(range(1, count + 1))


async def talking(store: SessionStore) -> Talk:
    return Talk([await store.claim((await store.create()).id) for _ in range(8)])


async def until(condition: Callable[[], bool], wanted: bool = True) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while condition() != wanted:
            await asyncio.sleep(0.01)


async def test_nothing_is_lost_when_the_server_is_stopped_and_started(
    own_postgres: PostgresServer,  # noqa: F811
    own_postgres_url: str,  # noqa: F811
) -> None:
    async with opened(own_postgres_url) as store:
        talk = await talking(store)
        follow = store.follow(talk.writers[0].session_id)
        await talk.goes_on()
        await asyncio.to_thread(own_postgres.stop)
        try:
            await until(lambda: store.available, False)
            await until(lambda: store.oldest_wait_s > 0.5)
        finally:
            await asyncio.to_thread(own_postgres.start)
        await talk.goes_on()
        assert store.available
        await talk.end()
        await talk.check(store)
        # Whoever followed through all that has missed nothing.
        async with asyncio.timeout(TIMEOUT_S):
            seen = [(await anext(follow)).seq for _ in range(talk.acknowledged[0])]
        assert seen == list(range(1, talk.acknowledged[0] + 1))
        await follow.aclose()


async def test_nothing_is_lost_when_the_server_is_frozen(
    own_postgres: PostgresServer,  # noqa: F811
    own_postgres_url: str,  # noqa: F811
) -> None:
    async with opened(own_postgres_url, attempt_s=0.5, append_deadline_s=TIMEOUT_S) as store:
        talk = await talking(store)
        await talk.goes_on()
        own_postgres.freeze()
        try:
            await until(lambda: store.available, False)
            await until(lambda: store.oldest_wait_s > 3)
        finally:
            own_postgres.thaw()
        await talk.goes_on()
        await talk.end()
        await talk.check(store)


async def test_a_frozen_server_costs_an_append_no_more_than_its_deadline(
    own_postgres: PostgresServer,  # noqa: F811
    own_postgres_url: str,  # noqa: F811
) -> None:
    async with opened(own_postgres_url, attempt_s=0.5, append_deadline_s=2, read_deadline_s=1) as store:
        writer = await store.claim((await store.create()).id)
        own_postgres.freeze()
        try:
            loop = asyncio.get_running_loop()
            started_s = loop.time()
            with pytest.raises(StoreUnavailableError):
                await writer.append(said("a"))
            assert 1.9 < loop.time() - started_s < 5
            with pytest.raises(StoreUnavailableError):
                await store.info(writer.session_id)
        finally:
            own_postgres.thaw()
        await until(lambda: store.available)
        await writer.append(said("b"))


async def test_one_lost_connection_is_made_again(postgres_url: str) -> None:  # noqa: F811
    async with opened(postgres_url) as store:
        talk = await talking(store)
        await talk.goes_on()
        await hang_up_on_everybody_else(postgres_url)
        await talk.goes_on()
        await talk.end()
        await talk.check(store)


async def test_a_row_that_somebody_holds_keeps_only_its_own_session_waiting(postgres_url: str) -> None:  # noqa: F811
    async with opened(postgres_url) as store:
        held, free = [await store.claim((await store.create()).id) for _ in range(2)]
        other = await asyncpg.connect(postgres_url)
        lock = other.transaction()
        await lock.start()
        await other.execute("SELECT 1 FROM session WHERE id = $1 FOR UPDATE", held.session_id)
        waiting = [asyncio.create_task(held.append(said(str(number)))) for number in range(3)]
        claiming = asyncio.create_task(store.claim(held.session_id))
        for number in range(50):
            await free.append(said(str(number)))
            # And those with a key that is there already take the careful way, past the same row.
            await free.append(Draft(Kind.USER_TURN, {"text": "x"}, 1, 1, "user", key="again"))
        assert not any(task.done() for task in [*waiting, claiming]) and store.available
        await lock.rollback()
        await other.close()
        assert (await claiming).epoch == 2
        results = await asyncio.gather(*waiting, return_exceptions=True)
        # The claim and the appends come in any order, but the appends in theirs.
        stored = await store.events(held.session_id, limit=10)
        acknowledged = [result[0] for result in results if not isinstance(result, BaseException)]
        assert stored == acknowledged
        assert all(isinstance(result, FencedError) for result in results[len(stored) :])
        assert [event.payload["text"] for event in stored] == [str(n) for n in range(len(stored))]


async def hang_up_on_everybody_else(url: str) -> None:
    connection = await asyncpg.connect(url)
    ended = await connection.fetchval(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    assert ended > 1
    await connection.close()


async def test_a_server_that_is_not_there_is_not_waited_for_forever() -> None:
    with pytest.raises(StoreUnavailableError, match="127.0.0.1"):
        await SessionStore.open(
            StoreSettings(url=f"postgresql://me:secret@127.0.0.1:{free_port()}/x", open_deadline_s=0.3)
        )


@pytest.mark.parametrize("wrong", ["database", "user"])
async def test_a_wrong_address_is_said_in_one_line(postgres_url: str, wrong: str) -> None:  # noqa: F811
    url = f"{postgres_url}x" if wrong == "database" else postgres_url.replace("parley@", "stranger:secret@")
    with pytest.raises(ConfigError) as error:
        await SessionStore.open(StoreSettings(url=url))
    assert "\n" not in str(error.value) and "secret" not in str(error.value)


@contextmanager
def small_disk(folder: Path) -> Iterator[Callable[[], None]]:
    """A file system without much space; what is yielded makes room."""
    options = ("-t", "tmpfs", "-o", f"size={DISK_BYTES}")
    subprocess.run(["mount", *options, "tmpfs", str(folder)], check=True, timeout=10)
    ballast = folder / "ballast"
    ballast.write_bytes(b"\0" * (DISK_BYTES // 2))
    try:
        yield ballast.unlink
    finally:
        subprocess.run(["umount", str(folder)], check=True, timeout=10)


@contextmanager
def small_files(_folder: Path) -> Iterator[Callable[[], None]]:
    """Files of this process may not grow much; what is yielded lets them."""
    before = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (DISK_BYTES // 2, before[1]))
    try:
        yield lambda: resource.setrlimit(resource.RLIMIT_FSIZE, before)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, before)


SHORTAGES = [pytest.param(small_files, id="files")]
# Only root can mount a file system.
if os.geteuid() == 0:
    SHORTAGES.append(pytest.param(small_disk, id="disk"))


@pytest.mark.parametrize("shortage", SHORTAGES)
async def test_a_full_disk_is_said_and_survived(
    tmp_path: Path, shortage: Callable[[Path], AbstractContextManager[Callable[[], None]]]
) -> None:
    folder = tmp_path / "small"
    folder.mkdir()
    url = f"sqlite:///{folder}/a.db"
    with shortage(folder) as make_room:
        async with opened(url, append_deadline_s=1) as store:
            writer = await store.claim((await store.create()).id)
            count = 0
            with pytest.raises(StoreUnavailableError):
                while True:
                    await writer.append(said("x" * 10_000))
                    count += 1
            assert count > 10
            # What was acknowledged is there and can be read.
            assert (await store.info(writer.session_id)).last_seq == count
            assert len(await store.events(writer.session_id, limit=10_000)) == count
            make_room()
            await until(lambda: store.available)
            events = await writer.append(*[said("x" * 10_000) for _ in range(10)])
            assert [event.seq for event in events] == list(range(count + 1, count + 11))
        async with opened(url) as store:
            assert (await store.info(writer.session_id)).last_seq == count + 10
