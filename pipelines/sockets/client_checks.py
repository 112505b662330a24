"""Checks of what a client requests, before it has any effect: its rules, and what the deployment supports."""

from collections.abc import Callable, Collection
from dataclasses import replace
from functools import partial

from loguru import logger

from parley.core.client_rules import ClientRules
from parley.core.errors import OversizedError
from parley.core.tuning import tuned
from parley.models.pictures import VisionTuning
from parley.pipelines.engines.engines import Engines
from parley.pipelines.lifecycle import OVER_LIMIT
from parley.pipelines.sockets.client_mcp import ClientMcp, check_servers
from parley.processors.duplex.camera import CameraSettings
from parley.processors.duplex.services import TypedInput
from parley.protocols.client_protocol import (
    Action,
    CreateResponse,
    EarlierReply,
    OutOfBandRequest,
    Pictures,
    ProtocolError,
    SessionUpdate,
    ToolsAnswered,
    Typed,
)
from parley.session_store.conversation import Conversation
from parley.transports.websocket.pictures import PictureLimits
from parley.transports.websocket.session import Check


def check_of(engines: Engines, mode: str, rules: ClientRules) -> Check:
    """Return the check of a client's actions: an impossible one is refused before it has any effect.

    Text that the client's rules do not permit is removed.
    """
    return partial(_checked, engines, mode, rules)


def _checked(engines: Engines, mode: str, rules: ClientRules, action: Action) -> Action:
    match action:
        case (
            SessionUpdate(tools=(_, *_) as tools)
            | CreateResponse(tools=(_, *_) as tools)
            | ToolsAnswered(tools=(_, *_) as tools)
        ):
            _check_calls_tools(engines, mode)
            _check_tools(engines, rules, {tool.name for tool in tools})
    match action:
        case SessionUpdate(answers=False) if engines.answers_by_itself(mode):
            raise ProtocolError(
                "this engine answers what it hears by itself: use model=parley-cascade",
                code="not_supported",
                param="session",
            )
        case Pictures() if picture_limits(engines, mode) is None:
            raise ProtocolError(
                "this deployment does not use pictures", code="not_supported", param="input_image"
            )
    match action:
        case (
            SessionUpdate(mcp=(_, *_) as servers)
            | CreateResponse(mcp=(_, *_) as servers)
            | ToolsAnswered(mcp=(_, *_) as servers)
        ):
            _check_calls_tools(engines, mode)
            check_servers(servers, rules, engines.deployment.server.clients.mcp_hosts)
    match action:
        case SessionUpdate(choice=choice) | CreateResponse(choice=choice) | ToolsAnswered(choice=choice):
            if choice is not None and choice.is_required and not engines.answering.forces_tools:
                place = "session" if isinstance(action, SessionUpdate) else "response"
                raise ProtocolError(
                    f"{place}.tool_choice: the model of this deployment takes auto and none",
                    code="not_supported",
                    param=f"{place}.tool_choice",
                )
    is_question = isinstance(action, (Typed, CreateResponse))
    if is_question and not engines.answering.usage.has_request(rules.counted):
        raise ProtocolError(OVER_LIMIT, code="rate_limit_exceeded")
    return permitted(action, rules)


def choice_check(mcp: ClientMcp, requested: Callable[[], SessionUpdate]) -> Check:
    """Return the check that a tool choice names a tool of a client's server, where its tools are known.

    Args:
        mcp: MCP servers of the client.
        requested: returns the settings of its session.
    """
    return partial(_checked_choice, mcp, requested)


def _checked_choice(mcp: ClientMcp, requested: Callable[[], SessionUpdate], action: Action) -> Action:
    match action:
        case (
            SessionUpdate(choice=choice, mcp=servers)
            | CreateResponse(choice=choice, mcp=servers)
            | ToolsAnswered(choice=choice, mcp=servers)
        ):
            place = "session" if isinstance(action, SessionUpdate) else "response"
            declared = requested().mcp if servers is None else servers
            mcp.check_choice(choice, declared or (), param=f"{place}.tool_choice")
    return action


def checked_voice(reference_voices: Collection[str], action: Action) -> Action:
    """Refuse other voices to imitate than these, with one of which the engine is prepared."""
    match action:
        case SessionUpdate(reference_voice=str(wanted)) if wanted not in reference_voices:
            raise ProtocolError(
                "session.audio.output.voice: a voice that is imitated is set before the conversation begins",
                code="cannot_update_voice",
                param="session.audio.output.voice",
            )
    return action


