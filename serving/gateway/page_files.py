"""Files of the browser pages, held in memory as they are sent.

Every file is read once, when the server starts: a page never meets scripts of another release, also while
the files are replaced on the disk. It is compressed then as well: the page of a call is 320 kB of text in 50
files, and 97 kB of gzip. A page names all modules that its own one imports, so that a browser requests them
at once. Otherwise it would learn of each from the one that imports it, one round trip after the other. What
several pages have in common is a part, which a page names in a comment (``<!-- part: shortcuts.html -->``).
"""

import gzip
import hashlib
import mimetypes
import re
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from parley.core.errors import ConfigError

# Beginning of the address of every file that is no page.
SHARED = "/shared/"
# Types by the end of a name: those of the machine's own table differ between systems.
MEDIA_TYPES = {
    ".css": "text/css; charset=utf-8",
    ".html": "text/html; charset=utf-8",
    ".js": "text/javascript; charset=utf-8",
    ".svg": "image/svg+xml",
}
# A static import at the beginning of a line; the imports of types are in comments.
IMPORT = re.compile(r'^(?:import|export)\b[^;"]*?\bfrom\s*"\./([^"]+)"|^import\s*"\./([^"]+)"', re.MULTILINE)
PART = re.compile(r"^ *<!-- part: ([\w.-]+) -->\n", re.MULTILINE)
ENTRY = re.compile(rf'<script type="module" src="{SHARED}([^"]+)">')


def web_dir() -> Path:
    """Return the folder of the browser pages: ``web/`` of the checkout.

    Raises:
        ConfigError: it is missing.
    """
    folder = Path(__file__).parents[2] / "web"
    if not (folder / "pages" / "index.html").is_file():
        raise ConfigError(f"the browser page is missing: there is no pages/index.html in {folder}")
    return folder


@dataclass(frozen=True, slots=True)
class PageFile:
    """A file as it is sent.

    Attributes:
        body: of the file.
        packed: the same, compressed with gzip; None where that is no shorter.
        media_type: of the body.
        digest: of the body, which is its name in caches.
    """

    body: bytes
    packed: bytes | None
    media_type: str
    digest: str

    @classmethod
    def of(cls, body: bytes, name: str) -> "PageFile":
        """Return the file of a body with a name.

        Args:
            body: of the file.
            name: whose end gives the type.
        """
        media_type = MEDIA_TYPES.get(Path(name).suffix) or mimetypes.guess_type(name)[0]
        # Without a time, so that all servers of a deployment have the same bytes for a digest.
        packed = gzip.compress(body, mtime=0)
        return cls(
            body,
            packed if len(packed) < len(body) else None,
            media_type or "application/octet-stream",
            hashlib.sha256(body).hexdigest()[:32],
        )

    def response(self, headers: Headers, *, status: int = 200) -> Response:
        """Return the answer to a request: 304 where the client has the file.

        Args:
            headers: of the request.
            status: of the answer otherwise; the whole file is sent with any but 200.
        """
        packed = self.packed if takes_gzip(headers.get("accept-encoding", "")) else None
        # An entity tag names one sequence of bytes (RFC 9110, 8.8.3), so the compressed one has its own.
        tag = f'"{self.digest}"' if packed is None else f'"{self.digest}-gzip"'
        sent = {"etag": tag}
        if self.packed is not None:
            sent["vary"] = "Accept-Encoding"
        if status == 200 and _names(headers.get("if-none-match", ""), tag):
            return Response(status_code=304, headers=sent)
        if packed is not None:
            sent["content-encoding"] = "gzip"
        body = self.body if packed is None else packed
        return Response(body, status_code=status, headers=sent, media_type=self.media_type)


class SharedFiles:
    """ASGI application that serves the scripts, styles and images of the pages.

    Args:
        files: by the address below ``SHARED``.
    """

    def __init__(self, files: dict[str, PageFile]) -> None:
        self._files = files

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            raise HTTPException(404)
        if scope["method"] not in ("GET", "HEAD"):
            raise HTTPException(405, headers={"Allow": "GET, HEAD"})
        root = scope.get("root_path", "")
        file = self._files.get(scope["path"].removeprefix(root).removeprefix("/"))
        if file is None:
            raise HTTPException(404)
        # The server itself leaves the body of an answer to HEAD out.
        await file.response(Headers(scope=scope))(scope, receive, send)


