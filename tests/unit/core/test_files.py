from pathlib import Path

import pytest

from parley.core.errors import ConfigError
from parley.core.files import require_files


def test_the_first_missing_file_is_named_with_the_command_that_fetches_it(tmp_path: Path):
    (tmp_path / "there").touch()
    with pytest.raises(
        ConfigError, match=r"'whisper' needs .*/model.bin, which does not exist: run "
    ) as caught:
        require_files("whisper", tmp_path / "there", tmp_path / "model.bin", tmp_path / "config.json")
    assert str(caught.value).endswith("run `make models ARGS=whisper`")


def test_files_that_are_there_are_enough(tmp_path: Path):
    (tmp_path / "model.bin").touch()
    require_files("whisper", tmp_path / "model.bin")
