"""SIGTERM while calls are on: no caller is cut off in a word, and each hears why the call ends."""

import asyncio
import os
import signal
from contextlib import suppress

from core.errors import AgentError
from evals.abuse.attacks.floods import GONE
from evals.abuse.registry import AttackRun, Outcome, attack
from evals.abuse.settings import GOODBYE
from evals.latency.client import Line
from evals.openai_realtime import Caller as SocketCaller

SPEAKS_S, ENDS_S = 20.0, 60.0
LOOK_S = 0.05


@attack(
    "sigterm",
    "calls are cut in mid-word after SIGTERM, with no goodbye",
    setting="ending",
    controls=False,
    ends_server=True,
    least_s=ENDS_S,
)
async def sigterm(run: AttackRun) -> Outcome:
    """Stop the server while a greeting is spoken by WebRTC and an answer over a socket."""
    loop = asyncio.get_running_loop()
    line = Line(run.target.url)
    socket = SocketCaller(f"{run.target.socket_url}/v1/realtime?model=parley-cascade", 3)
    talking = asyncio.create_task(socket.call(), name="sigterm.socket")
    did: dict[str, object] = {}
    faults: list[str] = []
    try:
        await line.dial()
        if not await line.wait_bot_audible(line.connected_us, int(SPEAKS_S * 1000)):
            return Outcome(faults=["the bot does not speak before the signal"])
        await asyncio.sleep(2.0)
        said_before = len(_said(line))
        os.kill(run.target.pid, signal.SIGTERM)
        stopped_s = loop.time()
        for _ in range(round(ENDS_S / LOOK_S)):
            if not line.alive or not _is_running(run.target.pid):
                break
            await asyncio.sleep(LOOK_S)
        lasted_s = loop.time() - stopped_s
        quiet_us = line.bot_quiet_us() or 0
        said_after = " ".join(_said(line)[said_before:])
        goodbye = GOODBYE.split()[1] in said_after
        did |= {"lasted_s": round(lasted_s, 1), "quiet_s": round(quiet_us / 1e6, 2), "goodbye": goodbye}
        if not goodbye:
            faults.append(f"no goodbye: {said_after[-60:]!r} is the last that is said")
        if _is_running(run.target.pid) and lasted_s >= ENDS_S:
            faults.append(f"the server still runs {ENDS_S:.0f} s after the signal")
    except (AgentError, *GONE) as error:
        faults.append(f"the call breaks: {error}")
    finally:
        talking.cancel()
        await asyncio.gather(talking, return_exceptions=True)
        with suppress(TimeoutError):
            await line.hang_up()
    return Outcome(did, faults)


def _said(line: Line) -> list[str]:
    """Return the text that the bot is reported to have said, in order."""
    return [
        str((message.body.get("data") or {}).get("text", ""))
        for message in line.messages
        if message.body.get("type") in ("bot-tts-text", "bot-output", "bot-transcription")
    ]


def _is_running(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False
