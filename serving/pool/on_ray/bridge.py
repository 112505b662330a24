"""Process of a gateway that is connected to a Ray cluster. Calls come in and replies go out as JSON lines.

    python -m parley.serving.pool.on_ray.bridge ADDRESS NAMESPACE

A process of its own, because Ray ends every process that is connected to a cluster 60 seconds after the
cluster's head is lost: a gateway's calls would end with it. It may have another Python environment. It ends
with its standard input.
"""

import asyncio
import os
import sys
from typing import TYPE_CHECKING, BinaryIO

from loguru import logger

from parley.core.errors import PeerError
from parley.runtime.parent_death import die_with_the_parent
from parley.serving.pool.on_ray.link import MOST_CALLS, MOST_LINE_BYTES
from parley.serving.pool.on_ray.messages import CALL, REPLY, RayCall, RayReply

if TYPE_CHECKING:
    from parley.serving.pool.on_ray.cluster import RayCluster

EXIT_LOST, EXIT_MISSING = 1, 2


def run_bridge(output: BinaryIO, address: str, namespace: str) -> int:
    """Connect, answer calls until the input ends, and return the exit status."""
    try:
        from parley.serving.pool.on_ray.cluster import RayCluster
    except ImportError as error:
        _send(output, RayReply(0, error=f"{sys.executable} has no Ray: {error}"))
        return EXIT_MISSING
    cluster = RayCluster()
    try:
        # Before the loop: Ray handles SIGTERM only when it is connected by the main thread.
        cluster.connect(address, namespace)
    except PeerError as error:
        _send(output, RayReply(0, error=str(error)))
        return EXIT_LOST
    _send(output, RayReply(0))
    asyncio.run(_serve(cluster, output))
    return 0


async def _serve(cluster: "RayCluster", output: BinaryIO) -> None:
    reader = asyncio.StreamReader(limit=MOST_LINE_BYTES)
    await asyncio.get_running_loop().connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), sys.stdin
    )
    places = asyncio.Semaphore(MOST_CALLS)

    async def answer(call: RayCall) -> None:
        try:
            reply = await answer_call(cluster, call)
        finally:
            places.release()
        _send(output, reply)

    async with asyncio.TaskGroup() as tasks:
        answers: set[asyncio.Task[None]] = set()
        while line := await reader.readline():
            await places.acquire()
            call = CALL.validate_json(line)
            task = tasks.create_task(answer(call), name=call.method)
            answers.add(task)
            task.add_done_callback(answers.discard)
        for task in answers:
            task.cancel()


async def answer_call(methods: object, call: RayCall) -> RayReply:
    """Return the reply to a call of a method, made no later than the gateway waits for it."""
    try:
        async with asyncio.timeout(call.within_s):
            return RayReply(call.number, await getattr(methods, call.method)(**call.facts))
    except PeerError as error:
        reason = str(error)
    except TimeoutError:
        reason = f"{call.method}: no answer within {call.within_s:g} s"
    except Exception as error:  # the outermost level of a call: the others of the gateway go on
        logger.opt(exception=error).error(f"{call.method} failed")
        reason = f"{call.method} failed: {type(error).__name__}"
    return RayReply(call.number, error=reason)


def _send(output: BinaryIO, reply: RayReply) -> None:
    output.write(REPLY.dump_json(reply) + b"\n")
    output.flush()


def main() -> int:
    """Run the process; return its exit status."""
    die_with_the_parent()
    # Libraries that print must not write between the replies.
    with os.fdopen(os.dup(1), "wb") as output:
        os.dup2(2, 1)
        return run_bridge(output, sys.argv[1], sys.argv[2])


if __name__ == "__main__":
    sys.exit(main())
