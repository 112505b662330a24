"""MCP servers of a client in OpenAI's realtime protocol, without a socket: declarations, events, refusals."""

import json
from typing import Any

import pytest

from parley.protocols.client_mcp import (
    McpApproval,
    McpApprovalRules,
    McpCallBegan,
    McpCallEnded,
    McpCallRuns,
    McpDeclaration,
    McpFault,
    McpListed,
    McpListingBegan,
    McpListingFailed,
    McpToolFilter,
)
from parley.protocols.client_protocol import (
    CallerStarted,
    CallerStopped,
    CreateResponse,
    RecognisedWords,
    ReplyBegan,
    ReplyOver,
    ReplyWords,
    RequestFailed,
    SessionUpdate,
    ToolChoice,
    ToolsAnswered,
)
from tests.unit.protocols.test_openai_realtime import TOOL, Talk, message

URL = "https://mcp.example.com/key-in-path?k=1"
MCP: dict[str, Any] = {"type": "mcp", "server_label": "shop", "server_url": URL}
SECRET = "sesame-opens-it"


def declared(**fields: Any) -> McpDeclaration:
    [update] = Talk().say("session.update", session={"tools": [{**MCP, **fields}]})
    assert isinstance(update, SessionUpdate) and update.mcp is not None
    return update.mcp[0]


def refusal(**fields: Any) -> dict[str, Any]:
    talk = Talk()
    assert talk.say("session.update", session={"tools": [{**MCP, **fields}]}) == []
    return talk.error()


def test_a_server_is_declared_with_functions_and_no_event_shows_its_secrets():
    talk = Talk()
    given = {**MCP, "authorization": SECRET, "headers": {"X-Key": SECRET}, "api_key": SECRET}
    [update] = talk.say("session.update", session={"tools": [TOOL, given]})
    assert isinstance(update, SessionUpdate) and update.tools is not None and update.mcp is not None
    assert [tool.name for tool in update.tools] == ["order"]
    [server] = update.mcp
    assert (server.label, server.url, server.host, server.port) == ("shop", URL, "mcp.example.com", 443)
    assert dict(server.headers) == {"x-key": SECRET, "authorization": f"Bearer {SECRET}"}
    shown = talk.received[-1]["session"]["tools"][1]
    assert shown == {**MCP, "server_url": "https://mcp.example.com/<redacted>"}
    assert SECRET not in json.dumps(talk.received) and "key-in-path" not in json.dumps(talk.received)
    # Not in a traceback or a log line either.
    assert SECRET not in repr(update) and "key-in-path" not in repr(update)


def test_a_choice_of_none_withdraws_the_servers_and_auto_brings_them_back():
    talk = Talk()
    [update] = talk.say("session.update", session={"tools": [TOOL, MCP]})
    assert talk.say("session.update", session={"tool_choice": "none"}) == [SessionUpdate(tools=(), mcp=())]
    [again] = talk.say("session.update", session={"tool_choice": "auto"})
    assert isinstance(update, SessionUpdate) and isinstance(again, SessionUpdate)
    assert (again.tools, again.mcp) == (update.tools, update.mcp)
    assert talk.say("session.update", session={"tools": []}) == [SessionUpdate(tools=(), mcp=())]


@pytest.mark.parametrize(
    ("fields", "names", "approved"),
    [
        ({}, None, []),
        ({"require_approval": None}, None, []),
        ({"require_approval": "always"}, None, []),
        ({"require_approval": "never"}, None, ["look", "buy"]),
        ({"require_approval": {"never": {"tool_names": ["buy"]}}}, None, ["buy"]),
        ({"require_approval": {"never": {"read_only": True}}}, None, ["look"]),
        ({"require_approval": {"always": {"tool_names": ["look"]}, "never": {}}}, None, ["buy"]),
        # What neither filter names is asked about.
        ({"require_approval": {"always": {"tool_names": ["buy"]}}}, None, []),
        ({"allowed_tools": ["look"]}, ["look"], []),
        ({"allowed_tools": {"read_only": False}}, ["buy"], []),
        ({"allowed_tools": {"tool_names": ["look", "buy"], "read_only": True}}, ["look"], []),
    ],
)
def test_the_rules_of_a_server_decide_what_is_offered_and_what_is_asked(
    fields: dict[str, Any], names: list[str] | None, approved: list[str]
):
    server = declared(**fields)
    tools = {"look": True, "buy": False}
    assert [
        name
        for name, is_read_only in tools.items()
        if not server.approval.apply(name, is_read_only=is_read_only)
    ] == approved
    if names is None:
        assert server.allowed is None
    else:
        assert server.allowed is not None
        assert [
            name for name, read in tools.items() if server.allowed.matches(name, is_read_only=read)
        ] == names


