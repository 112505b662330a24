"""``python -m parley.serving.pool.on_ray.end``: end the line and the workers of a pool on a Ray cluster.

They outlive the gateways, which start them again where they still run. Conversations on them end. With
``--worker`` only that worker is ended: one that was drained can be started again then.
"""

import argparse
import sys

from parley.core.errors import PeerError
from parley.serving.pool.settings import RaySettings, SharedPoolSettings


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    chosen, shared = RaySettings(), SharedPoolSettings()
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", default=chosen.address, help="as workers.shared.ray.address")
    parser.add_argument("--namespace", default=chosen.namespace, help="as workers.shared.ray.namespace")
    parser.add_argument("--name", default=shared.name, help="as workers.shared.name")
    parser.add_argument(
        "--worker", metavar="NAME", help="end only this worker, such as one that was drained (default: all)"
    )
    given = parser.parse_args(arguments)
    from parley.serving.pool.on_ray.cluster import RayCluster, end_actors

    try:
        RayCluster().connect(given.address, given.namespace)
    except PeerError as error:
        print(error, file=sys.stderr)
        return 1
    for name in end_actors(given.name, given.worker):
        print(f"ended {name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
