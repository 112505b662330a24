"""Checks of ``parley doctor``: good and bad outcomes of each, against real sockets, files and databases."""

import asyncio
import json
import resource
import sqlite3
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from contextlib import asynccontextmanager, contextmanager
from email.utils import formatdate
from hashlib import md5
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from time import time
from typing import Any

import pytest
from aioice import stun

from parley.command.doctor.ice import check_stun, check_turn
from parley.command.doctor.machine import check_clock, check_files, check_folders, check_port
from parley.command.doctor.results import CheckResult, DoctorCheck, Level, good, run_checks
from parley.command.doctor.storage import check_store, folders_of
from parley.command.main import main
from parley.configs.deployment import Deployment
from parley.core.errors import ConfigError
from parley.serving.gateway.settings import ServerSettings
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from tests.peers.server import free_port

REALM, NONCE = "example.org", b"1"


def levels(results: Sequence[CheckResult]) -> list[Level]:
    return [each.level for each in results]


@contextmanager
def http_server(answer: Callable[[str], tuple[int, float]]) -> Iterator[int]:
    """Serve on a port; ``answer`` returns status and time of a path."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            status, date_s = answer(self.path)
            self.send_response_only(status)
            self.send_header("Date", formatdate(date_s, usegmt=True))
            self.end_headers()

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        server.server_close()
        thread.join(5)


class IceServer(asyncio.DatagramProtocol):
    """STUN and TURN server, as far as one request and its credentials go."""

    def __init__(self, *, password: str = "secret", refuses: bool = False) -> None:
        self._key = md5(f"user:{REALM}:{password}".encode()).digest()
        self._refuses = refuses

    def connection_made(self, transport: Any) -> None:
        self._transport = transport

    def datagram_received(self, data: bytes, addr: Any) -> None:
        request = stun.parse_message(data)
        answer = stun.Message(request.message_method, stun.Class.RESPONSE, request.transaction_id)
        if request.message_method is stun.Method.BINDING:
            if self._refuses:
                answer.message_class = stun.Class.ERROR
                answer.attributes["ERROR-CODE"] = (400, "Bad Request")
            else:
                answer.attributes["XOR-MAPPED-ADDRESS"] = addr
        elif not request.check_message_integrity(self._key):
            answer.message_class = stun.Class.ERROR
            answer.attributes |= {"ERROR-CODE": (401, "Unauthorized"), "REALM": REALM, "NONCE": NONCE}
        else:
            answer.attributes |= {
                "XOR-RELAYED-ADDRESS": ("203.0.113.7", 49_160),
                "XOR-MAPPED-ADDRESS": addr,
                "LIFETIME": request.attributes.get("LIFETIME", 600),
            }
            answer.add_message_integrity(self._key)
        self._transport.sendto(bytes(answer), addr)


@asynccontextmanager
async def ice_server(**how: Any) -> AsyncIterator[int]:
    transport, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        lambda: IceServer(**how), local_addr=("127.0.0.1", 0)
    )
    try:
        yield transport.get_extra_info("sockname")[1]
    finally:
        transport.close()


# The order of checks.


async def test_a_check_that_hangs_or_breaks_is_a_failure_and_the_rest_is_checked():
    async def hang() -> Sequence[CheckResult]:
        await asyncio.Event().wait()
        return []

    async def broken() -> Sequence[CheckResult]:
        raise ConfigError("there is no such thing")

    async def fine() -> Sequence[CheckResult]:
        return [good("all is well")]

    checks = [
        DoctorCheck("a", 0.05, hang, "look"),
        DoctorCheck("b", 5, broken, "mend"),
        DoctorCheck("c", 5, fine, ""),
    ]
    results = [result async for _, result in run_checks(checks)]
    assert levels(results) == [Level.FAIL, Level.FAIL, Level.OK]
    assert (results[0].message, results[0].next_step) == ("no answer within 0.05 s", "look")
    assert "no such thing" in results[1].message and results[1].next_step == "mend"


# The machine.


async def test_a_port_is_free_or_held_by_parley_or_by_another_program():
    settings = ServerSettings(port=free_port())
    [free] = await check_port(settings)
    assert free.level is Level.OK and "is free" in free.message
    for status, level in ((200, Level.OK), (404, Level.FAIL)):
        with http_server(lambda _path, status=status: (status, time())) as port:  # type: ignore[misc]
            [held] = await check_port(ServerSettings(port=port))
        assert held.level is level, held


async def test_a_port_of_a_program_that_speaks_no_http_is_held_by_another_one():
    async def greet(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"SSH-2.0-one\r\n")
        await writer.drain()
        writer.close()

    async with await asyncio.start_server(greet, "127.0.0.1", 0) as server:
        port = server.sockets[0].getsockname()[1]
        [found] = await check_port(ServerSettings(port=port))
    assert found.level is Level.FAIL and "held by another program" in found.message


@pytest.mark.parametrize(("off_s", "level"), [(0, Level.OK), (-9, Level.WARN), (120, Level.FAIL)])
async def test_a_clock_is_compared_with_the_date_of_a_server(off_s: float, level: Level):
    with http_server(lambda _path: (404, time() + off_s)) as port:
        results = await check_clock(f"http://127.0.0.1:{port}")
    assert levels(results) == [Level.OK, level], results


async def test_a_clock_without_a_server_to_compare_with_is_reported():
    [_, unknown] = await check_clock(f"http://127.0.0.1:{free_port()}")
    assert unknown.level is Level.WARN and "--clock" in unknown.next_step


async def test_a_folder_is_writable_or_not(tmp_path: Path):
    file = tmp_path / "file"
    file.write_text("")
    results = await check_folders({"data": tmp_path / "to" / "come", "recordings": file / "below"})
    assert levels(results) == [Level.OK, Level.FAIL]
    assert "is not a folder" in results[1].message


async def test_a_folder_of_the_system_that_takes_no_files_fails():
    [result] = await check_folders({"data": Path("/proc")})
    assert result.level is Level.FAIL and "cannot write" in result.message


async def test_too_few_open_files_for_the_calls_fail():
    [enough] = await check_files(ServerSettings(max_calls=1))
    assert enough.level is Level.OK
    before = resource.getrlimit(resource.RLIMIT_NOFILE)
    hard = before[1] if before[1] != resource.RLIM_INFINITY else 10**9
    calls = min(10_000, hard)
    [result] = await check_files(ServerSettings(max_calls=calls))
    assert (result.level is Level.FAIL) is (hard < 320 + 8 * calls)


# STUN and TURN.


async def test_a_stun_server_answers_refuses_or_is_silent():
    async with ice_server() as port:
        [answered] = await check_stun(f"stun:127.0.0.1:{port}")
    assert answered.level is Level.OK and "127.0.0.1" in answered.message
    async with ice_server(refuses=True) as port:
        assert levels(await check_stun(f"stun:127.0.0.1:{port}")) == [Level.FAIL]
    silent, _ = await asyncio.get_running_loop().create_datagram_endpoint(
        asyncio.DatagramProtocol, local_addr=("127.0.0.1", 0)
    )
    [unanswered] = await check_stun(f"stun:127.0.0.1:{silent.get_extra_info('sockname')[1]}")
    silent.close()
    assert unanswered.level is Level.FAIL and "does not answer" in unanswered.message


async def test_an_address_that_is_no_stun_server_is_refused():
    with pytest.raises(ConfigError, match="stun:host:port"):
        await check_stun("http://example.org")


@pytest.mark.parametrize(("password", "level"), [("secret", Level.OK), ("wrong", Level.FAIL)])
async def test_a_turn_server_allocates_for_the_right_password(password: str, level: Level):
    async with ice_server() as port:
        [result] = await check_turn(f"turn:127.0.0.1:{port}", "user", password)
    assert result.level is level, result
    assert ("203.0.113.7" in result.message) is (level is Level.OK)


# The store.


def deployed(folder: Path) -> Deployment:
    return Deployment.model_validate(
        {
            "name": "checked",
            "remembering": {"store": {"url": f"sqlite:///{folder}/sessions.db"}},
            "recording": {"enabled": True, "folder": str(folder / "recordings")},
        }
    )


async def test_a_store_is_of_this_release_an_older_one_or_missing(tmp_path: Path):
    deployment = deployed(tmp_path)
    [missing] = await check_store(deployment)
    assert missing.level is Level.WARN and "there is no session store" in missing.message
    store = await SessionStore.open(StoreTuning(url=f"sqlite:///{tmp_path}/sessions.db"))
    await store.create()
    await store.close()
    [present] = await check_store(deployment)
    assert present.level is Level.OK and "with sessions" in present.message
    with sqlite3.connect(tmp_path / "sessions.db") as connection:
        connection.execute("UPDATE session_store_version SET version_num = '0005'")
    connection.close()
    [older] = await check_store(deployment)
    assert older.level is Level.WARN and "older release" in older.message


async def test_a_store_of_a_newer_release_fails(tmp_path: Path):
    store = await SessionStore.open(StoreTuning(url=f"sqlite:///{tmp_path}/sessions.db"))
    await store.close()
    with sqlite3.connect(tmp_path / "sessions.db") as connection:
        connection.execute("UPDATE session_store_version SET version_num = '9999'")
    connection.close()
    check = DoctorCheck("store", 10, lambda: check_store(deployed(tmp_path)), "look")
    [(_, result)] = [each async for each in run_checks([check])]
    assert result.level is Level.FAIL and "newer release" in result.message


async def test_the_folders_are_those_that_the_server_writes_into(tmp_path: Path):
    folders = folders_of(deployed(tmp_path))
    assert set(folders) == {"data", "sessions", "recordings"}
    assert folders["sessions"] == tmp_path


# The command.


def write(folder: Path, **settings: Any) -> str:
    path = folder / "checked.yaml"
    path.write_text(json.dumps({"name": "checked", **settings}))
    return str(path)


def test_the_command_ends_with_status_1_when_a_check_fails(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.delenv("TWILIO_AUTH_TOKEN", raising=False)
    config = write(tmp_path, phone={"public_url": "https://talk.example.org"}, server={"open": True})
    assert main(["doctor", "--config", config, "--only", "settings"]) == 1
    out = capsys.readouterr().out
    assert out.startswith("FAIL settings") and "TWILIO_AUTH_TOKEN" in out
    assert out.splitlines()[-1] == "checked: 0 OK, 0 WARN, 1 FAIL"


def test_the_command_prints_json(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    config = write(tmp_path, server={"port": free_port()})
    arguments = ["doctor", "--config", config, "--json", "--only", "port", "--only", "settings"]
    assert main(arguments) == 0
    shown = json.loads(capsys.readouterr().out)
    assert shown["deployment"] == "checked" and shown["ok"] is True
    assert [(each["check"], each["level"]) for each in shown["checks"]] == [
        ("settings", "OK"),
        ("port", "OK"),
    ]


def test_a_deployment_that_cannot_be_read_ends_with_status_2(tmp_path: Path):
    assert main(["doctor", "--config", str(tmp_path / "missing.yaml")]) == 2


def test_a_deployment_without_a_phone_is_not_called(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    config = write(tmp_path)
    arguments = ["doctor", "--config", config, "--only", "call", "--server", "http://127.0.0.1:1"]
    assert main(arguments) == 0
    first = capsys.readouterr().out.splitlines()[0]
    assert first == (
        "WARN call     no call was placed at http://127.0.0.1:1: the deployment has no phone; "
        "add the section phone, or leave out --server"
    )


def test_reading_the_command_line_imports_no_pipecat():
    code = "import sys, parley.command.doctor.main; print('pipecat' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True).stdout == "False\n"