@pytest.mark.parametrize(
    ("fields", "code", "place"),
    [
        ({"connector_id": "connector_gmail", "server_url": None}, "not_supported", ".connector_id"),
        ({"tunnel_id": "t", "server_url": None}, "not_supported", ".tunnel_id"),
        ({"defer_loading": True}, "not_supported", ""),
        ({"allowed_callers": ["programmatic"]}, "not_supported", ""),
        ({"server_url": None}, "invalid_value", ".server_url"),
        ({"server_url": "ftp://mcp.example.com"}, "invalid_value", ".server_url"),
        ({"server_url": "https://[half"}, "invalid_value", ".server_url"),
        ({"server_url": "https:///mcp"}, "invalid_value", ".server_url"),
        ({"server_url": "https://a b"}, "invalid_value", ".server_url"),
        ({"server_url": f"https://ann:{SECRET}@mcp.example.com"}, "invalid_value", ".server_url"),
        ({"server_description": "a" * 2_001}, "invalid_value", ".server_description"),
        ({"server_label": "my shop"}, "invalid_value", ".server_label"),
        ({"server_label": "a" * 65}, "invalid_value", ".server_label"),
        ({"headers": {"Host": "10.0.0.1"}}, "invalid_value", ".headers"),
        ({"headers": {"Proxy-Authorization": "x"}}, "invalid_value", ".headers"),
        ({"headers": {"X-Key": f"{SECRET}\r\nHost: a"}}, "invalid_value", ".headers"),
        ({"headers": {"X-Key": [SECRET]}}, "invalid_value", ".headers"),
        ({"headers": {str(number): "x" for number in range(17)}}, "invalid_value", ".headers"),
        ({"headers": {"Authorization": "a"}, "authorization": SECRET}, "invalid_value", ".authorization"),
        ({"authorization": f"{SECRET}\n"}, "invalid_value", ".authorization"),
        ({"authorization": SECRET * 1_000}, "invalid_value", ".authorization"),
        ({"allowed_tools": "look"}, "invalid_value", ".allowed_tools"),
        ({"allowed_tools": [1]}, "invalid_value", ".allowed_tools"),
        ({"allowed_tools": {"names": ["look"]}}, "invalid_value", ".allowed_tools"),
        ({"require_approval": "sometimes"}, "invalid_value", ".require_approval"),
        ({"require_approval": {"never": ["look"]}}, "invalid_value", ".require_approval"),
        (
            {"require_approval": {"never": {"read_only": 1}}},
            "invalid_value",
            ".require_approval.never.read_only",
        ),
    ],
)
def test_what_cannot_be_done_is_refused_by_the_name_of_its_field(
    fields: dict[str, Any], code: str, place: str
):
    error = refusal(**fields)
    assert (error["code"], error["param"]) == (code, f"session.tools[0]{place}")
    assert SECRET not in json.dumps(error)


def test_servers_have_labels_of_their_own_and_are_few():
    for tools in ([MCP, MCP], [{**MCP, "server_label": str(number)} for number in range(9)]):
        talk = Talk()
        assert talk.say("session.update", session={"tools": tools}) == []
        assert talk.error()["param"] == "session.tools"


