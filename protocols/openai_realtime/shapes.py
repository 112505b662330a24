"""Fields of OpenAI's realtime events, read and written. This module has no state.

A wrong field raises a ``ProtocolError`` that names it. A setting that has no effect here is reported with its
effective value in ``session.updated``, where a client can read it.
"""

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from parley.protocols.client_protocol import (
    ClientTool,
    Codec,
    Format,
    Message,
    ProtocolError,
    decoded,
    text_of,
)

PCM = Format(Codec.PCM16, 24_000)
FORMATS = {"audio/pcm": PCM, "audio/pcmu": Format(Codec.PCMU, 8_000), "audio/pcma": Format(Codec.PCMA, 8_000)}
MOST_CHARS, MOST_TOOLS, MOST_TOOL_CHARS = 32_768, 64, 65_536
# Bounds for all tools of a client together: each pattern is compiled, and each value of a schema is checked.
MOST_TOOL_VALUES, MOST_PATTERNS = 10_000, 32
MOST_PICTURE_BYTES = 8_000_000
VOICE = "parley"
# Returns the faults of a schema.
Faults = Callable[[Mapping[str, Any]], Sequence[str]]
# The pattern of OpenAI's models. A name is also a key here.
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the client that have an effect.

    Attributes:
        modality: audio or text.
        input_format: of the caller's audio.
        output_format: of the bot's audio.
        detection: rule for the end of the caller's turn; None: the client reports it.
        transcription: as the client gave it. Transcripts are sent whether it requests them or not.
        instructions: added to the deployment's prompt.
        tools: as the client gave them.
        tool_choice: auto, or none.
    """

    modality: str = "audio"
    input_format: Format = PCM
    output_format: Format = PCM
    detection: Mapping[str, Any] | None = None
    transcription: Any = None
    instructions: str = ""
    tools: tuple[Message, ...] = ()
    tool_choice: str = "auto"


def new_id(kind: str) -> str:
    """Return a new unique id with a prefix."""
    return f"{kind}_{secrets.token_hex(12)}"


def event(type_: str, **fields: Any) -> Message:
    """Return an event of the server."""
    return {"type": type_, "event_id": new_id("event"), **fields}


def error_event(
    message: str, code: str, param: str | None = None, *, event_id: str | None = None, kind: str = ""
) -> Message:
    """Return an error event; ``event_id`` is that of the client's event."""
    return event(
        "error",
        error={
            "type": kind or "invalid_request_error",
            "code": code,
            "message": message,
            "param": param,
            "event_id": event_id,
        },
    )


def mapping(given: Mapping[str, Any], name: str, *, param: str = "", optional: bool = False) -> Message:
    """Return a field that is an object.

    Raises:
        Refusal: missing and not optional, or not an object.
    """
    value = given.get(name)
    if value is None and optional:
        return {}
    if value is None:
        raise ProtocolError(f"{param or name}: missing", code="missing_field", param=param or name)
    if not isinstance(value, dict):
        raise ProtocolError(f"{param or name}: expected an object", code="invalid_value", param=param or name)
    return value


def updated(
    old: Settings, session: Message, faults: Faults
) -> tuple[Settings, tuple[ClientTool, ...] | None]:
    """Return the settings after a ``session.update``, and its tools if it changes them.

    Raises:
        Refusal: a part of it is not supported; nothing is changed.
    """
    if session.get("type", "realtime") != "realtime":
        raise ProtocolError(
            "session.type: only realtime is supported", code="invalid_value", param="session.type"
        )
    audio = mapping(session, "audio", param="session.audio", optional=True)
    heard = mapping(audio, "input", param="session.audio.input", optional=True)
    said = mapping(audio, "output", param="session.audio.output", optional=True)
    new = replace(
        old,
        modality=_modality(session, old.modality, "session.output_modalities"),
        input_format=_format(heard.get("format"), old.input_format, param="session.audio.input.format"),
        output_format=_format(said.get("format"), old.output_format, param="session.audio.output.format"),
        tool_choice=_tool_choice(session, old.tool_choice, "session.tool_choice"),
    )
    if "turn_detection" in heard:
        given = heard["turn_detection"]
        param = "session.audio.input.turn_detection"
        new = replace(
            new, detection=None if given is None else detection(mapping(heard, "turn_detection", param=param))
        )
    if "transcription" in heard:
        new = replace(new, transcription=heard["transcription"])
    if session.get("instructions") is not None:
        new = replace(new, instructions=text_of(session, "instructions", most_chars=MOST_CHARS))
    tools: tuple[ClientTool, ...] | None = None
    if session.get("tools") is not None:
        shown, tools = _tools(session["tools"], faults)
        new = replace(new, tools=tuple(shown))
    if new.tool_choice == "none" and old.tool_choice != "none":
        tools = ()
    elif new.tool_choice == "none":
        tools = None
    elif old.tool_choice == "none" and tools is None:
        _, tools = _tools(list(new.tools), faults)
    return new, tools


def detection(given: Mapping[str, Any]) -> Message:
    """Return the rule for the end of a turn, as it is reported to the client.

    The deployment's policy decides; the client cannot set its thresholds.

    Raises:
        Refusal: an unknown type, or an option that is not supported.
    """
    kind = given.get("type") or "server_vad"
    if kind not in ("server_vad", "semantic_vad"):
        param = "session.audio.input.turn_detection.type"
        raise ProtocolError(
            f"{param}: expected server_vad, semantic_vad or null", code="invalid_value", param=param
        )
    for name in ("create_response", "interrupt_response"):
        if given.get(name) is False:
            param = f"session.audio.input.turn_detection.{name}"
            raise ProtocolError(
                f"{param}: cannot be false; with turn_detection null the client decides when a turn ends",
                code="not_supported",
                param=param,
            )
    return {"type": kind, "create_response": True, "interrupt_response": True}