class PageFiles:
    """Pages, and the files that they name.

    Attributes:
        shared: application for the files.

    Args:
        folder: with ``pages/``, ``parts/`` and ``shared/``.

    Raises:
        ConfigError: a module that a page imports is missing, or a part of it.
    """

    def __init__(self, folder: Path) -> None:
        shared = folder / "shared"
        bodies = {
            path.relative_to(shared).as_posix(): path.read_bytes()
            for path in sorted(shared.rglob("*"))
            if path.is_file()
        }
        self.shared = SharedFiles({name: PageFile.of(body, name) for name, body in bodies.items()})
        graph = {
            name: _imports(body.decode("utf-8")) for name, body in bodies.items() if name.endswith(".js")
        }
        parts = {path.name: path.read_text("utf-8") for path in sorted((folder / "parts").glob("*.html"))}
        self._pages = {
            path.name: PageFile.of(
                with_preloads(with_parts(path.read_text("utf-8"), parts), graph).encode(), path.name
            )
            for path in sorted((folder / "pages").glob("*.html"))
        }

    def page(self, name: str, request: Request, *, status: int = 200) -> Response:
        """Return a page.

        Args:
            name: of its file.
            request: for it.
            status: of the answer.
        """
        return self._pages[name].response(request.headers, status=status)


@cache
def page_files() -> PageFiles:
    """Return the pages of this installation, read once in a process.

    Raises:
        ConfigError: files are missing.
    """
    return PageFiles(web_dir())


def with_parts(page: str, parts: Mapping[str, str]) -> str:
    """Return a page with the parts that it names.

    Args:
        page: HTML.
        parts: HTML of each part, by name.

    Raises:
        ConfigError: one of them is missing.
    """

    def part(found: re.Match[str]) -> str:
        name = found.group(1)
        if name not in parts:
            raise ConfigError(f"the browser pages are incomplete: there is no parts/{name}")
        return parts[name]

    return PART.sub(part, page)


def with_preloads(page: str, graph: dict[str, list[str]]) -> str:
    """Return a page that names all modules that its own one imports, nearest first.

    Args:
        page: HTML.
        graph: modules that each module imports, by name.

    Raises:
        ConfigError: one of them is missing.
    """
    found = ENTRY.search(page)
    if found is None:
        return page
    reached = [found.group(1)]
    for name in reached:
        if name not in graph:
            raise ConfigError(f"the browser pages are incomplete: there is no shared/{name}")
        reached += [each for each in graph[name] if each not in reached]
    links = "".join(f'<link rel="modulepreload" href="{SHARED}{name}">\n  ' for name in reached[1:])
    return f"{page[: found.start()]}{links}{page[found.start() :]}"


def takes_gzip(accepted: str) -> bool:
    """Return whether a client takes gzip (RFC 9110, 12.5.3).

    Args:
        accepted: its ``Accept-Encoding``; empty when it sent none.
    """
    weights: dict[str, bool] = {}
    for each in accepted.lower().split(","):
        name, _, parameters = each.partition(";")
        weight = parameters.strip().removeprefix("q=").strip()
        weights[name.strip()] = weight.strip("0.") != "" if weight else True
    return weights.get("gzip", weights.get("*", False))


def _imports(module: str) -> list[str]:
    """Return the names of the modules that a module imports, each once."""
    return list(dict.fromkeys(first or second for first, second in IMPORT.findall(module)))


def _names(given: str, tag: str) -> bool:
    """Return whether an ``If-None-Match`` names the bytes that would be sent (RFC 9110, 13.1.2).

    A cache that has the others only would be left without these.
    """
    return any(each.strip().removeprefix("W/") in ("*", tag) for each in given.split(","))
