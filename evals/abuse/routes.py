"""Every route and socket of the gateway, read from the application itself: a new one cannot be forgotten.

The application is built as ``bot.py`` builds it, with every surface switched on and no engine: its routes are
looked at and never called.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

from fastapi import FastAPI
from starlette.routing import Mount, Route, WebSocketRoute

from pipelines.modes import CASCADE, DUPLEX
from serving.gateway.app import create_app
from serving.gateway.carriers import CARRIERS
from serving.gateway.operations import Operations, OperationsSettings
from serving.gateway.phone_settings import PhoneRoutesSettings
from serving.gateway.settings import ServerTuning

Kind = Literal["http", "socket"]
# Webhooks and streams of telephone networks, and what the operator does with calls of Twilio's.
TELEPHONE = tuple(f"/{name}/" for name in CARRIERS)


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """Route or socket of the server.

    Attributes:
        path: with its parameters in braces.
        method: of HTTP; empty for a socket.
        kind: what it is.
    """

    path: str
    method: str = ""
    kind: Kind = "http"

    @property
    def name(self) -> str:
        """As a table names it."""
        return f"{self.method or 'WS'} {self.path}"


def entries() -> tuple[Entry, ...]:
    """Every route and socket, by path."""
    return tuple(sorted(set(_walk(application().routes))))


def sockets() -> tuple[Entry, ...]:
    """The sockets alone."""
    return tuple(entry for entry in entries() if entry.kind == "socket")


def application() -> FastAPI:
    """The application with every surface; what its routes would call is not there."""
    absent: Any = SimpleNamespace(store=None, codes=None)
    return create_app(
        ServerTuning(),
        run_call=absent,
        describe=dict,
        open_door=lambda _on_call: absent,
        conversations=absent,
        type_turn=absent,
        modes=(CASCADE, DUPLEX),
        default_mode=CASCADE,
        operations=Operations.open(OperationsSettings(), pool=None),
        phone=PhoneRoutesSettings(signatures=False, carriers=CARRIERS.names()),
        book=absent,
    )


def _walk(routes: Sequence[Any]) -> Iterator[Entry]:
    for route in routes:
        if isinstance(route, WebSocketRoute):
            yield Entry(route.path, kind="socket")
        elif isinstance(route, Route):
            # HEAD is what Starlette adds to GET.
            for method in (route.methods or set()) - {"HEAD"}:
                yield Entry(route.path, method)
        elif isinstance(route, Mount):
            yield Entry(f"{route.path}/{{file}}", "GET")
        else:
            # A router that FastAPI includes when it is first asked.
            yield from _walk(route.original_router.routes)
