"""Reading a SQLite file without changing it or its folder."""

import os
import shutil
import sqlite3
import stat
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa

from parley.core.errors import ConfigError, StoreError
from parley.session_store import migrations
from parley.session_store.database import read_only_database
from parley.session_store.events import Draft, Event, Kind
from parley.session_store.store import SessionReader, SessionStore, StoreTuning

Looks = dict[str, tuple[int, int, int, bytes]]


def settings(path: Path) -> StoreTuning:
    return StoreTuning(url=f"sqlite:///{path}", read_deadline_s=0.5)


def looks(folder: Path) -> Looks:
    """Return names, sizes, times, modes and contents of a folder, and the time of the folder itself."""
    found = {
        path.name: (path.stat().st_size, path.stat().st_mtime_ns, path.stat().st_mode, path.read_bytes())
        for path in folder.iterdir()
    }
    return {**found, ".": (0, folder.stat().st_mtime_ns, folder.stat().st_mode, b"")}


async def filled(store: SessionStore, count: int = 20) -> str:
    writer = await store.claim((await store.create()).id)
    await writer.append(*[Draft(Kind.USER_TURN, {"text": str(n)}, n, n, "user") for n in range(count)])
    return writer.session_id


async def read(path: Path, session_id: str) -> list[Event]:
    reader = await SessionReader.open(settings(path))
    try:
        assert [info.id for info in await reader.sessions(limit=9)] == [session_id]
        assert len(await reader.timeline(session_id, limit=100)) == (await reader.info(session_id)).last_seq
        return await reader.events(session_id, limit=100)
    finally:
        await reader.close()


async def refusal(path: Path) -> str:
    with pytest.raises(ConfigError) as error:
        await SessionReader.open(settings(path))
    text = str(error.value)
    assert "\n" not in text and str(path) in text
    return text


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """Yield a folder that can be read and not written."""
    folder = tmp_path / "kept"
    folder.mkdir()
    yield folder
    folder.chmod(0o755)


@pytest.mark.parametrize("name", ["a.db", "100% of #1 ä.db"])
async def test_a_closed_store_is_read_and_nothing_in_its_folder_changes(folder: Path, name: str) -> None:
    path = folder / name
    store = await SessionStore.open(settings(path))
    session_id = await filled(store)
    await store.close()
    path.chmod(0o444)
    folder.chmod(0o555)
    before = looks(folder)
    assert set(before) == {name, "."}
    assert len(await read(path, session_id)) == 20
    assert looks(folder) == before


async def test_a_store_of_a_process_that_died_is_read_with_what_is_only_in_its_log(
    folder: Path, tmp_path: Path
) -> None:
    store = await SessionStore.open(settings(tmp_path / "a.db"))
    session_id = await filled(store)
    # The files of a process that ended without closing anything.
    for ending in ("", "-wal", "-shm"):
        shutil.copy(tmp_path / f"a.db{ending}", folder / f"a.db{ending}")
    await store.close()
    before = looks(folder)
    assert before["a.db-wal"][0] > 0
    assert len(await read(folder / "a.db", session_id)) == 20
    assert looks(folder) == before


async def test_a_store_that_is_in_use_is_read_as_it_grows(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    store = await SessionStore.open(settings(path))
    writer = await store.claim((await store.create()).id)
    reader = await SessionReader.open(settings(path))
    for count in range(1, 4):
        await writer.append(Draft(Kind.USER_TURN, {"text": "x"}, 1, 1, "user"))
        assert len(await reader.events(writer.session_id, limit=9)) == count
    await reader.close()
    await store.close()


async def test_a_log_without_its_index_is_said(folder: Path, tmp_path: Path) -> None:
    store = await SessionStore.open(settings(tmp_path / "a.db"))
    await filled(store)
    for ending in ("", "-wal"):
        shutil.copy(tmp_path / f"a.db{ending}", folder / f"a.db{ending}")
    await store.close()
    before = looks(folder)
    assert "-shm" in await refusal(folder / "a.db")
    assert looks(folder) == before


async def test_a_copy_that_is_not_written_by_way_of_a_log_is_read(folder: Path, tmp_path: Path) -> None:
    store = await SessionStore.open(settings(tmp_path / "a.db"))
    session_id = await filled(store)
    await store.close()
    with closing(sqlite3.connect(tmp_path / "a.db", isolation_level=None)) as connection:
        connection.execute(f"VACUUM INTO '{folder / 'copy.db'}'")
    before = looks(folder)
    assert len(await read(folder / "copy.db", session_id)) == 20
    assert looks(folder) == before


async def test_a_store_of_an_older_release_is_said_and_not_migrated(folder: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{folder}/a.db")
    with engine.begin() as connection:
        migrations.upgrade(connection, "0001")
    engine.dispose()
    before = looks(folder)
    assert "older release" in await refusal(folder / "a.db")
    assert looks(folder) == before


@pytest.mark.parametrize("name", ["a.db", "inner/a.db"])
async def test_nothing_is_made_where_there_is_no_store(folder: Path, name: str) -> None:
    assert "no session store" in await refusal(folder / name)
    assert list(folder.iterdir()) == []


@pytest.mark.parametrize(
    ("content", "said"),
    [(b"", "no session store"), (b"Dear diary", "not a SQLite"), (os.urandom(9_000), "not a SQLite")],
    ids=["empty", "short", "random"],
)
async def test_a_file_that_is_no_store_is_left_alone(folder: Path, content: bytes, said: str) -> None:
    (folder / "a.db").write_bytes(content)
    before = looks(folder)
    assert said in await refusal(folder / "a.db")
    assert looks(folder) == before


async def test_a_database_without_a_store_in_it_is_said(folder: Path) -> None:
    with closing(sqlite3.connect(folder / "a.db")) as connection:
        connection.execute("PRAGMA user_version = 1")
    before = looks(folder)
    assert "does not contain a session store" in await refusal(folder / "a.db")
    assert looks(folder) == before


async def test_nothing_can_be_written_through_it(folder: Path) -> None:
    store = await SessionStore.open(settings(folder / "a.db"))
    await filled(store)
    await store.close()
    before = looks(folder)
    file = read_only_database(settings(folder / "a.db"))
    await file.open()
    with pytest.raises(StoreError):
        await file.read(lambda connection: connection.exec_driver_sql("DELETE FROM session"))
    await file.close()
    assert looks(folder) == before
    assert stat.S_IMODE((folder / "a.db").stat().st_mode) == 0o600
