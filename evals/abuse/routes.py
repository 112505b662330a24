"""All routes and sockets of the gateway, read from the application itself, so that a new one is included.

The application is built as in ``bot.py``, with every surface switched on and no engine: its routes are listed
and never called.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any, Literal

from fastapi import FastAPI
from starlette.routing import Mount, Route, WebSocketRoute

from parley.pipelines.modes import CASCADE, DUPLEX
from parley.recording.settings import RecordingSettings
from parley.serving.gateway.admin.operations import Operations, OperationsSettings
from parley.serving.gateway.app import create_app
from parley.serving.gateway.phone.caller_settings import RelaySettings
from parley.serving.gateway.phone.carriers import CARRIERS
from parley.serving.gateway.phone.settings import PhoneRoutesSettings
from parley.serving.gateway.settings import ServerTuning
from parley.session_store.followers import SessionDeletions

Kind = Literal["http", "socket"]
# Webhooks and streams of telephone networks, and the operator's routes for calls of Twilio's.
TELEPHONE = (*(f"/{name}/" for name in CARRIERS), "/twilio_relay/")


@dataclass(frozen=True, slots=True, order=True)
class Entry:
    """Route or socket of the server.

    Attributes:
        path: with its parameters in braces.
        method: of HTTP. Empty for a socket.
        kind: route or socket.
    """

    path: str
    method: str = ""
    kind: Kind = "http"

    @property
    def name(self) -> str:
        """Name in a table."""
        return f"{self.method or 'WS'} {self.path}"


def entries() -> tuple[Entry, ...]:
    """Return every route and socket, by path."""
    return tuple(sorted(set(_walk(application().routes))))


def sockets() -> tuple[Entry, ...]:
    """Return the sockets alone."""
    return tuple(entry for entry in entries() if entry.kind == "socket")


def application() -> FastAPI:
    """Build the application with every surface; the objects that its routes would call are missing."""
    # Deletions are followed from the start.
    store = SimpleNamespace(deletions=SessionDeletions())
    absent: Any = SimpleNamespace(
        store=store,
        codes=None,
        folder=Path("recordings"),
        bucket=None,
        storage=None,
        settings=RecordingSettings(),
    )
    return create_app(
        ServerTuning(),
        run_call=absent,
        describe=dict,
        open_door=lambda _on_call: absent,
        conversations=absent,
        type_turn=absent,
        speak=absent,
        transcribe=absent,
        annotations=absent,
        recordings=absent,
        replays=absent,
        modes=(CASCADE, DUPLEX),
        default_mode=CASCADE,
        operations=Operations.open(OperationsSettings(), pool=None),
        phone=PhoneRoutesSettings(signatures=False, carriers=CARRIERS.names(), relay=RelaySettings()),
        book=absent,
    )


def _walk(routes: Sequence[Any]) -> Iterator[Entry]:
    for route in routes:
        if isinstance(route, WebSocketRoute):
            yield Entry(route.path, kind="socket")
        elif isinstance(route, Route):
            methods = route.methods or set()
            # Starlette adds HEAD to GET; a route of its own has it alone.
            for method in methods - {"HEAD"} if "GET" in methods else methods:
                yield Entry(route.path, method)
        elif isinstance(route, Mount):
            yield Entry(f"{route.path}/{{file}}", "GET")
        else:
            # FastAPI includes this router at the first request.
            yield from _walk(route.original_router.routes)