def shown_format(format_: Format) -> Message:
    """Return a format as an update writes it."""
    kind = next(name for name, each in FORMATS.items() if each == format_)
    return {"type": kind, "rate": format_.rate_hz} if format_ == PCM else {"type": kind}


def answer_instructions(response: Message, settings: Settings) -> str | None:
    """Return the instructions of a ``response.create``; None where it has none.

    Raises:
        Refusal: it requests anything other than instructions.
    """
    _tool_choice(response, "auto", "response.tool_choice")
    if response.get("conversation") not in (None, "auto"):
        raise _not_supported("response.conversation", "only the session's own conversation is supported")
    for name in ("input", "tools", "prompt"):
        if response.get(name):
            raise _not_supported(f"response.{name}", "only instructions can be set for one response")
    modality = _modality(response, settings.modality, "response.output_modalities")
    if modality != settings.modality:
        raise _not_supported("response.output_modalities", "set these fields in session.update")
    if not response.get("instructions"):
        return None
    return text_of(response, "instructions", most_chars=MOST_CHARS)


def picture_of(url: object, *, param: str) -> bytes:
    """Return the image file in a data URL.

    Raises:
        Refusal: not such a URL; nothing is fetched from elsewhere.
    """
    head, _, data = url.partition(",") if isinstance(url, str) else ("", "", "")
    if not head.startswith("data:image/") or not head.endswith(";base64"):
        raise ProtocolError(f"{param}: expected data:image/...;base64", code="invalid_value", param=param)
    return decoded(data, param=param, most_bytes=MOST_PICTURE_BYTES)


def _not_supported(param: str, why: str) -> ProtocolError:
    return ProtocolError(f"{param}: {why}", code="not_supported", param=param)


def _modality(given: Message, old: str, param: str) -> str:
    wanted = given.get("output_modalities")
    if wanted is None:
        return old
    if wanted not in (["audio"], ["text"]):
        raise ProtocolError(f'{param}: expected ["audio"] or ["text"]', code="invalid_value", param=param)
    return str(wanted[0])


def _tool_choice(given: Message, old: str, param: str) -> str:
    wanted = given.get("tool_choice")
    if wanted is None:
        return old
    if wanted not in ("auto", "none"):
        raise _not_supported(param, "expected auto or none; forcing a tool call is not supported")
    return str(wanted)


def _format(given: object, old: Format, *, param: str) -> Format:
    if given is None:
        return old
    kind = given.get("type") if isinstance(given, dict) else given
    found = FORMATS.get(kind) if isinstance(kind, str) else None
    if found is None:
        raise ProtocolError(
            f"{param}: expected one of {', '.join(FORMATS)}", code="invalid_value", param=param
        )
    rate_hz = given.get("rate") if isinstance(given, dict) else None
    if rate_hz not in (None, found.rate_hz):
        raise ProtocolError(
            f"{param}.rate: {kind} has a rate of {found.rate_hz}", code="invalid_value", param=f"{param}.rate"
        )
    return found


def _tools(given: object, faults: Faults) -> tuple[list[Message], tuple[ClientTool, ...]]:
    if not isinstance(given, list) or len(given) > MOST_TOOLS:
        raise ProtocolError(
            f"session.tools: expected up to {MOST_TOOLS} tools", code="invalid_value", param="session.tools"
        )
    _check_size(given)
    tools: list[ClientTool] = []
    for index, each in enumerate(given):
        param = f"session.tools[{index}]"
        if not isinstance(each, dict) or each.get("type") != "function":
            raise ProtocolError(f"{param}: only functions are supported", code="invalid_value", param=param)
        tools.append(_tool(each, param, faults))
    if len({tool.name for tool in tools}) < len(tools):
        raise ProtocolError(
            "session.tools: two tools have the same name", code="invalid_value", param="session.tools"
        )
    return list(given), tuple(tools)


def _check_size(tools: Sequence[object]) -> None:
    """Refuse tools that would take long to check, before they are checked."""
    values = patterns = 0
    waiting: list[object] = [tools]
    while waiting:
        value = waiting.pop()
        values += 1
        if isinstance(value, dict):
            patterns += "pattern" in value
            waiting.extend(value.values())
        elif isinstance(value, list):
            waiting.extend(value)
        if values + len(waiting) > MOST_TOOL_VALUES or patterns > MOST_PATTERNS:
            raise ProtocolError(
                f"session.tools: over {MOST_TOOL_VALUES} values or {MOST_PATTERNS} patterns in total",
                code="too_large",
                param="session.tools",
            )


def _tool(given: Message, param: str, faults: Faults) -> ClientTool:
    name = text_of(given, "name", most_chars=64)
    if not _TOOL_NAME.fullmatch(name):
        raise ProtocolError(
            f"{param}.name: expected at most 64 letters, digits, _ and -",
            code="invalid_value",
            param=f"{param}.name",
        )
    schema = given.get("parameters") or {"type": "object", "properties": {}}
    if not isinstance(schema, dict):
        raise ProtocolError(f"{param}.parameters: expected an object", code="invalid_value", param=param)
    if len(repr(schema)) > MOST_TOOL_CHARS:
        raise ProtocolError(f"{param}.parameters: too large", code="too_large", param=f"{param}.parameters")
    # Metadata of the schema language itself, which some clients include.
    schema = {key: value for key, value in schema.items() if not str(key).startswith("$")}
    found = faults(schema)
    if found:
        raise ProtocolError(
            f"{param}: {'; '.join(found)}"[:1_000], code="invalid_value", param=f"{param}.parameters"
        )
    described = given.get("description")
    return ClientTool(name, described[:2_000] if isinstance(described, str) and described else name, schema)
