"""A short run of the fuzzer on a server and a worker: nothing it sends is a failure, and nothing of it stays.

``python -m evals.fuzz`` runs longer, during control calls.
"""

from pathlib import Path

from parley.evals.fuzz.dialects import NAMES
from parley.evals.fuzz.report import table
from parley.evals.fuzz.run import Fuzzer
from parley.evals.fuzz.sender import Order

MESSAGES, SECONDS, RATE, CLIENTS = 1_500, 20.0, 400.0, 6
# A call by WebRTC takes the longest to begin; the rest is covered by the evaluation.
PROTOCOLS = tuple(name for name in NAMES if name not in ("rtvi", "udp"))


async def test_no_message_of_any_protocol_is_a_failure_of_the_server(tmp_path: Path):
    order = Order(1, MESSAGES, SECONDS, RATE, CLIENTS, PROTOCOLS)
    found = await Fuzzer(tmp_path, order, base_s=0.0, transports=()).run()
    assert sum(found.sent.values()) > MESSAGES / 10, table(found)
    assert not found.places and not found.broken, table(found)
    assert found.later is not None and found.later.calls == 0, table(found)
