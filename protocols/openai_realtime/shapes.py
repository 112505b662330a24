"""Fields of OpenAI's realtime events, read and written. This module has no state.

A wrong field raises a ``ProtocolError`` that names it. A setting that has no effect here is reported with its
effective value in ``session.updated``, where a client can read it.
"""

import re
import secrets
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from parley.core.call_choices import NO_VOICES, OWN_VOICE, VoiceNames
from parley.core.usage import Usage
from parley.protocols.client_mcp import McpDeclaration
from parley.protocols.client_protocol import (
    ClientTool,
    Codec,
    Format,
    Message,
    ProtocolError,
    ToolChoice,
    decoded,
    text_of,
)
from parley.protocols.openai_realtime.mcp_shapes import MOST_SERVERS, NAME_CHARS, mcp_server, shown_server
from parley.protocols.tool_bounds import TOO_LARGE, is_too_large

PCM = Format(Codec.PCM16, 24_000)
FORMATS = {"audio/pcm": PCM, "audio/pcmu": Format(Codec.PCMU, 8_000), "audio/pcma": Format(Codec.PCMA, 8_000)}
MOST_CHARS, MOST_TOOLS, MOST_TOOL_CHARS = 32_768, 64, 65_536
MOST_PICTURE_BYTES = 8_000_000
# Bounds of the protocol's ``metadata``.
MOST_METADATA, METADATA_NAME_CHARS, METADATA_CHARS = 16, 64, 512
# Bounds of one response: the tokens that a client may name, and those without a number of its own.
MOST_TOKENS, DEFAULT_TOKENS = 4_096, 1_024
# Bounds of a client's own input: items, parts of an item, and the text of all of them.
MOST_GIVEN, MOST_PARTS, MOST_GIVEN_CHARS = 64, 64, 4 * MOST_CHARS
# OpenAI's voices. Its clients send one of them by default, and not because they know this deployment.
OPENAI_VOICES = frozenset(
    {"alloy", "ash", "ballad", "cedar", "coral", "echo", "fable", "marin", "nova", "onyx", "sage", "shimmer"}
    | {"verse"}
)
MOST_VOICE_CHARS = 256
# Patience of the end of a turn by ``eagerness``, which a client sets before it speaks; the others leave the
# deployment's.
EAGERNESS: Mapping[str, float | None] = {"low": 0.8, "medium": None, "high": 0.3, "auto": None}
# Kinds of sessions.
REALTIME, TRANSCRIPTION = "realtime", "transcription"
# Field of the voice, by which a refusal names it.
VOICE_PARAM = "session.audio.output.voice"
# Returns the faults of a schema.
Faults = Callable[[Mapping[str, Any]], Sequence[str]]
# The pattern of OpenAI's models. A name is also a key here.
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")


@dataclass(frozen=True, slots=True)
class ResponseRequest:
    """Request of a client for one response: what differs from its session for it.

    Attributes:
        instructions: in place of the session's; None: those apply.
        metadata: of the client, repeated with the response.
        modality: audio or text.
        tools: in place of the session's, also none at all; None: those apply.
        choice: between them, in place of the session's; None: that applies.
        is_out_of_band: true when the response is not part of the conversation.
        given: items that an out-of-band response is made from; None: the conversation.
        most_tokens: longest out-of-band answer; None: the response is part of the conversation.
        mcp: MCP servers in place of the session's; None: those apply.
    """

    instructions: str | None = None
    metadata: Mapping[str, str] = field(default_factory=dict)
    modality: str = "audio"
    tools: tuple[ClientTool, ...] | None = None
    choice: ToolChoice | None = None
    is_out_of_band: bool = False
    given: tuple[Message, ...] | None = None
    most_tokens: int | None = None
    mcp: tuple[McpDeclaration, ...] | None = None

    @property
    def has_tools(self) -> bool:
        """True when the tools of the response, or the choice between them, are not the session's."""
        return self.tools is not None or self.choice is not None or self.mcp is not None