def test_a_tool_of_a_server_can_be_required():
    talk = Talk()
    choice = {"type": "mcp", "server_label": "shop", "name": "look"}
    [update] = talk.say("session.update", session={"tools": [MCP], "tool_choice": choice})
    assert isinstance(update, SessionUpdate)
    assert update.choice == ToolChoice(is_required=True, name="look", label="shop")
    assert talk.received[-1]["session"]["tool_choice"] == choice
    assert talk.say("session.update", session={"tool_choice": {"type": "mcp", "server_label": "bank"}}) == []
    assert talk.error()["code"] == "invalid_value"
    # Any tool of that server.
    talk.say("session.update", session={"tool_choice": {"type": "mcp", "server_label": "shop"}})
    assert talk.received[-1]["session"]["tool_choice"] == {"type": "mcp", "server_label": "shop"}


def test_a_response_has_servers_of_its_own():
    talk = Talk()
    talk.say("conversation.item.create", item=message("Hello"))
    [request] = talk.say("response.create", response={"tools": [MCP]})
    assert isinstance(request, CreateResponse)
    assert request.tools == () and request.mcp is not None and request.mcp[0].label == "shop"
    aside = {"conversation": "none", "output_modalities": ["text"], "tools": [MCP]}
    assert talk.say("response.create", response=aside) == []
    assert talk.error()["param"] == "response.tools"
    # The session's servers are withdrawn for one answer.
    talk = Talk()
    talk.say("session.update", session={"tools": [MCP]})
    talk.say("conversation.item.create", item=message("Hello"))
    [request] = talk.say("response.create", response={"tool_choice": "none"})
    assert isinstance(request, CreateResponse) and request.mcp == ()


def test_a_request_that_turns_out_to_be_impossible_ends_and_another_one_is_accepted():
    talk = Talk()
    talk.say("conversation.item.create", item=message("Hello"))
    asked = {"tools": [MCP], "metadata": {"n": "1"}}
    assert len(talk.say("response.create", response=asked)) == 1
    created, done = talk.report(RequestFailed("the shop has no such tool"))
    assert [each["type"] for each in (created, done)] == ["response.created", "response.done"]
    assert (done["response"]["status"], done["response"]["metadata"]) == ("failed", {"n": "1"})
    assert done["response"]["status_details"]["error"]["message"] == "the shop has no such tool"
    assert talk.say("response.create") == [CreateResponse()]
    # It is reported once.
    talk.report(ReplyBegan("a"), ReplyOver("a"))
    assert talk.report(RequestFailed("late")) == []
    talk.order.over()


BEGAN = McpCallBegan("mcp_1", "shop", "look", '{"a": 1}')


def test_a_listing_is_an_item_that_is_done_when_it_is_over():
    talk = Talk()
    talk.report(McpListingBegan("mcpl_1", "shop"), McpListingBegan("mcpl_2", "bank"))
    talk.say("conversation.item.retrieve", item_id="mcpl_1")
    assert talk.received[-1]["item"]["tools"] == []
    tool = {"name": "look", "description": "Looks.", "input_schema": {"type": "object"}, "annotations": None}
    listed, done = talk.report(McpListed("mcpl_1", (tool,)))
    assert (listed["type"], done["item"]["tools"]) == ("mcp_list_tools.completed", [tool])
    failed, done, error = talk.report(McpListingFailed("mcpl_2", "its host has no public address"))
    assert (failed["type"], done["item"]["id"]) == ("mcp_list_tools.failed", "mcpl_2")
    assert error["error"]["message"] == "the MCP server 'bank' cannot be used: its host has no public address"
    # Neither is known any more.
    assert talk.report(McpListed("mcpl_1", ()), McpListingFailed("mcpl_2", "gone")) == []
    talk.order.over()


def test_a_call_is_reported_to_its_end_and_is_answered_on_its_own_or_on_request():
    talk = Talk()
    talk.report(CallerStarted(0), RecognisedWords("look", True), CallerStopped(500))
    messages = talk.report(BEGAN)
    assert [each["type"] for each in messages][-2:] == ["response.output_item.done", "response.done"]
    [running] = talk.report(McpCallRuns("mcp_1"))
    assert (running["type"], running["output_index"]) == ("response.mcp_call.in_progress", 0)
    ended, done = talk.report(McpCallEnded("mcp_1", "a shelf"))
    assert ended["type"] == "response.mcp_call.completed"
    assert (done["item"]["output"], done["item"]["error"]) == ("a shelf", None)
    # It is the answer that comes on its own.
    assert talk.say("response.create", response={"metadata": {"n": "1"}}) == [ToolsAnswered()]
    [created, *_] = talk.report(ReplyBegan("a"))
    assert created["response"]["metadata"] == {"n": "1"}
    talk.report(ReplyWords("A shelf."), ReplyOver("a"))
    talk.order.over()


