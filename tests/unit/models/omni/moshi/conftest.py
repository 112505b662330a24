"""A Moshi of half a megabyte, loaded like the real one."""

from pathlib import Path

import pytest

pytest.importorskip("transformers", reason="needs the extra 'moshi'")
pytest.importorskip("torch", reason="needs the extra 'moshi'")

from parley.evals.tiny_moshi import install_tiny_moshi
from parley.models.omni.moshi.host import MoshiHost, Weights
from parley.models.omni.moshi.settings import MoshiSettings


@pytest.fixture(scope="session")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_tiny_moshi(tmp_path_factory.mktemp("models") / "moshi")


@pytest.fixture(scope="session")
def weights(folder: Path) -> Weights:
    return Weights(settings(folder))


@pytest.fixture(scope="session")
def host(folder: Path) -> MoshiHost:
    return MoshiHost(settings(folder))


def settings(folder: Path, **others: object) -> MoshiSettings:
    """Return settings for the CPU and one thread: layers this narrow are slower with more."""
    chosen = {"model": str(folder), "device": "cpu", "threads": 1, "sessions": None, **others}
    return MoshiSettings.model_validate(chosen)
