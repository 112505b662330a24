"""``python -m evals.plan``: plan machines, devices and cost for a number of calls, from measured costs.

``fleet`` computes a plan for each design of serving (half duplex, full duplex, two tiers) from a file of
costs. ``measure`` writes such a file, with the source of each figure. ``check`` serves a load of calls and
compares the processor time that it took with the plan. ``simulate`` runs the scheduler at fleet size on
virtual time, with regions and failures. Faults end the run with one line and status 2.
"""

import argparse
from collections.abc import Callable, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

from parley.core.errors import ConfigError
from parley.evals.harness.command import count, machine, positive, positive_number
from parley.evals.harness.report import add_outputs, markdown, run_command
from parley.evals.plan.costs import COMMITTED, read_costs, write_costs
from parley.evals.plan.fleet import Load, Prices, plans, shares
from parley.evals.plan.simulation import Fleet, Simulation

Table = Callable[[dict[str, Any]], str]


def share(text: str) -> float:
    """Parse a number above 0, at most 1."""
    value = positive_number(text)
    if value > 1:
        raise argparse.ArgumentTypeError(f"{text}: expected at most 1")
    return value


def parser() -> argparse.ArgumentParser:
    """Build the parser of the command line."""
    root = argparse.ArgumentParser(
        prog="python -m evals.plan", description="Plan a fleet from measured costs, and check the plan."
    )
    commands = root.add_subparsers(dest="command", required=True)
    fleet = commands.add_parser("fleet", help="machines, devices and cost of each design")
    _add_load(fleet, calls=1_000)
    fleet.add_argument("--costs", type=Path, default=COMMITTED, help="file of costs")
    fleet.add_argument(
        "--device-hour", type=positive_number, default=1.0, help="price of a device of the model"
    )
    fleet.add_argument("--machine-hour", type=positive_number, default=0.2, help="price of a gateway machine")
    fleet.add_argument("--machine-cores", type=positive, default=8, help="cores of a gateway machine")
    fleet.add_argument(
        "--utilisation", type=share, default=0.7, help="share of devices and cores to plan for"
    )
    measured = commands.add_parser("measure", help="measure the costs on this machine and write their file")
    measured.add_argument("--seconds", type=positive_number, default=2.0, help="of the processor, each cost")
    measured.add_argument("--costs", type=Path, default=COMMITTED, help="file to write")
    check = commands.add_parser("check", help="serve a load and compare it with the plan")
    _add_load(check, calls=8)
    check.add_argument("--costs", type=Path, default=None, help="file of costs; without it they are measured")
    check.add_argument("--seconds", type=positive_number, default=30.0, help="length of the calls")
    check.add_argument("--seed", type=int, default=1, help="seed of the callers' turns")
    _add_simulation(commands.add_parser("simulate", help="run the scheduler at fleet size"))
    for command in commands.choices.values():
        add_outputs(command)
    return root


def _add_load(command: argparse.ArgumentParser, *, calls: int) -> None:
    command.add_argument("--calls", type=positive, default=calls, help="calls at the same time")
    command.add_argument(
        "--talk-ratio", type=share, default=1 / 3, help="share of a call that the bot speaks"
    )
    command.add_argument("--caller-ratio", type=share, default=1 / 3, help="share that the caller speaks")


def _add_simulation(command: argparse.ArgumentParser) -> None:
    command.add_argument("--calls", type=positive, default=100_000, help="calls in all")
    command.add_argument("--regions", type=positive, default=3)
    command.add_argument("--workers", type=positive, default=250, help="workers of each region")
    command.add_argument("--slots", type=positive, default=16, help="calls of each worker")
    command.add_argument("--call-seconds", type=positive_number, default=180.0, help="mean length of a call")
    command.add_argument(
        "--load", type=positive_number, default=0.8, help="share of all slots that calls fill"
    )
    command.add_argument(
        "--worker-days", type=positive_number, default=1.0, help="mean time between failures"
    )
    command.add_argument("--repair-seconds", type=positive_number, default=120.0)
    command.add_argument("--outage-seconds", type=count, default=0, help="loss of the first region; 0: none")
    command.add_argument("--max-waiting", type=positive, default=10_000, help="longest queue of a region")
    command.add_argument("--seed", type=int, default=1)


def _load(given: argparse.Namespace) -> Load:
    if given.talk_ratio + given.caller_ratio > 1.5:
        raise ConfigError("--talk-ratio and --caller-ratio: expected at most 1.5 in all")
    return Load(given.calls, given.talk_ratio, given.caller_ratio)


