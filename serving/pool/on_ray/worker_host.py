"""Run a worker process on a node for all gateways: started, watched, restarted.

It is the content of an actor, without Ray. The process is a ``WorkerProcess``, so its restarts have the same
pauses as on a gateway's own machine, and it ends when this process ends. Its own reports decide whether it is
killed because it does not answer: a gateway that does not reach it may be the one that is cut off. Owns two
tasks, ``run`` and the watch.
"""

import asyncio
import hashlib
import secrets
from collections.abc import Mapping
from functools import partial
from typing import Any

from loguru import logger

from parley.runtime.worker_secret import secret_in
from parley.serving.pool.on_ray.messages import HOST_REPORT, HeldSession, HostReport
from parley.serving.pool.process import WorkerProcess
from parley.serving.pool.settings import PoolTuning, WorkerSpec
from parley.serving.pool.watch import Watch, first_watch
from parley.telemetry.settings import TraceSettings


class WorkerHost:
    """Host of one worker process. For one event loop.

    Args:
        spec: of the worker.
        settings: of the pool that started it.
        traces: of the deployment.
        address: of this node, on which the process listens.
    """

    def __init__(
        self, spec: WorkerSpec, settings: PoolTuning, *, traces: TraceSettings | None, address: str
    ) -> None:
        self._spec, self._settings = spec, settings
        self._life = secrets.token_hex(8)
        self._version = 1
        self._url: str | None = None
        self._is_retired = False
        self._facts: Mapping[str, Any] = {}
        self._changed = asyncio.Event()
        self._watching: asyncio.Task[None] | None = None
        secret = secret_in(settings.secret_env)
        self._fault = "" if secret else f"{settings.secret_env} is not set on the node {address}"
        self._secret = secret
        self._process = WorkerProcess(
            spec,
            settings,
            secret=secret.decode(),
            on_url=self._on_url,
            traces=traces,
            host=address,
        )
        self._watch = Watch(
            settings,
            first=partial(first_watch, spec.name, secret, settings.token_s),
            on_state=self._on_state,
            on_silent=lambda: None,
            on_dead=self._on_dead,
            patience_ms=self._patience_ms,
        )

    async def run(self) -> None:
        """Keep a process running, until cancelled or retired."""
        if self._fault:
            logger.error(f"{self._spec.name}: {self._fault}")
            return
        await self._process.run()

    async def attend(self, version: int, life: str, wait_s: float) -> str:
        """Return the ``HostReport`` as soon as it is not the given one, or after the wait."""
        try:
            async with asyncio.timeout(wait_s):
                while (version, life) == (self._version, self._life):
                    await self._changed.wait()
        except TimeoutError:
            pass
        return self.report()

    def report(self) -> str:
        """Return the ``HostReport``."""
        process, facts = self._process, self._facts
        engine = facts.get("engine") or {}
        held = [HeldSession(each["session_id"], each["epoch"]) for each in facts.get("held", ())]
        report = HostReport(
            self._spec.name,
            self._life,
            self._version,
            spec_digest(self._spec),
            self._url,
            process.starts,
            process.status,
            self._fault,
            str(facts["incarnation"]) if "incarnation" in facts else None,
            int(engine.get("slots", 1)),
            tuple(held),
            str(facts.get("kind") or self._spec.kind or "omni"),
            self._is_retired,
        )
        return HOST_REPORT.dump_json(report).decode()

    def retire(self) -> None:
        """Start no further process; the present one continues until it is drained."""
        self._process.retire()
        self._is_retired = True
        self._mark_changed()

    def _on_url(self, url: str | None) -> None:
        watching, self._watching = self._watching, None
        if watching is not None:
            watching.cancel()
        self._url, self._facts = url, {}
        if url is not None:
            self._watching = asyncio.create_task(self._watch.run(url), name=f"{self._spec.name}.watch")
        self._mark_changed()

    def _on_state(self, facts: Mapping[str, Any]) -> None:
        is_new = facts.get("incarnation") != self._facts.get("incarnation")
        self._facts = facts
        if facts.get("engine") is not None:
            self._process.mark_ready()
        if is_new:
            self._mark_changed()

    def _on_dead(self) -> None:
        logger.error(f"the worker {self._spec.name} does not answer, killing it")
        self._process.kill()

    def _patience_ms(self) -> int:
        loads = self._facts.get("state", "loading") == "loading"
        return self._settings.load_ms if loads else self._settings.dead_ms

    def _mark_changed(self) -> None:
        self._version += 1
        changed, self._changed = self._changed, asyncio.Event()
        changed.set()


def spec_digest(spec: WorkerSpec) -> str:
    """Return a digest of the settings of a worker."""
    return hashlib.sha256(spec.model_dump_json().encode()).hexdigest()[:16]
