"""Replay of one recorded call at a time, in a process of its own.

Input: the ids of a session and of its call. Output: the state of the replay, and at its end the comparison
and the page that the process has written. Owns one task for each replay, and its process, whose reports come
a line at a time (``command.replay_job``).

The process has a folder of its own for everything that it writes, also temporary files; the folder is removed
with it, or at the start of a later server where this one is killed. The process is killed at the end of the
task: when it is over, at its deadline, when it is cancelled, when its recording is removed, and when the
server stops. What a replay showed is kept in memory, for the last ``MOST_KEPT`` replays.
"""

import asyncio
import json
import os
import shutil
import signal
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any

from loguru import logger

from parley.core.bounded_dict import BoundedDict
from parley.core.errors import CapacityError, MediaError
from parley.recording.call_files import is_folder
from parley.recording.comparison_facts import RESULT
from parley.recording.comparison_page import PAGE
from parley.runtime.engine_hosting.supervisor import child_environment

MOST_KEPT = 20
# Of the comparison, and of the page: a call of an hour has a tenth of it.
MOST_BYTES = 8_000_000
# Time for loading the engines, and for a call that is held again, in its own lengths: on a busy machine it
# lasts longer than the call.
LOAD_S, MOST_LENGTHS = 300.0, 4.0
BUSY = "a recorded call is being replayed: try again when it is over, or cancel it"
CONFIG = "config.yaml"
# The id of the server's process follows.
PREFIX = "parley-replay-job-"
JOB = (sys.executable, "-P", "-m", "parley.command.replay_job")


class ReplayState(StrEnum):
    """State of a replay; NONE: the call has not been replayed since the server started."""

    NONE = "none"
    LOADING = "loading"
    REPLAYING = "replaying"
    DONE = "done"
    FAILED = "failed"
    CANCELLED = "cancelled"


@dataclass(slots=True)
class CallReplay:
    """Replay of one recorded call.

    Attributes:
        session_id: its session.
        call_id: its call.
        duration_ms: length of the recorded call.
        state: of the replay.
        at_ms: so much of the call has passed.
        reason: why it failed; empty otherwise.
        comparison: of the call then and now (``comparison_facts``); None until it is done.
        page: the same as a page for people.
    """

    session_id: str
    call_id: str
    duration_ms: int
    state: ReplayState = ReplayState.LOADING
    at_ms: int = 0
    reason: str = ""
    comparison: dict[str, Any] | None = None
    page: bytes = b""

    @property
    def is_over(self) -> bool:
        """It goes on no more."""
        return self.state not in (ReplayState.LOADING, ReplayState.REPLAYING)

    def fail(self, reason: str) -> None:
        """End it without a comparison."""
        self.state, self.reason = ReplayState.FAILED, reason

    def as_message(self) -> dict[str, object]:
        """Return the facts for programs, without the page."""
        return {
            "call_id": self.call_id,
            "state": self.state.value,
            "at_ms": min(self.at_ms, self.duration_ms),
            "duration_ms": self.duration_ms,
            "reason": self.reason,
            "comparison": self.comparison,
        }


