"""Process that holds one recorded call again for a server, and reports how far it is (``gateway.replays``).

Input: a deployment, the ids of a session and of its call, and a folder. Output, one JSON object a line on
standard output:

    {"state": "replaying", "at_ms": N}   so much of the call has passed; about once a second
    {"state": "done"}                    the comparison and its page are in the folder
    {"state": "failed", "reason": "..."}

Everything that is written is in the folder, which the server removes. The process has the lowest priority,
so that calls have the processors first, and dies with the server.
"""

import argparse
import asyncio
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.command.log import configure_log
from parley.configs.load import load_deployment
from parley.core.errors import AgentError, MediaError
from parley.runtime.parent_death import die_with_the_parent
from parley.runtime.process_exit import exit_process

if TYPE_CHECKING:
    from parley.configs.deployment import Deployment
    from parley.recording.folder import CallRecording

REPORT_S = 1.0
LOWEST_PRIORITY = 19

Report = Callable[[dict[str, Any]], None]


def main(arguments: list[str] | None = None) -> int:
    """Hold the call again; return 0, or 1 where that failed."""
    parser = argparse.ArgumentParser(prog="python -m parley.command.replay_job", description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--session", required=True)
    parser.add_argument("--call", required=True)
    parser.add_argument("--output", type=Path, required=True)
    given = parser.parse_args(arguments)
    die_with_the_parent()
    os.nice(LOWEST_PRIORITY)
    configure_log(0)
    with os.fdopen(os.dup(sys.stdout.fileno()), "w", buffering=1) as lines:
        # Libraries print: their lines go to the log.
        os.dup2(sys.stderr.fileno(), sys.stdout.fileno())

        def report(facts: dict[str, Any]) -> None:
            print(json.dumps(facts), file=lines, flush=True)

        try:
            replay_one(load_deployment(given.config), given.session, given.call, given.output, report)
        except AgentError as error:
            report({"state": "failed", "reason": str(error)})
            return 1
        report({"state": "done"})
    return 0


def replay_one(deployment: "Deployment", session_id: str, call_id: str, output: Path, report: Report) -> None:
    """Hold one call again, and write its comparison and its page into a folder.

    Raises:
        ConfigError: the output cannot be written, or a key of recordings is wrong.
        EngineError: an engine does not load.
        MediaError: there is no such recording, or it cannot be held again.
    """
    from parley.command.replay import replay_calls
    from parley.recording.comparison_facts import RESULT, facts_of_replay
    from parley.recording.comparison_page import PAGE, write_page
    from parley.recording.library import recordings_of
    from parley.recording.objects import RecordingBucket
    from parley.runtime import unhurried_loop

    settings = deployment.recording
    bucket = None if settings.s3 is None else RecordingBucket(settings.s3)
    found = [each for each in recordings_of(settings.folder, session_id, bucket) if each.call_id == call_id]
    if not found:
        raise MediaError("the recording is not there any more")

    async def replay() -> Any:
        reporting = list[asyncio.Task[None]]()

        def on_begun(_recording: "CallRecording") -> None:
            reporting.append(asyncio.create_task(_report_progress(report), name="progress"))

        try:
            return await replay_calls(deployment, found, output, on_begun=on_begun)
        finally:
            for task in reporting:
                task.cancel()
            await asyncio.gather(*reporting, return_exceptions=True)

    [replayed] = unhurried_loop.run(replay())
    if replayed.failure:
        raise MediaError(replayed.failure)
    (output / RESULT).write_text(json.dumps(facts_of_replay(replayed)))
    write_page([replayed], output / PAGE, deployment.name)


async def _report_progress(report: Report) -> None:
    loop = asyncio.get_running_loop()
    began_s = loop.time()
    while True:
        report({"state": "replaying", "at_ms": round(1_000 * (loop.time() - began_s))})
        await asyncio.sleep(REPORT_S)


if __name__ == "__main__":
    exit_process(main())