@dataclass(frozen=True, slots=True)
class Settings:
    """Settings of the client that have an effect.

    Attributes:
        kind: realtime, or transcription: the caller's words, and no responses.
        modality: audio or text.
        input_format: of the caller's audio.
        output_format: of the bot's audio.
        voice: of the bot.
        reference: id of the reference voice that the engine imitates; empty for none.
        detection: rule for the end of the caller's turn; None: the client reports it.
        transcription: as the client gave it. Transcripts are sent whether it requests them or not.
        instructions: added to the deployment's prompt.
        tools: as the client gave them, without the secrets of servers.
        tool_choice: auto, or none.
        choice: whether one of the tools has to be called, and which.
        mcp: MCP servers among the tools.
    """

    kind: str = REALTIME
    modality: str = "audio"
    input_format: Format = PCM
    output_format: Format = PCM
    voice: str = OWN_VOICE
    reference: str = ""
    detection: Mapping[str, Any] | None = None
    transcription: Any = None
    instructions: str = ""
    tools: tuple[Message, ...] = ()
    tool_choice: str = "auto"
    choice: ToolChoice = ToolChoice()
    mcp: tuple[McpDeclaration, ...] = ()

    @property
    def patience(self) -> float | None:
        """Patience that the client has set; None for the deployment's."""
        return None if self.detection is None else EAGERNESS[self.detection.get("eagerness", "auto")]

    @property
    def answers_turns(self) -> bool:
        """True when a turn of the caller is answered without a request of the client."""
        if self.kind == TRANSCRIPTION:
            return False
        return self.detection is None or bool(self.detection["create_response"])


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
        ProtocolError: missing and not optional, or not an object.
    """
    value = given.get(name)
    if value is None and optional:
        return {}
    if value is None:
        raise ProtocolError(f"{param or name}: missing", code="missing_field", param=param or name)
    if not isinstance(value, dict):
        raise ProtocolError(f"{param or name}: expected an object", code="invalid_value", param=param or name)
    return value


@dataclass(frozen=True, slots=True)
class Tools:
    """Tools of a client.

    Attributes:
        functions: that the client runs; None: no change.
        mcp: MCP servers whose tools this server calls; None: no change.
        shown: all of them as events report them.
    """

    functions: tuple[ClientTool, ...] | None = None
    mcp: tuple[McpDeclaration, ...] | None = None
    shown: tuple[Message, ...] = ()


NO_TOOLS = Tools((), ())


def updated(
    old: Settings, session: Message, faults: Faults, voices: VoiceNames = NO_VOICES
) -> tuple[Settings, Tools]:
    """Return the settings after a ``session.update``, and its tools as far as it changes them.

    Raises:
        ProtocolError: a part of it is not supported; nothing is changed.
    """
    kind = session.get("type", old.kind)
    if kind not in (REALTIME, TRANSCRIPTION):
        raise ProtocolError(
            "session.type: expected realtime or transcription", code="invalid_value", param="session.type"
        )
    audio = mapping(session, "audio", param="session.audio", optional=True)
    heard = mapping(audio, "input", param="session.audio.input", optional=True)
    said = mapping(audio, "output", param="session.audio.output", optional=True)
    new = replace(
        old,
        kind=str(kind),
        modality=_modality(session, old.modality, "session.output_modalities"),
        input_format=_format(heard.get("format"), old.input_format, param="session.audio.input.format"),
        output_format=_format(said.get("format"), old.output_format, param="session.audio.output.format"),
    )
    new = _voiced(new, said.get("voice"), voices)
    if session.get("tool_choice") is not None:
        tool_choice, choice = _tool_choice(session, "session.tool_choice")
        new = replace(new, tool_choice=tool_choice, choice=choice)
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
    tools = Tools()
    if session.get("tools") is not None:
        tools = _tools(session["tools"], faults)
        new = replace(new, tools=tools.shown, mcp=tools.mcp or ())
    _check_choice(new.choice, _names(new), "session.tool_choice")
    if new.tool_choice == "none":
        tools = NO_TOOLS if old.tool_choice != "none" else Tools()
    elif old.tool_choice == "none" and tools.functions is None:
        tools = _tools_of(new, faults)
    if not new.mcp and not old.mcp:
        tools = replace(tools, mcp=None)
    return new, tools


def detection(given: Mapping[str, Any]) -> Message:
    """Return the rule for the end of a turn, as it is reported to the client.

    The deployment's policy decides; a client sets its patience by ``eagerness``, and no thresholds.

    Raises:
        ProtocolError: an unknown type, or an option that is not supported.
    """
    kind = given.get("type") or "server_vad"
    if kind not in ("server_vad", "semantic_vad"):
        param = "session.audio.input.turn_detection.type"
        raise ProtocolError(
            f"{param}: expected server_vad, semantic_vad or null", code="invalid_value", param=param
        )
    if given.get("interrupt_response") is False:
        param = "session.audio.input.turn_detection.interrupt_response"
        raise ProtocolError(
            f"{param}: cannot be false; with turn_detection null the client decides when a turn ends",
            code="not_supported",
            param=param,
        )
    creates = given.get("create_response") is not False
    shown = {"type": kind, "create_response": creates, "interrupt_response": True}
    if kind == "server_vad":
        return shown
    eagerness = given.get("eagerness") or "auto"
    if not isinstance(eagerness, str) or eagerness not in EAGERNESS:
        param = "session.audio.input.turn_detection.eagerness"
        raise ProtocolError(f"{param}: expected {', '.join(EAGERNESS)}", code="invalid_value", param=param)
    return {**shown, "eagerness": eagerness}


def shown_usage(usage: Usage | None) -> Message | None:
    """Return the tokens of a response as its last event has them; None where none are known.

    The kinds of cached tokens are not known where a model hears: then the kinds of all are left out.
    """
    if usage is None:
        return None
    text = usage.prompt_tokens + usage.cache_write_tokens
    read = text + usage.cached_tokens + usage.audio_prompt_tokens
    written = usage.completion_tokens + usage.audio_completion_tokens
    kinds = {"text_tokens": text + usage.cached_tokens, "audio_tokens": usage.audio_prompt_tokens}
    return {
        "total_tokens": read + written,
        "input_tokens": read,
        "output_tokens": written,
        "input_token_details": {
            "cached_tokens": usage.cached_tokens,
            **({} if usage.audio_prompt_tokens and usage.cached_tokens else kinds),
        },
        "output_token_details": {
            "text_tokens": usage.completion_tokens,
            "audio_tokens": usage.audio_completion_tokens,
        },
    }


def shown_format(format_: Format) -> Message:
    """Return a format as an update writes it."""
    kind = next(name for name, each in FORMATS.items() if each == format_)
    return {"type": kind, "rate": format_.rate_hz} if format_ == PCM else {"type": kind}


def response_request(response: Message, settings: Settings, faults: Faults) -> ResponseRequest:
    """Return what a ``response.create`` requests.

    Raises:
        ProtocolError: a part of it is not supported.
    """
    conversation = response.get("conversation")
    if conversation not in (None, "auto", "none"):
        raise ProtocolError(
            "response.conversation: expected auto or none",
            code="invalid_value",
            param="response.conversation",
        )
    if response.get("prompt"):
        raise _not_supported("response.prompt", "stored prompts are not supported; send instructions")
    is_out_of_band = conversation == "none"
    tool_choice, choice = settings.tool_choice, None
    if response.get("tool_choice") is not None:
        tool_choice, choice = _tool_choice(response, "response.tool_choice")
    tools = Tools()
    if response.get("tools") is not None:
        tools = _tools(response["tools"], faults, "response.tools")
    if tool_choice == "none" and (tools.functions or tools.mcp or settings.tool_choice != "none"):
        tools = NO_TOOLS
    elif settings.tool_choice == "none" and tool_choice != "none" and tools.functions is None:
        tools = _tools_of(settings, faults)
    names = _names(settings) if tools.functions is None else _names(tools)
    # No tools for this response leave nothing of the session's choice.
    if choice is not None or tools.functions or tools.mcp:
        _check_choice(choice or settings.choice, names, "response.tool_choice")
    if choice == settings.choice and not choice.is_required:
        choice = None
    instructions = None
    if response.get("instructions"):
        instructions = text_of(response, "instructions", most_chars=MOST_CHARS)
    most_tokens = _most_tokens(response.get("max_output_tokens"))
    request = ResponseRequest(
        instructions=instructions,
        metadata=_metadata(response.get("metadata")),
        modality=_modality(response, settings.modality, "response.output_modalities"),
        tools=tools.functions,
        mcp=tools.mcp if tools.mcp or settings.mcp else None,
        choice=choice,
        is_out_of_band=is_out_of_band,
        given=_given_items(response.get("input")),
        most_tokens=most_tokens if is_out_of_band else None,
    )
    if is_out_of_band and request.modality != "text":
        raise _not_supported(
            "response.output_modalities",
            'a response outside of the conversation has no voice; request ["text"]',
        )
    if is_out_of_band and choice is not None and choice.is_required:
        raise _not_supported("response.tool_choice", "a response outside of the conversation calls no tools")
    if is_out_of_band and (request.tools or request.mcp):
        raise _not_supported("response.tools", "a response outside of the conversation calls no tools")
    if request.given is not None and not is_out_of_band:
        raise _not_supported(
            "response.input", 'the conversation is what is answered; for other input set conversation: "none"'
        )
    return request


def _metadata(given: object) -> dict[str, str]:
    if given is None:
        return {}
    if (
        not isinstance(given, dict)
        or len(given) > MOST_METADATA
        or any(
            not isinstance(value, str) or len(value) > METADATA_CHARS or len(name) > METADATA_NAME_CHARS
            for name, value in given.items()
        )
    ):
        raise ProtocolError(
            f"response.metadata: expected up to {MOST_METADATA} texts of at most {METADATA_CHARS} "
            f"characters, with names of at most {METADATA_NAME_CHARS}",
            code="invalid_value",
            param="response.metadata",
        )
    return given


def _most_tokens(given: object) -> int:
    if given is None or given == "inf":
        return DEFAULT_TOKENS
    if not isinstance(given, int) or isinstance(given, bool) or not 1 <= given <= MOST_TOKENS:
        raise ProtocolError(
            f'response.max_output_tokens: expected 1 to {MOST_TOKENS}, or "inf"',
            code="invalid_value",
            param="response.max_output_tokens",
        )
    return given


def _given_items(given: object) -> tuple[Message, ...] | None:
    if given is None:
        return None
    if (
        not isinstance(given, list)
        or len(given) > MOST_GIVEN
        or not all(isinstance(each, dict) for each in given)
    ):
        raise ProtocolError(
            f"response.input: expected up to {MOST_GIVEN} items", code="invalid_value", param="response.input"
        )
    return tuple(given)


def picture_of(url: object, *, param: str) -> bytes:
    """Return the image file in a data URL.

    Raises:
        ProtocolError: not such a URL; nothing is fetched from elsewhere.
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


