"""Rules of one client in one call."""

import pytest

from parley.core.client_rules import CLIENT_HEADING, OPERATOR, ClientRules, ToolClients, prompt_of
from parley.core.grants import ANONYMOUS, ClientIdentity, Grants

KEYED = ClientIdentity(owner="shop")


def test_the_deployments_prompt_stands_first_and_alone_where_nothing_is_added():
    assert prompt_of("Be kind.") == prompt_of("Be kind.", None, "  ") == "Be kind."
    assert prompt_of("Be kind.", "Be brief.", "Ada calls.") == "\n\n".join(
        ["Be kind.", CLIENT_HEADING, "Be brief.", "Ada calls."]
    )
    assert prompt_of("", "Be brief.") == "Be brief."


def test_nothing_of_an_anonymous_client_is_taken_by_default():
    rules = ClientRules()
    assert not rules.may_instruct and not rules.may_declare_tools and not rules.may_bring_mcp


@pytest.mark.parametrize(
    ("identity", "clients", "is_permitted"),
    [
        (ANONYMOUS, ToolClients.ALL, True),
        (ANONYMOUS, ToolClients.KEYS, False),
        (ANONYMOUS, ToolClients.OPERATOR, False),
        (KEYED, ToolClients.KEYS, True),
        (KEYED, ToolClients.OPERATOR, False),
        (OPERATOR, ToolClients.OPERATOR, True),
        (ClientIdentity(owner="shop", grants=Grants(deployment_tools=frozenset())), ToolClients.ALL, False),
        (ClientIdentity(grants=Grants(deployment_tools=frozenset({"refund"}))), ToolClients.ALL, True),
        (ClientIdentity(grants=Grants(deployment_tools=frozenset({"refund"}))), ToolClients.KEYS, False),
    ],
)
def test_a_tool_is_called_for_the_clients_that_it_is_for(
    identity: ClientIdentity, clients: ToolClients, is_permitted: bool
):
    assert ClientRules(identity).permits("refund", clients) is is_permitted


def test_a_call_with_text_of_its_client_has_no_tool_of_the_deployments_until_it_ends():
    rules = ClientRules(KEYED)
    rules.add_text()
    assert not rules.permits("refund")
    # Both are the operator's keys.
    own = ClientRules(OPERATOR)
    own.add_text()
    assert own.permits("refund")


def test_usage_is_counted_by_who_it_is_and_else_by_the_call():
    assert ClientRules(KEYED).counted == KEYED
    here = ClientIdentity(address="10.0.0.1")
    assert ClientRules(here).counted == here
    first, second = ClientRules().counted, ClientRules().counted
    assert first.address and first != second
