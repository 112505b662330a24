"""Second caller in a process of its own, started on demand by ``call_start``.

The protocol on standard streams has one line per message. The caller prints ``ready`` when its offer is made,
dials on ``go``, and prints the wall-clock microseconds of its offer and of its connection as JSON. It stays
for ``--listen-s``, hangs up, and makes the next offer. End of input ends it. It runs in a process of its own
and at low priority, because making a connection costs the caller milliseconds of computing, which take place
on another machine in reality. In the process of the first caller, or at a priority above the server's, that
time would be measured as lateness of the server.
"""

import argparse
import asyncio
import json
import os
import sys

from parley.evals.harness.command import exit_code
from parley.evals.harness.webrtc_caller import Line

NICENESS = 10


async def serve(url: str, listen_s: float) -> None:
    """Place one call for each line of input.

    Raises:
        PeerError: a call did not connect.
    """
    while True:
        line = Line(url)
        try:
            await line.prepare()
            print("ready", flush=True)
            if not await asyncio.to_thread(sys.stdin.readline):
                return
            await line.dial()
            offset_us = line.wall_offset_us
            report = {
                "offered_us": line.offered_us + offset_us,
                "connected_us": line.connected_us + offset_us,
            }
            print(json.dumps(report), flush=True)
            await asyncio.sleep(listen_s)
        finally:
            await line.hang_up()


def main() -> int:
    """Run the command line of the process; return its exit status."""
    parser = argparse.ArgumentParser(
        description="Run a second caller that is controlled through standard input."
    )
    parser.add_argument("--url", required=True)
    parser.add_argument("--listen-s", type=float, default=2.0)
    arguments = parser.parse_args()
    os.nice(NICENESS)

    def run() -> int:
        asyncio.run(serve(arguments.url, arguments.listen_s))
        return 0

    return exit_code(run)


if __name__ == "__main__":
    sys.exit(main())
