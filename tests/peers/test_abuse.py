"""A short run of the abuse evaluation: attacks on one server during a control call, and access on each route.

``python -m evals.abuse`` runs all of them for longer, with control calls on every transport.
"""

from importlib.util import find_spec
from pathlib import Path

import pytest

from parley.evals.abuse.controls import SOCKET
from parley.evals.abuse.exposure import COLUMNS, differences, generated, written
from parley.evals.abuse.proxies import Proxy
from parley.evals.abuse.registry import chosen
from parley.evals.abuse.report import table
from parley.evals.abuse.rounds import Rounds

pytestmark = pytest.mark.alone

# A few seconds each. Attacks that need longer, or end their server, are in the evaluation alone.
ATTACKS = (
    "regex-pattern", "tiny-opus", "big-offers", "mutate:openai", "mutate:chat", "half-open:http",
    "two-sockets", "operator-by-proxy", "wrong-tokens", "session-id-alone",
)  # fmt: skip
SECONDS, SETTLE_S = 3.0, 10.0
# Wide enough for a machine that does other work too; the stalls of interest are longer. The evaluation has 60
# ms.
GAP_BEYOND_MS = 300.0
# The proxy that changes most.
PROXIES = (Proxy.DIRECT, Proxy.NGINX)
# The open deployment differs in the routes that need no credential.
ASKED = tuple(column for column in COLUMNS if column.setting == "table" or column.credential == "none")


async def test_a_control_call_does_not_hear_the_attacks(tmp_path: Path):
    rounds = Rounds(
        tmp_path,
        seconds=SECONDS,
        seed=1,
        settle_s=SETTLE_S,
        transports=[SOCKET],
        turns=1,
        gap_beyond_ms=GAP_BEYOND_MS,
    )
    rows = await rounds.run(chosen(list(ATTACKS)))
    assert not [fault for row in rows for fault in row.faults], table(rows)


@pytest.mark.skipif(
    find_spec("parley.serving.gateway.auth.admin_token") is None,
    reason="the page is of servers that make a token",
)
async def test_every_route_lets_in_whom_the_page_says():
    found = await generated(PROXIES, ASKED)
    assert differences(written(), found, PROXIES) == []
