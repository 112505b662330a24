"""Engine children that are killed: the question under way and those after it are answered as before."""

import asyncio
import os
import signal

from evals.abuse.footprint import FRONT_END, RECOGNISER, engine_children
from evals.abuse.registry import AttackRun, Outcome, attack
from evals.openai_realtime import Caller

# The call that was on ends, and the next one has its question, within this.
LEAST_S = 40.0
# A spare takes over at once; without one a child has to load.
RESTART_S = 1.0
# The attacker's own call begins to speak a second after it is up, for a second and a half.
FIRST_S, SPEAKS_S, QUESTIONS = 2.0, 2.0, 3
LOOK_S = 0.05


@attack(
    "kill-recogniser",
    "SIGKILL of the recogniser's child leaves two calls deaf",
    least_s=LEAST_S,
    judges_wait=True,
)
async def kill_recogniser(run: AttackRun) -> Outcome:
    """Kill it in the middle of a question."""
    return await _kill(run, RECOGNISER)


@attack(
    "kill-front-end",
    "SIGKILL of the front end's child costs each answer a second from then on",
    least_s=LEAST_S,
    judges_wait=True,
)
async def kill_front_end(run: AttackRun) -> Outcome:
    """Kill it in the middle of a question."""
    return await _kill(run, FRONT_END)


async def _kill(run: AttackRun, library: str) -> Outcome:
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    before = engine_children(run.target.pid, library)
    if not before:
        return Outcome(0, faults=[f"the server has no child with {library}"])
    await asyncio.sleep(FIRST_S)
    caller = Caller(f"{run.target.socket_url}/v1/realtime?model=parley-cascade", QUESTIONS)
    calling = asyncio.create_task(caller.call(), name="kill.call")
    await asyncio.sleep(SPEAKS_S)
    # The oldest has the streams; one that was loaded after it is its spare.
    child = min(before)
    os.kill(child, signal.SIGKILL)
    killed_s, back_s, whole_s = loop.time(), None, None
    while loop.time() - begun_s < run.seconds and (whole_s is None or not calling.done()):
        found = engine_children(run.target.pid, library) - {child}
        after_s = round(loop.time() - killed_s, 2)
        back_s = after_s if back_s is None and found else back_s
        whole_s = after_s if whole_s is None and len(found) >= len(before) else whole_s
        await asyncio.sleep(LOOK_S)
    if not calling.done():
        calling.cancel()
    [broken] = await asyncio.gather(calling, return_exceptions=True)
    await asyncio.sleep(max(0.0, begun_s + run.seconds - loop.time()))
    faults = []
    if back_s is None or back_s > RESTART_S:
        faults.append(f"no other child takes its place within {RESTART_S:.0f} s ({back_s} s)")
    if whole_s is None:
        faults.append(f"{len(before)} children before, fewer for the rest of the attack")
    if broken is not None:
        faults.append(f"the call under way breaks: {broken!r}")
    answered = len(caller.latencies_ms)
    if answered < QUESTIONS or len(caller.heard) < QUESTIONS:
        faults.append(
            f"of {QUESTIONS} questions around the kill {len(caller.heard)} understood, {answered} answered"
        )
    waits_ms = [round(each) for each in caller.latencies_ms]
    did = {"children": len(before), "back_s": back_s, "whole_s": whole_s, "waits_ms": waits_ms}
    return Outcome(1, dict(did), faults)
