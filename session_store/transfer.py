"""Copy a session as lines of JSON, for a backup or another database.

    {"format": "parley-session", "version": 1, "id": ..., "count": 2, "last_seq": 2, ...}
    {"seq": 1, "kind": "user_turn", "payload": {...}, ...}
    {"seq": 2, ...}
    {"sha256": "..."}

The last line is the digest of all lines before it, each with its line feed. A file that was truncated,
changed or assembled is refused as a whole. The lines are the same from every database.

    python -m session_store.transfer export --url sqlite:///a.db SESSION > session.jsonl
    python -m session_store.transfer import --url postgresql://user@host/database < session.jsonl
"""

import argparse
import asyncio
import hashlib
import json
import sys
from collections.abc import AsyncIterable, AsyncIterator, Iterable, Sequence
from dataclasses import asdict
from typing import Any, Protocol

from parley.core.errors import AgentError, StoreError
from parley.session_store.reading import JsonPage
from parley.session_store.rows import (
    MAX_INT,
    SESSION_ID,
    Row,
    SessionInfo,
    check_row,
    is_tenant,
    payload_json,
)
from parley.session_store.settings import StoreSettings

FORMAT = "parley-session"
VERSION = 1
_NUMBERS = ("epoch", "created_us", "last_us", "count", "last_seq")
_encode = json.JSONEncoder(allow_nan=False, separators=(",", ":")).encode


class Pages(Protocol):
    """Reader of events as JSON, a page at a time."""

    async def __call__(self, *, after_seq: int) -> JsonPage:
        """Return the events after ``after_seq``, without their session's id."""
        ...


async def export_lines(info: SessionInfo, read: Pages) -> AsyncIterator[str]:
    """Yield the lines of a session as it was when ``info`` was read, without later events.

    Raises:
        StoreError: as ``read`` does.
    """
    digest = hashlib.sha256()

    def line(text: str) -> str:
        digest.update(f"{text}\n".encode())
        return text

    header = asdict(info)
    # Credentials belong to one deployment: in another one the session is the operator's.
    del header["owner"], header["kv_handle"]
    yield line(_encode({"format": FORMAT, "version": VERSION, **header, "count": info.last_seq}))
    seq = 0
    while seq < info.last_seq:
        page = await read(after_seq=seq)
        if page.last is None:
            raise StoreError(f"the events from {seq + 1} to {info.last_seq} are missing in the database")
        # The order of commit has no gaps: later events are at the end.
        for text in page.texts[: info.last_seq - seq]:
            yield line(text)
        seq = page.last[1]
    yield _encode({"sha256": digest.hexdigest()})


async def whole_session(
    lines: AsyncIterable[str] | Iterable[str], *, max_payload_bytes: int
) -> tuple[SessionInfo, list[Row]]:
    """Return the session and the events of an export.

    Raises:
        StoreError: it is incomplete or was changed; the message says where.
    """
    digest = hashlib.sha256()
    info: SessionInfo | None = None
    rows: list[Row] = []
    keys: set[str] = set()
    ended = False
    number = 0
    async for text in _each(lines):
        number += 1
        text = text.strip()
        if not text:
            continue
        if ended:
            raise StoreError(f"line {number}: more lines follow after the digest")
        content = _object(text, number)
        if info is None:
            info = _header(content)
        elif "sha256" in content:
            ended = True
            if content["sha256"] != digest.hexdigest():
                raise StoreError("the digest does not match: the file was changed or is damaged")
        else:
            row = _row(content, info, number, max_payload_bytes=max_payload_bytes)
            if row["seq"] != len(rows) + 1 or row["seq"] > info.last_seq or row["key"] in keys:
                raise StoreError(f"line {number}: an event is missing, repeated or unexpected")
            keys.add(row["key"])
            rows.append(row)
        digest.update(f"{text}\n".encode())
    if info is None or not ended or len(rows) != info.last_seq:
        raise StoreError("the file is truncated: it has fewer events than it states, or no digest")
    return info, rows


