"""Settings of tools of MCP servers, and those that are refused before a server starts."""

from typing import Any

import pytest
from pydantic import ValidationError

from parley.core.errors import ConfigError
from parley.models.tools.mcp import McpSettings


def settings(**given: Any) -> McpSettings:
    return McpSettings(name="order", **given)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({}, "either command or url"),
        ({"command": ("shop",), "url": "https://example.test/mcp"}, "either command or url"),
        ({"url": "http://example.test/mcp"}, "allow_plain_http"),
        ({"url": "https://ada:secret@example.test/mcp"}, "contains a password"),
        ({"url": "ftp://example.test/mcp"}, "must begin with https"),
    ],
)
def test_what_is_no_server_is_refused(given: dict[str, Any], words: str):
    with pytest.raises(ValidationError, match=words):
        settings(**given)


def test_tools_of_one_program_have_one_address(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("SHOP_TOKEN", "secret-of-the-shop")
    first = settings(command=("shop", "--all"), env_names=("SHOP_TOKEN",)).address()
    second = McpSettings(name="sell", command=("shop", "--all"), env_names=("SHOP_TOKEN",)).address()
    assert first == second != settings(command=("shop",)).address()
    assert dict(first.env) == {"SHOP_TOKEN": "secret-of-the-shop"} and "secret" not in first.name


def test_a_variable_that_is_not_set_is_a_fault_of_the_deployment(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("SHOP_TOKEN", raising=False)
    address = {"url": "https://example.test/mcp", "headers_env": {"Authorization": "SHOP_TOKEN"}}
    for given in (address, {"command": ("shop",), "env_names": ("SHOP_TOKEN",)}):
        with pytest.raises(ConfigError, match="SHOP_TOKEN"):
            settings(**given).check()
