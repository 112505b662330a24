"""``parley key``: a key and the entry that a server reads."""

import subprocess
import sys
from pathlib import Path

import pytest

from parley.command.main import main
from parley.core.grants import KeyScope
from parley.serving.gateway.auth.key_entries import TOKEN_SECRET_ENV, hash_of, read_entries

ROOT = Path(__file__).parents[3]


def test_the_entry_of_a_new_key_is_read_by_a_server(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    assert main(["key", "--scope", "read", "--scope", "talk"]) == 0
    key, entry = (line.split()[1] for line in capsys.readouterr().out.splitlines())
    monkeypatch.setenv(TOKEN_SECRET_ENV, "s" * 32)
    monkeypatch.setenv("KEYS", entry)
    [read] = read_entries("KEYS")
    assert read.matches(hash_of(key)) and read.scopes == {KeyScope.READ, KeyScope.TALK}
    assert len(key) >= 32


@pytest.mark.parametrize(
    ("given", "status", "printed"),
    [
        ("k" * 32, 0, f"entry  hash:{hash_of('k' * 32)}\n"),
        ("short", 2, "parley key: expected a key of at least 16 characters on standard input\n"),
    ],
)
def test_a_key_from_standard_input_is_not_printed(given: str, status: int, printed: str):
    command = [sys.executable, "-m", "parley", "key", "--stdin"]
    done = subprocess.run(command, input=f"{given}\n", cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout + done.stderr) == (status, printed)


def test_an_unknown_scope_lists_the_known_ones_as_they_are_written(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["key", "--scope", "bogus"])
    error = capsys.readouterr().err
    assert all(repr(scope.value) in error for scope in KeyScope) and "<" not in error
