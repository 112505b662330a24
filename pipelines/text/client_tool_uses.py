"""Tools that a client of typed turns runs itself, in a request of its own after the model has called them.

A call ends the answer of one request (``HandedOverTool``); the next request brings the results, and the model
goes on in the same turn. Both stand in the session like any tool call. A client that shows calls which the
session does not have, because it began somewhere else, brings these too.
"""

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from parley.core.client_rules import ClientRules
from parley.models.tools.arguments import schema_faults
from parley.pipelines.engines.llm_runtime import LlmRuntime
from parley.processors.dialogue.durable_tools import HANDED_OVER, ToolOutcome
from parley.protocols.client_protocol import ProtocolError, json_object
from parley.protocols.openai_chat import ToolOffer, unsupported
from parley.protocols.openai_http import OpenAiHttpError
from parley.session_store.conversation import Conversation
from parley.session_store.events import Draft, Event, Kind
from parley.session_store.history import ClientToolUse
from parley.session_store.memory import text_in


def check_offer(answering: LlmRuntime, rules: ClientRules, offer: ToolOffer, *, brings_uses: bool) -> None:
    """Check that a client's tools can be offered to the model.

    Args:
        answering: language model and tools.
        rules: of the client.
        offer: tools of the client.
        brings_uses: true when the client brings calls with results, in any turn.

    Raises:
        OpenAiHttpError: the model calls none, the client has no grant for them, or one cannot be offered.
    """
    if brings_uses and not rules.may_declare_tools:
        raise _forbidden("messages", "bring results of tools")
    if not offer.tools:
        return
    if not answering.calls_tools:
        raise unsupported("tools", "The model of this deployment calls no tools")
    if offer.choice.is_required and not answering.forces_tools:
        raise unsupported("tool_choice", "The model of this deployment takes 'auto' and 'none'")
    if not rules.may_declare_tools:
        raise _forbidden("tools", "offer tools")
    for index, tool in enumerate(offer.tools):
        if tool.name in answering.tool_names:
            raise _invalid(f"tools[{index}].function.name", f"the deployment has a tool {tool.name!r}")
        if faults := schema_faults(dict(tool.parameters)):
            raise OpenAiHttpError(
                f"Invalid schema for function '{tool.name}': {'; '.join(faults)}."[:1_000],
                param=f"tools[{index}].function.parameters",
                code="invalid_function_parameters",
            )


def _forbidden(param: str, what: str) -> OpenAiHttpError:
    return OpenAiHttpError(
        f"You have insufficient permissions for this operation: this client may not {what}.",
        status=403,
        param=param,
        code="insufficient_permissions",
    )


def _invalid(param: str, why: str) -> OpenAiHttpError:
    return OpenAiHttpError(f"Invalid value: '{param}'. {why}.", param=param, code="invalid_value")


def turn_of_uses(conversation: Conversation, uses: Sequence[ClientToolUse], text: str) -> Event | None:
    """Return the turn of the session in which the model has called these tools; None where there is none.

    Args:
        conversation: the session.
        uses: with the results of the client.
        text: of the turn, as the client shows it.
    """
    named = {use.call_id for use in uses}
    turns = {
        event.payload.get("turn")
        for event in conversation.events
        if event.kind is Kind.TOOL_CALL and text_in(event.payload, "call_id") in named
    }
    for event in conversation.events:
        if event.kind is Kind.USER_TURN and event.seq in turns:
            if text_in(event.payload, "text").split() == text.split():
                return event
    return None


def check_uses(conversation: Conversation, uses: Iterable[ClientToolUse]) -> None:
    """Check that no call that a client answers is one of the deployment's own, whose ids it can predict.

    Raises:
        OpenAiHttpError: the session has such a call, which was not handed to a client.
    """
    calls = _calls(conversation)
    for use in uses:
        _check_handed(use, calls.get(use.call_id))


def _calls(conversation: Conversation) -> dict[str, Event]:
    """Return the calls of a session by their ids."""
    return {
        text_in(event.payload, "call_id"): event
        for event in conversation.events
        if event.kind is Kind.TOOL_CALL
    }


def _check_handed(use: ClientToolUse, call: Event | None) -> None:
    if call is not None and call.payload.get(HANDED_OVER) is not True:
        raise _invalid("messages", f"The call {use.call_id[:100]!r} was not handed to this client")


def use_drafts(
    conversation: Conversation,
    uses: Iterable[ClientToolUse],
    *,
    turn: Event | None,
    mark: Mapping[str, object],
) -> list[Draft]:
    """Return the events that the session lacks of calls and their results.

    Args:
        conversation: the session.
        uses: with the results of the client.
        turn: to which they belong; None: the one before them.
        mark: payload that marks text of the client.

    Raises:
        OpenAiHttpError: as ``check_uses`` does, for a call that came since.
    """
    calls = _calls(conversation)
    outcomes = {
        text_in(event.payload, "call_id"): event.payload.get("outcome")
        for event in conversation.events
        if event.kind is Kind.TOOL_RESULT
    }
    drafts: list[Draft] = []
    for use in uses:
        call = calls.get(use.call_id)
        _check_handed(use, call)
        key = f"tool.brought.{hashlib.sha256(use.call_id.encode()).hexdigest()[:32]}"
        if call is None:
            place = {} if turn is None else {"turn": turn.seq}
            brought = {"call_id": use.call_id, "name": use.name, "arguments": use.arguments, **place}
            drafts.append(
                conversation.draft(Kind.TOOL_CALL, "bot", {**brought, HANDED_OVER: True, **mark}, key=key)
            )
        else:
            key = call.key
        outcome = outcomes.get(use.call_id)
        if outcome is not None and outcome != ToolOutcome.UNKNOWN.value:
            continue
        # A result that comes after its call was given up takes the place of "unknown".
        key = f"{key}.result" if outcome is None else f"{key}.late"
        result = {"call_id": use.call_id, "name": use.name, "result": _as_object(use.result)}
        drafts.append(
            conversation.draft(
                Kind.TOOL_RESULT, "tool", {**result, "outcome": ToolOutcome.DONE.value, **mark}, key=key
            )
        )
    return drafts


def arguments_text(arguments: Mapping[str, Any]) -> str:
    """Return the arguments of a call as JSON, for its client."""
    return json.dumps(arguments, ensure_ascii=False)


def _as_object(result: str) -> dict[str, Any]:
    try:
        return json_object(result)
    except ProtocolError:
        # Many clients answer in plain words.
        return {"output": result}
