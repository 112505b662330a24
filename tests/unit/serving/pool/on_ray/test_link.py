"""Settings of a shared line on Ray, and what is missing for it."""

from importlib.util import find_spec

import pytest
from pydantic import ValidationError

from parley.core.errors import ConfigError
from parley.serving.pool.on_ray.link import RayLink
from parley.serving.pool.settings import PoolSettings, PoolTuning, RaySettings
from parley.serving.pool.worker_secret import pool_secret

PLACED = {"name": "w", "engine": "moshi", "ray": {"num_gpus": 1}}


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed here")
def test_a_missing_package_is_named_with_its_extra() -> None:
    with pytest.raises(ConfigError, match=r"workers\.shared\.ray needs the extra 'ray'"):
        RayLink(RaySettings())


def test_a_missing_interpreter_is_named() -> None:
    with pytest.raises(ConfigError, match="no program no-such-python"):
        RayLink(RaySettings(python="no-such-python"))


@pytest.mark.parametrize("address", ["ray://head:10001", "http://head:8265", "head", ""])
def test_an_address_is_that_of_the_head(address: str) -> None:
    with pytest.raises(ValidationError):
        RaySettings(address=address)


def test_a_worker_is_placed_only_with_a_cluster() -> None:
    with pytest.raises(ValidationError, match=r"w: ray needs the cluster of shared\.ray"):
        PoolSettings.model_validate({"workers": [PLACED], "shared": {}})
    with pytest.raises(ValidationError, match="ray applies only to a worker that is started"):
        PoolSettings.model_validate({"workers": [{"name": "w", "url": "ws://w:1", "ray": {}}]})


def test_the_secret_of_a_worker_on_another_machine_is_not_made_here(monkeypatch: pytest.MonkeyPatch) -> None:
    settings = PoolTuning.model_validate({"workers": [PLACED], "shared": {"ray": {}}})
    monkeypatch.delenv(settings.secret_env, raising=False)
    with pytest.raises(ConfigError, match="w cannot be reached without the secret"):
        pool_secret(settings)
