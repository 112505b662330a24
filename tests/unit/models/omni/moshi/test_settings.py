"""Places in which weights are searched, without loading them."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from parley.core.errors import ConfigError
from parley.models.omni.moshi.settings import MoshiSettings


def test_a_directory_without_a_model_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"config\.json, which does not exist"):
        MoshiSettings(model=str(tmp_path)).check()


@pytest.mark.parametrize("name", ["/no/such/directory", "no such name", "./moshi"])
def test_a_directory_that_is_not_there_is_named(name: str) -> None:
    with pytest.raises(ConfigError, match="which does not exist"):
        MoshiSettings(model=name).check()


def test_an_id_that_is_not_on_this_machine_says_how_to_get_it() -> None:
    with pytest.raises(ConfigError, match=r"hf download nobody/no-such-moshi"):
        MoshiSettings(model="nobody/no-such-moshi").check()


def test_an_id_is_looked_up_in_the_hubs_cache(tmp_path: Path) -> None:
    kept = tmp_path / "models--somebody--moshi"
    snapshot = kept / "snapshots" / "0123"
    snapshot.mkdir(parents=True)
    (snapshot / "config.json").write_text("{}")
    (kept / "refs").mkdir()
    (kept / "refs" / "main").write_text("0123")
    # The hub's package reads the place of its cache when it is imported.
    code = (
        "from parley.models.omni.moshi.settings import MoshiSettings; "
        "print(MoshiSettings(model='somebody/moshi').path())"
    )
    found = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"HF_HUB_CACHE": str(tmp_path)},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert found.stdout.strip() == str(snapshot)
