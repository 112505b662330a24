"""Workers of a job on a Ray cluster. The only module of this folder that imports Ray.

An actor for each worker, with a processor and, where the recogniser uses one, a GPU. It runs the same process
as a job on one machine (``worker_process``) and passes its messages on, so a source that crashes or hangs its
process takes no actor down. Which source is next, what failed and what is done stays with the job and its
record. Audio and transcripts do not pass through Ray: the nodes read and write them at the same places.

An actor ends with the job, and its process with it. A folder is free for the next run when the last of them
is gone (``manifest.hold_folder``). A node that is lost is no failure of the source under way.
"""

import json
import secrets
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import ray
from ray.exceptions import RayError

from parley.batch.destination import Destination
from parley.batch.manifest import hold_as_worker
from parley.batch.recogniser import gpus_of
from parley.batch.s3.address import is_address
from parley.batch.settings import BatchSettings
from parley.batch.worker import MOST_MESSAGE_BYTES, ReportKind
from parley.batch.worker_process import END_S, BatchProcess
from parley.core.errors import ConfigError
from parley.runtime.ray_errors import is_failed_creation, last_line

NAMESPACE = "parley-batch"
# File of a run in the folder of the outputs, by which a node shows that it has the same folder.
MARK = ".ray-run"


class NodeWorker:
    """Actor with the process of one worker.

    Args:
        settings: of the job, as JSON.
        location: of the outputs.
        root: of the sources.
        mark: content of the mark in the outputs; empty for a bucket.
    """

    def __init__(self, settings: str, location: str, root: str, mark: str) -> None:
        self._exits = ExitStack()
        self._fault = _fault(location, root, mark)
        if not self._fault:
            held = (
                () if is_address(location) else (self._exits.enter_context(hold_as_worker(Path(location))),)
            )
            self._process = BatchProcess(BatchSettings.model_validate_json(settings), location, held)

    def fault(self) -> str:
        """Return why the node cannot work for the job; empty: it can."""
        return self._fault

    def send(self, message: bytes) -> None:
        """Pass a message to the process; one that is gone is noticed by ``receive``."""
        with suppress(OSError):
            self._process.connection.send_bytes(message)

    def receive(self) -> bytes:
        """Return the next message of the process; empty when it has ended."""
        try:
            return self._process.connection.recv_bytes(MOST_MESSAGE_BYTES)
        except (EOFError, OSError):
            return b""

    def death(self) -> str:
        """Return how the process ended."""
        return self._process.death()


def _fault(location: str, root: str, mark: str) -> str:
    node = ray.util.get_node_ip_address()
    if mark:
        try:
            seen = (Path(location) / MARK).read_text()
        except OSError:
            seen = ""
        if seen != mark:
            return f"{location} is not the same folder on the node {node}: all nodes have to share it"
    if not is_address(root) and not Path(root).is_dir():
        return f"{root} is not on the node {node}: all nodes have to share it"
    return ""


class RayJobWorker:
    """Worker on a node (``worker_process.JobWorker``), with a thread that passes its messages on.

    Args:
        actor: of it.
    """

    def __init__(self, actor: Any) -> None:
        self._actor = actor
        ours, theirs = socket.socketpair()
        self.connection = Connection(ours.detach())
        self.started_s: float | None = None
        self.is_blameless = False
        self._death = "no node of the Ray cluster has its resources"
        passing = (Connection(theirs.detach()),)
        self._thread = threading.Thread(target=self._pass, args=passing, name="ray worker", daemon=True)
        self._thread.start()

    def death(self) -> str:
        """Return how it ended."""
        self._thread.join(END_S)
        return self._death

    def end(self) -> None:
        """Kill the actor, and with it the process."""
        self.connection.close()
        ray.kill(self._actor)
        self._thread.join(END_S)

    def _pass(self, connection: Connection) -> None:
        with connection, suppress(EOFError, OSError):
            try:
                if fault := ray.get(self._actor.fault.remote()):
                    connection.send_bytes(json.dumps({"kind": ReportKind.BROKEN, "reason": fault}).encode())
                    return
                self._death, self.started_s = "", time.monotonic()
                while self._pass_answer(connection):
                    ray.get(self._actor.send.remote(connection.recv_bytes(MOST_MESSAGE_BYTES)))
                self._death = ray.get(self._actor.death.remote())
            except RayError as error:
                self.is_blameless = not is_failed_creation(error)
                self._death = (
                    f"its node was lost ({type(error).__name__}: {last_line(error)})"
                    if self.is_blameless
                    else f"its actor is not created: {last_line(error)}"
                )

    def _pass_answer(self, connection: Connection) -> bool:
        """Pass messages on, up to the one that ends an answer; return False when the process has ended."""
        kind = ReportKind.PROGRESS
        while kind is ReportKind.PROGRESS:
            message = ray.get(self._actor.receive.remote())
            if not message:
                return False
            connection.send_bytes(message)
            kind = ReportKind(json.loads(message)["kind"])
        return True


class RayExecutor:
    """Workers on a cluster (``worker_process.Executor``); made by ``ray_executor``."""

    def __init__(self, settings: BatchSettings, destination: Destination, root: str, mark: str) -> None:
        self._arguments = (settings.model_dump_json(), destination.location, root, mark)
        self._gpus = gpus_of(settings.recogniser)

    def default_workers(self) -> int:
        return max(1, int(ray.cluster_resources().get("GPU" if self._gpus else "CPU", 0)))

    def gpus(self, workers: int) -> int:
        return workers * self._gpus

    def start(self) -> RayJobWorker:
        made = ray.remote(NodeWorker).options(num_cpus=1, num_gpus=self._gpus, max_restarts=0)
        return RayJobWorker(made.remote(*self._arguments))


@contextmanager
def ray_executor(
    address: str, settings: BatchSettings, destination: Destination, root: str
) -> Iterator[RayExecutor]:
    """Connect to a cluster for one job.

    Raises:
        ConfigError: the cluster does not answer, or does not accept this process.
        OSError: the mark of the run cannot be written.
    """
    # Ray sets a handler of its own.
    terminated = signal.getsignal(signal.SIGTERM)
    try:
        ray.init(address=address, namespace=NAMESPACE, log_to_driver=False, configure_logging=False)
    except (RayError, ConnectionError, RuntimeError, ValueError) as error:
        raise ConfigError(f"--ray {address}: {error}") from error
    finally:
        signal.signal(signal.SIGTERM, terminated)
    mark, path = "", Path(destination.location) / MARK
    try:
        if not is_address(destination.location):
            mark = secrets.token_hex(16)
            path.write_text(mark)
        yield RayExecutor(settings, destination, root, mark)
    finally:
        if mark:
            path.unlink(missing_ok=True)
        ray.shutdown()
