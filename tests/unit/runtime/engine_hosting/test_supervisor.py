"""Lives of a supervised process on a clock that jumps."""

import asyncio
import os
from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from parley.core.errors import AgentError, ConfigError, EngineError
from parley.runtime.engine_hosting.supervisor import RestartPauses, Supervisor, child_environment
from tests import virtual_time

# After the first restart 200 ms, then twice as long each time.
PAUSES = RestartPauses(first_ms=0, least_ms=200, most_ms=1_000, settled_ms=1_000)
Live = Callable[[Supervisor], Awaitable[None]]


class Lives:
    """A supervised process whose lives are scripted; the last one repeats.

    Args:
        lives: script of each life.
    """

    def __init__(self, *lives: Live) -> None:
        self.begun_s: list[float] = []
        self._lives = lives
        self.supervisor = Supervisor(self._live, name="engine", pauses=PAUSES, start_timeout_s=5)

    @property
    def pauses_ms(self) -> list[int]:
        """Times between the beginnings of lives, in ms."""
        pairs = zip(self.begun_s, self.begun_s[1:], strict=False)
        return [round((later - earlier) * 1_000) for earlier, later in pairs]

    async def _live(self) -> None:
        self.begun_s.append(asyncio.get_running_loop().time())
        await self._lives[min(len(self.begun_s), len(self._lives)) - 1](self.supervisor)


async def lasts(supervisor: Supervisor) -> None:
    supervisor.mark_ready()
    await asyncio.Event().wait()


def lasts_for(life_s: float) -> Live:
    async def live(supervisor: Supervisor) -> None:
        supervisor.mark_ready()
        await asyncio.sleep(life_s)

    return live


def fails(error: Exception) -> Live:
    async def live(_supervisor: Supervisor) -> None:
        raise error

    return live


async def loads_for_ever(_supervisor: Supervisor) -> None:
    await asyncio.Event().wait()


TRANSIENT = EngineError("no memory", engine="engine")
FINAL = EngineError("no weights", engine="engine", retryable=False)


def test_pauses_grow_while_lives_are_short_and_begin_anew_after_a_long_one() -> None:
    async def scenario() -> list[int]:
        lives = Lives(*[lasts_for(0)] * 5, lasts_for(2), lasts_for(0))
        await lives.supervisor.start()
        await asyncio.sleep(6)
        await lives.supervisor.close()
        return lives.pauses_ms

    assert virtual_time.run(scenario())[:8] == [0, 200, 400, 800, 1_000, 2_000, 200, 400]


def test_the_reason_of_the_last_restart_is_kept() -> None:
    async def scenario() -> tuple[int, str, str]:
        lives = Lives(lasts_for(0.1), fails(TRANSIENT), lasts_for(0.1), lasts)
        await lives.supervisor.start()
        await asyncio.sleep(0.2)
        failed = lives.supervisor.end_reason
        await asyncio.sleep(2)
        assert lives.supervisor.ended_s is not None
        await lives.supervisor.close()
        return lives.supervisor.restarts, failed, lives.supervisor.end_reason

    assert virtual_time.run(scenario()) == (3, "no memory", "")


def test_a_life_that_loads_too_long_is_ended_and_the_next_one_may_be_ready() -> None:
    async def scenario() -> tuple[bool, int, bool]:
        lives = Lives(lasts_for(1), loads_for_ever, loads_for_ever, lasts)
        await lives.supervisor.start()
        await asyncio.sleep(1.5)
        with pytest.raises(EngineError, match="in time"):
            await lives.supervisor.wait_ready()
        was_ready = lives.supervisor.is_ready
        await asyncio.sleep(1)
        await lives.supervisor.wait_ready()
        await lives.supervisor.close()
        return was_ready, lives.supervisor.restarts, lives.supervisor.is_ready

    assert virtual_time.run(scenario()) == (False, 3, False)


@pytest.mark.parametrize("error", [FINAL, ConfigError("no such voice")])
def test_an_engine_that_never_loads_is_given_up_and_says_why(error: AgentError) -> None:
    async def scenario() -> int:
        lives = Lives(fails(error))
        with pytest.raises(type(error), match=str(error)):
            await lives.supervisor.start()
        await asyncio.sleep(60)
        with pytest.raises(type(error), match=str(error)):
            await lives.supervisor.wait_ready()
        return len(lives.begun_s)

    assert virtual_time.run(scenario()) == 1


@pytest.mark.parametrize("error", [TRANSIENT, OSError("no processes left"), RuntimeError("a defect")])
def test_what_may_pass_is_waited_for(error: Exception) -> None:
    async def scenario() -> int:
        lives = Lives(fails(error), fails(error), lasts)
        await lives.supervisor.start()
        await lives.supervisor.close()
        return lives.supervisor.restarts

    assert virtual_time.run(scenario()) == 2


def test_an_engine_that_loaded_once_is_tried_on_and_those_who_wait_hear_why_it_does_not_load() -> None:
    async def scenario() -> int:
        lives = Lives(lasts_for(1), fails(FINAL), fails(FINAL), lasts)
        await lives.supervisor.start()
        await asyncio.sleep(1.1)
        with pytest.raises(EngineError, match="no weights"):
            await lives.supervisor.wait_ready()
        await asyncio.sleep(2)
        await lives.supervisor.wait_ready()
        await lives.supervisor.close()
        return lives.supervisor.restarts

    assert virtual_time.run(scenario()) == 3


def test_the_end_of_a_life_is_waited_for_and_counted_by_then() -> None:
    async def scenario() -> tuple[float, int]:
        lives = Lives(lasts_for(3), lasts)
        await lives.supervisor.start()
        await lives.supervisor.wait_ended()
        ended_s = asyncio.get_running_loop().time() - lives.begun_s[0]
        restarts = lives.supervisor.restarts
        await lives.supervisor.close()
        return round(ended_s, 3), restarts

    assert virtual_time.run(scenario()) == (3.0, 1)


def test_closing_ends_the_life_and_what_waits_for_the_next_one() -> None:
    async def scenario() -> bool:
        lives = Lives(lasts_for(1), loads_for_ever)
        await lives.supervisor.start()
        await asyncio.sleep(2)
        waiting = asyncio.create_task(lives.supervisor.wait_ready())
        await asyncio.sleep(0.1)
        await lives.supervisor.close()
        with pytest.raises(EngineError):
            await waiting
        await asyncio.sleep(0.1)
        return len(lives.begun_s) == 2 and len(asyncio.all_tasks()) == 1

    assert virtual_time.run(scenario())


def test_a_retired_process_has_no_other_life() -> None:
    async def scenario() -> int:
        lives = Lives(lasts_for(1))
        running = asyncio.create_task(lives.supervisor.run())
        await asyncio.sleep(0.5)
        lives.supervisor.retire()
        await asyncio.sleep(10)
        assert running.done()
        # A late report of a life that has ended.
        lives.supervisor.mark_ready()
        assert not lives.supervisor.is_ready
        return len(lives.begun_s)

    assert virtual_time.run(scenario()) == 1


def test_a_child_finds_the_modules_of_the_deployment_and_no_other_variables(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PYTHONPATH", f"{tmp_path}{os.pathsep}{os.pathsep}relative")
    monkeypatch.setenv("SECRET_OF_A_SERVICE", "key")
    passed = child_environment()
    root, *own = passed["PYTHONPATH"].split(os.pathsep)
    assert (Path(root) / "bot.py").is_file()
    assert own == [str(tmp_path), os.path.abspath("relative")]
    assert "SECRET_OF_A_SERVICE" not in passed
