"""A server that strangers can reach does not start without an explicit setting."""

from typing import Any

import pytest

from parley.core.errors import ConfigError
from parley.serving.gateway.auth.exposure import check_exposure, describe_exposure
from parley.serving.gateway.settings import ServerTuning

EXPOSED: tuple[tuple[dict[str, Any], str | None, str], ...] = (
    ({"host": "0.0.0.0"}, None, "server.host 0.0.0.0"),
    ({"host": "::"}, None, "server.host"),
    ({"host": "10.0.0.1"}, None, "server.host"),
    ({}, "https://talk.example.org", "phone.public_url"),
    ({"allowed_hosts": ("talk.example.org",)}, None, "server.allowed_hosts"),
    ({"trusted_proxies": ("127.0.0.1",)}, None, "server.trusted_proxies"),
)


@pytest.mark.parametrize(("settings", "public_url", "named"), EXPOSED)
def test_it_has_keys_or_is_open_on_purpose(
    monkeypatch: pytest.MonkeyPatch, settings: dict[str, Any], public_url: str | None, named: str
):
    monkeypatch.setenv("PARLEY_CALL_KEYS", " , ")
    with pytest.raises(ConfigError, match=f"{named}.*PARLEY_CALL_KEYS.*server.open: true") as refused:
        check_exposure(ServerTuning(**settings), public_url=public_url)
    assert "\n" not in str(refused.value)
    check_exposure(ServerTuning(**settings, open=True), public_url=public_url)
    monkeypatch.setenv("PARLEY_CALL_KEYS", "k" * 32)
    check_exposure(ServerTuning(**settings), public_url=public_url)


@pytest.mark.parametrize("host", ["127.0.0.1", "::1", "localhost", "127.0.0.2"])
def test_on_this_machine_alone_nothing_is_asked(monkeypatch: pytest.MonkeyPatch, host: str):
    monkeypatch.delenv("PARLEY_CALL_KEYS", raising=False)
    check_exposure(ServerTuning(host=host), public_url=None)


@pytest.mark.parametrize(
    ("keys", "settings", "says"),
    [
        ("k" * 32, {"host": "0.0.0.0"}, "need a key of PARLEY_CALL_KEYS"),
        (" , ", {"host": "0.0.0.0", "open": True}, "Open: anyone"),
        ("", {}, "only this machine"),
    ],
)
def test_people_read_who_may_begin_calls(
    monkeypatch: pytest.MonkeyPatch, keys: str, settings: dict[str, Any], says: str
):
    monkeypatch.setenv("PARLEY_CALL_KEYS", keys)
    assert says in describe_exposure(ServerTuning(**settings), public_url=None)


def test_keys_of_a_tenant_are_keys(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PARLEY_CALL_KEYS", raising=False)
    server = ServerTuning(host="0.0.0.0", tenants={"named": {"acme": {"keys_env": "ACME_KEYS"}}})
    with pytest.raises(ConfigError, match="PARLEY_CALL_KEYS"):
        check_exposure(server, public_url=None)
    monkeypatch.setenv("ACME_KEYS", "k" * 32)
    check_exposure(server, public_url=None)
