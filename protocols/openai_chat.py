"""Bodies of OpenAI's chat completions: a conversation as its client shows it, its tools, and answers.

Field names are those of OpenAI's documents. A field that would change the answer and is not supported raises
an ``OpenAiHttpError`` that names it. Fields that tune a model (temperature, the number of tokens) are
accepted without effect, as in the realtime protocol: the deployment has its own. Pure: base64 of pictures is
not decoded here, and schemas of tools are not checked.
"""

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, Any, Literal

from pydantic import Field

from parley.core.pictures import MEDIA_TYPES, PictureFile
from parley.protocols.client_protocol import ClientTool, ToolChoice
from parley.protocols.openai_http import GivenModel, OpenAiHttpError

MOST_MESSAGES, MOST_PARTS, MOST_CHARS = 512, 64, 32_768
# Each is decoded once, by one thread for all clients.
MOST_PICTURES = 16
# Base64; the length of the whole body usually applies first.
MOST_URL_CHARS = 100_000_000
# Tools of a request together, as JSON; calls of one message.
MOST_TOOLS, MOST_TOOL_CHARS, MOST_CALLS = 128, 65_536, 32
OLD_FUNCTIONS = "Use 'tools'"
_DATA_URL = re.compile(r"data:([a-z]+/[a-z0-9.+-]+);base64,", re.ASCII)
_TOOL_NAME = re.compile(r"[A-Za-z0-9_-]{1,64}")
# Characters of arguments in one piece of a streamed answer.
ARGUMENT_PIECE_CHARS = 512


class TextPart(GivenModel):
    """Text of a message."""

    type: Literal["text"]
    text: str = Field(max_length=MOST_CHARS)


class ImageUrl(GivenModel):
    """Address of a picture, which holds the picture itself."""

    url: str = Field(max_length=MOST_URL_CHARS)


class ImagePart(GivenModel):
    """Picture of a message."""

    type: Literal["image_url"]
    image_url: ImageUrl


class OtherPart(GivenModel):
    """Part of a kind that no model here takes."""

    type: Literal["input_audio", "file", "refusal", "video_url"]


Part = Annotated[TextPart | ImagePart | OtherPart, Field(discriminator="type")]


class CalledFunction(GivenModel):
    """Function of a call, with its arguments as JSON."""

    name: str = Field(max_length=64)
    arguments: str = Field("", max_length=MOST_CHARS)


class MessageCall(GivenModel):
    """Call of a tool in a message of the assistant."""

    id: str = Field(min_length=1, max_length=200)
    type: Literal["function"] = "function"
    function: CalledFunction


class CompletionMessage(GivenModel):
    """Entry of the dialogue."""

    role: Literal["system", "developer", "user", "assistant", "tool", "function"]
    content: (
        Annotated[str, Field(max_length=MOST_CHARS)]
        | Annotated[tuple[Part, ...], Field(max_length=MOST_PARTS)]
        | None
    ) = None
    tool_calls: tuple[MessageCall, ...] | None = Field(None, max_length=MOST_CALLS)
    tool_call_id: str | None = Field(None, max_length=200)

    @property
    def parts(self) -> tuple[TextPart | ImagePart | OtherPart, ...]:
        """Content as parts."""
        if isinstance(self.content, str):
            return (TextPart(type="text", text=self.content),)
        return self.content or ()


class StreamOptions(GivenModel):
    """Options of a streamed answer."""

    include_usage: bool | None = False


class CompletionRequest(GivenModel):
    """Body of ``POST /v1/chat/completions``."""

    model: str = Field(max_length=200)
    messages: tuple[CompletionMessage, ...] = Field(min_length=1, max_length=MOST_MESSAGES)
    stream: bool | None = False
    stream_options: StreamOptions | None = None
    n: int | None = 1
    tools: tuple[dict[str, Any], ...] | None = Field(None, max_length=MOST_TOOLS)
    parallel_tool_calls: bool | None = True
    functions: tuple[dict[str, Any], ...] | None = Field(None, max_length=128)
    tool_choice: str | dict[str, Any] | None = None
    response_format: dict[str, Any] | None = None
    modalities: tuple[str, ...] | None = Field(None, max_length=8)
    logprobs: bool | None = False
    stop: str | tuple[str, ...] | None = None
    metadata: dict[str, str] | None = None

    @property
    def session_id(self) -> str | None:
        """Session that ``metadata`` names; None for none."""
        return (self.metadata or {}).get("session")


