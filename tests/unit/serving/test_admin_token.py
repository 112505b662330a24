"""The token that is generated when the environment has none."""

import os
import stat
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from parley.core.errors import ConfigError
from parley.serving.gateway.auth.admin_token import FILE, operator_token

ENV = "PARLEY_ADMIN_TOKEN"


@pytest.fixture(autouse=True)
def _unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ENV, raising=False)


def test_the_token_of_the_environment_is_the_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(ENV, "t" * 32)
    token = operator_token(tmp_path)
    assert (token.text, token.generated) == ("t" * 32, False)
    assert list(tmp_path.iterdir()) == []


def test_one_is_made_once_and_is_its_owners_alone(tmp_path: Path):
    folder = tmp_path / "data"
    made = operator_token(folder)
    assert made.generated and made.path == folder / FILE and len(made.text) >= 40
    facts = (folder / FILE).stat()
    assert stat.S_IMODE(facts.st_mode) == 0o600 and facts.st_uid == os.geteuid()
    assert operator_token(folder) == made
    # No temporary file is left.
    assert [each.name for each in folder.iterdir()] == [FILE]


@pytest.mark.parametrize("mode", [0o640, 0o604, 0o660, 0o666])
def test_a_file_that_others_can_reach_is_refused(tmp_path: Path, mode: int):
    operator_token(tmp_path)
    (tmp_path / FILE).chmod(mode)
    with pytest.raises(ConfigError, match=f"mode {mode:04o}.*delete it"):
        operator_token(tmp_path)


def test_a_link_or_folder_in_its_place_is_refused(tmp_path: Path):
    other = tmp_path / "other"
    other.write_text("t" * 32)
    other.chmod(0o600)
    (tmp_path / FILE).symlink_to(other)
    with pytest.raises(ConfigError, match="is a link"):
        operator_token(tmp_path)
    (tmp_path / FILE).unlink()
    (tmp_path / FILE).mkdir(mode=0o700)
    with pytest.raises(ConfigError, match="not a file"):
        operator_token(tmp_path)


@pytest.mark.parametrize("content", [b"", b"short", b"\xff" * 40])
def test_a_file_without_a_token_is_refused(tmp_path: Path, content: bytes):
    (tmp_path / FILE).write_bytes(content)
    (tmp_path / FILE).chmod(0o600)
    with pytest.raises(ConfigError, match="contains no token"):
        operator_token(tmp_path)


def test_processes_that_start_together_have_one(tmp_path: Path):
    with ThreadPoolExecutor(8) as threads:
        made = list(threads.map(lambda _: operator_token(tmp_path).text, range(8)))
    assert len(set(made)) == 1


def test_a_folder_that_cannot_be_written_gives_a_token_of_the_process(tmp_path: Path):
    (tmp_path / "data").write_text("a file where the folder should be")
    token = operator_token(tmp_path / "data")
    assert token.generated and token.path is None and len(token.text) >= 40