def test_a_call_that_the_caller_interrupts_leaves_no_answer_to_come():
    talk = Talk()
    talk.report(BEGAN, McpCallRuns("mcp_1"), CallerStarted(0), RecognisedWords("no", True))
    talk.report(McpCallEnded("mcp_1", "late"), CallerStopped(500))
    talk.report(ReplyBegan("a"), ReplyOver("a"))
    # Another one is made only on request.
    assert talk.say("response.create") == [CreateResponse()]


@pytest.mark.parametrize(
    ("fault", "shown"),
    [
        (McpFault("no", http_status=401), {"type": "http_error", "code": 401, "message": "no"}),
        (McpFault("no", rpc_code=-32602), {"type": "protocol_error", "code": -32602, "message": "no"}),
        (McpFault("no"), {"type": "tool_execution_error", "message": "no"}),
    ],
)
def test_a_failure_says_where_it_came_from(fault: McpFault, shown: dict[str, Any]):
    talk = Talk()
    talk.report(BEGAN, McpCallRuns("mcp_1"))
    failed, done = talk.report(McpCallEnded("mcp_1", fault=fault))
    assert failed["type"] == "response.mcp_call.failed"
    assert (done["item"]["error"], done["item"]["output"]) == (shown, None)
    talk.order.over()


def test_an_approval_is_asked_for_once_and_only_of_what_waits():
    talk = Talk()
    asked = McpCallBegan("mcp_1", "shop", "buy", "{}", "mcpr_1")
    done = talk.report(asked)[-1]["response"]
    assert [item["type"] for item in done["output"]] == ["mcp_call", "mcp_approval_request"]
    assert done["output"][0]["approval_request_id"] == "mcpr_1"
    answer = {"type": "mcp_approval_response", "id": "mine", "approval_request_id": "mcpr_1", "approve": True}
    for wrong in ({"approval_request_id": "mcpr_2"}, {"approve": "yes"}, {"reason": 1}):
        assert talk.say("conversation.item.create", item={**answer, **wrong}) == []
        assert talk.error()["code"] == "invalid_value"
    assert talk.say("conversation.item.create", item=answer) == [McpApproval("mcpr_1", True)]
    assert talk.received[-1]["item"] == {"object": "realtime.item", "reason": None, **answer}
    assert talk.say("conversation.item.create", item={**answer, "id": "again"}) == []
    assert "no request 'mcpr_1' is waiting" in talk.error()["message"]
    talk.report(McpCallRuns("mcp_1"), McpCallEnded("mcp_1", "bought"))
    talk.order.over()


def test_an_approval_of_a_call_that_is_over_is_refused():
    talk = Talk()
    talk.report(
        McpCallBegan("mcp_1", "shop", "buy", "{}", "mcpr_1"), McpCallEnded("mcp_1", fault=McpFault("late"))
    )
    answer = {"type": "mcp_approval_response", "approval_request_id": "mcpr_1", "approve": True}
    assert talk.say("conversation.item.create", item=answer) == []


def test_a_call_during_speech_is_another_item_of_its_response():
    talk = Talk()
    talk.report(ReplyBegan("a"), ReplyWords("Let me look."), BEGAN, McpCallRuns("mcp_1"))
    talk.report(McpCallEnded("mcp_1", "a shelf"), ReplyOver("a"))
    done = next(each for each in talk.received if each["type"] == "response.done")
    assert [item["type"] for item in done["response"]["output"]] == ["message", "mcp_call"]
    talk.order.over()


def test_the_rules_without_a_filter_ask_about_everything():
    assert McpApprovalRules().apply("look", is_read_only=True)
    assert not McpApprovalRules(never=McpToolFilter()).apply("look", is_read_only=False)
