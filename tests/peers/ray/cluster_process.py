"""Program: a Ray cluster of two nodes on this machine, and what a test does to it.

    python -m tests.peers.ray.cluster_process

It runs in an environment that has Ray. It prints the address first, then a line of JSON for each line of its
input: ``kill WORD`` kills (-9) the processes whose command line has that word in it and prints their number;
``end_node`` kills the second node, ``add_node`` adds another; ``end POOL`` ends the actors of a pool. It ends
with its input, and so does the cluster.
"""

import json
import os
import signal
import sys
from typing import Any

import psutil
import ray
from ray._private.state import actors
from ray.cluster_utils import Cluster

from parley.serving.pool.on_ray.cluster import RayCluster, end_actors

# What Ray needs at least, for objects of which these tests have none.
STORE_BYTES = 80_000_000
# Time in which Ray ends the processes of actors.
END_S = 10.0
# Resource by which a test names the node of a worker.
HEAD, SECOND = {"near": 2}, {"far": 2}


class TwoNodes:
    """Cluster with a head and a second node."""

    def __init__(self) -> None:
        # Two processors each: actors of batch jobs take one, and the machine has more to do.
        self._node_args: dict[str, Any] = {"num_cpus": 1, "object_store_memory": STORE_BYTES}
        self._cluster = Cluster(
            initialize_head=True,
            head_node_args={**self._node_args, "include_dashboard": False, "resources": HEAD},
        )
        self._second = self._add()
        self.address = str(self._cluster.address)
        RayCluster().connect(self.address, "parley")

    def _add(self) -> Any:
        return self._cluster.add_node(**self._node_args, resources=SECOND)

    def kill(self, word: str) -> int:
        found = [each for each in psutil.Process().children(recursive=True) if word in _line(each)]
        for process in found:
            os.kill(process.pid, signal.SIGKILL)
        return len(found)

    def end_node(self) -> int:
        self._cluster.remove_node(self._second, allow_graceful=False)
        return 1

    def add_node(self) -> int:
        self._second = self._add()
        return 1

    def end(self, pool: str) -> int:
        pids = {each["Name"]: each["Pid"] for each in actors(actor_state_name="ALIVE").values()}
        running = {each.pid: each for each in psutil.Process().children(recursive=True)}
        ended = end_actors(pool)
        psutil.wait_procs([running[pids[name]] for name in ended if pids.get(name) in running], END_S)
        return len(ended)

    def close(self) -> None:
        ray.shutdown()
        self._cluster.shutdown()


def _line(process: psutil.Process) -> str:
    try:
        return " ".join(process.cmdline())
    except psutil.Error:
        return ""


def main() -> None:
    # Ray prints too.
    output = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)
    nodes = TwoNodes()
    try:
        print(nodes.address, file=output, flush=True)
        for line in sys.stdin:
            name, *arguments = line.split()
            print(json.dumps(getattr(nodes, name)(*arguments)), file=output, flush=True)
    finally:
        nodes.close()


if __name__ == "__main__":
    main()
