"""OpenAI's realtime protocol (GA event names): a voice conversation by events over one WebSocket.

What is kept of it: the session and its updates; audio in, with the server's turn detection or with commits of
the client's; typed and recorded messages, pictures; responses with their items, parts and deltas in the order
that clients rely on; cancelling; truncating at the heard millisecond; tools that the client runs; audio as
PCM of 24 kHz or G.711. What is refused is refused by name (``docs/openai_realtime.md``).

    shapes    fields of events, read and written
    state     one conversation: its settings, its items, the response that is on
    reading   what the client says, as actions
    telling   what happens, as the client's events

Source: the API reference and the events of the official client (openai-python, ``types/realtime``).
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from protocols.openai_realtime.reading import Reader
from protocols.openai_realtime.shapes import Faults, error_event
from protocols.openai_realtime.state import State
from protocols.openai_realtime.telling import Teller
from protocols.surface import SHUTDOWN, STOPPING, Action, Format, Happening, Message, Refusal

__all__ = ["OpenAIRealtime"]


def _no_faults(_schema: Mapping[str, Any]) -> Sequence[str]:
    return ()


class OpenAIRealtime:
    """See ``Dialect``.

    What a message changes here is changed when what it wants was taken: ``read`` is a generator, and an
    action that is refused ends it.

    Args:
        model: that the client asked for.
        schema_faults: what is wrong with the schema of a tool's arguments.
    """

    name = "openai"
    # The protocol has no event for it: its clients take a 503 with Retry-After.
    queues = False
    wants_units = False
    greets = False
    prompts = False
    hums = False

    def __init__(
        self, model: str, *, schema_faults: Callable[[Mapping[str, Any]], Sequence[str]] = _no_faults
    ) -> None:
        self._state = State(model)
        faults: Faults = schema_faults
        self._reader = Reader(self._state, faults)
        self._teller = Teller(self._state)

    @property
    def input_format(self) -> Format:
        """See ``Dialect``."""
        return self._state.settings.input_format

    @property
    def output_format(self) -> Format:
        """See ``Dialect``."""
        return self._state.settings.output_format

    def read(self, text: str, at_ms: int) -> Iterator[Action]:
        """See ``Dialect``."""
        return self._reader.read(text)

    def refused(self, refusal: Refusal) -> Sequence[Message]:
        """See ``Dialect``."""
        return [error_event(str(refusal), refusal.code, refusal.param, event_id=self._reader.event_id)]

    def tell(self, happening: Happening, at_ms: int) -> Sequence[Message]:
        """See ``Dialect``."""
        return self._teller.tell(happening)

    def permit(self, *, instructions: bool) -> None:
        """See ``Dialect``."""
        self._state.permit(instructions=instructions)

    def goodbye(self, reason: str) -> tuple[int, str]:
        """See ``Dialect``."""
        if reason == SHUTDOWN:
            return STOPPING
        return (1011, reason) if reason == "error" else (1000, reason)
