"""Routes of the operator's figures: storage, failures, settings in force."""

import threading
from pathlib import Path

import pytest

from parley.configs.in_force import SettingInForce
from parley.pipelines.call_recording import CallRecordings
from parley.recording.settings import RecordingSettings
from parley.serving.gateway.admin.failures_api import FailureSources
from parley.serving.gateway.admin.operations import Operations, OperationsSettings
from parley.serving.gateway.app import create_app
from parley.serving.gateway.auth.audit import AuditLog
from parley.serving.gateway.settings import ServerTuning
from parley.telemetry.failure_log import CircuitReading, EngineProcessReading, FailureLog
from parley.transports.webrtc.signaling import Signaling
from tests.peers.operations_gateway import BEARER, TOKEN, asking, gateway
from tests.unit.recording.test_retention import recorded

DEADLINE_S = 10.0


@pytest.mark.parametrize("path", ["storage", "failures", "settings"])
async def test_figures_are_the_operators_alone(path: str):
    async with asking(gateway()) as client:
        assert (await client.get(f"/api/admin/{path}")).status_code == 403
        answer = await client.get(f"/api/admin/{path}", headers=BEARER)
        assert answer.status_code == 200 and "no-store" in answer.headers["cache-control"]


async def test_a_server_without_recordings_has_no_retention_to_run():
    async with asking(gateway(), headers=BEARER) as client:
        assert (await client.get("/api/admin/storage")).json()["recordings"] is None
        answer = await client.post("/api/admin/storage/retention", json={"dry_run": True})
        assert answer.status_code == 409 and "retention_days" in answer.json()["error"]


async def test_retention_is_run_by_hand_after_a_dry_run(tmp_path: Path):
    old = recorded(tmp_path, days_ago=31)
    recordings = CallRecordings(RecordingSettings(enabled=True, folder=tmp_path, retention_days=40), "test")
    audit = AuditLog(tmp_path / "audit.jsonl")
    app = create_app(
        ServerTuning(),
        run_call=lambda _arguments: None,  # type: ignore[arg-type, return-value]  # no call is made
        describe=dict,
        open_door=lambda on_call: Signaling(on_call, max_calls=1, hang_up_s=1),
        recordings=recordings,
        operator_token=TOKEN,
        audit=audit,
    )
    try:
        async with asking(app, headers=BEARER) as client:
            await client.get("/api/admin/storage")
            _settle()
            seen = (await client.get("/api/admin/storage")).json()
            assert (seen["retention_days"], seen["recordings"]["calls"]) == (40, 1)
            [coming] = seen["recordings"]["next"]
            assert old.name.startswith(coming["session_id"]) and coming["session_id"] != old.name

            started = await client.post("/api/admin/storage/retention", json={"dry_run": True})
            assert (started.status_code, started.json()) == (202, {"job": "dry run"})
            _settle()
            run = (await client.get("/api/admin/storage")).json()["run"]
            assert (run["dry_run"], run["sessions"], run["problem"]) == (True, 0, "") and old.exists()

            await client.post("/api/admin/storage/retention", json={"dry_run": False})
            _settle()
            assert (await client.get("/api/admin/storage")).json()["run"]["dry_run"] is False
    finally:
        await recordings.close()
        audit.close()
    # The dry run is none of its lines.
    assert (tmp_path / "audit.jsonl").read_text().count("recordings.cleaned") == 1


def _settle() -> None:
    for thread in threading.enumerate():
        if thread.name == "storage":
            thread.join(DEADLINE_S)


async def test_failures_come_from_what_knows_of_them(tmp_path: Path):
    log = FailureLog(lambda: 1_700_000_000.0)
    log.add("failover", "llm", engine="anthropic", reason="timeout")
    stall = {"at": "2026-01-01T00:00:00.000+00:00", "stalled_ms": 80}
    sources = FailureSources(
        log,
        lambda: [CircuitReading("llm", "anthropic", "open", 30_000)],
        lambda: [EngineProcessReading("moonshine_tiny", True, 1, 1_700_000_000.0, "killed")],
        lambda: {"over_ms": 50, "count": 1, "longest_ms": 80, "last": stall},
    )
    operations = Operations.open(OperationsSettings(data_dir=tmp_path), pool=None, failures=sources)
    async with asking(gateway(operations), headers=BEARER) as client:
        seen = (await client.get("/api/admin/failures")).json()
    at = "2023-11-14T22:13:20Z"
    assert seen["circuits"] == [{"stage": "llm", "engine": "anthropic", "state": "open", "retry_ms": 30_000}]
    [process] = seen["processes"]
    assert (process["restarts"], process["ended_at"], process["reason"]) == (1, at, "killed")
    [failure] = seen["failures"]
    assert (failure["count"], failure["last_at"], failure["reason"]) == (1, at, "timeout")
    assert (seen["stalls"]["count"], seen["stalls"]["last_ms"]) == (1, 80)


async def test_settings_are_read_once(tmp_path: Path):
    reads: list[int] = []

    def read() -> list[SettingInForce]:
        reads.append(threading.get_ident())
        return [SettingInForce("server.drain_s", "5.0", "20.0", True, "drain (s)")]

    operations = Operations.open(OperationsSettings(data_dir=tmp_path), pool=None, in_force=read)
    async with asking(gateway(operations), headers=BEARER) as client:
        first, second = [(await client.get("/api/admin/settings")).json() for _ in range(2)]
    row = {"path": "server.drain_s", "value": "5.0", "default": "20.0", "is_given": True}
    assert first == second == {"settings": [{**row, "meaning": "drain (s)"}]}
    assert len(reads) == 1 and reads[0] != threading.get_ident(), "it blocks, and runs in a thread"
