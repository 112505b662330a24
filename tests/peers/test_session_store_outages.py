"""A session store whose database is unavailable for a while: stopped, frozen, or without space."""

import asyncio
import os
import resource
import subprocess
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import AbstractContextManager, asynccontextmanager, contextmanager
from pathlib import Path

import asyncpg
import pytest
import sqlalchemy as sa
from sqlalchemy import make_url

from parley.core.errors import (
    ConfigError,
    FencedError,
    SessionExistsError,
    StoreError,
    StoreUnavailableError,
    UnknownSessionError,
)
from parley.session_store.database import database
from parley.session_store.events import Draft, Kind
from parley.session_store.store import SessionStore, SessionWriter, StoreTuning
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
    store = await SessionStore.open(StoreTuning(url=url, **settings))  # type: ignore[arg-type]
    try:
        yield store
    finally:
        await store.close()


class Talk:
    """Tasks that commit one event after the other until they are stopped.

    Attributes:
        acknowledged: number of acknowledged commits of each task.
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
        """Return when every task has had that many more commits acknowledged."""
        goals = [done + count for done in self.acknowledged]
        async with asyncio.timeout(TIMEOUT_S):
            while any(done < goal for done, goal in zip(self.acknowledged, goals, strict=True)):
                await asyncio.sleep(0.01)

    async def end(self) -> None:
        self._over = True
        await asyncio.gather(*self._tasks)

    async def check(self, store: SessionStore) -> None:
        """Assert that everything acknowledged is there, once and in order."""
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
        # A follower that was open the whole time has missed nothing.
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
            async with asyncio.timeout(10):
                with pytest.raises(StoreUnavailableError):
                    await writer.append(said("a"))
            with pytest.raises(StoreUnavailableError):
                await store.info(writer.session_id)
        finally:
            own_postgres.thaw()
        await until(lambda: store.available)
        await writer.append(said("b"))


class Line:
    """Proxy between a store and its server that loses answers, and the connection with each of them.

    Attributes:
        lost: number of lost answers.
    """

    def __init__(self, url: str) -> None:
        self._server = make_url(url)
        self._armed = False
        self.lost = 0

    def lose_next_answer(self) -> None:
        """Lose the answer to the next COMMIT: the server has committed, and the client is not notified."""
        self._armed = True

    @asynccontextmanager
    async def open(self) -> AsyncIterator[str]:
        """Listen, and yield the address of this end."""
        server = await asyncio.start_server(self._pass_on, "127.0.0.1", 0)
        async with server:
            here = self._server.set(port=server.sockets[0].getsockname()[1])
            yield here.render_as_string()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        theirs, them = await asyncio.open_connection(self._server.host, self._server.port)
        losing = False

        async def up() -> None:
            nonlocal losing
            while data := await reader.read(65_536):
                if self._armed and b"COMMIT" in data:
                    self._armed, losing = False, True
                them.write(data)

        async def down() -> None:
            while data := await theirs.read(65_536):
                if losing:
                    self.lost += 1
                    return
                writer.write(data)

        both = {asyncio.create_task(up()), asyncio.create_task(down())}
        await asyncio.wait(both, return_when=asyncio.FIRST_COMPLETED)
        for end in (writer, them):
            end.transport.abort()
        for task in both:
            task.cancel()
        await asyncio.gather(*both, return_exceptions=True)


async def test_closing_does_not_wait_for_a_frozen_server(
    own_postgres: PostgresServer,  # noqa: F811
    own_postgres_url: str,  # noqa: F811
) -> None:
    store = await SessionStore.open(StoreTuning(url=own_postgres_url, close_s=1))
    writer = await store.claim((await store.create()).id)
    await writer.append(said("a"))
    # This breaks a connection of the pool too.
    await store.info(writer.session_id)
    own_postgres.freeze()
    try:
        async with asyncio.timeout(60):
            await store.close()
    finally:
        own_postgres.thaw()
    async with opened(own_postgres_url) as again:
        assert (await again.info(writer.session_id)).last_seq == 1


async def test_what_was_done_although_its_answer_was_lost_is_not_refused(postgres_url: str) -> None:  # noqa: F811
    line = Line(postgres_url)
    async with line.open() as url, opened(url) as store:
        line.lose_next_answer()
        made = await store.create()
        assert [info.id for info in await store.sessions(limit=10)] == [made.id]
        lines = [text async for text in store.export(made.id)]
        line.lose_next_answer()
        await store.delete(made.id)
        assert await store.sessions(limit=10) == []
        line.lose_next_answer()
        assert await store.import_(lines) == await store.info(made.id) == made
        assert line.lost == 3
        # With an answer the error is the usual one.
        with pytest.raises(SessionExistsError):
            await store.import_(lines)
        await store.delete(made.id)
        with pytest.raises(UnknownSessionError):
            await store.delete(made.id)


async def test_one_lost_connection_is_made_again(postgres_url: str) -> None:  # noqa: F811
    async with opened(postgres_url) as store:
        talk = await talking(store)
        await talk.goes_on()
        await hang_up_on_everybody_else(postgres_url)
        await talk.goes_on()
        await talk.end()
        await talk.check(store)


@pytest.mark.parametrize(("default", "used"), [("off", "on"), ("remote_write", "remote_write")])
async def test_what_is_acknowledged_is_on_disk_whatever_the_server_does_by_default(
    postgres_url: str,  # noqa: F811
    default: str,
    used: str,
) -> None:
    connection = await asyncpg.connect(postgres_url)
    name = make_url(postgres_url).database
    await connection.execute(f'ALTER DATABASE "{name}" SET synchronous_commit = {default}')
    await connection.close()
    file = database(StoreTuning(url=postgres_url))
    await file.open()
    try:
        asked = sa.text("SHOW synchronous_commit")
        assert await file.write(lambda connection: connection.scalar(asked)) == used
    finally:
        await file.close()


async def test_a_row_that_someone_holds_keeps_only_its_own_session_waiting(postgres_url: str) -> None:  # noqa: F811
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
            # Drafts with a key that exists already also take the careful way, past the same row.
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


async def test_appends_keep_their_order_after_one_that_waits_for_a_held_row(postgres_url: str) -> None:  # noqa: F811
    rounds, later = 15, 12
    async with opened(postgres_url, batch_events=3) as store:
        held, free = [await store.claim((await store.create()).id) for _ in range(2)]
        other = await asyncpg.connect(postgres_url)
        expected: list[str] = []
        for number in range(rounds):
            lock = other.transaction()
            await lock.start()
            await other.execute("SELECT 1 FROM session WHERE id = $1 FOR UPDATE", held.session_id)
            names = [f"{number}.{part}" for part in range(1 + later)]
            waiting = [asyncio.create_task(held.append(said(names[0])))]
            # Two rounds of the writer: the first append was tried, found the row held and was put back.
            await free.append(said("x"))
            await free.append(said("x"))
            assert not waiting[0].done()
            for place, name in enumerate(names[1:]):
                waiting.append(asyncio.create_task(held.append(said(name))))
                # Some come while the row is held, some while it is released, some together with others. A key
                # that is stored already sends the whole transaction the careful way.
                if place % 4 == 1:
                    await free.append(
                        said("x"), Draft(Kind.USER_TURN, {"text": "x"}, 1, 1, "user", key="again")
                    )
                if place == number % later:
                    releasing = asyncio.create_task(lock.rollback())
            async with asyncio.timeout(TIMEOUT_S):
                acknowledged = [(await task)[0] for task in waiting]
            await releasing
            assert [event.payload["text"] for event in acknowledged] == names
            expected += names
            assert [event.seq for event in acknowledged] == list(
                range(len(expected) - later, len(expected) + 1)
            )
        stored = await store.events(held.session_id, limit=1_000)
        assert [event.payload["text"] for event in stored] == expected
        await other.close()


async def test_appends_that_are_tried_one_by_one_keep_their_order_after_a_held_row(
    postgres_url: str,  # noqa: F811
) -> None:
    rounds, count = 12, 15
    async with opened(postgres_url) as store:
        held, refused = [await store.claim((await store.create()).id) for _ in range(2)]
        other = await asyncpg.connect(postgres_url)
        # Events of the second session are refused and counted; a rollback does not undo the count.
        await other.execute("CREATE SEQUENCE tries")
        await other.execute(
            "CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS"
            " $$ BEGIN PERFORM nextval('tries'); RAISE EXCEPTION 'no'; END $$"
        )
        await other.execute(
            "CREATE TRIGGER refuse BEFORE INSERT ON event FOR EACH ROW"
            f" WHEN (new.session_id = '{refused.session_id}') EXECUTE FUNCTION refuse()"
        )
        await other.execute("SELECT nextval('tries')")
        expected: list[str] = []
        for number in range(rounds):
            tried = await other.fetchval("SELECT last_value FROM tries")
            lock = other.transaction()
            await lock.start()
            await other.execute("SELECT 1 FROM session WHERE id = $1 FOR UPDATE", held.session_id)
            bad = asyncio.create_task(refused.append(said("x")))
            names = [f"{number}.{part}" for part in range(count)]
            waiting = [asyncio.create_task(held.append(said(name))) for name in names]
            # Twice all together, then one by one, the bad one first. The row is released a little later,
            # while the others are tried: some of them find it held, and later ones find it free.
            await other.execute(
                "DO $$ BEGIN"
                f" WHILE (SELECT last_value FROM tries) < {tried + 3}"
                " LOOP PERFORM pg_sleep(0.0005); END LOOP;"
                f" PERFORM pg_sleep({number * 0.002});"
                " END $$"
            )
            await lock.commit()
            async with asyncio.timeout(TIMEOUT_S):
                acknowledged = [(await task)[0] for task in waiting]
            with pytest.raises(StoreError):
                await bad
            expected += names
            assert [event.payload["text"] for event in acknowledged] == names
            assert [event.seq for event in acknowledged] == list(
                range(len(expected) - count + 1, len(expected) + 1)
            )
        await other.close()


async def hang_up_on_everybody_else(url: str) -> None:
    connection = await asyncpg.connect(url)
    ended = await connection.fetchval(
        "SELECT count(pg_terminate_backend(pid)) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    assert ended > 1
    await connection.close()


async def test_a_database_that_takes_no_writes_is_said_and_loses_nothing(postgres_url: str) -> None:  # noqa: F811
    """A primary that became a standby, or a disk that its host remounted, answers every read."""
    name = make_url(postgres_url).database
    async with opened(postgres_url, append_deadline_s=TIMEOUT_S) as store:
        talk = await talking(store)
        await talk.goes_on()
        await set_read_only(postgres_url, f'ALTER DATABASE "{name}" SET default_transaction_read_only = on')
        await until(lambda: store.available, False)
        acknowledged = sum(talk.acknowledged)
        # What was acknowledged is read, and nothing more is.
        assert (await store.info(talk.writers[0].session_id)).last_seq == talk.acknowledged[0]
        assert sum(talk.acknowledged) == acknowledged
        await set_read_only(postgres_url, f'ALTER DATABASE "{name}" RESET default_transaction_read_only')
        await talk.goes_on()
        assert store.available
        await talk.end()
        await talk.check(store)


async def set_read_only(url: str, statement: str) -> None:
    """Change the database for new connections, and end those that are open."""
    connection = await asyncpg.connect(url, server_settings={"default_transaction_read_only": "off"})
    await connection.execute(statement)
    await connection.execute(
        "SELECT pg_terminate_backend(pid) FROM pg_stat_activity"
        " WHERE datname = current_database() AND pid <> pg_backend_pid()"
    )
    await connection.close()


async def test_a_server_that_is_not_there_is_not_waited_for_forever() -> None:
    with pytest.raises(StoreUnavailableError, match="127.0.0.1"):
        await SessionStore.open(
            StoreTuning(url=f"postgresql://me:secret@127.0.0.1:{free_port()}/x", open_deadline_s=0.3)
        )


@pytest.mark.parametrize("wrong", ["database", "user"])
async def test_a_wrong_address_is_said_in_one_line(postgres_url: str, wrong: str) -> None:  # noqa: F811
    url = f"{postgres_url}x" if wrong == "database" else postgres_url.replace("parley@", "stranger:secret@")
    with pytest.raises(ConfigError) as error:
        await SessionStore.open(StoreTuning(url=url))
    assert "\n" not in str(error.value) and "secret" not in str(error.value)


@contextmanager
def small_disk(folder: Path) -> Iterator[Callable[[], None]]:
    """Mount a file system without much space; the yielded function makes room."""
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
    """Limit the size of this process's files; the yielded function lifts the limit."""
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
            # Acknowledged events are there and can be read.
            assert (await store.info(writer.session_id)).last_seq == count
            assert len(await store.events(writer.session_id, limit=10_000)) == count
            make_room()
            await until(lambda: store.available)
            events = await writer.append(*[said("x" * 10_000) for _ in range(10)])
            assert [event.seq for event in events] == list(range(count + 1, count + 11))
        async with opened(url) as store:
            assert (await store.info(writer.session_id)).last_seq == count + 10
