"""Actors on a Ray cluster, and calls to them. The only module of this folder that imports Ray.

Named, detached actors that Ray restarts: one for each line (``line_host``) and one for each worker
(``worker_host``). The first gateway that needs one creates it. They outlive the gateways; ``end_actors`` ends
them. Control only: media goes from the gateways to the workers' own ports.
"""

import asyncio
import contextlib
import json
from collections.abc import Coroutine, Sequence
from typing import Any

import ray
from loguru import logger
from ray.exceptions import ActorUnavailableError, RayError, RayTaskError
from ray.util import get_node_ip_address, list_named_actors

from parley.core.errors import PeerError
from parley.runtime.ray_errors import is_failed_creation, last_line
from parley.serving.pool.on_ray.creation import CreationPauses
from parley.serving.pool.on_ray.line_host import LineHost
from parley.serving.pool.on_ray.messages import HOST_REPORT, HostReport
from parley.serving.pool.on_ray.worker_host import WorkerHost
from parley.serving.pool.settings import PoolTuning, RayPlacement, WorkerSpec
from parley.telemetry.settings import TraceSettings

# Wait of a line for the reports of all workers.
REPORTS_S = 2.0
# Time in addition to its own in which an actor answers, after which it may have no node.
START_S = 3.0


class _Owner:
    """Actor that owns one task, from its constructor on: Ray runs that of an ``async`` actor in its loop."""

    def __init__(self) -> None:
        self._task: asyncio.Task[None] | None = None

    def _own(self, work: Coroutine[Any, Any, None], name: str) -> None:
        self._task = asyncio.get_running_loop().create_task(work, name=name)


class LineActor(_Owner):
    """Actor of one line.

    Args:
        pool: name of the shared pool, with which the names of its actors begin.
        line: name of the line, which is the kind of its workers.
        lease_s: as for ``LineHost``.
    """

    def __init__(self, pool: str, line: str, lease_s: float) -> None:
        super().__init__()
        self._pool = pool
        is_restored = ray.get_runtime_context().was_current_actor_reconstructed
        self._host = LineHost(lease_s, kind=line, is_restored=is_restored, ask_workers=self._reports)
        self._own(self._host.run(), _line(pool, line))

    async def exchange(self, text: str) -> str:
        return await self._host.exchange(text)

    async def attend(self, text: str) -> str:
        return await self._host.attend(text)

    async def look(self, member: str) -> str:
        return await self._host.look(member)

    async def leave(self, member: str) -> str:
        return await self._host.leave(member)

    async def _reports(self) -> Sequence[HostReport]:
        """Return the reports of the workers that answer in time."""
        reports: list[HostReport] = []
        try:
            async with asyncio.timeout(REPORTS_S):
                names = await asyncio.to_thread(list_named_actors)
                workers = (name for name in names if name.startswith(_worker(self._pool, "")))
                await asyncio.gather(*(self._report(name, reports) for name in workers))
        except TimeoutError:
            # Those that have not answered are asked again.
            pass
        except (RayError, RuntimeError) as error:
            logger.warning(f"the workers of {self._pool} are not asked: {error}")
        return reports

    async def _report(self, name: str, reports: list[HostReport]) -> None:
        try:
            actor = await asyncio.to_thread(ray.get_actor, name)
            reports.append(HOST_REPORT.validate_json(await actor.report.remote()))
        except (RayError, ValueError):
            # It is being restarted, or waits for a node: it will hold no session that was not reported.
            return


class WorkerActor(_Owner):
    """Actor of one worker; the arguments are the JSON of those of ``WorkerHost``."""

    def __init__(self, spec: str, settings: str, traces: str | None) -> None:
        super().__init__()
        self._host = WorkerHost(
            WorkerSpec.model_validate_json(spec),
            PoolTuning.model_validate_json(settings),
            traces=None if traces is None else TraceSettings.model_validate_json(traces),
            address=get_node_ip_address(),
        )
        self._own(self._host.run(), "worker")

    async def attend(self, version: int, life: str, wait_s: float) -> str:
        return await self._host.attend(version, life, wait_s)

    async def report(self) -> str:
        return self._host.report()

    async def retire(self) -> str:
        self._host.retire()
        return ""


