"""``parley key``: a key and the entry that a server reads."""

import io

import pytest

from parley.command.main import main
from parley.core.grants import KeyScope
from parley.serving.gateway.auth.key_entries import TOKEN_SECRET_ENV, hash_of, read_entries


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


def test_a_key_is_read_and_not_printed(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("k" * 32 + "\n"))
    assert main(["key", "--stdin"]) == 0
    assert capsys.readouterr().out == f"entry  hash:{hash_of('k' * 32)}\n"


def test_a_short_key_is_refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr("sys.stdin", io.StringIO("short\n"))
    assert main(["key", "--stdin"]) == 2
    assert "at least 16 characters" in capsys.readouterr().err