def _tool_choice(given: Message, param: str) -> tuple[str, ToolChoice]:
    """Return a tool choice as auto or none, and what it requires."""
    wanted = given["tool_choice"]
    if wanted in ("auto", "none"):
        return str(wanted), ToolChoice()
    if wanted == "required":
        return "auto", ToolChoice(is_required=True)
    if isinstance(wanted, dict) and wanted.get("type") == "function" and isinstance(wanted.get("name"), str):
        return "auto", ToolChoice(is_required=True, name=wanted["name"])
    label = wanted.get("server_label") if isinstance(wanted, dict) and wanted.get("type") == "mcp" else None
    if isinstance(label, str) and label:
        name = text_of(wanted, "name", most_chars=NAME_CHARS) if wanted.get("name") is not None else None
        return "auto", ToolChoice(is_required=True, name=name, label=label)
    raise ProtocolError(
        f'{param}: expected auto, none, required, {{"type": "function", "name": ...}} or '
        '{"type": "mcp", "server_label": ...}',
        code="invalid_value",
        param=param,
    )


def _check_choice(choice: ToolChoice, names: Sequence[str], param: str) -> None:
    """Refuse a choice that requires what is not offered."""
    if not choice.is_required:
        return
    if not names:
        raise ProtocolError(
            f"{param}: a call can only be required when 'tools' are specified",
            code="invalid_value",
            param=param,
        )
    # Which tools a server has is known later than this.
    wanted = _label_name(choice.label) if choice.label else choice.name
    if wanted is not None and wanted not in names:
        raise ProtocolError(
            f"{param}: there is no tool {wanted[:80]!r} in 'tools'", code="invalid_value", param=param
        )


