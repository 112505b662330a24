"""A short run of the abuse evaluation: attacks on a server during control calls, and access on each route.

``python -m evals.abuse`` runs all of them, one after the other and for longer.
"""

import asyncio
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from parley.evals.abuse.attackers import run_attack
from parley.evals.abuse.controls import TRANSPORTS, Report, controls
from parley.evals.abuse.exposure import COLUMNS, differences, generated, written
from parley.evals.abuse.footprint import Footprint
from parley.evals.abuse.proxies import Proxy
from parley.evals.abuse.registry import Attack, Outcome, chosen
from parley.evals.abuse.report import Row, footprint_faults, table
from parley.evals.abuse.rounds import Rounds
from parley.evals.abuse.settings import setting
from parley.evals.abuse.target import Target, serving

# Those of a line run at the same time. Attacks that need longer, or end their server, are in the evaluation
# alone.
DURING_CALLS = (
    ("regex-pattern", "tiny-opus", "big-offers", "half-open:http"),
    ("mutate:rtvi", "slow:http"),
)
# Together their clients hold more calls than two cores can: what they break counts here, not how calls sound.
# The evaluation runs them one by one.
WITHOUT_CALLS = ("mutate:openai", "mutate:chat", "mutate:twilio")
# Their results depend on no time.
IDENTITY = (
    "two-sockets", "operator-by-proxy", "wrong-tokens", "session-id-alone", "key-session-rate", "token-total",
)  # fmt: skip
SECONDS, SETTLE_S, IDLE_S, SEED = 6.0, 10.0, 2.0, 1
# Wide enough for a machine that does other work too; the stalls of interest are longer. The evaluation has 60
# ms.
GAP_BEYOND_MS = 300.0
# Without a proxy, and through the one that changes most.
PROXIES = [pytest.param(Proxy.DIRECT, marks=pytest.mark.slow), Proxy.NGINX]
# The open deployment differs in the routes that need no credential.
ASKED = tuple(column for column in COLUMNS if column.setting == "table" or column.credential == "none")

Reports = Mapping[str, Report]


async def run(
    target: Target, speech: Path, attacks: Sequence[Attack], transports: Sequence[str] = TRANSPORTS
) -> tuple[list[Outcome], Reports]:
    """Run attacks at once during control calls, one on each transport; return the results of both."""
    if not transports:
        return await asyncio.gather(*(run_attack(attack, target, SECONDS, SEED) for attack in attacks)), {}
    async with controls(target.url, speech, transports, turns=1) as callers:
        assert await callers.up(), "the control calls cannot be established"
        outcomes = await asyncio.gather(*(run_attack(attack, target, SECONDS, SEED) for attack in attacks))
        return outcomes, await callers.reports()


async def settled(target: Target, before: Footprint) -> Footprint:
    """Return the resources once those of the attacks are released, or after ``SETTLE_S``."""
    loop = asyncio.get_running_loop()
    until_s = loop.time() + SETTLE_S
    while footprint_faults(before, found := await target.footprint()) and loop.time() < until_s:
        await asyncio.sleep(0.5)
    return found


async def attacked(
    target: Target,
    speech: Path,
    base: Reports,
    names: Sequence[str],
    transports: Sequence[str] = TRANSPORTS,
) -> list[Row]:
    """Run attacks; return a row for the server and its callers, and one for each attack."""
    attacks, failures = chosen(list(names)), target.failures()
    before = await target.footprint()
    outcomes, reports = await run(target, speech, attacks, transports)
    row = Row(
        "all at once",
        ", ".join(names),
        base=base,
        controls=reports,
        before=before,
        later=await settled(target, before),
        failures=target.failures() - failures,
        gap_beyond_ms=GAP_BEYOND_MS,
    )
    each = zip(attacks, outcomes, strict=True)
    return [row, *(Row(attack.name, attack.covers, outcome=outcome) for attack, outcome in each)]


@pytest.mark.alone
@pytest.mark.slow
async def test_callers_on_no_transport_hear_the_attacks(tmp_path: Path):
    speech = tmp_path / "speech"
    rows: list[Row] = []
    async with setting("default") as given, serving(tmp_path / "server", given) as target:
        _, base = await run(target, speech, chosen(["nothing"]))
        for names in DURING_CALLS:
            await asyncio.sleep(IDLE_S)
            rows += await attacked(target, speech, base, names)
        rows += await attacked(target, speech, {}, WITHOUT_CALLS, transports=())
    assert not [fault for row in rows for fault in row.faults], table(rows)


@pytest.mark.slow
async def test_a_stranger_leaves_nothing_behind(tmp_path: Path):
    rounds = Rounds(tmp_path, seconds=SECONDS, seed=SEED, settle_s=SETTLE_S, transports=())
    rows = await rounds.run(chosen(list(IDENTITY)))
    assert not [fault for row in rows for fault in row.faults], table(rows)


async def test_a_stranger_is_not_the_operator_nor_the_owner_of_a_session(tmp_path: Path):
    rows, attacks = list[Row](), chosen(list(IDENTITY))
    for name in dict.fromkeys(attack.setting for attack in attacks):
        async with setting(name) as given, serving(tmp_path / name, given) as target:
            for attack in attacks:
                if attack.setting == name:
                    before = target.failures()
                    outcome = await run_attack(attack, target, SECONDS, SEED)
                    failures = target.failures() - before
                    rows.append(Row(attack.name, attack.covers, outcome=outcome, failures=failures))
    assert not [fault for row in rows for fault in row.faults], table(rows)


@pytest.mark.parametrize("proxy", PROXIES)
async def test_every_route_lets_in_whom_the_page_says(proxy: Proxy):
    found = await generated((proxy,), ASKED)
    assert differences(written(), found, (proxy,)) == []