async def _each(lines: AsyncIterable[str] | Iterable[str]) -> AsyncIterator[str]:
    if isinstance(lines, AsyncIterable):
        async for text in lines:
            yield text
    else:
        for text in lines:
            yield text


def _object(text: str, number: int) -> dict[str, Any]:
    try:
        content = json.loads(text)
    except (ValueError, RecursionError):
        content = None
    if not isinstance(content, dict):
        raise StoreError(f"line {number}: is not a JSON object")
    return content


def _header(content: dict[str, Any]) -> SessionInfo:
    if content.get("format") != FORMAT:
        raise StoreError("the file is not an export of a session")
    if content.get("version") != VERSION:
        raise StoreError(f"the export has version {content.get('version')}, but this release reads {VERSION}")
    good = all(type(content.get(name)) is int and 0 <= content[name] < MAX_INT for name in _NUMBERS)
    id_, tenant = content.get("id"), content.get("tenant")
    if (
        not good
        or not isinstance(id_, str)
        or not SESSION_ID.fullmatch(id_)
        or not isinstance(tenant, str)
        or not is_tenant(tenant)
        or content["count"] != content["last_seq"]
    ):
        raise StoreError("line 1: this is not the header of an export")
    return SessionInfo(
        id_, tenant, content["epoch"], content["last_seq"], content["created_us"], content["last_us"]
    )


def _row(content: dict[str, Any], info: SessionInfo, number: int, *, max_payload_bytes: int) -> Row:
    try:
        row = {name: content.pop(name) for name in _COLUMNS}
        payload = row["payload"]
        if content or not isinstance(payload, dict) or "v" not in payload:
            raise StoreError("has fields that an event does not have, or lacks some")
        for name in ("seq", "epoch"):
            if type(row[name]) is not int or not 0 <= row[name] < MAX_INT:
                raise StoreError(f"has no {name}")
        check_row(row)
        row["payload"] = payload_json(payload, max_bytes=max_payload_bytes)
    except KeyError as error:
        raise StoreError(f"line {number}: the event has no {error}") from error
    except StoreError as error:
        raise StoreError(f"line {number}: {error}") from error
    return {"session_id": info.id, **row}


_COLUMNS = (
    *("seq", "epoch", "kind", "payload", "event_us", "arrival_us"),
    *("source", "speaker", "final", "confidence", "key"),
)


async def _export(settings: StoreSettings, session_id: str) -> None:
    from parley.session_store.store import SessionReader

    # The source stays as it is: no migration, and no new file where a path is mistyped.
    store = await SessionReader.open(settings)
    try:
        async for line in store.export(session_id):
            print(line)
    finally:
        await store.close()


async def _import(settings: StoreSettings) -> None:
    from parley.session_store.store import SessionStore

    store = await SessionStore.open(settings)
    try:
        info = await store.import_(sys.stdin)
    finally:
        await store.close()
    print(f"session {info.id}: {info.last_seq} events")


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command; return the status. An error is one line on standard error and status 2."""
    parser = argparse.ArgumentParser(
        prog="python -m session_store.transfer", description=__doc__.split("\n")[0]
    )
    commands = parser.add_subparsers(dest="command", required=True)
    for name, text in (
        ("export", "write a session to standard output"),
        ("import", "read a session from standard input"),
    ):
        command = commands.add_parser(name, help=text)
        command.add_argument("--url", required=True, help="address of the session store")
    commands.choices["export"].add_argument("session", help="id of the session")
    chosen = parser.parse_args(arguments)
    try:
        settings = StoreSettings(url=chosen.url)
        if chosen.command == "export":
            asyncio.run(_export(settings, chosen.session))
        else:
            asyncio.run(_import(settings))
    except (AgentError, OSError, ValueError) as error:
        print(f"session_store: {str(error).splitlines()[0]}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main())
