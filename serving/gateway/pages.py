"""Browser pages and the files that they name."""

from fastapi import FastAPI, Request
from fastapi.responses import RedirectResponse, Response

from parley.serving.gateway.auth.client_auth import Access
from parley.serving.gateway.page_files import PageFiles


def serve_page(app: FastAPI, access: Access, files: PageFiles) -> None:
    """Add the page at the root, and the files that it names.

    A page sets a cookie for a browser that has none and needs no other credential, so that the browser owns
    the sessions that it begins.

    Args:
        app: of the gateway.
        access: of clients.
        files: of the pages.
    """

    def owned(name: str, request: Request) -> Response:
        response = files.page(name, request)
        access.set_cookie(request, response)
        return response

    @app.get("/")
    @app.get("/duplex")
    async def page(request: Request) -> Response:
        """Return the page of voice calls."""
        return owned("index.html", request)

    @app.get("/omni")
    async def omni_page(request: Request) -> Response:
        """Return the page that shows a speech model unit by unit."""
        return owned("omni.html", request)

    @app.get("/s/{session_id}")
    async def session_page(request: Request) -> Response:
        """Return the text page of a session."""
        return owned("session.html", request)

    @app.get("/chat")
    async def chat_page() -> RedirectResponse:
        """Redirect to the text page of a new session."""
        return RedirectResponse("/s/new")

    @app.get("/sessions")
    async def sessions_page(request: Request) -> Response:
        """Return the page that lists sessions, which holds no data."""
        return files.page("sessions.html", request)

    @app.get("/admin")
    async def admin_page(request: Request) -> Response:
        """Return the page of the operator."""
        # Public: the page holds no data, and its requests need the operator's token.
        return files.page("admin.html", request)

    @app.get("/desk")
    async def desk_page(request: Request) -> Response:
        """Return the page of the desk, which holds no data either."""
        return files.page("desk.html", request)

    # On the application itself: FastAPI 0.115 leaves a router's mounts out when it includes it.
    app.mount("/shared", files.shared, name="shared")
