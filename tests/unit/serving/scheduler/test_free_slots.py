"""Choice among the free slots of workers that several gateways share."""

from parley.serving.scheduler.free_slots import ReportedSlots, SharedSlots


def reported(member: str, worker: str, **more: object) -> ReportedSlots:
    facts = {"incarnation": "1", "slots": 2, "kv_bytes": None, "taken": 0, "used_bytes": 0, **more}
    return ReportedSlots(member, worker, **facts)  # type: ignore[arg-type]


def test_the_worker_of_the_handle_comes_before_an_emptier_one() -> None:
    slots = SharedSlots([reported("a", "v"), reported("a", "w", taken=1)])
    chosen = slots.choose("a", 0, ("w", "1"))
    assert chosen is not None and chosen.worker == "w"
    # A process that has ended has no cache.
    chosen = slots.choose("a", 0, ("w", "2"))
    assert chosen is not None and chosen.worker == "v"


def test_a_slot_that_one_gateway_fills_is_taken_for_all() -> None:
    slots = SharedSlots([reported("a", "w", slots=1), reported("b", "w", slots=1)])
    assert slots.members == ["a", "b"]
    chosen = slots.choose("a", 0, None)
    assert chosen is not None
    slots.take(chosen, 0)
    assert slots.members == [] and slots.choose("b", 0, None) is None


def test_a_gateway_gets_only_workers_that_it_reaches() -> None:
    slots = SharedSlots([reported("a", "v"), reported("b", "w")])
    chosen = slots.choose("b", 0, ("v", "1"))
    assert chosen is not None and chosen.worker == "w"
    assert slots.choose("c", 0, None) is None


def test_memory_is_counted_over_all_conversations_of_a_worker() -> None:
    slots = SharedSlots([reported("a", "w", kv_bytes=100, used_bytes=60)])
    assert slots.choose("a", 50, None) is None and slots.is_open("a")
    chosen = slots.choose("a", 40, None)
    assert chosen is not None
    slots.take(chosen, 40)
    assert slots.choose("a", 1, None) is None


def test_the_smaller_of_two_reported_limits_holds() -> None:
    slots = SharedSlots(
        [
            reported("a", "w", slots=4, kv_bytes=100, taken=1),
            reported("b", "w", slots=1, kv_bytes=50, taken=1),
        ]
    )
    assert not slots.is_open("a")
