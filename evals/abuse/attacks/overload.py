"""More callers than the machine can answer: some are refused or wait, and admitted ones are answered.

The callers speak OpenAI's protocol, which has no message for a place in the queue: they are refused at the
handshake. The browser gets an answer to its offer and waits (``browser_waits``), or is refused when the queue
is full. A waiting caller asks nothing, and every admitted caller is answered in time.
"""

import asyncio
from functools import partial

from websockets.exceptions import InvalidStatus

from parley.evals.abuse.attacks.requests import GONE
from parley.evals.abuse.registry import Attack, AttackRun, Outcome, add
from parley.evals.abuse.samples import OFFER
from parley.evals.abuse.target import own_address
from parley.evals.harness.socket_caller import SocketCaller

TURNS = 2
CALLERS = (8, 16, 32)
# The longest wait for an answer that an admitted caller may have, by docs/explanation/abuse.md.
WAIT_MS = 3_000
# Each turn: the question, the longest wait for its answer, the answer.
LEAST_S = 60.0
UNAVAILABLE, ADMITTED = 503, 200
# The browser calls after the callers before it were admitted.
BROWSER_S = 3.0


async def overload(run: AttackRun, *, callers: int) -> Outcome:
    """Hold this number of calls that ask at the same time, each from an address of its own."""
    url = f"{run.target.socket_url}/v1/realtime?model=parley-cascade"
    held = [SocketCaller(url, TURNS, address=own_address(number)) for number in range(1, callers + 1)]
    browsing = asyncio.create_task(_offer(run, callers + 1), name="overload.browser")
    results = await asyncio.gather(*(_hold(caller, run.seconds) for caller in held))
    admitted = [caller for caller, (status, _) in zip(held, results, strict=True) if not status]
    refusals = [result for result in results if result[0]]
    waits_ms = sorted(wait for caller in admitted for wait in caller.latencies_ms)
    asked, answered = TURNS * len(admitted), len(waits_ms)
    browser, browser_reason, browser_waits = await browsing
    did = {
        "admitted": len(admitted),
        "refused": len(refusals),
        "reasons": sorted({reason for _, reason in refusals})[:3],
        "browser": browser,
        "browser_waits": browser_waits,
        "asked": asked,
        "answered": answered,
        "p50_ms": round(waits_ms[len(waits_ms) // 2]) if waits_ms else None,
        "slowest_ms": round(waits_ms[-1]) if waits_ms else None,
    }
    faults = []
    if not admitted:
        faults.append("no caller is admitted")
    if answered < asked:
        faults.append(f"{answered} of {asked} questions of admitted callers answered")
    if waits_ms and waits_ms[-1] > WAIT_MS:
        faults.append(f"an admitted caller waits {waits_ms[-1]:.0f} ms for an answer, {WAIT_MS} are allowed")
    faults += [
        f"a caller is refused with {status}: {reason!r}"
        for status, reason in (*refusals, (browser, browser_reason))
        if status != ADMITTED and (status != UNAVAILABLE or not reason)
    ][:1]
    return Outcome(callers, dict(did), faults)


async def _hold(caller: SocketCaller, seconds: float) -> tuple[int, str]:
    """Hold a call; return status and reason of its refusal, 0 when it was admitted.

    A connection that breaks in the handshake has status 1, which is not a valid refusal of a server.
    """
    try:
        async with asyncio.timeout(seconds):
            await caller.call()
    except TimeoutError:
        # Unanswered questions are counted by the answers.
        return 0, ""
    except InvalidStatus as error:
        return error.response.status_code, (error.response.body or b"").decode(errors="replace")[:100]
    except GONE as error:
        return (0, "") if caller.pieces[1:] else (1, f"{type(error).__name__}: {error}"[:100])
    return 0, ""


async def _offer(run: AttackRun, number: int) -> tuple[int, str, bool]:
    """Offer a browser's call during the others.

    Returns:
        The status, the reason of a refusal, and whether callers wait in the queue after it.
    """
    await asyncio.sleep(BROWSER_S)
    try:
        async with run.client(number) as client, client.post("/api/offer", json=OFFER) as response:
            body = await response.json()
            async with client.get("/status") as found:
                waiting = int((await found.json()).get("waiting", 0))
    except (*GONE, ValueError) as error:
        return 1, f"{type(error).__name__}: {error}"[:100], False
    return response.status, str(body.get("error") or body.get("detail") or "")[:100], waiting > 0


for _callers in CALLERS:
    add(
        Attack(
            f"overload-{_callers}",
            f"{_callers} callers at once: none is refused and most are not answered",
            partial(overload, callers=_callers),
            setting="admission",
            least_s=LEAST_S,
            judges_wait=True,
            may_refuse=True,
        )
    )
