"""Checks of a deployment and their results: each with a level, and a next step where it is not good.

``run_checks`` runs them one after the other, because some load the machine. A check that exceeds its deadline
or fails with an error of ours is a failure like any other: the rest is still checked. Owns no task.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import StrEnum

from parley.core.errors import AgentError


class Level(StrEnum):
    """Level of a result."""

    OK = "OK"
    WARN = "WARN"
    FAIL = "FAIL"


@dataclass(frozen=True, slots=True)
class CheckResult:
    """Result of a check.

    Attributes:
        level: of the result.
        message: what was found.
        next_step: what to do; empty for a good result.
    """

    level: Level
    message: str
    next_step: str = ""


@dataclass(frozen=True, slots=True)
class DoctorCheck:
    """Check of one thing.

    Attributes:
        name: of the thing.
        deadline_s: longest time.
        run: performs it; may raise AgentError or OSError.
        on_error: what to do when it raises or takes too long.
    """

    name: str
    deadline_s: float
    run: Callable[[], Awaitable[Sequence[CheckResult]]]
    on_error: str


def good(message: str) -> CheckResult:
    """Return a good result."""
    return CheckResult(Level.OK, message)


def warn(message: str, next_step: str) -> CheckResult:
    """Return a result that deserves attention."""
    return CheckResult(Level.WARN, message, next_step)


def fail(message: str, next_step: str) -> CheckResult:
    """Return a result with which the deployment should get no traffic."""
    return CheckResult(Level.FAIL, message, next_step)


async def run_checks(checks: Sequence[DoctorCheck]) -> AsyncIterator[tuple[DoctorCheck, CheckResult]]:
    """Yield the results of checks as they come."""
    for check in checks:
        for result in await _results(check):
            yield check, result


async def _results(check: DoctorCheck) -> Sequence[CheckResult]:
    try:
        async with asyncio.timeout(check.deadline_s):
            return await check.run()
    except TimeoutError:
        return [fail(f"no answer within {check.deadline_s:g} s", check.on_error)]
    except (AgentError, OSError) as error:
        return [fail(str(error) or type(error).__name__, check.on_error)]
