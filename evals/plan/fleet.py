"""Machines, devices and cost of a number of calls, by how the model is served. Pure.

* ``half duplex``: the large model reads what the caller said and speaks in its turn. Between, its device
  serves other calls.
* ``full duplex``: the large model is run for every frame of a call, in silence too.
* ``two tiers``: a small model is run for every frame and wakes the large one, which works as in half duplex.

Calls that are independent of each other are not all active at once. A fleet is sized for the work that
``PEAK_DEVIATIONS`` standard deviations above the mean exceed, at ``utilisation`` of each device. Full duplex
has no such variation, and saves nothing.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from parley.evals.plan.costs import Costs

DESIGNS = ("half duplex", "full duplex", "two tiers")
# One moment in a hundred exceeds it.
PEAK_DEVIATIONS = 2.33


@dataclass(frozen=True, slots=True)
class Load:
    """Calls of a plan.

    Attributes:
        calls: at the same time.
        talk_ratio: share of a call in which the bot speaks.
        caller_ratio: share in which the caller speaks.
    """

    calls: int
    talk_ratio: float
    caller_ratio: float


@dataclass(frozen=True, slots=True)
class Prices:
    """Prices and sizes of what is rented.

    Attributes:
        device_hour: of a device of the model.
        machine_hour: of a machine of the gateways.
        machine_cores: cores of such a machine.
        utilisation: share of a device or core that is planned for.
    """

    device_hour: float
    machine_hour: float
    machine_cores: int
    utilisation: float


@dataclass(frozen=True, slots=True)
class Plan:
    """Fleet of one design.

    Attributes:
        design: how the model is served.
        device_share: mean share of a device that a call takes.
        peak_devices: devices in use at the peak.
        devices: to be rented for the model.
        machines: to be rented for the gateways.
        cost_hour: of all.
        cost_call_minute: of a minute of one call.
    """

    design: str
    device_share: float
    peak_devices: float
    devices: int
    machines: int
    cost_hour: float
    cost_call_minute: float


def shares(costs: Costs, load: Load) -> Mapping[str, tuple[float, float]]:
    """Return for each design the share of a device that a call always takes, and what it takes while active.

    The second is a share while the bot speaks, with the reading of the caller's words before it added to it.
    """
    frame_ms = costs.frame_ms.value
    generate, read = costs.generate_frame_ms.value / frame_ms, costs.read_frame_ms.value / frame_ms
    turn = generate + read * (load.caller_ratio / load.talk_ratio if load.talk_ratio else 0.0)
    return {
        "half duplex": (0.0, turn),
        "full duplex": (generate, 0.0),
        "two tiers": (costs.controller_frame_ms.value / frame_ms, turn),
    }


def plans(costs: Costs, load: Load, prices: Prices) -> Sequence[Plan]:
    """Return the fleet of each design."""
    active = load.calls * load.talk_ratio
    peak = active + PEAK_DEVIATIONS * math.sqrt(active * (1 - load.talk_ratio))
    machines = math.ceil(load.calls * costs.gateway_cores.value / (prices.machine_cores * prices.utilisation))
    made = []
    for design, (always, while_active) in shares(costs, load).items():
        peak_devices = load.calls * always + min(peak, load.calls) * while_active
        devices = math.ceil(peak_devices / prices.utilisation)
        cost_hour = devices * prices.device_hour + machines * prices.machine_hour
        share = always + load.talk_ratio * while_active
        cost_minute = cost_hour / (60 * load.calls)
        made.append(Plan(design, share, peak_devices, devices, machines, cost_hour, cost_minute))
    return made
