"""Engine children that are killed: the current question and those after it are answered as before."""

import asyncio
import os
import signal
from dataclasses import asdict, dataclass

from parley.evals.abuse.footprint import FRONT_END, RECOGNISER, engine_children, wakes
from parley.evals.abuse.registry import AttackRun, Outcome, attack
from parley.evals.harness.socket_caller import SocketCaller

# Time within which the present call ends and the next one asks its question.
LEAST_S = 40.0
# A spare takes over at once; without one a child has to load.
RESTART_S = 1.0
# The attacker's own call begins to speak a second after it is up, for a second and a half.
FIRST_S, SPEAKS_S, QUESTIONS = 2.0, 2.0, 3
LOOK_S = 0.05
# A child that replaced a killed one is killed after this; its own spare has loaded by then.
BETWEEN_S = 3.0
# A front end with a caller wakes for each of its 31 windows a second; without one for eight pings.
WAKES, WATCHED_S = 16, 0.5


@attack(
    "kill-recogniser",
    "SIGKILL of the recogniser's child leaves two calls deaf",
    least_s=LEAST_S,
    judges_wait=True,
)
async def kill_recogniser(run: AttackRun) -> Outcome:
    """Kill the recogniser's child in the middle of a question."""
    return await _kill(run, RECOGNISER)


@attack(
    "kill-front-end",
    "SIGKILL of the front end's child costs each answer a second from then on",
    least_s=LEAST_S,
    judges_wait=True,
)
async def kill_front_end(run: AttackRun) -> Outcome:
    """Kill the front end's child in the middle of a question, and then the child that took its callers."""
    return await _kill(run, FRONT_END, kills=2, judges_serving=True)


@dataclass
class _Kill:
    """Kill of one child.

    Attributes:
        back_s: time until another child with the same engine is there. None for never.
        serves_s: time until one that was loaded before the kill answers callers. None for never, or not
            judged.
        whole_s: time until there are as many children as before. None for never.
    """

    back_s: float | None = None
    serves_s: float | None = None
    whole_s: float | None = None


async def _kill(run: AttackRun, library: str, *, kills: int = 1, judges_serving: bool = False) -> Outcome:
    loop = asyncio.get_running_loop()
    begun_s = loop.time()
    before = engine_children(run.target.pid, library)
    if not before:
        return Outcome(0, faults=[f"the server has no child with {library}"])
    await asyncio.sleep(FIRST_S)
    caller = SocketCaller(f"{run.target.socket_url}/v1/realtime?model=parley-cascade", QUESTIONS)
    calling = asyncio.create_task(caller.call(), name="kill.call")
    await asyncio.sleep(SPEAKS_S)
    done = []
    for number in range(kills):
        if number:
            await asyncio.sleep(BETWEEN_S)
        until_s = begun_s + run.seconds * (number + 1) / kills
        done.append(await _kill_serving(run.target.pid, library, until_s, judges_serving=judges_serving))
    await asyncio.wait({calling}, timeout=max(0.0, begun_s + run.seconds - loop.time()))
    if not calling.done():
        calling.cancel()
    [broken] = await asyncio.gather(calling, return_exceptions=True)
    await asyncio.sleep(max(0.0, begun_s + run.seconds - loop.time()))
    faults = []
    for kill in done:
        if kill.back_s is None or kill.back_s > RESTART_S:
            faults.append(f"no other child takes its place within {RESTART_S:.0f} s ({kill.back_s} s)")
        if judges_serving and (kill.serves_s is None or kill.serves_s > RESTART_S):
            faults.append(f"no loaded child serves its callers within {RESTART_S:.0f} s ({kill.serves_s} s)")
        if kill.whole_s is None:
            faults.append(f"{len(before)} children before, fewer for the rest of the attack")
    if broken is not None:
        faults.append(f"the call under way breaks: {broken!r}")
    answered = len(caller.latencies_ms)
    if answered < QUESTIONS or len(caller.heard) < QUESTIONS:
        faults.append(
            f"of {QUESTIONS} questions around the kill {len(caller.heard)} understood, {answered} answered"
        )
    waits_ms = [round(each) for each in caller.latencies_ms]
    kills_done = [asdict(kill) for kill in done]
    return Outcome(kills, {"children": len(before), "kills": kills_done, "waits_ms": waits_ms}, faults)


async def _kill_serving(pid: int, library: str, until_s: float, *, judges_serving: bool) -> _Kill:
    """Kill the child that serves; wait until another one serves and there are as many as before."""
    loop = asyncio.get_running_loop()
    before = engine_children(pid, library)
    # The oldest has the streams; one that was loaded after it is its spare.
    child = await _busiest(before) if judges_serving else min(before)
    spares = {spare: wakes(spare) for spare in before - {child}} if judges_serving else {}
    os.kill(child, signal.SIGKILL)
    killed_s, kill = loop.time(), _Kill()
    while loop.time() < until_s and None in (kill.whole_s, kill.serves_s if spares else 0.0):
        found = engine_children(pid, library) - {child}
        after_s = round(loop.time() - killed_s, 2)
        if kill.back_s is None and found:
            kill.back_s = after_s
        if kill.whole_s is None and len(found) >= len(before):
            kill.whole_s = after_s
        if kill.serves_s is None and any(wakes(spare) - slept >= WAKES for spare, slept in spares.items()):
            kill.serves_s = after_s
        await asyncio.sleep(LOOK_S)
    return kill


async def _busiest(children: frozenset[int]) -> int:
    """Return the child that has callers, by how often it wakes."""
    slept = {child: wakes(child) for child in children}
    await asyncio.sleep(WATCHED_S)
    return max(children, key=lambda child: wakes(child) - slept[child])
