"""Placement of conversations with language models by memory; threads that wait."""

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

import pytest

from parley.core.errors import EngineBusyError, EngineError
from parley.models.llm.hosted.engine import PoolLlmSettings
from parley.models.llm.hosted.session_cache import CachedDialogue
from parley.models.llm.kv.memory import with_room
from parley.models.llm.kv.segments import CacheHandle
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType
from parley.serving.pool.dialogues import BUDGET_SHARE, DialogueWorkers
from parley.serving.pool.streams import StreamWorkers
from parley.serving.scheduler.types import Lease

TOKEN_BYTES = 1_000
CONTEXT_TOKENS = 2_000
CONVERSATION_BYTES = TOKEN_BYTES * with_room(CONTEXT_TOKENS)
# Long enough for any machine; no test waits as long.
WAIT_S = 30.0


def first(lease: Lease) -> EngineMessage:
    facts = {"worker": lease.worker, "incarnation": lease.incarnation, "epoch": lease.epoch}
    return EngineMessage(MessageType.LEASE, facts=facts)


def report(
    conversations: float = 100, *, streams: int = 0, slots: int = 64, state: str = "busy", life: str = "1"
) -> dict[str, Any]:
    """Return the report of a worker whose budget is for a number of conversations."""
    engine = {
        "kind": "llm",
        "slots": slots,
        "token_bytes": TOKEN_BYTES,
        "context_tokens": CONTEXT_TOKENS,
        "kv_bytes": round(conversations * CONVERSATION_BYTES / BUDGET_SHARE) + 1,
    }
    return {"state": state, "kind": "llm", "engine": engine, "streams": streams, "incarnation": life}


def dialogues(*names: str, conversations: float = 100, **settings: Any) -> DialogueWorkers:
    made = DialogueWorkers(PoolLlmSettings(**settings), first)
    for name in names:
        made.on_state(name, f"ws://{name}", report(conversations), None)
    return made


def lease(made: DialogueWorkers, session: str, epoch: int = 1, cached: CachedDialogue | None = None) -> str:
    url, message = made.lease_of(session, epoch, cached or CachedDialogue())
    assert url == f"ws://{message.facts['worker']}" and message.facts["epoch"] == epoch
    return str(message.facts["worker"])


def until(condition: Callable[[], bool]) -> None:
    deadline_s = time.monotonic() + WAIT_S
    while not condition():
        assert time.monotonic() < deadline_s
        time.sleep(0.005)


def test_conversations_are_spread_over_the_workers() -> None:
    made = dialogues("a", "b", "c")
    assert [lease(made, f"{number}") for number in range(6)] == ["a", "b", "c", "a", "b", "c"]


def test_no_more_are_admitted_than_the_budget_has_memory_for() -> None:
    made = dialogues("a", "b", conversations=2, queue_timeout_s=0)
    assert sorted(lease(made, f"{number}") for number in range(4)) == ["a", "a", "b", "b"]
    with pytest.raises(EngineBusyError, match="memory of every llm worker"):
        lease(made, "one more")
    for memory in made.memory().values():
        assert memory.budget_bytes is not None and memory.conversations == 2
        assert memory.reserved_bytes == 2 * CONVERSATION_BYTES <= memory.budget_bytes
    made.ended("1", 1)
    assert lease(made, "one more") in "ab"


def test_a_shorter_reservation_admits_more() -> None:
    made = dialogues("a", conversations=2, queue_timeout_s=0, conversation_tokens=500)
    fits = 2 * with_room(CONTEXT_TOKENS) // with_room(500)
    assert {lease(made, f"{number}") for number in range(fits)} == {"a"}
    with pytest.raises(EngineBusyError):
        lease(made, "one more")


def test_a_conversation_larger_than_a_budget_has_the_worker_for_itself() -> None:
    made = dialogues("a", conversations=0.5, queue_timeout_s=0)
    assert lease(made, "first") == "a"
    with pytest.raises(EngineBusyError):
        lease(made, "second")


