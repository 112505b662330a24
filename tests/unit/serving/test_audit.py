"""The audit log."""

import json
import stat
from pathlib import Path
from typing import Any

import pytest
from loguru import logger

from parley.serving.gateway.auth.audit import (
    FILES,
    WRONG_FILE,
    WRONG_IN_ALL,
    WRONG_PER_ADDRESS,
    AuditLog,
    masked,
)
from tests.peers.operations_gateway import BEARER, TOKEN, asking, gateway
from tests.peers.session_gateway import Turns, application, client_of


class Clock:
    now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def lines(path: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_an_act_is_a_line_that_its_owner_alone_reads(tmp_path: Path):
    path = tmp_path / "data" / "audit.jsonl"
    log = AuditLog(path)
    log.record("session.deleted", address="203.0.113.7", session="0a1b2c3d", by="owner")
    log.close()
    [line] = lines(path)
    assert line.pop("at").endswith("+00:00")
    assert line == {
        "act": "session.deleted",
        "address": "203.0.113.7",
        "session": "0a1b2c3d",
        "by": "owner",
    }
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_a_flood_of_wrong_credentials_is_counted_and_takes_no_line_of_the_acts(tmp_path: Path):
    path, clock = tmp_path / "audit.jsonl", Clock()
    log = AuditLog(path, clock_s=clock)
    for _ in range(10_000):
        log.record_wrong_credential("credential.wrong", address="203.0.113.7")
    for number in range(300):
        log.record("session.deleted", address="192.0.2.1", session=f"{number:08}")
    clock.now_s += 60 / WRONG_PER_ADDRESS
    log.record_wrong_credential("credential.wrong", address="203.0.113.7")
    log.close()
    assert [line["session"] for line in lines(path)] == [f"{number:08}" for number in range(300)]
    assert not any("left_out" in line for line in lines(path))
    wrong = lines(tmp_path / WRONG_FILE)
    assert len(wrong) == WRONG_PER_ADDRESS + 1
    assert wrong[-1]["left_out"] == 10_000 - WRONG_PER_ADDRESS


def test_wrong_credentials_of_many_addresses_are_bounded_in_all(tmp_path: Path):
    log = AuditLog(tmp_path / "audit.jsonl", clock_s=Clock())
    for number in range(5_000):
        log.record_wrong_credential("credential.wrong", address=f"203.0.113.{number}")
    log.close()
    assert len(lines(tmp_path / WRONG_FILE)) == WRONG_IN_ALL


def test_an_address_that_guesses_leaves_lines_for_another(tmp_path: Path):
    log = AuditLog(tmp_path / "audit.jsonl", clock_s=Clock())
    for _ in range(1_000):
        log.record_wrong_credential("operator.wrong_token", address="203.0.113.7")
    log.record_wrong_credential("operator.wrong_token", address="203.0.113.8")
    log.close()
    assert lines(tmp_path / WRONG_FILE)[-1]["address"] == "203.0.113.8"


def test_acts_that_find_the_file_away_are_written_when_it_is_back(tmp_path: Path):
    folder = tmp_path / "data"
    folder.write_text("a file where the folder should be")
    log = AuditLog(folder / "audit.jsonl", retry_s=0.01)
    for number in range(3):
        log.record("operator.act", path=f"/{number}")
    folder.unlink()
    log.close()
    assert [line["path"] for line in lines(folder / "audit.jsonl")] == ["/0", "/1", "/2"]


def test_acts_beyond_the_queue_are_in_the_log_and_counted(tmp_path: Path):
    (tmp_path / "data").write_text("a file where the folder should be")
    messages: list[str] = []
    sink = logger.add(messages.append, format="{level} {message}", level="INFO")
    log = AuditLog(tmp_path / "data" / "audit.jsonl", most_waiting=2, retry_s=60.0)
    try:
        for number in range(20):
            log.record("operator.act", path=f"/{number}")
    finally:
        logger.remove(sink)
    (tmp_path / "data").unlink()
    # Waiting records are written at the end; the rest is in the process's log.
    log.close()
    written = {line["path"] for line in lines(tmp_path / "data" / "audit.jsonl")}
    unwritten = {text.split("path=")[1].split()[0] for text in messages if "not in its file" in text}
    assert len(written) in (2, 3) and written | unwritten >= {f"/{number}" for number in range(20)}


def test_the_file_is_moved_aside_and_the_newest_are_kept(tmp_path: Path):
    log = AuditLog(tmp_path / "audit.jsonl", most_bytes=100)
    for number in range(20):
        log.record("operator.act", path=f"/{number}")
    log.close()
    kept = sorted(each.name for each in tmp_path.iterdir())
    assert kept == ["audit.1.jsonl", "audit.2.jsonl", "audit.3.jsonl", "audit.jsonl"]
    assert len(kept) == FILES
    assert lines(tmp_path / "audit.jsonl")[-1]["path"] == "/19"


def test_a_file_that_cannot_be_written_disturbs_nothing(tmp_path: Path):
    (tmp_path / "data").write_text("a file where the folder should be")
    log = AuditLog(tmp_path / "data" / "audit.jsonl")
    for _ in range(3):
        log.record("operator.login")
    log.close()


@pytest.mark.parametrize(
    ("number", "shown"), [("+15550123456", "+1555***56"), ("sip:desk@pbx.example.org", "sip:d***rg")]
)
def test_of_a_number_enough_is_written_to_find_it_in_a_bill(number: str, shown: str):
    assert masked(number) == shown


class Acts(AuditLog):
    """Audit log that keeps its records."""

    def __init__(self) -> None:
        super().__init__()
        self.acts: list[tuple[str, dict[str, object]]] = []

    def record(self, act: str, *, address: str = "", **facts: object) -> None:
        self.acts.append((act, {"address": address, **facts}))

    def record_wrong_credential(self, act: str, *, address: str, **facts: object) -> None:
        self.acts.append((act, {"address": address, **facts}))


async def test_what_operators_do_and_who_tried_to_be_one_is_recorded():
    acts = Acts()
    async with asking(gateway(audit=acts), peer="203.0.113.7") as client:
        await client.post("/api/admin/session", json={"token": "a guess"})
        await client.get("/api/queue", headers={"authorization": "Bearer a guess"})
        await client.post("/api/admin/session", json={"token": TOKEN})
        await client.get("/api/queue")
        await client.put("/api/config/eta", json={"eta_chat_s": 20})
        await client.delete("/api/admin/session")
    where = {"address": "203.0.113.7"}
    assert acts.acts == [
        ("operator.wrong_token", where),
        ("operator.wrong_token", where),
        ("operator.login", where),
        ("operator.act", {**where, "method": "PUT", "path": "/api/config/eta"}),
        ("operator.logout", where),
    ]


async def test_a_deletion_is_recorded_without_the_id(tmp_path: Path):
    acts = Acts()
    async with application(tmp_path, Turns(), audit=acts) as (app, store), client_of(app) as client:
        session = (await store.create()).id
        await client.delete(f"/api/sessions/{session}", headers=BEARER)
    [(act, facts)] = acts.acts
    assert act == "session.deleted"
    assert facts == {"address": "127.0.0.1", "session": session[:8], "by": "operator"}
