"""More callers than the machine can answer: some are refused or wait, and those who are in are answered."""

import asyncio
from functools import partial

from evals.abuse.attacks.floods import GONE
from evals.abuse.registry import Attack, AttackRun, Outcome, add
from evals.openai_realtime import Caller

TURNS = 2
CALLERS = (8, 16)
# Each turn: the question, the longest wait for its answer, the answer.
LEAST_S = 60.0


async def overload(run: AttackRun, *, callers: int) -> Outcome:
    """So many callers who ask at the same time."""
    url = f"{run.target.socket_url}/v1/realtime?model=parley-cascade"
    held = [Caller(url, TURNS) for _ in range(callers)]
    results = await asyncio.gather(*(_hold(caller, run.seconds) for caller in held))
    accepted = [caller for caller, refusal in zip(held, results, strict=True) if not refusal]
    asked = sum(len(caller.latencies_ms) + caller.unanswered for caller in accepted)
    answered = sum(len(caller.latencies_ms) for caller in accepted)
    waits_ms = sorted(wait for caller in accepted for wait in caller.latencies_ms)
    did = {
        "accepted": len(accepted),
        "refused": [refusal for refusal in results if refusal][:3],
        "asked": asked,
        "answered": answered,
        "p50_ms": round(waits_ms[len(waits_ms) // 2]) if waits_ms else None,
        "slowest_ms": round(waits_ms[-1]) if waits_ms else None,
    }
    faults = (
        []
        if asked and answered == asked
        else [f"{answered} of {asked} questions of accepted callers answered"]
    )
    return Outcome(dict(did), faults)


async def _hold(caller: Caller, seconds: float) -> str:
    """Hold a call; why it was refused, or nothing."""
    try:
        async with asyncio.timeout(seconds):
            await caller.call()
    except TimeoutError:
        caller.unanswered += TURNS - len(caller.latencies_ms) - caller.unanswered
    except GONE as error:
        return f"{type(error).__name__}: {error}"[:100]
    return ""


for _callers in CALLERS:
    add(
        Attack(
            f"overload-{_callers}",
            f"{_callers} callers at once: none is refused and most are not answered",
            partial(overload, callers=_callers),
            controls=False,
            least_s=LEAST_S,
        )
    )