def test_the_memory_of_the_specification_counts_before_that_of_the_report() -> None:
    made = DialogueWorkers(PoolLlmSettings(queue_timeout_s=0), first)
    made.on_state("a", "ws://a", report(100), round(1.5 * CONVERSATION_BYTES / BUDGET_SHARE))
    lease(made, "first")
    with pytest.raises(EngineBusyError):
        lease(made, "second")


def test_one_that_waits_is_served_in_order_when_another_ends() -> None:
    made = dialogues("a", conversations=1, queue_timeout_s=WAIT_S)
    lease(made, "first")
    served: list[str] = []

    def wait(session: str) -> None:
        lease(made, session)
        served.append(session)

    with ThreadPoolExecutor() as threads:
        waits: list[Future[None]] = []
        for number, session in enumerate(("second", "third"), start=1):
            waits.append(threads.submit(wait, session))
            until(lambda: made.waiting == number)  # noqa: B023
        made.ended("first", 1)
        until(lambda: served == ["second"])
        assert made.waiting == 1
        made.ended("second", 1)
        until(lambda: served == ["second", "third"])
        for each in waits:
            each.result()


def test_a_new_lease_of_a_session_ends_its_last_one() -> None:
    made = dialogues("a", conversations=1, queue_timeout_s=0)
    for epoch in (1, 2, 3):
        assert lease(made, "mine", epoch) == "a"
    assert made.memory()["a"].conversations == 1


def test_a_conversation_returns_to_the_process_that_has_read_it_while_that_has_room() -> None:
    made = dialogues("a", "b", conversations=2, queue_timeout_s=0)
    chain = (("s", 100), ("s u", 300))
    cached = CachedDialogue(CacheHandle("b", "1", "s u", 300), chain)
    assert lease(made, "other") == "a" and lease(made, "mine") == "b"
    # The link broke. By load alone, either would do.
    assert lease(made, "mine", 2, cached) == "b"
    # The process was restarted, and has read nothing: the placement is by load.
    made.on_state("b", "ws://b", report(2, streams=1, life="2"), None)
    lease(made, "another")
    made.on_gone("b")
    assert lease(made, "mine", 3, cached) == "a"


def test_one_that_refuses_takes_nothing_is_silent_or_gone_is_not_chosen() -> None:
    made = dialogues("a", "b", "c", "d", queue_timeout_s=0)
    assert lease(made, "mine") == "a" and made.refused("mine")
    made.on_silent("b")
    made.on_state("c", "ws://c", report(state="draining"), None)
    assert {lease(made, f"{number}") for number in range(3)} == {"d"}
    made.on_gone("d")
    made.on_silent("a")
    with pytest.raises(EngineError, match="no worker with llm is there"):
        lease(made, "mine", 2)
    made.on_state("b", "ws://b", report(), None)
    assert lease(made, "mine", 3) == "b"


def test_streams_of_other_gateways_reduce_the_slots() -> None:
    made = dialogues(queue_timeout_s=0)
    made.on_state("a", "ws://a", report(slots=4, streams=3), None)
    lease(made, "mine")
    # Its own stream is one of the four.
    made.on_state("a", "ws://a", report(slots=4, streams=4), None)
    with pytest.raises(EngineBusyError):
        lease(made, "another")


def test_a_placement_has_the_reports_from_before_it_and_is_closed_with_the_pool() -> None:
    workers = StreamWorkers(first)
    workers.on_state("a", "ws://a", report(1))
    workers.on_state("b", "ws://b", report(1))
    made = workers.dialogues(PoolLlmSettings(workers=("b",), queue_timeout_s=WAIT_S))
    assert lease(made, "mine") == "b"
    closing = threading.Timer(0.05, workers.close)
    closing.start()
    with pytest.raises(EngineError, match="no worker with llm is there"):
        lease(made, "another")
    closing.join()