@dataclass(frozen=True, slots=True)
class CompletionCall:
    """Call of a tool of the client, with what it returned.

    Attributes:
        call_id: id by which the client refers to the call.
        name: of the tool.
        arguments: as JSON; of a client, which may send any text.
        result: as the client returned it.
    """

    call_id: str
    name: str
    arguments: str
    result: str = ""


@dataclass(frozen=True, slots=True)
class ToolOffer:
    """Tools that a client offers with a request.

    Attributes:
        tools: of the client.
        choice: between them.
    """

    tools: tuple[ClientTool, ...] = ()
    choice: ToolChoice = ToolChoice()


@dataclass(frozen=True, slots=True)
class CompletionTurn:
    """Message of a dialogue that a client shows.

    Attributes:
        role: author.
        text: its words.
        pictures: its pictures, in order.
        uses: of tools of the client, for this message of its user.
    """

    role: Literal["user", "assistant"]
    text: str
    pictures: tuple[PictureFile, ...] = ()
    uses: tuple[CompletionCall, ...] = ()


@dataclass(frozen=True, slots=True)
class CompletionParts:
    """Request, divided into its parts.

    Attributes:
        instruction: system prompt of the client; None where it sends none.
        turns: messages of the dialogue; the last one is the user's. Where it has uses of tools, their results
            are to be answered.
        is_whole: true when the messages are the whole conversation as the client shows it. A single message
            is the next one of the session.
        offer: tools of the client.
    """

    instruction: str | None
    turns: tuple[CompletionTurn, ...]
    is_whole: bool
    offer: ToolOffer = ToolOffer()


def completion_parts(request: CompletionRequest) -> CompletionParts:
    """Divide a request into its parts.

    Raises:
        OpenAiHttpError: a field or a message that has no meaning here.
    """
    _check_options(request)
    instructions: list[str] = []
    dialogue = _Dialogue()
    for index, message in enumerate(request.messages):
        where = f"messages[{index}]"
        if message.role == "tool":
            dialogue.answer(message, where)
            continue
        dialogue.require_answers(where)
        text, pictures = _content(message, where)
        if message.role in ("system", "developer"):
            instructions.append(text)
            continue
        if message.role == "function":
            raise _invalid_message(where, f"'{where}' belongs to a function. {OLD_FUNCTIONS}.")
        role: Literal["user", "assistant"] = "user" if message.role == "user" else "assistant"
        if text or pictures:
            dialogue.turns.append(CompletionTurn(role, text, pictures))
        if message.tool_calls:
            dialogue.call(message.tool_calls, where)
    turns = dialogue.ended()
    if sum(len(turn.pictures) for turn in turns) > MOST_PICTURES:
        raise _invalid_message("messages", f"There may be {MOST_PICTURES} pictures in a request.")
    instruction = "\n\n".join(text for text in instructions if text)
    is_whole = len(turns) > 1 or bool(turns[-1].uses)
    return CompletionParts(instruction or None, turns, is_whole=is_whole, offer=_offer(request))


class _Dialogue:
    """Messages of a request so far: those of a tool are part of the user's message that they are for."""

    def __init__(self) -> None:
        self.turns: list[CompletionTurn] = []
        self._unanswered: dict[str, CompletionCall] = {}
        self._ends_with_result = False

    def call(self, calls: Sequence[MessageCall], where: str) -> None:
        """Take calls of the assistant."""
        if not any(turn.role == "user" for turn in self.turns):
            raise _invalid_message(where, f"'{where}' has tool_calls before any message of the user.")
        for call in calls:
            known = {use.call_id for turn in self.turns for use in turn.uses}
            if call.id in self._unanswered or call.id in known:
                raise _invalid_message(where, f"'{where}' repeats the tool_call_id '{call.id[:64]}'.")
            if not _TOOL_NAME.fullmatch(call.function.name):
                raise _invalid_message(where, f"'{where}' calls a function with an invalid name.")
            self._unanswered[call.id] = CompletionCall(call.id, call.function.name, call.function.arguments)
        self._ends_with_result = True

    def answer(self, message: CompletionMessage, where: str) -> None:
        """Take the result of a call."""
        use = self._unanswered.pop(message.tool_call_id or "", None)
        if use is None:
            raise _invalid_message(
                where,
                "messages with role 'tool' must be a response to a preceeding message with 'tool_calls'.",
            )
        text, _ = _content(message, where)
        at = max(place for place, turn in enumerate(self.turns) if turn.role == "user")
        asked = self.turns[at]
        self.turns[at] = replace(asked, uses=(*asked.uses, replace(use, result=text)))

    def require_answers(self, where: str) -> None:
        """Check that every call has its result before the next message."""
        if self._unanswered:
            ids = ", ".join(each[:64] for each in self._unanswered)
            raise _invalid_message(
                where,
                "An assistant message with 'tool_calls' must be followed by tool messages responding to each "
                f"'tool_call_id'. The following tool_call_ids did not have response messages: {ids}",
            )
        self._ends_with_result = False

    def ended(self) -> tuple[CompletionTurn, ...]:
        """Return the turns of the whole request; the last one is the user's.

        Words of the assistant before a call whose result is to be answered are left out: the session has them
        from the time of the call.
        """
        is_answer = self._ends_with_result
        self.require_answers("messages")
        turns = self.turns
        while is_answer and turns and turns[-1].role != "user":
            turns.pop()
        if not turns or turns[-1].role != "user":
            raise _invalid_message(
                "messages", "The last message must be the user's or a tool's, and not empty."
            )
        if not is_answer and turns[-1].uses:
            # The assistant's message after them was empty.
            raise _invalid_message("messages", "The last message must not be empty.")
        return tuple(turns)


