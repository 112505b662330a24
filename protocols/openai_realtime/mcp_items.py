"""Items of a conversation that are about a client's MCP servers and are not over yet."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parley.protocols.openai_realtime.state import Item


class OpenMcpItems:
    """Listings and calls in progress; the call bounds how many there are.

    Attributes:
        listings: by the id of the listing.
        calls: by the id of the call.
        approvals: ids of requests for approval that wait for the client.
    """

    def __init__(self) -> None:
        self.listings: dict[str, Item] = {}
        self.calls: dict[str, Item] = {}
        self.approvals: set[str] = set()
        self._unanswered: set[str] = set()

    def interrupt(self) -> None:
        """Record that no answer to the present calls comes on its own: the caller has interrupted them."""
        self._unanswered.update(self.calls)

    def end_call(self, call_id: str) -> "tuple[Item, bool] | None":
        """Forget a call; return its item, and whether it is answered on its own. None: it is not known."""
        item = self.calls.pop(call_id, None)
        if item is None:
            return None
        is_answered = call_id not in self._unanswered
        self._unanswered.discard(call_id)
        self.approvals.discard(str(item.body["approval_request_id"]))
        return item, is_answered
