"""Worker that an actor of Ray runs, as a gateway sees it.

Input: the reports of its actor (``worker_host``), which any gateway creates where there is none. Output:
``on_url``, as of a process on the gateway's machine. While Ray does not answer the last address is kept: the
worker may run on, and the gateway's own watch decides whether it does.
"""

import asyncio
import json
from collections.abc import Callable

from loguru import logger

from parley.core.errors import PeerError
from parley.serving.pool.on_ray.link import RayLink
from parley.serving.pool.on_ray.messages import HOST_REPORT, HostReport
from parley.serving.pool.on_ray.worker_host import spec_digest
from parley.serving.pool.settings import PoolTuning, SharedPoolSettings, WorkerSpec
from parley.telemetry.settings import TraceSettings

# Longest time without a report, and the part of it that the way may take. A worker that no node has the
# resources for is reported in this time too.
WAIT_S, WAY_S = 10.0, 5.0
RETRY_S = 0.5


class RayWorker:
    """Worker on a cluster; the caller's task runs ``run``.

    Args:
        link: to the cluster.
        spec: of the worker.
        settings: of the pool.
        on_url: called with its address, and with None when its process has ended.
        traces: of the deployment, for the process.
    """

    def __init__(
        self,
        link: RayLink,
        spec: WorkerSpec,
        settings: PoolTuning,
        *,
        on_url: Callable[[str | None], None],
        traces: TraceSettings | None,
    ) -> None:
        assert isinstance(settings.shared, SharedPoolSettings)
        self._link, self._spec = link, spec
        self._on_url = on_url
        self._pool = settings.shared.name
        # The process needs the deadlines of the pool, and no other worker's settings.
        tuning = settings.model_copy(update={"workers": (), "shared": None})
        self._facts = {
            "pool": self._pool,
            "spec": spec.model_dump_json(),
            "settings": tuning.model_dump_json(),
            "traces": None if traces is None else traces.model_dump_json(),
        }
        self._report: HostReport | None = None
        self._retiring: asyncio.Task[str] | None = None

    @property
    def pid(self) -> None:
        """None: the process is on another machine."""
        return None

    @property
    def starts(self) -> int:
        """Number of processes that its actor has started."""
        return 0 if self._report is None else self._report.starts

    @property
    def status(self) -> int | None:
        """Exit status of the last process that ended; None: none did."""
        return None if self._report is None else self._report.status

    def mark_ready(self) -> None:
        """Do nothing: its actor watches the process itself."""

    def retire(self) -> None:
        """Let its actor start no further process."""
        self._retiring = asyncio.create_task(
            self._link.call("retire_worker", {"pool": self._pool, "worker": self._spec.name}),
            name=f"pool.{self._spec.name}.retire",
        )
        self._retiring.add_done_callback(self._on_retired)

    def _on_retired(self, retiring: asyncio.Task[str]) -> None:
        if not retiring.cancelled() and (error := retiring.exception()) is not None:
            logger.error(f"the worker {self._spec.name} is restarted when it ends: {error}")

    async def run(self) -> None:
        """Follow the worker until cancelled."""
        reported = ""
        try:
            while True:
                try:
                    await self._follow()
                    reported = ""
                except (PeerError, TimeoutError) as error:
                    reason = str(error) or "no node has its resources, or the cluster does not answer"
                    # The link reports itself why there is no first connection.
                    if reason != reported and self._link.was_connected:
                        reported = reason
                        logger.warning(f"the worker {self._spec.name}: {reason}")
                    await asyncio.sleep(RETRY_S)
        finally:
            if self._retiring is not None:
                self._retiring.cancel()

    async def _follow(self) -> None:
        before = self._report
        version, life = (0, "") if before is None else (before.version, before.life)
        text = await self._link.call(
            "attend_worker",
            {**self._facts, "version": version, "life": life, "wait_s": WAIT_S},
            within_s=WAIT_S + WAY_S,
        )
        report = self._report = HOST_REPORT.validate_json(text)
        if before is None or before.life != report.life:
            self._check(report)
        if report.is_retired and not (before is not None and before.is_retired):
            logger.warning(
                f"the worker {self._spec.name} was drained and is not started again; it is freed with python "
                f"-m parley.serving.pool.on_ray.end --worker {self._spec.name}"
            )
        if before is None or (before.life, before.starts, before.url) != (
            report.life,
            report.starts,
            report.url,
        ):
            if before is not None and before.url is not None:
                self._on_url(None)
            if report.url is not None:
                self._on_url(report.url)

    def _check(self, report: HostReport) -> None:
        name = self._spec.name
        if report.fault:
            logger.error(f"the worker {name} is not started: {report.fault}")
        if report.spec != spec_digest(self._spec):
            logger.warning(
                f"the worker {name} runs with other settings than these, from another gateway or an earlier "
                f"start; {json.dumps(self._pool)} can be ended with python -m parley.serving.pool.on_ray.end"
            )
