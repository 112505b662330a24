"""Rights of a client to bring an MCP server, and the names of its tools for the model."""

from types import SimpleNamespace
from typing import Any

import pytest
from pydantic import ValidationError

from parley.core.client_rules import OPERATOR, ClientRules
from parley.core.grants import ANONYMOUS, ClientIdentity, Grants
from parley.pipelines.sockets.client_checks import check_of, permitted
from parley.pipelines.sockets.client_mcp import check_servers, free_name
from parley.protocols.client_mcp import McpDeclaration
from parley.protocols.client_protocol import (
    ClientTool,
    CreateResponse,
    ProtocolError,
    SessionUpdate,
    ToolsAnswered,
)
from parley.serving.gateway.auth.client_settings import ClientsSettings

GRANTED = ClientIdentity(owner="shop", grants=Grants(client_mcp=True))
PUBLIC = McpDeclaration("shop", "https://mcp.example.com/mcp")


def test_a_client_needs_the_grant_and_that_for_its_own_tools_is_not_it():
    check_servers([PUBLIC], ClientRules(GRANTED), ())
    check_servers([PUBLIC], ClientRules(OPERATOR), ())
    for identity in (ANONYMOUS, ClientIdentity(owner="shop", grants=Grants(client_tools=True))):
        with pytest.raises(ProtocolError) as refused:
            check_servers([PUBLIC], ClientRules(identity), ())
        assert (refused.value.code, refused.value.param) == ("not_permitted", "session.tools")


@pytest.mark.parametrize(
    "url",
    [
        "http://mcp.example.com/mcp",
        "https://10.0.0.1/mcp",
        "https://127.0.0.1:8443/mcp",
        "https://169.254.169.254/latest/meta-data",
        "https://[::1]/mcp",
        "https://[::ffff:10.0.0.1]/mcp",
        "http://shop.internal:81/mcp",
    ],
)
def test_other_addresses_are_refused_at_once_even_for_the_operator(url: str):
    for identity in (GRANTED, OPERATOR):
        with pytest.raises(ProtocolError, match="needs https and a public address") as refused:
            check_servers([McpDeclaration("shop", url)], ClientRules(identity), ["shop.internal:80"])
        assert refused.value.code == "not_permitted" and url not in str(refused.value)


def test_the_deployment_permits_hosts_by_name_and_port():
    hosts = ["shop.internal:80", "10.0.0.1:8000"]
    for url in ("http://shop.internal/mcp", "http://SHOP.internal:80/mcp", "http://10.0.0.1:8000/mcp"):
        check_servers([McpDeclaration("shop", url)], ClientRules(GRANTED), hosts)


@pytest.mark.parametrize(
    "action", [SessionUpdate(mcp=(PUBLIC,)), CreateResponse(mcp=(PUBLIC,)), ToolsAnswered(mcp=(PUBLIC,))]
)
def test_a_call_with_a_server_of_its_client_has_no_tools_of_the_deployment(action: SessionUpdate):
    rules = ClientRules(GRANTED)
    assert rules.permits("refund")
    assert permitted(action, rules) == action
    assert not rules.permits("refund")


@pytest.mark.parametrize(
    "host", ["shop.internal", "http://shop.internal:80", "shop.internal:80/mcp", "[::1]:80"]
)
def test_a_permitted_host_is_a_name_with_a_port(host: str):
    with pytest.raises(ValidationError):
        ClientsSettings(mcp_hosts=(host,))
    assert ClientsSettings(mcp_hosts=("shop.internal:80",)).mcp_hosts == ("shop.internal:80",)


def test_a_name_fits_a_model_and_is_taken_by_no_other_tool():
    assert free_name("shop_look", ()) == "shop_look"
    assert free_name("shop_look up/é", ()) == "shop_look_up__"
    assert free_name("shop_look", ("shop_look", "shop_look_2")) == "shop_look_3"
    long = "a" * 70
    assert free_name(long, ()) == "a" * 64
    assert free_name(long, ("a" * 64,)) == f"{'a' * 62}_2"


def test_an_update_with_tools_is_checked_in_its_other_fields_too():
    answering = SimpleNamespace(calls_tools=True, tool_names=frozenset(), forces_tools=True)
    engines: Any = SimpleNamespace(realtime=None, answering=answering, answers_by_itself=lambda _mode: True)
    rules = ClientRules(ClientIdentity(owner="shop", grants=Grants(client_tools=True)))
    tools = (ClientTool("look", "Looks.", {"type": "object"}),)
    with pytest.raises(ProtocolError, match="answers what it hears by itself"):
        check_of(engines, "duplex", rules)(SessionUpdate(tools=tools, answers=False))
