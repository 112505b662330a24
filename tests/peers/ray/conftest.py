"""Provide one cluster to all tests of the folder."""

from collections.abc import Iterator

import pytest

from tests.peers.ray.environment import LocalCluster, ray_python, running_cluster


@pytest.fixture(scope="package")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Run a cluster of two nodes, in an environment that has Ray."""
    with running_cluster(ray_python(tmp_path_factory.mktemp("ray-python"))) as cluster:
        yield cluster