def _invalid_message(where: str, why: str) -> OpenAiHttpError:
    return OpenAiHttpError(f"Invalid value: 'messages'. {why}", param=where, code="invalid_value")


def unsupported(param: str, why: str) -> OpenAiHttpError:
    """Return the error for a parameter that has no meaning here."""
    return OpenAiHttpError(
        f"Unsupported parameter: '{param}' is not supported with this model. {why}.",
        param=param,
        code="unsupported_parameter",
    )


def _offer(request: CompletionRequest) -> ToolOffer:
    """Return the tools of a request."""
    choice = request.tool_choice
    if not request.tools:
        if choice not in (None, "none", "auto"):
            raise _wrong("tool_choice", "'tool_choice' is only allowed when 'tools' are specified")
        return ToolOffer()
    if len(json.dumps(request.tools)) > MOST_TOOL_CHARS:
        raise _wrong("tools", f"the tools have over {MOST_TOOL_CHARS} characters")
    tools = tuple(_tool(each, f"tools[{index}]") for index, each in enumerate(request.tools))
    names = {tool.name for tool in tools}
    if len(names) < len(tools):
        raise _wrong("tools", "two tools have the same name")
    if choice == "none":
        return ToolOffer()
    if request.parallel_tool_calls is False:
        raise unsupported("parallel_tool_calls", "The model decides how many tools it calls at once")
    if choice in (None, "auto", "required"):
        return ToolOffer(tools, ToolChoice(is_required=choice == "required"))
    named = choice.get("function") if isinstance(choice, dict) and choice.get("type") == "function" else None
    name = named.get("name") if isinstance(named, dict) else None
    if name not in names:
        raise _wrong("tool_choice", "expected 'none', 'auto', 'required' or one of the functions in 'tools'")
    return ToolOffer(tools, ToolChoice(is_required=True, name=str(name)))


def _tool(given: Mapping[str, Any], where: str) -> ClientTool:
    function = given.get("function")
    if given.get("type") != "function" or not isinstance(function, dict):
        raise _wrong(where, "only tools of the type 'function' are supported")
    name, described = function.get("name"), function.get("description")
    if not isinstance(name, str) or not _TOOL_NAME.fullmatch(name):
        raise _wrong(f"{where}.function.name", "expected at most 64 letters, digits, _ and -")
    schema = function.get("parameters") or {"type": "object", "properties": {}}
    if not isinstance(schema, dict):
        raise _wrong(f"{where}.function.parameters", "expected an object")
    # Metadata of the schema language itself, which some clients include.
    schema = {key: value for key, value in schema.items() if not str(key).startswith("$")}
    return ClientTool(name, described[:2_000] if isinstance(described, str) and described else name, schema)


def _wrong(param: str, why: str) -> OpenAiHttpError:
    return OpenAiHttpError(f"Invalid value: '{param}'. {why}.", param=param, code="invalid_value")


def _check_options(request: CompletionRequest) -> None:
    form = (request.response_format or {}).get("type", "text")
    refused = (
        ("n", request.n not in (None, 1), "There is one answer to a turn"),
        ("functions", bool(request.functions), OLD_FUNCTIONS),
        ("response_format", form != "text", "Answers are text"),
        ("modalities", set(request.modalities or ("text",)) != {"text"}, "Answers are text"),
        ("logprobs", bool(request.logprobs), "Models report no probabilities here"),
        ("stop", bool(request.stop), "An answer ends by itself"),
    )
    for name, is_refused, why in refused:
        if is_refused:
            raise unsupported(name, why)


