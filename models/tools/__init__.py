"""Tools of the model: named actions with a JSON schema, behind one interface.

Asynchronous, because a tool waits for a socket. A tool has no access to sessions: ``processors.dialogue``
records its call, and decides whether it may run again and how its result is used.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Protocol

from pydantic import Field

from parley.core.client_rules import ToolClients
from parley.core.errors import EngineError
from parley.core.registry import Registry, Row
from parley.core.strict_model import StrictModel

# Longest result, as JSON in ASCII. More than a model can use, and far below the limit of the store for one
# event.
MAX_RESULT_BYTES = 262_144
# Note in place of a result that the model cannot be given.
NOT_SHOWN = "the call was carried out; its answer is too long, or is not JSON, and is not shown"


class EffectUnknownError(EngineError):
    """Raised when it is unknown whether a tool took effect.

    Any other EngineError of a tool means that it did not.
    """


class ToolSettings(StrictModel):
    """Base of the settings of every tool.

    Attributes:
        name: name that the model uses.
        description: for the model: the effect of the tool, and when to use it.
        idempotent: two runs with the same key have the effect of one.
        timeout_s: longest run.
        clients: clients for which the model may call it: ``all`` of them, those with a key or token
            (``keys``), or the ``operator`` only. A caller by phone has no key.
    """

    name: str = Field(pattern=r"^[A-Za-z][A-Za-z0-9_-]{0,63}$")
    description: str = Field(min_length=1, max_length=2_000)
    idempotent: bool = False
    timeout_s: float = Field(default=8.0, ge=0.1, le=120)
    clients: ToolClients = ToolClients.ALL


class Tool(Protocol):
    """Tool that all calls of a process share.

    Attributes:
        parameters: JSON schema of the arguments, an object; see ``models.tools.arguments``.
        name, description, idempotent, timeout_s: as in ``ToolSettings``.
    """

    @property
    def name(self) -> str: ...

    @property
    def description(self) -> str: ...

    @property
    def parameters(self) -> Mapping[str, Any]: ...

    @property
    def idempotent(self) -> bool: ...

    @property
    def timeout_s(self) -> float: ...

    async def run(self, arguments: Mapping[str, Any], *, key: str) -> Mapping[str, Any]:
        """Take effect and return the result as a JSON object.

        Args:
            arguments: valid for ``parameters``.
            key: the same for every run of the same call, and for no other call.

        Raises:
            EffectUnknownError: it is unknown whether the tool took effect.
            EngineError: it did not. The text is a reason that the model can give to the caller.
        """
        ...


@dataclass(frozen=True, slots=True)
class HandedCall:
    """Call that was handed to the client.

    Attributes:
        call_id: id under which the client returns the result; unguessable.
        name: of the tool.
        arguments: valid for its schema.
    """

    call_id: str
    name: str
    arguments: Mapping[str, Any]


class HandedOverTool:
    """Tool that this server does not run: its call is committed, and handed to the client.

    The client runs it, and returns the result in a later request, which may come to another process.

    Args:
        name: under which the model calls it.
        description: for the model.
        parameters: JSON schema of the arguments.
        hand_over: takes a call once it is durable.
    """

    idempotent = False
    timeout_s = 8.0

    def __init__(
        self,
        name: str,
        description: str,
        parameters: Mapping[str, Any],
        hand_over: Callable[[HandedCall], None],
    ) -> None:
        self.name = name
        self.description = description
        self.parameters = parameters
        self.hand_over = hand_over

    async def run(self, arguments: Mapping[str, Any], *, key: str) -> Mapping[str, Any]:
        """Raise EffectUnknownError: nothing runs here (``Tool``)."""
        raise EffectUnknownError("its client has not returned a result", engine=self.name)


TOOLS: Registry[Tool] = Registry(
    "tool",
    {
        "webhook": Row(
            "parley.models.tools.webhook:WebhookTool", "POSTs the arguments to an address that you choose"
        ),
        "mcp": Row(
            "parley.models.tools.mcp:McpTool", "a tool of an MCP server, a program or an address", extra="mcp"
        ),
    },
)
