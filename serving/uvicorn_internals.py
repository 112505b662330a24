"""Access to private members of uvicorn, for the servers.

No other module in this folder uses a private member of a library, which ``scripts/check_foreign_members.py``
checks. ``tests/contracts/test_foreign_members.py`` lists every member that is used here and fails with its
name when a version of uvicorn has lost it.
"""

from typing import cast

from starlette.types import ASGIApp
from uvicorn._types import ASGI3Application
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle


def disconnect(cycle: RequestResponseCycle) -> None:
    """Notify a request that its client has left.

    On a lost connection, uvicorn does so for the last request only.
    """
    if not cycle.response_complete:
        cycle.disconnected = True
        cycle.message_event.set()


class RequestStarts(HttpToolsProtocol):
    """Mixin for the start of a request: uvicorn has no public method between its head and its task."""

    def start_request(self, cycle: RequestResponseCycle, app: ASGIApp) -> None:
        """Start the task that answers a request."""
        super()._start_asgi_task(cycle, cast(ASGI3Application, app))

    def _start_asgi_task(self, cycle: RequestResponseCycle, app: ASGI3Application) -> None:
        self.start_request(cycle, cast(ASGIApp, app))
