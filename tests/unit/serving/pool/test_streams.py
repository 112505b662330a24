"""Selection of the worker of a stream."""

import threading
import time
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from parley.core.errors import EngineBusyError, EngineError
from parley.runtime.engine_hosting.messages import EngineMessage, MessageType
from parley.serving.pool import streams
from parley.serving.pool.streams import PoolSttSettings, StreamWorkers, pooled_stt
from parley.serving.scheduler.types import Lease


def first(lease: Lease) -> EngineMessage:
    return EngineMessage(MessageType.LEASE, facts={"worker": lease.worker})


def says(
    taken: int = 0,
    *,
    slots: int = 4,
    state: str = "busy",
    kind: str = "stt",
    rate_hz: int = 16_000,
    life: str = "1",
) -> dict[str, Any]:
    engine = {"kind": kind, "slots": slots, "rate_hz": rate_hz}
    return {"state": state, "kind": kind, "engine": engine, "streams": taken, "incarnation": life}


@pytest.fixture
def workers() -> StreamWorkers:
    made = StreamWorkers(first)
    for name in ("a", "b", "c"):
        made.on_state(name, f"ws://{name}", says())
    return made


def place(workers: StreamWorkers, names: tuple[str, ...] = ()) -> str:
    url, message = workers.place("stt", names, 16_000)
    assert url == f"ws://{message.facts['worker']}"
    return url[-1]


def test_the_least_loaded_is_taken_and_what_was_sent_there_counts(workers: StreamWorkers) -> None:
    workers.on_state("a", "ws://a", says(2))
    workers.on_state("b", "ws://b", says(3))
    assert [place(workers) for _ in range(3)] == ["c", "c", "a"]
    # By the share that is taken: one of two is more than one of four.
    workers.on_state("c", "ws://c", says(1, slots=2))
    workers.on_state("a", "ws://a", says(1))
    assert place(workers) == "a"


def test_a_state_is_newer_than_what_was_sent_before_it(workers: StreamWorkers) -> None:
    assert [place(workers, ("a",)) for _ in range(4)] == ["a"] * 4
    with pytest.raises(EngineBusyError):
        place(workers, ("a",))
    workers.on_state("a", "ws://a", says(3))
    assert place(workers, ("a",)) == "a"


def test_when_all_are_full_it_is_said_at_once(workers: StreamWorkers) -> None:
    for name in ("a", "b", "c"):
        workers.on_state(name, f"ws://{name}", says(4))
    with pytest.raises(EngineBusyError, match="every stt stream of 3 is in use"):
        place(workers)


@pytest.mark.parametrize("state", ["loading", "draining", "suspect", "dead"])
def test_one_that_takes_nothing_is_never_chosen(workers: StreamWorkers, state: str) -> None:
    workers.on_state("a", "ws://a", says(state=state))
    workers.on_state("b", "ws://b", says(3))
    workers.on_state("c", "ws://c", says(3))
    assert {place(workers) for _ in range(2)} == {"b", "c"}


def test_one_that_is_silent_or_gone_is_never_chosen_until_it_says_something(workers: StreamWorkers) -> None:
    workers.on_silent("a")
    workers.on_gone("b")
    workers.on_state("c", "ws://c", says(3))
    assert place(workers) == "c"
    workers.on_state("a", "ws://a", says())
    assert place(workers) == "a"
    workers.on_gone("a")
    workers.on_silent("c")
    with pytest.raises(EngineError, match="no worker with stt is there"):
        place(workers)


def test_one_that_did_not_take_a_stream_is_left_alone_for_a_while(
    workers: StreamWorkers, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(streams, "AVOID_S", 0.1)
    workers.not_taken("ws://a")
    # A new state does not make it better; another process would.
    workers.on_state("a", "ws://a", says())
    assert {place(workers) for _ in range(4)} == {"b", "c"}
    workers.on_state("a", "ws://a", says(life="2"))
    assert place(workers) == "a"
    workers.not_taken("ws://a")
    time.sleep(0.11)
    workers.on_state("b", "ws://b", says(4))
    workers.on_state("c", "ws://c", says(4))
    assert place(workers) == "a"


def test_only_those_of_the_kind_the_names_and_the_rate_are_meant(workers: StreamWorkers) -> None:
    workers.on_state("a", "ws://a", says(kind="tts"))
    workers.on_state("b", "ws://b", says(rate_hz=8_000))
    assert {place(workers) for _ in range(3)} == {"c"}
    with pytest.raises(EngineError, match="no worker"):
        place(workers, ("a",))


def test_a_caller_who_comes_first_waits_until_one_is_loaded() -> None:
    workers = StreamWorkers(first)
    workers.on_state("a", "ws://a", {"state": "loading", "kind": "stt", "engine": None})
    threading.Timer(0.1, workers.on_state, ("a", "ws://a", says(rate_hz=8_000))).start()
    assert pooled_stt(workers, PoolSttSettings()).rate_hz == 8_000


def test_no_one_waits_for_ever_nor_for_a_pool_that_is_closed() -> None:
    workers = StreamWorkers(first)
    with pytest.raises(EngineError, match="no worker with stt is loaded"):
        pooled_stt(workers, PoolSttSettings(load_timeout_s=0.05))
    threading.Timer(0.05, workers.close).start()
    with ThreadPoolExecutor(1) as threads:
        waits = threads.submit(pooled_stt, workers, PoolSttSettings(load_timeout_s=30))
        with pytest.raises(EngineError, match="no worker with stt is loaded"):
            waits.result(timeout=20)