def checked_text(conversation: Conversation, action: Action) -> Action:
    """Refuse an action with more text than the session takes now, before it has any effect."""
    match action:
        case Typed(text) | CreateResponse(text=text) | EarlierReply(text) if text:
            check_text(conversation.typed_wait_s, text)
    return action


def check_text(take: Callable[[str], float], text: str) -> None:
    """Raise ProtocolError when the session cannot take a text; ``take`` returns the wait for it."""
    try:
        wait_s = take(text)
    except OversizedError as error:
        raise ProtocolError(str(error), code="too_large") from error
    if wait_s:
        raise ProtocolError(f"too much text, try again in {wait_s:.0f} s", code="rate_limited")


def picture_limits(engines: Engines, mode: str) -> PictureLimits | None:
    """Return the limits of a client's pictures; None where the model sees none."""
    if mode == "duplex":
        camera = CameraSettings()
        return PictureLimits(camera.most_pixels, camera.longest_px) if engines.sees else None
    vision = tuned(VisionTuning, engines.deployment.thinking.vision)
    return PictureLimits(vision.most_pixels, vision.longest_px) if engines.answering.sees else None


def takes_text(engines: Engines, mode: str) -> bool:
    """Return whether a caller may type in a call of this mode: not to every realtime service."""
    service = engines.realtime if mode == "duplex" else None
    return service is None or service.typing is not TypedInput.NONE


def _check_calls_tools(engines: Engines, mode: str) -> None:
    """Raise ProtocolError when the model calls no tools."""
    if (mode == "duplex" and engines.realtime is not None) or not engines.answering.calls_tools:
        raise ProtocolError(
            "session.tools: the model of this deployment calls no tools",
            code="not_supported",
            param="session.tools",
        )


def _check_tools(engines: Engines, rules: ClientRules, names: set[str]) -> None:
    """Raise ProtocolError when the tools of a client cannot be accepted."""
    if not rules.may_declare_tools:
        raise ProtocolError(
            "session.tools: this call accepts no client tools",
            code="not_permitted",
            param="session.tools",
        )
    taken = sorted(engines.answering.tool_names & names)
    if taken:
        raise ProtocolError(
            f"session.tools: the deployment has a tool {taken[0]!r} of its own",
            code="invalid_value",
            param="session.tools",
        )


def permitted(action: Action, rules: ClientRules) -> Action:
    """Return an action without the text that its client's rules do not permit in the prompt.

    Text that they do permit is noted in the rules.

    Raises:
        ProtocolError: nothing is left of the action.
    """
    match action:
        case EarlierReply():
            rules.add_text()
        case SessionUpdate(tools=(_, *_)) | CreateResponse(tools=(_, *_)) | ToolsAnswered(tools=(_, *_)):
            # The description of a tool is text of the client like any other.
            rules.add_text()
        case SessionUpdate(mcp=(_, *_)) | CreateResponse(mcp=(_, *_)) | ToolsAnswered(mcp=(_, *_)):
            # So are those of a server of the client, and what its tools return.
            rules.add_text()
    match action:
        case SessionUpdate() if action.instructions or action.notes:
            if rules.may_instruct:
                rules.add_text()
                return action
            if action.notes:
                raise ProtocolError(
                    "item.role: this call accepts no system messages",
                    code="not_permitted",
                    param="item.role",
                )
            _log_ignored(rules)
            return replace(action, instructions=None)
        case CreateResponse(instructions=str()):
            if rules.may_instruct:
                rules.add_text()
                return action
            _log_ignored(rules)
            return replace(action, instructions=None)
        case OutOfBandRequest() if not rules.may_instruct:
            if any(role == "system" for role, _ in action.lines or ()):
                raise ProtocolError(
                    "response.input: this call accepts no system messages",
                    code="not_permitted",
                    param="response.input",
                )
            if action.instructions is not None:
                _log_ignored(rules)
            return replace(action, instructions=None)
        case OutOfBandRequest():
            if action.instructions or any(role == "system" for role, _ in action.lines or ()):
                rules.add_text()
    return action


def _log_ignored(rules: ClientRules) -> None:
    if rules.note_ignored():
        logger.info("ignoring the instructions of a client without the grant for them; the call continues")