class RayCluster:
    """Connection of this process to a cluster. Ray ends the process when the cluster's head is lost."""

    def __init__(self) -> None:
        self._actors: dict[str, Any] = {}
        self._pauses = CreationPauses()
        # Calls to workers that have not been answered.
        self._attending: dict[str, asyncio.Future[str]] = {}

    def connect(self, address: str, namespace: str) -> None:
        """Connect. Blocks.

        Raises:
            PeerError: the cluster does not answer, or does not accept this process.
        """
        try:
            ray.init(address=address, namespace=namespace, log_to_driver=False, configure_logging=False)
        except (RayError, ConnectionError, RuntimeError, ValueError) as error:
            raise PeerError(f"the Ray cluster {address}: {error}") from error

    async def exchange(self, pool: str, line: str, lease_s: float, sent: str) -> str:
        """Return the answer of a line to an ``Exchange``."""
        actor = await self._line(pool, line, lease_s)
        return await self._answer(_line(pool, line), actor.exchange.remote(sent))

    async def attend(self, pool: str, line: str, lease_s: float, sent: str) -> str:
        """Return the answer of a line to an ``Attention``."""
        actor = await self._line(pool, line, lease_s)
        return await self._answer(_line(pool, line), actor.attend.remote(sent))

    async def look(self, pool: str, line: str, lease_s: float, member: str) -> str:
        """Return the ``WholeLine`` of a gateway."""
        actor = await self._line(pool, line, lease_s)
        return await self._answer(_line(pool, line), actor.look.remote(member))

    async def leave(self, pool: str, line: str, lease_s: float, member: str) -> str:
        """Remove a gateway from a line."""
        actor = await self._line(pool, line, lease_s)
        return await self._answer(_line(pool, line), actor.leave.remote(member))

    async def attend_worker(
        self,
        pool: str,
        spec: str,
        settings: str,
        traces: str | None,
        version: int,
        life: str,
        wait_s: float,
    ) -> str:
        """Return the ``HostReport`` of a worker, which is started where there is none."""
        facts = json.loads(spec)
        name = _worker(pool, facts["name"])
        placement = RayPlacement.model_validate(facts["ray"])
        actor = await self._actor(
            name,
            WorkerActor,
            (spec, settings, traces),
            num_cpus=placement.num_cpus,
            num_gpus=placement.num_gpus,
            resources=placement.resources,
        )
        # An actor that waits for a node answers when it has one, and this call is not repeated meanwhile.
        answer = self._attending.get(name)
        if answer is None:
            answer = asyncio.ensure_future(self._answer(name, actor.attend.remote(version, life, wait_s)))
            self._attending[name] = answer
        done, _ = await asyncio.wait({answer}, timeout=wait_s + START_S)
        if not done:
            raise PeerError(f"{name}: no node has its resources, or it does not answer")
        # Another call may have waited for the same answer.
        if self._attending.get(name) is answer:
            del self._attending[name]
        return answer.result()

    async def retire_worker(self, pool: str, worker: str) -> str:
        """Let a worker start no further process."""
        name = _worker(pool, worker)
        try:
            actor = await asyncio.to_thread(ray.get_actor, name)
        except ValueError as error:
            raise PeerError(f"{name}: there is no such actor") from error
        return await self._answer(name, actor.retire.remote())

    async def _line(self, pool: str, line: str, lease_s: float) -> Any:
        return await self._actor(_line(pool, line), LineActor, (pool, line, lease_s), num_cpus=0)

    async def _actor(self, name: str, content: type, arguments: tuple[Any, ...], **options: Any) -> Any:
        if name not in self._actors:
            now_s = asyncio.get_running_loop().time()
            if reason := self._pauses.reason(name, now_s):
                raise PeerError(reason)
            made = ray.remote(content).options(
                name=name,
                lifetime="detached",
                get_if_exists=True,
                max_restarts=-1,
                # Its caller repeats a call where that is right.
                max_task_retries=0,
                max_concurrency=1_000,
                **options,
            )
            try:
                # A request to the cluster's head.
                self._actors[name] = await asyncio.to_thread(made.remote, *arguments)
            except (RayError, ValueError, RuntimeError) as error:
                raise PeerError(f"{name}: {error}") from error
        return self._actors[name]

    async def _answer(self, name: str, reference: Any) -> str:
        try:
            answer = str(await reference)
            self._pauses.succeeded(name)
            return answer
        except ActorUnavailableError as error:
            raise PeerError(f"{name}: it is being restarted") from error
        except RayTaskError as error:
            # A fault of ours, which the actor survives.
            logger.error(f"{name}: {error}")
            raise PeerError(f"{name}: it failed") from error
        except RayError as error:
            # It is gone for good, and the next call makes another.
            self._actors.pop(name, None)
            reason = f"{name}: {type(error).__name__}: {last_line(error)}"
            if is_failed_creation(error):
                self._pauses.failed(name, reason, asyncio.get_running_loop().time())
            raise PeerError(reason) from error


def end_actors(pool: str, worker: str | None = None) -> list[str]:
    """End the actors of a pool, and with them its workers; return their names. Blocks.

    Args:
        pool: name of the shared pool.
        worker: name of the only worker to end; None: the line and all workers.
    """
    ended = []
    for name in list_named_actors():
        if (
            name == _worker(pool, worker)
            if worker is not None
            else name.startswith((_worker(pool, ""), _line(pool, "")))
        ):
            # Another program may end them too.
            with contextlib.suppress(ValueError):
                ray.kill(ray.get_actor(name))
                ended.append(name)
    return ended


def _line(pool: str, line: str) -> str:
    return f"{pool}/line/{line}"


def _worker(pool: str, worker: str) -> str:
    return f"{pool}/worker/{worker}"
