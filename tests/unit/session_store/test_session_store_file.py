"""Kinds of SQLite files at the opening of the store, and the errors for them."""

import asyncio
import os
import sqlite3
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from parley.core.errors import AgentError, ConfigError, StoreUnavailableError
from parley.session_store.events import Draft, Kind
from parley.session_store.store import SessionStore, StoreTuning

NOBODY = 65534


async def opened(path: Path, **settings: float) -> SessionStore:
    return await SessionStore.open(StoreTuning(url=f"sqlite:///{path}", **settings))  # type: ignore[arg-type]


async def refusal(path: Path, **settings: float) -> str:
    with pytest.raises(AgentError) as error:
        await opened(path, **settings)
    assert isinstance(error.value, ConfigError)
    text = str(error.value)
    assert "\n" not in text and str(path) in text
    return text


async def filled(path: Path, text: str = "hello", count: int = 1) -> str:
    """Write a closed store with one session; return its id."""
    store = await opened(path)
    writer = await store.claim((await store.create()).id)
    await writer.append(*[Draft(Kind.USER_TURN, {"text": text}, 1, 1, "user") for _ in range(count)])
    await store.close()
    return writer.session_id


async def test_folders_on_the_way_to_the_file_are_made(tmp_path: Path) -> None:
    await (await opened(tmp_path / "a" / "b" / "c.db")).close()
    assert (tmp_path / "a" / "b" / "c.db").exists()


async def test_an_empty_file_becomes_a_store(tmp_path: Path) -> None:
    (tmp_path / "a.db").touch()
    await (await opened(tmp_path / "a.db")).close()


@pytest.mark.parametrize("content", [b"x", b"Dear diary,\n" * 5, os.urandom(50_000)])
async def test_a_file_that_is_no_database_is_left_alone(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "notes.txt"
    path.write_bytes(content)
    assert "not a SQLite database" in await refusal(path)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


async def test_the_database_of_another_program_is_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "other.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE bookmarks (url TEXT)")
    content = path.read_bytes()
    assert "bookmarks" in await refusal(path)
    assert path.read_bytes() == content


