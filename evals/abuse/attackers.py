"""Attacker's process: ``python -m evals.abuse.attackers NAME SECONDS SEED``; the target on standard input.

Prints one line of JSON, the outcome. It runs at low priority: in reality an attacker's computing happens on
another machine, and must not count as work of the server.
"""

import asyncio
import json
import os
import random
import resource
import sys
from dataclasses import asdict

from parley.core.errors import PeerError
from parley.evals.abuse.registry import Attack, AttackRun, Outcome, chosen
from parley.evals.abuse.target import Target
from parley.evals.harness.launcher import child

NICENESS = 10
# Added to the time of the attack.
MARGIN_S = 45.0
DESCRIPTORS = 8_192


async def run_attack(attack: Attack, target: Target, seconds: float, seed: int) -> Outcome:
    """Run an attack in a process of its own.

    Raises:
        PeerError: it gave no outcome in time.
    """
    arguments = (attack.name, str(seconds), str(seed))
    async with child("parley.evals.abuse.attackers", *arguments, stderr=asyncio.subprocess.PIPE) as process:
        try:
            async with asyncio.timeout(max(seconds, attack.least_s) + MARGIN_S):
                output, errors = await process.communicate(target.as_json().encode())
            return Outcome(**json.loads(output.splitlines()[-1]))
        except TimeoutError:
            raise PeerError(f"the attack {attack.name} did not end") from None
        except (IndexError, ValueError, TypeError):
            last = errors.decode(errors="replace").strip().splitlines()[-1:]
            raise PeerError(f"the attack {attack.name} reported no outcome: {last}") from None


def main(name: str, seconds: float, seed: int) -> None:
    """Run one attack against the target on standard input."""
    [attack] = chosen([name])
    if attack.controls:
        # The control calls measure the server, so their callers come first.
        os.nice(NICENESS)
    most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(DESCRIPTORS, most), most))
    target = Target.from_json(sys.stdin.readline())
    run = attack.run(AttackRun(target, max(seconds, attack.least_s), random.Random(f"{name} {seed}")))
    print(json.dumps(asdict(asyncio.run(run))), flush=True)  # type: ignore[arg-type]


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]))