def _names(declared: "Settings | Tools") -> list[str]:
    """Return the names of tools, and of servers in a form that no tool has."""
    if isinstance(declared, Tools):
        names = [tool.name for tool in declared.functions or ()]
    else:
        names = [str(tool["name"]) for tool in declared.tools if tool.get("type") == "function"]
    return [*names, *(_label_name(server.label) for server in declared.mcp or ())]


def _label_name(label: str) -> str:
    return f"mcp: {label}"


def status_details(status: str, reason: str) -> Message:
    """Return why a response ended with a status other than that of a completed one."""
    if status != "failed":
        return {"type": status, "reason": reason}
    return {
        "type": status,
        "error": {"type": "server_error", "code": "inference_error", "message": reason},
    }


def shown_choice(settings: Settings) -> str | Message:
    """Return the tool choice as an update writes it."""
    if not settings.choice.is_required:
        return settings.tool_choice
    if settings.choice.label:
        named = {} if settings.choice.name is None else {"name": settings.choice.name}
        return {"type": "mcp", "server_label": settings.choice.label, **named}
    if settings.choice.name is None:
        return "required"
    return {"type": "function", "name": settings.choice.name}


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


def _tools_of(settings: Settings, faults: Faults) -> Tools:
    """Return the tools of a session, which a choice of none had withdrawn."""
    functions = [tool for tool in settings.tools if tool.get("type") == "function"]
    return replace(_tools(functions, faults), mcp=settings.mcp)