@pytest.mark.parametrize("damage", ["overwritten", "cut"])
async def test_a_damaged_file_is_refused_and_left_alone(tmp_path: Path, damage: str) -> None:
    path = tmp_path / "a.db"
    await filled(path, "x" * 500, count=200)
    content = bytearray(path.read_bytes())
    if damage == "cut":
        del content[len(content) // 2 :]
    else:
        content[8_192:60_000] = os.urandom(60_000 - 8_192)
    path.write_bytes(content)
    assert "damaged" in await refusal(path)
    assert path.read_bytes() == content


async def test_a_store_of_a_newer_release_is_refused_and_left_alone(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    await filled(path)
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("UPDATE session_store_version SET version_num = '9999'")
        connection.commit()
    content = path.read_bytes()
    assert "newer release" in await refusal(path)
    assert path.read_bytes() == content


async def test_a_folder_in_place_of_the_file(tmp_path: Path) -> None:
    await refusal(tmp_path)


async def test_a_file_in_place_of_the_folder(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    await refusal(tmp_path / "file" / "a.db")


@contextmanager
def somebody_else() -> Iterator[None]:
    """Run as a user who is not root: root may write everywhere."""
    if os.geteuid():
        yield
        return
    os.seteuid(NOBODY)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def public_folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        yield folder
        folder.chmod(0o755)


async def test_a_folder_that_may_not_be_written(public_folder: Path) -> None:
    public_folder.chmod(0o555)
    with somebody_else():
        assert "cannot be written" in await refusal(public_folder / "a.db")
    assert list(public_folder.iterdir()) == []


async def test_a_folder_that_may_not_be_made(public_folder: Path) -> None:
    public_folder.chmod(0o555)
    with somebody_else():
        await refusal(public_folder / "inner" / "a.db")


async def test_a_file_that_may_not_be_written(public_folder: Path) -> None:
    path = public_folder / "a.db"
    await filled(path)
    path.chmod(stat.S_IRUSR | stat.S_IRGRP | stat.S_IROTH)
    public_folder.chmod(0o555)
    with somebody_else():
        assert "cannot be written" in await refusal(path)


async def test_a_file_that_another_program_keeps_locked(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    await filled(path)
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN EXCLUSIVE")
        with pytest.raises(StoreUnavailableError, match="locked"):
            await opened(path, open_deadline_s=0.05)


async def test_a_new_file_that_someone_else_is_about_to_write_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        # The lock of another process between its first write and its commit. SQLite refuses at once to enable
        # the log meanwhile, without waiting for its timeout.
        other.execute("BEGIN IMMEDIATE")
        opening = asyncio.create_task(opened(path))
        await asyncio.sleep(0.2)
        assert not opening.done()
        other.execute("COMMIT")
        await (await opening).close()


async def test_a_new_file_that_stays_taken_is_given_up(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailableError, match="locked"):
            await opened(path, open_deadline_s=0.05)


async def test_a_file_that_someone_else_reads_and_writes_alone_is_waited_for(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with closing(sqlite3.connect(path, isolation_level=None)) as other:
        other.execute("CREATE TABLE session_store_version (version_num TEXT)")
        other.execute("DROP TABLE session_store_version")
        other.execute("BEGIN EXCLUSIVE")
        # Not even the schema can be read, for longer than an open store would wait.
        opening = asyncio.create_task(opened(path, busy_timeout_ms=50))
        await asyncio.sleep(0.4)
        assert not opening.done()
        other.execute("COMMIT")
        await (await opening).close()


OPENER = """
import asyncio, sys
from parley.session_store.store import SessionStore, StoreTuning

async def main():
    sys.stdin.readline()
    store = await SessionStore.open(StoreTuning(url=sys.argv[1]))
    await store.create()
    await store.close()

print("ready", flush=True)
asyncio.run(main())
"""


async def test_processes_that_open_a_new_file_together_find_one_store(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    pipes = {"stdin": asyncio.subprocess.PIPE, "stdout": asyncio.subprocess.PIPE}
    processes = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", OPENER, f"sqlite:///{path}", **pipes)
        for _ in range(4)
    ]
    async with asyncio.timeout(60):
        for process in processes:
            assert process.stdout is not None
            assert await process.stdout.readline() == b"ready\n"
        ends = await asyncio.gather(*(process.communicate(b"go\n") for process in processes))
    assert [process.returncode for process in processes] == [0] * 4, ends
    store = await opened(path)
    assert len(await store.sessions(limit=9)) == 4
    await store.close()


async def test_two_that_start_at_once_find_one_store(tmp_path: Path) -> None:
    stores = await asyncio.gather(*(opened(tmp_path / "a.db") for _ in range(4)))
    for store in stores:
        await store.create()
    assert len(await stores[0].sessions(limit=9)) == 4
    for store in stores:
        await store.close()


async def test_what_was_deleted_is_not_in_the_file(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    session_id = await filled(path, "my old address " * 100, count=50)
    assert b"my old address" in path.read_bytes()
    store = await opened(path)
    await store.delete(session_id)
    await store.close()
    assert not any(b"my old address" in file.read_bytes() for file in tmp_path.iterdir())


async def test_the_file_is_written_through_and_alongside_a_log(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    await filled(path)
    with closing(sqlite3.connect(path)) as connection:
        assert connection.execute("PRAGMA journal_mode").fetchone() == ("wal",)


def modes(folder: Path) -> dict[str, int]:
    return {
        path.relative_to(folder).as_posix(): stat.S_IMODE(path.stat().st_mode) for path in folder.rglob("*")
    }


async def test_a_new_file_and_the_folders_that_are_made_for_it_are_this_users_alone(tmp_path: Path) -> None:
    store = await opened(tmp_path / "a" / "b" / "c.db")
    await store.create()
    assert modes(tmp_path) == {
        **dict.fromkeys(("a", "a/b"), 0o700),
        **dict.fromkeys(("a/b/c.db", "a/b/c.db-wal", "a/b/c.db-shm"), 0o600),
    }
    await store.close()


async def test_a_folder_and_a_file_that_are_there_keep_their_mode(tmp_path: Path) -> None:
    folder = tmp_path / "a"
    folder.mkdir()
    folder.chmod(0o750)
    (folder / "empty.db").touch()
    (folder / "empty.db").chmod(0o644)
    await filled(folder / "old.db")
    (folder / "old.db").chmod(0o640)
    stores = [await opened(folder / name) for name in ("empty.db", "old.db")]
    for store in stores:
        await store.create()
    assert modes(tmp_path) == {
        "a": 0o750,
        **dict.fromkeys(("a/empty.db", "a/empty.db-wal", "a/empty.db-shm"), 0o644),
        **dict.fromkeys(("a/old.db", "a/old.db-wal", "a/old.db-shm"), 0o640),
    }
    for store in stores:
        await store.close()


def descriptors_of(path: Path) -> int:
    """Return the open descriptors of this process on a file and on those that SQLite keeps with it."""
    found = 0
    for entry in Path("/proc/self/fd").iterdir():
        try:
            found += os.readlink(entry).startswith(str(path))
        except OSError:
            continue
    return found


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="descriptors are counted in /proc")
async def test_reads_at_the_same_time_open_no_further_descriptor(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    session = await filled(path)
    store = await opened(path)
    await store.info(session)
    before = descriptors_of(path)
    await asyncio.gather(*(store.events(session, limit=10) for _ in range(20)))
    assert descriptors_of(path) == before
    await store.close()