def _content(message: CompletionMessage, where: str) -> tuple[str, tuple[PictureFile, ...]]:
    texts: list[str] = []
    pictures: list[PictureFile] = []
    for place, part in enumerate(message.parts):
        at = f"{where}.content[{place}]"
        if isinstance(part, TextPart):
            texts.append(part.text.strip())
        elif isinstance(part, ImagePart) and message.role == "user":
            pictures.append(_picture(part.image_url.url, at))
        else:
            raise OpenAiHttpError(
                f"Invalid content type: '{at}' is of a type that this model does not take for this role.",
                param=at,
                code="invalid_value",
            )
    return "\n".join(text for text in texts if text), tuple(pictures)


def _picture(url: str, at: str) -> PictureFile:
    match = _DATA_URL.match(url)
    if match is None or match.group(1) not in MEDIA_TYPES:
        raise OpenAiHttpError(
            f"Invalid image: '{at}' must be a data URL of {', '.join(MEDIA_TYPES)}. This server fetches no "
            "addresses.",
            param=at,
            code="invalid_image_url",
        )
    return PictureFile(url[match.end() :], match.group(1))


@dataclass(frozen=True, slots=True)
class Completion:
    """Answer that is being sent, for the objects of its events.

    Attributes:
        id: of the answer.
        created_s: Unix time.
        model: as the client named it.
        facts: our own facts about it, as the field ``parley``.
    """

    id: str
    created_s: int
    model: str
    facts: Mapping[str, object]

    def chunk(self, delta: Mapping[str, object], finish: str | None = None) -> dict[str, object]:
        """Return an event of a streamed answer."""
        choice = {"index": 0, "delta": delta, "logprobs": None, "finish_reason": finish}
        return {**self._head("chat.completion.chunk"), "choices": [choice]}

    def usage_chunk(self, usage: object) -> dict[str, object]:
        """Return the event with the tokens of a streamed answer."""
        return {**self._head("chat.completion.chunk"), "choices": [], "usage": usage}

    def call_chunks(self, calls: Sequence[CompletionCall]) -> list[dict[str, object]]:
        """Return the events of calls in a streamed answer: of each its name, then its arguments in pieces."""
        chunks: list[dict[str, object]] = []
        for index, call in enumerate(calls):
            begun = {"index": index, **_shown_call(replace(call, arguments=""))}
            chunks.append(self.chunk({"tool_calls": [begun]}))
            for at in range(0, len(call.arguments), ARGUMENT_PIECE_CHARS):
                piece = {"arguments": call.arguments[at : at + ARGUMENT_PIECE_CHARS]}
                chunks.append(self.chunk({"tool_calls": [{"index": index, "function": piece}]}))
        return chunks

    def whole(self, answer: "CompletionAnswer") -> dict[str, object]:
        """Return a whole answer."""
        content = None if answer.calls and not answer.text else answer.text
        message: dict[str, object] = {"role": "assistant", "content": content, "refusal": None}
        if answer.calls:
            message["tool_calls"] = [_shown_call(call) for call in answer.calls]
        choice = {"index": 0, "message": message, "logprobs": None, "finish_reason": answer.finish}
        head = self._head("chat.completion")
        head["parley"] = {**self.facts, **answer.facts}
        return {**head, "choices": [choice], "usage": answer.usage}

    def _head(self, kind: str) -> dict[str, object]:
        return {
            "id": self.id,
            "object": kind,
            "created": self.created_s,
            "model": self.model,
            "parley": self.facts,
        }


@dataclass(frozen=True, slots=True)
class CompletionAnswer:
    """Answer that is complete.

    Attributes:
        text: its words.
        calls: of tools that the client is to run.
        usage: tokens, as OpenAI counts them; None: unknown.
        facts: our own facts about it.
    """

    text: str
    calls: tuple[CompletionCall, ...]
    usage: Mapping[str, object] | None
    facts: Mapping[str, object]

    @property
    def finish(self) -> str:
        """``finish_reason``."""
        return "tool_calls" if self.calls else "stop"


def _shown_call(call: CompletionCall) -> dict[str, object]:
    function = {"name": call.name, "arguments": call.arguments}
    return {"id": call.call_id, "type": "function", "function": function}
