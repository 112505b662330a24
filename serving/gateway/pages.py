"""Browser pages, and the health and status of the server."""

import asyncio
import re
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from fastapi import APIRouter, FastAPI, Request
from fastapi.responses import FileResponse
from fastapi.routing import APIRoute, APIWebSocketRoute
from fastapi.staticfiles import StaticFiles
from starlette.routing import BaseRoute

from parley.core.errors import ConfigError
from parley.serving.gateway.admin.pool_view import PoolView
from parley.serving.gateway.auth.client_auth import Access
from parley.serving.gateway.calls import CallTasks
from parley.serving.pool.pool import Pool


def web_dir() -> Path:
    """Return the folder of the browser pages: ``web/`` of the checkout.

    Raises:
        ConfigError: it is missing.
    """
    folder = Path(__file__).parents[2] / "web"
    if not (folder / "pages" / "index.html").is_file():
        raise ConfigError(f"the browser page is missing: there is no pages/index.html in {folder}")
    return folder


def serve_page(app: FastAPI, access: Access) -> None:
    """Add the page at the root, and the files that it names.

    A page sets a cookie for a browser that has none and needs no other credential, so that the browser owns
    the sessions that it begins.

    Raises:
        ConfigError: the files are missing.
    """
    web = web_dir()

    def owned(name: str, request: Request) -> FileResponse:
        response = FileResponse(web / "pages" / name)
        access.set_cookie(request, response)
        return response

    @app.get("/")
    @app.get("/duplex")
    async def page(request: Request) -> FileResponse:
        return owned("index.html", request)

    @app.get("/omni")
    async def omni_page(request: Request) -> FileResponse:
        return owned("omni.html", request)

    @app.get("/s/{session_id}")
    async def session_page(request: Request) -> FileResponse:
        return owned("session.html", request)

    @app.get("/admin")
    async def admin_page() -> FileResponse:
        # Public: the page holds no data, and its requests need the operator's token.
        return FileResponse(web / "pages" / "admin.html")

    # On the application itself: FastAPI 0.115 leaves a router's mounts out when it includes it.
    app.mount("/shared", StaticFiles(directory=web / "shared"), name="shared")


def health_router(
    calls: CallTasks,
    *,
    max_calls: int,
    describe: Callable[[], dict[str, object]],
    served: Callable[[], dict[str, object]],
    pool: Pool | None = None,
) -> APIRouter:
    """Return the routes ``/health``, for supervisors and balancers, and ``/status``, for people.

    Args:
        calls: conversations of this process.
        max_calls: maximum number of calls.
        describe: returns facts for ``/status`` (engines, versions).
        served: returns the ways to reach the server (``ways_in``), for ``/status``.
        pool: of workers, to be counted in ``/status``.
    """
    router = APIRouter()

    @router.get("/health")
    async def health() -> dict[str, object]:
        return {
            "status": "ok",
            "calls": calls.active,
            "max_calls": max_calls,
            "timestamp": datetime.now(UTC).isoformat(),
        }

    @router.get("/status")
    async def status() -> dict[str, object]:
        return {
            "status": "ready",
            **served(),
            "calls": calls.active,
            "tasks": len(asyncio.all_tasks()),
            "threads": threads_by_name(),
            **PoolView(pool).counts().model_dump(mode="json"),
            **describe(),
        }

    return router


def ways_in(app: FastAPI, served: Callable[[Iterable[str]], Sequence[str]]) -> dict[str, object]:
    """Return how this server can be reached: transports by name, and the paths of its sockets.

    Args:
        app: with all its routes.
        served: returns the names of the transports that an application with some paths serves.
    """
    paths = list(_paths(app.routes))
    return {
        "transports": list(served(path for path, _ in paths)),
        "sockets": sorted({path for path, is_socket in paths if is_socket}),
    }


def _paths(routes: Iterable[BaseRoute]) -> Iterator[tuple[str, bool]]:
    """Yield the path of each route, with whether it is a socket's."""
    for route in routes:
        if isinstance(route, APIRoute | APIWebSocketRoute):
            yield route.path, isinstance(route, APIWebSocketRoute)
        # Later releases of FastAPI keep an included router whole instead of copying its routes.
        yield from _paths(getattr(getattr(route, "original_router", None), "routes", ()))


def threads_by_name() -> dict[str, int]:
    """Return the number of Python threads of each name, without the numbers that pools append.

    A pool starts its threads as they are needed and keeps them. A count that grows to the size of its pool is
    not a leak.
    """
    return dict(Counter(re.sub(r"[_-]\d+( .*)?$", "", thread.name) for thread in threading.enumerate()))
