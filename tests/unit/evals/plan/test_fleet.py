"""Plans from costs: the arithmetic, the file of costs, and the simulation of the scheduler."""

from pathlib import Path
from typing import Any

import pytest

from parley.core.errors import ConfigError
from parley.evals.plan.__main__ import main
from parley.evals.plan.costs import COMMITTED, Costs, Figure, read_costs, write_costs
from parley.evals.plan.fleet import DESIGNS, Load, Prices, plans, shares
from parley.evals.plan.simulation import Fleet, Simulation

PRICES = Prices(device_hour=2.0, machine_hour=0.5, machine_cores=8, utilisation=0.5)


def costs(generate_ms: float = 8.0, read_ms: float = 0.0, controller_ms: float = 0.8) -> Costs:
    def figure(value: float, unit: str = "ms") -> Figure:
        return Figure(value=value, unit=unit, source="a test")

    return Costs(
        device="a test",
        generate_frame_ms=figure(generate_ms),
        read_frame_ms=figure(read_ms),
        controller_frame_ms=figure(controller_ms),
        frame_ms=figure(80.0),
        gateway_cores=figure(0.1, "cores"),
    )


def test_full_duplex_takes_a_device_for_the_inverse_of_the_talk_ratio_and_two_tiers_little_more() -> None:
    load = Load(calls=100_000, talk_ratio=1 / 3, caller_ratio=1 / 3)
    half, full, tiers = plans(costs(), load, PRICES)
    assert [half.design, full.design, tiers.design] == list(DESIGNS)
    assert full.device_share / half.device_share == pytest.approx(3)
    assert tiers.device_share == pytest.approx(half.device_share + 0.01)
    # Of many calls, the peak is hardly more than the mean.
    assert full.devices / half.devices == pytest.approx(3, rel=0.02)
    assert full.peak_devices == pytest.approx(10_000) and full.devices == 20_000


def test_few_calls_may_all_be_active_at_once() -> None:
    half, full, _ = plans(costs(), Load(calls=2, talk_ratio=0.5, caller_ratio=0.5), PRICES)
    assert half.peak_devices == pytest.approx(full.peak_devices)


def test_machines_and_prices_are_those_of_the_gateways_and_the_devices() -> None:
    _, full, _ = plans(costs(), Load(calls=100, talk_ratio=0.5, caller_ratio=0.5), PRICES)
    # 100 calls of a tenth of a core, on machines of which four cores are planned for.
    assert (full.devices, full.machines) == (20, 3)
    assert full.cost_hour == pytest.approx(20 * 2.0 + 3 * 0.5)
    assert full.cost_call_minute == pytest.approx(full.cost_hour / 6_000)


def test_what_the_caller_says_is_read_once_a_turn() -> None:
    by_design = shares(costs(read_ms=4.0), Load(calls=1, talk_ratio=0.25, caller_ratio=0.5))
    always, while_active = by_design["half duplex"]
    assert always == 0 and 0.25 * while_active == pytest.approx(0.25 * 0.1 + 0.5 * 0.05)


def test_the_committed_costs_name_their_sources(tmp_path: Path) -> None:
    committed = read_costs(COMMITTED)
    assert all(figure.source for figure in committed.figures().values())
    assert 0 < committed.controller_frame_ms.value < committed.generate_frame_ms.value
    write_costs(tmp_path / "costs.json", committed)
    assert read_costs(tmp_path / "costs.json") == committed
    (tmp_path / "costs.json").write_text("{}")
    with pytest.raises(ConfigError, match="not a file of costs"):
        read_costs(tmp_path / "costs.json")
    with pytest.raises(ConfigError, match="evals.plan measure"):
        read_costs(tmp_path / "missing.json")


def test_the_command_prints_a_plan_with_its_inputs(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["fleet", "--calls", "500", "--device-hour", "2"]) == 0
    printed = capsys.readouterr().out
    assert all(design in printed for design in DESIGNS) and "python -m evals.plan measure" in printed


def fleet(**changed: Any) -> Fleet:
    values: dict[str, Any] = {
        "calls": 3_000,
        "regions": 2,
        "workers": 10,
        "slots": 4,
        "call_s": 100.0,
        "load": 0.7,
        "worker_days": 0.05,
        "repair_s": 60.0,
        "outage_s": 0.0,
        "max_waiting": 100_000,
    }
    return Fleet(**values | changed)


def test_every_simulated_call_ends_in_order_through_failures_and_the_loss_of_a_region() -> None:
    report = Simulation(fleet(outage_s=300.0), 1).run()
    outcomes = report["outcomes"]
    assert outcomes["ended"] == report["calls"] == 3_000
    assert outcomes["granted out of order"] == 0
    assert outcomes["moved to another worker"] > 50 and outcomes["sent to another region"] > 50
    assert 0 < report["most_running"] <= report["slots"] == 80
    assert report["waited_s"]["p99"] > 0


def test_a_simulation_is_repeatable_and_a_full_queue_refuses() -> None:
    tight = fleet(load=1.5, max_waiting=5)
    first, second = (Simulation(tight, 7).run() for _ in range(2))
    for each in (first, second):
        del each["took_s"]
    assert first == second
    outcomes = first["outcomes"]
    # Calls that lost their worker wait in addition.
    assert outcomes["refused: queue_full"] > 100 and 5 <= first["longest_queue"] < 40
    assert outcomes["ended"] + outcomes["refused: queue_full"] == 3_000


def test_a_fleet_with_room_lets_no_one_wait() -> None:
    report = Simulation(fleet(load=0.3, worker_days=1_000.0), 3).run()
    assert report["waited_at_all_percent"] == 0 and report["longest_queue"] == 0
