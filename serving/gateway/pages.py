"""Browser pages and the files that they name."""

from pathlib import Path

from fastapi import FastAPI, Request
from fastapi.responses import FileResponse, RedirectResponse
from fastapi.staticfiles import StaticFiles

from parley.core.errors import ConfigError
from parley.serving.gateway.auth.client_auth import Access


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
        """Return the page of voice calls."""
        return owned("index.html", request)

    @app.get("/omni")
    async def omni_page(request: Request) -> FileResponse:
        """Return the page that shows a speech model unit by unit."""
        return owned("omni.html", request)

    @app.get("/s/{session_id}")
    async def session_page(request: Request) -> FileResponse:
        """Return the text page of a session."""
        return owned("session.html", request)

    @app.get("/chat")
    async def chat_page() -> RedirectResponse:
        """Redirect to the text page of a new session."""
        return RedirectResponse("/s/new")

    @app.get("/sessions")
    async def sessions_page() -> FileResponse:
        """Return the page that lists sessions, which holds no data."""
        return FileResponse(web / "pages" / "sessions.html")

    @app.get("/admin")
    async def admin_page() -> FileResponse:
        """Return the page of the operator."""
        # Public: the page holds no data, and its requests need the operator's token.
        return FileResponse(web / "pages" / "admin.html")

    @app.get("/desk")
    async def desk_page() -> FileResponse:
        """Return the page of the desk, which holds no data either."""
        return FileResponse(web / "pages" / "desk.html")

    # On the application itself: FastAPI 0.115 leaves a router's mounts out when it includes it.
    app.mount("/shared", StaticFiles(directory=web / "shared"), name="shared")