def _voiced(settings: Settings, given: object, voices: VoiceNames) -> Settings:
    """Return settings with the voice that speaks for the one in an update."""
    param = VOICE_PARAM
    name = given["id"] if isinstance(given, dict) and "id" in given else given
    if name is None:
        return settings
    if not isinstance(name, str) or not 0 < len(name) <= MOST_VOICE_CHARS:
        raise ProtocolError(f"{param}: expected the name of a voice", code="invalid_value", param=param)
    if name in voices.references:
        return replace(settings, voice=OWN_VOICE, reference=name)
    found = voices.find(name)
    if found is None and name not in OPENAI_VOICES:
        known = ", ".join(repr(each) for each in (*voices.names, *sorted(voices.aliases), *voices.references))
        raise ProtocolError(
            f"Invalid value: {name[:64]!r}. Supported values are: {known}.", code="invalid_value", param=param
        )
    return replace(settings, voice=found or OWN_VOICE, reference="")


def shown_voice(settings: Settings) -> str | Message:
    """Return the voice in force as an update writes it."""
    return {"id": settings.reference} if settings.reference else settings.voice


def _tools(given: object, faults: Faults, place: str = "session.tools") -> Tools:
    if not isinstance(given, list) or len(given) > MOST_TOOLS:
        raise ProtocolError(f"{place}: expected up to {MOST_TOOLS} tools", code="invalid_value", param=place)
    if is_too_large(given):
        raise ProtocolError(f"{place}: {TOO_LARGE}", code="too_large", param=place)
    functions: list[ClientTool] = []
    servers: list[McpDeclaration] = []
    shown: list[Message] = []
    for index, each in enumerate(given):
        param = f"{place}[{index}]"
        kind = each.get("type") if isinstance(each, dict) else None
        if kind == "function":
            functions.append(_tool(each, param, faults))
            shown.append(each)
        elif kind == "mcp":
            servers.append(mcp_server(each, param))
            shown.append(shown_server(each))
        else:
            raise ProtocolError(f"{param}: expected a function or mcp", code="invalid_value", param=param)
    if len({tool.name for tool in functions}) < len(functions):
        raise ProtocolError(f"{place}: two tools have the same name", code="invalid_value", param=place)
    if len({server.label for server in servers}) < len(servers) or len(servers) > MOST_SERVERS:
        raise ProtocolError(
            f"{place}: expected up to {MOST_SERVERS} MCP servers, each with a label of its own",
            code="invalid_value",
            param=place,
        )
    return Tools(tuple(functions), tuple(servers), tuple(shown))


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