def _fleet(given: argparse.Namespace) -> dict[str, Any]:
    costs, load = read_costs(given.costs), _load(given)
    prices = Prices(given.device_hour, given.machine_hour, given.machine_cores, given.utilisation)
    figures = {name: figure.model_dump() for name, figure in costs.figures().items()}
    made = [asdict(plan) for plan in plans(costs, load, prices)]
    return {"device": costs.device, "figures": figures, "load": asdict(load), "plans": made}


def _fleet_table(result: dict[str, Any]) -> str:
    head = (
        "design",
        "share of a device",
        "devices at the peak",
        "devices",
        "machines",
        "an hour",
        "a call minute",
    )
    rows = [
        (
            plan["design"],
            f"{plan['device_share']:.3f}",
            f"{plan['peak_devices']:.1f}",
            plan["devices"],
            plan["machines"],
            f"{plan['cost_hour']:.2f}",
            f"{plan['cost_call_minute']:.5f}",
        )
        for plan in result["plans"]
    ]
    sources = [
        (name, figure["value"], figure["unit"], figure["source"])
        for name, figure in result["figures"].items()
    ]
    inputs = markdown(("figure", "value", "unit", "source"), sources)
    return f"{markdown(head, rows)}\n\nDevice: {result['device']}.\n\n{inputs}\n"


def _measure(given: argparse.Namespace) -> dict[str, Any]:
    # Imports torch.
    from parley.evals.plan.measured import measure

    costs = measure(given.seconds)
    write_costs(given.costs, costs)
    return {"costs": costs.model_dump(), "written": str(given.costs), "machine": machine()}


def _measure_table(result: dict[str, Any]) -> str:
    costs = result["costs"]
    rows = [(name, each["value"], each["unit"]) for name, each in costs.items() if isinstance(each, dict)]
    return f"{markdown(('figure', 'value', 'unit'), rows)}\n\nDevice: {costs['device']}.\n"


def _check(given: argparse.Namespace) -> dict[str, Any]:
    # Imports torch.
    from parley.evals.plan.measured import measure, run_load

    load = _load(given)
    costs = measure(2.0) if given.costs is None else read_costs(given.costs)
    results = []
    for design, served in run_load(load, seconds=given.seconds, seed=given.seed).items():
        # The plan for the shares of speech that were drawn.
        drawn = replace(load, talk_ratio=served["talk_ratio"], caller_ratio=served["caller_ratio"])
        always, while_active = shares(costs, drawn)[design]
        planned = always + drawn.talk_ratio * while_active
        error = planned / served["device_share"] - 1
        results.append({"design": design, **served, "planned_share": planned, "error": error})
    return {"results": results, "load": asdict(load), "machine": machine()}


def _check_table(result: dict[str, Any]) -> str:
    rows = [
        (
            row["design"],
            f"{row['talk_ratio']:.2f}",
            f"{row['device_share']:.4f}",
            f"{row['planned_share']:.4f}",
            f"{row['error']:+.1%}",
        )
        for row in result["results"]
    ]
    head = ("design", "talk ratio", "measured share of a core", "planned", "error")
    return f"{markdown(head, rows)}\n\n{result['load']['calls']} calls.\n"


def _simulate(given: argparse.Namespace) -> dict[str, Any]:
    fleet = Fleet(
        calls=given.calls,
        regions=given.regions,
        workers=given.workers,
        slots=given.slots,
        call_s=given.call_seconds,
        load=given.load,
        worker_days=given.worker_days,
        repair_s=given.repair_seconds,
        outage_s=given.outage_seconds,
        max_waiting=given.max_waiting,
    )
    return {**Simulation(fleet, given.seed).run(), "fleet": asdict(fleet), "seed": given.seed}


def _simulate_table(result: dict[str, Any]) -> str:
    shown = {**result, **{f"waited {name}, s": value for name, value in result["waited_s"].items()}}
    rows = [(name, value) for name, value in shown.items() if not isinstance(value, dict)]
    return markdown(("figure", "value"), [*rows, *result["outcomes"].items()]) + "\n"


COMMANDS: dict[str, tuple[Callable[[argparse.Namespace], dict[str, Any]], Table]] = {
    "fleet": (_fleet, _fleet_table),
    "measure": (_measure, _measure_table),
    "check": (_check, _check_table),
    "simulate": (_simulate, _simulate_table),
}


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command; return 0, or 2 after printing one line to standard error."""
    given = parser().parse_args(argv)
    run, table = COMMANDS[given.command]
    return run_command(given, lambda: run(given), table)


if __name__ == "__main__":
    raise SystemExit(main())
