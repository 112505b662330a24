"""Engine children that are killed: the call that is on, and the next one, are answered as before."""

import asyncio
import os
import signal

from evals.abuse.footprint import FRONT_END, RECOGNISER, engine_child
from evals.abuse.registry import AttackRun, Outcome, attack

# The call that was on ends, and the next one has its question, within this.
LEAST_S = 40.0
RESTART_S = 1.0
# Before the kill: the control calls' greeting.
FIRST_S = 4.0
LOOK_S = 0.05


@attack(
    "kill-recogniser",
    "SIGKILL of the recogniser's child leaves two calls deaf",
    least_s=LEAST_S,
    judges_wait=True,
)
async def kill_recogniser(run: AttackRun) -> Outcome:
    """Kill it in the middle of a call."""
    return await _kill(run, RECOGNISER)


@attack(
    "kill-front-end",
    "SIGKILL of the front end's child costs each answer a second from then on",
    least_s=LEAST_S,
    judges_wait=True,
)
async def kill_front_end(run: AttackRun) -> Outcome:
    """Kill it in the middle of a call."""
    return await _kill(run, FRONT_END)


async def _kill(run: AttackRun, library: str) -> Outcome:
    loop = asyncio.get_running_loop()
    pid = run.target.pid
    await asyncio.sleep(FIRST_S)
    child = engine_child(pid, library)
    if child is None:
        return Outcome(faults=[f"the server has no child with {library}"])
    os.kill(child, signal.SIGKILL)
    killed_s, back_s = loop.time(), None
    while loop.time() - killed_s < run.seconds - FIRST_S:
        found = engine_child(pid, library)
        if back_s is None and found not in (None, child):
            back_s = round(loop.time() - killed_s, 2)
        await asyncio.sleep(LOOK_S if back_s is None else 1.0)
    faults = [] if back_s is not None else ["no other child takes its place"]
    return Outcome({"back_s": back_s}, faults)
