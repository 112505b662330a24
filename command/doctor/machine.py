"""Checks of the machine: ports, clocks, disks, and open files."""

import asyncio
import http.client
import os
import resource
import shutil
import socket
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Mapping, Sequence
from email.utils import parsedate_to_datetime
from pathlib import Path

from parley.command.doctor.results import CheckResult, fail, good, warn
from parley.serving.gateway.settings import ServerSettings

# The wall clock may run so much faster or slower than the monotonic one, in seconds a second (RFC 5905 bounds
# the frequency that a time service corrects by 500 ppm); a step within the measurement is far beyond it.
CLOCK_S, MOST_DRIFT = 1.0, 0.01
# The header has seconds. Tokens of clients live for a minute; carriers refuse older requests.
OFF_S, WRONG_S = 2.0, 30.0
DATE_S = 5.0
# A recording of a call takes up to 100 MB an hour; SQLite needs room for its journal.
SCARCE_BYTES, LEAST_BYTES = 2_000_000_000, 200_000_000
# Open files of a server itself, and of a call (``serving.gateway.http``).
OWN_FILES, FILES_OF_A_CALL = 320, 8


async def check_port(server: ServerSettings) -> Sequence[CheckResult]:
    """Check that the server's port is free, or held by a running Parley."""
    where = f"{server.host} port {server.port}"
    if await asyncio.to_thread(_is_free, server.host, server.port):
        return [good(f"{where} is free")]
    if await runs_here(server):
        return [good(f"{where} is held by a running Parley")]
    return [fail(f"{where} is held by another program", "end that program, or choose another server.port")]


async def runs_here(server: ServerSettings) -> bool:
    """Return whether a Parley answers at the server's port on this machine."""
    try:
        status, _ = await asyncio.to_thread(_get, f"{local_address(server)}/health", DATE_S)
    except OSError:
        return False
    return status == 200


def local_address(server: ServerSettings) -> str:
    """Return the address at which a server is reached on this machine."""
    host = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(server.host, server.host)
    return f"http://{f'[{host}]' if ':' in host and not host.startswith('[') else host}:{server.port}"


async def check_clock(address: str | None) -> Sequence[CheckResult]:
    """Check the wall clock against the monotonic one, and against the date of an HTTP server."""
    wall_s, steady_s = time.time(), time.monotonic()
    await asyncio.sleep(CLOCK_S)
    drift = (time.time() - wall_s) / (time.monotonic() - steady_s) - 1
    step = "start a time service (chrony, systemd-timesyncd)"
    if abs(drift) > MOST_DRIFT:
        results = [warn(f"the wall clock was moved by {drift * CLOCK_S * 1000:+.0f} ms in a second", step)]
    else:
        results = [good("the wall clock runs like the monotonic one")]
    if address is None:
        return results
    try:
        before_s = time.time()
        _, headers = await asyncio.to_thread(_get, address, DATE_S)
        date = headers.get("Date") or headers.get("date")
        if date is None:
            raise OSError("it sends no date")
        at_s = (before_s + time.time()) / 2
        # The header is cut to the second.
        off_s = at_s - (parsedate_to_datetime(date).timestamp() + 0.5)
    except (OSError, ValueError) as error:
        reason = getattr(error, "reason", error)
        return [*results, warn(f"not compared with {address}: {reason}", "name another with --clock URL")]
    text = f"the clock is {off_s:+.1f} s off that of {address}"
    if abs(off_s) > WRONG_S:
        return [*results, fail(text, f"set the clock, and {step}")]
    return [*results, warn(text, step) if abs(off_s) > OFF_S else good(text)]


async def check_folders(folders: Mapping[str, Path]) -> Sequence[CheckResult]:
    """Check that files can be written into folders, and that there is room."""
    return [await asyncio.to_thread(_folder, what, path) for what, path in folders.items()]


async def check_files(server: ServerSettings) -> Sequence[CheckResult]:
    """Check the limit of open files against the calls of the deployment."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    needed = OWN_FILES + FILES_OF_A_CALL * server.max_calls
    if hard != resource.RLIM_INFINITY and hard < needed:
        step = f"raise it to {2 * needed} (systemd: LimitNOFILE), or lower server.max_calls"
        return [fail(f"{hard} open files at most; {server.max_calls} calls need {needed}", step)]
    shown = "no limit of" if hard == resource.RLIM_INFINITY else f"{hard}"
    return [good(f"{shown} open files for {server.max_calls} calls, which need {needed} (now {soft})")]


def _folder(what: str, path: Path) -> CheckResult:
    existing = path
    while not existing.exists() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        return fail(f"{what}: {existing} is not a folder", "name another folder in the deployment")
    try:
        with tempfile.TemporaryFile(dir=existing) as file:
            file.write(b"\0" * 4096)
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        step = "give the user of the server the right to write there, or make room"
        return fail(f"{what}: cannot write into {existing}: {error.strerror}", step)
    free = shutil.disk_usage(existing).free
    text = f"{what}: {existing} can be written, {free / 1e9:.1f} GB are free"
    if free < LEAST_BYTES:
        return fail(text, "make room, or name another folder")
    return warn(text, "make room soon") if free < SCARCE_BYTES else good(text)


def _is_free(host: str, port: int) -> bool:
    with socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
            probe.listen(1)
        except OSError:
            return False
    return True


def _get(address: str, within_s: float) -> tuple[int, Mapping[str, str]]:
    """Return status and headers. Blocks."""
    try:
        with urllib.request.urlopen(address, timeout=within_s) as answer:
            return answer.status, dict(answer.headers)
    except urllib.error.HTTPError as error:
        return error.code, dict(error.headers)
    except http.client.HTTPException as error:
        raise OSError(f"it does not speak HTTP: {type(error).__name__}") from error
