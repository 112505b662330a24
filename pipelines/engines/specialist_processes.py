"""Child processes of the specialists, one for each row of ``hearing.specialists``."""

import asyncio
from collections.abc import Sequence

from loguru import logger
from pydantic import BaseModel

from parley.core.errors import AgentError, ConfigError
from parley.core.timeline import Source
from parley.models.specialists import SPECIALISTS
from parley.models.specialists.hosting import SpecialistSettings
from parley.models.specialists.speakers import SpeakerSettings
from parley.pipelines.engines.loading import pool_of
from parley.runtime.engine_hosting.messages import EngineSpec
from parley.runtime.engine_pool import EnginePool
from parley.runtime.engine_process import EngineProcessSettings

# Below recognisers: a finding that is late costs a remark, a late word costs the turn. A stretch of 2 s takes
# milliseconds, and fusion waits for 500 ms.
LIMITS = EngineProcessSettings(nice=10, request_timeout_s=2.0, late_timeout_s=5.0, hung_ms=2_000)


class SpecialistProcesses:
    """Processes of all specialists, for all calls. Owns one task for each until it has started.

    Args:
        planned: names and checked settings of the specialists.

    Raises:
        ConfigError: a name is unknown, or two specialists take the camera.
    """

    def __init__(self, planned: Sequence[tuple[str, BaseModel]]) -> None:
        self._pools: list[tuple[str, Source, EnginePool[object]]] = []
        self._keeps_voiceprints = any(
            isinstance(settings, SpeakerSettings) and settings.voiceprints for _, settings in planned
        )
        for name, settings in planned:
            pool: EnginePool[object] = pool_of(
                "parley.models.specialists.hosting:load_specialist",
                SpecialistSettings(specialist=EngineSpec.of(name, settings)),
                decode=dict,
                name=name,
                limits=LIMITS,
            )
            self._pools.append((name, SPECIALISTS.factory(name).source, pool))  # type: ignore[attr-defined]
        if sum(source is Source.VISION for _, source, _ in self._pools) > 1:
            raise ConfigError("hearing.specialists: name one specialist of the camera at most")
        self._starting: list[asyncio.Task[None]] = []
        # Names of those that did not load.
        self._missing: set[str] = set()

    @property
    def voice(self) -> list[tuple[Source, EnginePool[object]]]:
        """Stream and process of each started specialist of the voice; a call waits for one that loads."""
        return [(source, pool) for source, pool in self._started if source is not Source.VISION]

    @property
    def pools(self) -> list[EnginePool[object]]:
        """Processes of all specialists, started or not."""
        return [pool for _, _, pool in self._pools]

    @property
    def camera(self) -> EnginePool[object] | None:
        """Process of the started specialist of the camera; None without one."""
        return next((pool for source, pool in self._started if source is Source.VISION), None)

    @property
    def _started(self) -> list[tuple[Source, EnginePool[object]]]:
        if not self._starting:
            return []
        return [(source, pool) for name, source, pool in self._pools if name not in self._missing]

    @property
    def keeps_voiceprints(self) -> bool:
        """True when a specialist compares voices across the calls of a session."""
        return self._keeps_voiceprints

    def start(self) -> None:
        """Start the processes. A specialist that does not load is missing, which is logged."""
        if not self._starting:
            self._starting = [
                asyncio.create_task(self._start(name, pool), name=f"load.{name}")
                for name, _, pool in self._pools
            ]

    async def close(self) -> None:
        """End the processes within their deadline."""
        for task in self._starting:
            task.cancel()
        await asyncio.gather(*self._starting, return_exceptions=True)
        await asyncio.gather(*(pool.close() for _, _, pool in self._pools))

    async def _start(self, name: str, pool: EnginePool[object]) -> None:
        try:
            await pool.start()
        except AgentError as error:
            self._missing.add(name)
            logger.warning(f"the specialist {name} is missing: {error}")