class ReplayJobs:
    """Replays of one server.

    Args:
        config: returns the configuration of the server as YAML, without passwords.
        secrets: variables of the environment of a replay that its configuration lacks.
        job: command of the process, without the options of a replay.
        load_s: longest time in addition to ``MOST_LENGTHS`` of the call.
        parent: in which the folder of a replay is made; None for that of temporary files.
    """

    def __init__(
        self,
        config: Callable[[], str],
        *,
        secrets: Mapping[str, str] | None = None,
        job: Sequence[str] = JOB,
        load_s: float = LOAD_S,
        parent: Path | None = None,
    ) -> None:
        self._config, self._secrets = config, dict(secrets or {})
        self._job, self._load_s = tuple(job), load_s
        self._parent = Path(tempfile.gettempdir()) if parent is None else parent
        self._kept: BoundedDict[tuple[str, str], CallReplay] = BoundedDict(MOST_KEPT)
        self._present: CallReplay | None = None
        self._task: asyncio.Task[None] | None = None
        self._is_closed = False

    async def open(self) -> None:
        """Remove what the replays of servers that were killed have left; call it before the first replay."""
        await asyncio.to_thread(_clean, self._parent)

    def get(self, session_id: str, call_id: str) -> CallReplay | None:
        """Return the last replay of a call; None without one."""
        return self._kept.get((session_id, call_id))

    def start(self, session_id: str, call_id: str, duration_ms: int) -> CallReplay:
        """Begin the replay of a call.

        Raises:
            CapacityError: another one is under way, or the server stops.
        """
        if self._is_closed or (self._task is not None and not self._task.done()):
            raise CapacityError("the server stops" if self._is_closed else BUSY, limit=1)
        replay = CallReplay(session_id, call_id, duration_ms)
        self._kept[session_id, call_id] = self._present = replay
        self._task = asyncio.create_task(self._run(replay), name="replay")
        return replay

    async def cancel(self, replay: CallReplay) -> None:
        """End a replay, and wait until its process and its folder are gone."""
        if replay is self._present and self._task is not None:
            self._task.cancel()
            await asyncio.wait({self._task})

    async def forget(self, session_id: str, call_id: str | None = None) -> int:
        """End the replay of a call, or those of a session, and drop what they showed; return their number."""
        count = 0
        for key in [each for each in self._kept if each[0] == session_id and call_id in (None, each[1])]:
            replay = self._kept.pop(key, None)
            if replay is not None:
                count += 1
                await self.cancel(replay)
        return count

    async def close(self) -> None:
        """End the present replay; no other one begins."""
        self._is_closed = True
        if self._present is not None:
            await self.cancel(self._present)

    async def _run(self, replay: CallReplay) -> None:
        deadline_s = self._load_s + MOST_LENGTHS * replay.duration_ms / 1_000
        try:
            prefix = f"{PREFIX}{os.getpid()}-"
            folder = Path(await asyncio.to_thread(tempfile.mkdtemp, prefix=prefix, dir=self._parent))
            try:
                async with asyncio.timeout(deadline_s):
                    comparison, page = await self._hold(replay, folder)
            finally:
                await asyncio.to_thread(_remove, folder)
            # Once it is over, nothing of it is left.
            replay.comparison, replay.page, replay.state = comparison, page, ReplayState.DONE
        except TimeoutError:
            replay.fail(f"it was not over after {deadline_s:.0f} s")
        except MediaError as error:
            replay.fail(str(error))
        except OSError as error:
            replay.fail(f"its process or its folder cannot be made: {error.strerror}")
        except asyncio.CancelledError:
            replay.state = ReplayState.CANCELLED
            raise
        except Exception as error:
            # Outermost level of this task: without a state, a replay would seem to go on.
            logger.opt(exception=error).error("a replay failed")
            replay.fail("the server failed at this replay: its log has the reason")
        finally:
            logger.info(f"replay of call {replay.call_id}: {replay.state} {replay.reason}".rstrip())

    async def _hold(self, replay: CallReplay, folder: Path) -> tuple[dict[str, Any], bytes]:
        """Run the process from its start to its end, after which it is gone; return what it showed.

        Raises:
            MediaError: it has failed, or its results are too large.
            OSError: it cannot be started, or its results cannot be read.
        """
        config = folder / CONFIG
        await asyncio.to_thread(config.write_text, self._config())
        options = ("--config", config, "--session", replay.session_id, "--call", replay.call_id)
        # The configuration of the server, with its keys of services. Temporary files are removed with it.
        modules = {name: value for name, value in child_environment().items() if name == "PYTHONPATH"}
        process = await asyncio.create_subprocess_exec(
            *(*self._job, *map(str, options), "--output", str(folder)),
            env=dict(os.environ) | modules | self._secrets | {"TMPDIR": str(folder)},
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
        )
        try:
            last = await self._follow(replay, process)
            status = await process.wait()
        finally:
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()
        if last.get("state") == "failed":
            raise MediaError(str(last.get("reason")))
        if last.get("state") != "done":
            raise MediaError(_death(status))
        return await asyncio.to_thread(_results, folder)

    async def _follow(self, replay: CallReplay, process: asyncio.subprocess.Process) -> dict[str, Any]:
        """Take the reports of the process to their end; return the last one."""
        assert process.stdout is not None
        last: dict[str, Any] = {}
        async for line in process.stdout:
            last = json.loads(line)
            if last["state"] == "replaying":
                replay.state, replay.at_ms = ReplayState.REPLAYING, int(last["at_ms"])
        return last


def _death(status: int) -> str:
    if status < 0:
        return f"its process was killed by {signal.Signals(-status).name}"
    return f"its process ended with status {status}: the log of the server has its messages"


def _results(folder: Path) -> tuple[dict[str, Any], bytes]:
    for name in (RESULT, PAGE):
        size = (folder / name).stat().st_size
        if size > MOST_BYTES:
            raise MediaError(f"what it showed has {size} bytes, more than {MOST_BYTES}")
    return json.loads((folder / RESULT).read_bytes()), (folder / PAGE).read_bytes()


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except OSError as error:
        # An engine of the process may still write: the folder is in that of temporary files.
        logger.warning(f"the folder of a replay is left: {folder}: {error.strerror}")


def _clean(parent: Path) -> None:
    for folder in parent.glob(f"{PREFIX}*"):
        owner = folder.name.removeprefix(PREFIX).partition("-")[0]
        is_own = is_folder(folder) and folder.stat().st_uid == os.getuid()
        if is_own and owner.isdecimal() and _is_over(int(owner)):
            _remove(folder)


def _is_over(pid: int) -> bool:
    """Return whether the server of a folder is gone, at the start of this one."""
    # A container that is started again gives its server the id of the one before.
    return pid == os.getpid() or not _is_running(pid)


def _is_running(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        # That of another user.
        return True
    return True
