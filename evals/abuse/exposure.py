"""Exposure table: the credentials that each route and socket accepts, through each proxy.

The table results from real requests: to every route and socket of a running server, through each kind of
proxy, with each credential. ``docs/reference/exposure.md`` holds the required table; ``python -m
evals.abuse --table`` writes it anew, and a test compares the two. A route that is added, or opened, therefore
appears as a change of that page.

An answer is a refusal when its status is 401, 403 or 429; everything else (also 404 and 409) has let the
client in. Sessions in paths belong to the application, not to one of its users. Wrong tokens are sent last,
because a server may delay its answers to their address.
"""

import asyncio
import re
import tempfile
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import aiohttp

from parley.core.errors import PeerError
from parley.evals.abuse.attacks.identity import HOSTS
from parley.evals.abuse.proxies import Proxy, behind
from parley.evals.abuse.routes import Entry, entries
from parley.evals.abuse.samples import body_of, path_of
from parley.evals.abuse.settings import setting
from parley.evals.abuse.target import Target, serving
from parley.evals.harness.launcher import ROOT
from parley.evals.harness.progress import Progress
from parley.evals.harness.report import markdown

PAGE = ROOT / "docs" / "reference" / "exposure.md"
BEGINS, ENDS = "<!-- table: begins -->", "<!-- table: ends -->"
NONE, WRONG, USER, OTHER, KEY, OPERATOR = "none", "wrong", "user", "another tenant", "key", "operator"
REFUSED = frozenset({401, 403, 429})
# Answers to wrong tokens come late: more of them are requested at a time.
AT_ONCE, WRONG_AT_ONCE = 6, 60
REQUEST_S = 30.0
WRONG_TOKEN = "wrong-token-of-a-stranger-who-guesses"


@dataclass(frozen=True, slots=True)
class Column:
    """A deployment and the credential of the requests to it.

    Attributes:
        setting: of the server.
        credential: sent with the requests.
    """

    setting: str
    credential: str

    @property
    def title(self) -> str:
        """Title in the table."""
        return f"{TITLES[self.setting]}: {self.credential}"


TITLES = {"table": "keys", "table-open": "open"}
COLUMNS = (
    *(Column("table", credential) for credential in (NONE, WRONG, USER, OTHER, KEY, OPERATOR)),
    *(Column("table-open", credential) for credential in (NONE, WRONG, OPERATOR)),
)
# Proxies through which an entry lets in a client with the credential.
Cells = Mapping[tuple[str, Column], frozenset[Proxy]]


async def generated(
    proxies: Sequence[Proxy] = tuple(Proxy), columns: Sequence[Column] = COLUMNS
) -> dict[tuple[str, Column], frozenset[Proxy]]:
    """Make all requests.

    Raises:
        PeerError: a server does not start, or a request is not answered at all.
    """
    found: dict[tuple[str, Column], set[Proxy]] = {}
    progress = Progress("all routes", len(columns) * len(proxies))
    for name in dict.fromkeys(column.setting for column in columns):
        asked = sorted(
            (column for column in columns if column.setting == name),
            key=lambda column: column.credential == WRONG,
        )
        async with _server(name, proxies) as (target, urls), _client(target.url) as own:
            # Made before wrong tokens are sent, which lock out right ones on a server that has this defect.
            spare = await _session(own, target)
            for column in asked:
                for proxy, url in urls.items():
                    progress.step(f"{column.title} by way of {proxy}")
                    for entry, is_in in await _column(target, url, proxy, column.credential, spare):
                        cell = found.setdefault((entry.name, column), set())
                        cell |= {proxy} if is_in else set()
    return {place: frozenset(proxies) for place, proxies in found.items()}


@asynccontextmanager
async def _server(name: str, proxies: Sequence[Proxy]) -> AsyncIterator[tuple[Target, dict[Proxy, str]]]:
    async with AsyncExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        given = await stack.enter_async_context(setting(name))
        target = await stack.enter_async_context(serving(folder, given))
        urls = {
            proxy: await stack.enter_async_context(behind(proxy, target.port, folder)) for proxy in proxies
        }
        yield target, urls


async def _column(
    target: Target, url: str, proxy: Proxy, credential: str, spare: str
) -> list[tuple[Entry, bool]]:
    room = asyncio.Semaphore(WRONG_AT_ONCE if credential == WRONG else AT_ONCE)
    async with (
        _client(target.url) as own,
        _client(url, host=HOSTS[proxy]) as client,
    ):

        async def ask(entry: Entry) -> tuple[Entry, bool]:
            async with room:
                shown = await _shown(own, target, credential)
                session = spare
                if "{session_id}" in entry.path and credential != WRONG:
                    # The request may delete it.
                    session = await _session(own, target)
                try:
                    status = await _status(client, entry, shown, session)
                except (aiohttp.ClientError, TimeoutError, OSError) as error:
                    raise PeerError(f"{entry.name} by way of {proxy} as {credential}: {error!r}") from error
                return entry, status not in REFUSED

        return list(await asyncio.gather(*map(ask, entries())))


def _client(url: str, *, host: str = "") -> aiohttp.ClientSession:
    return aiohttp.ClientSession(
        url,
        connector=aiohttp.TCPConnector(force_close=True, ssl=False),
        timeout=aiohttp.ClientTimeout(total=REQUEST_S),
        headers={"Host": host} if host else {},
    )


async def _shown(client: aiohttp.ClientSession, target: Target, credential: str) -> str:
    match credential:
        case "wrong":
            return WRONG_TOKEN
        case "user":
            bearer = {"Authorization": f"Bearer {target.keys[0]}"}
            async with client.post("/api/token", headers=bearer) as response:
                return str((await response.json())["token"])
        case "another tenant":
            return target.keys[1]
        case "key":
            return target.keys[0]
        case "operator":
            return target.operator_token
        case _:
            return ""


async def _session(client: aiohttp.ClientSession, target: Target) -> str:
    """Make a session of the application, or of an anonymous client when there are no keys."""
    headers = {"Authorization": f"Bearer {target.keys[0]}"} if target.keys else {}
    async with client.post("/api/sessions", headers=headers) as response:
        if response.status != 201:
            raise PeerError(f"no session was created: {response.status}")
        return str((await response.json())["id"])


async def _status(client: aiohttp.ClientSession, entry: Entry, shown: str, session: str) -> int:
    headers = {"Authorization": f"Bearer {shown}"} if shown else {}
    path = path_of(entry, session_id=session)
    if entry.kind == "socket":
        try:
            async with client.ws_connect(path, headers=headers):
                return 101
        except aiohttp.WSServerHandshakeError as error:
            return error.status
    body, kind = body_of(entry)
    if kind:
        headers["Content-Type"] = kind
    async with client.request(
        entry.method, path, headers=headers, data=body or None, allow_redirects=False
    ) as response:
        return response.status


def as_table(cells: Cells, proxies: Sequence[Proxy] = tuple(Proxy)) -> str:
    """Return the table as Markdown: a line for each route, a column for each credential."""
    head = ["route", *(column.title for column in COLUMNS)]
    names = dict.fromkeys(name for name, _ in cells)
    return markdown(
        head,
        [
            (f"`{name}`", *(_cell(cells.get((name, column), frozenset()), proxies) for column in COLUMNS))
            for name in names
        ],
    )


def from_table(text: str) -> dict[tuple[str, Column], frozenset[Proxy]]:
    """Parse the cells of a table made by ``as_table``."""
    cells: dict[tuple[str, Column], frozenset[Proxy]] = {}
    for line in text.splitlines():
        parts = [part.strip() for part in line.strip().strip("|").split("|")]
        if len(parts) != len(COLUMNS) + 1 or not parts[0].startswith("`"):
            continue
        for column, cell in zip(COLUMNS, parts[1:], strict=True):
            cells[parts[0].strip("`"), column] = _proxies(cell)
    return cells


def differences(written: Cells, found: Cells, proxies: Iterable[Proxy]) -> list[str]:
    """Return a line for each cell that differs from the written one, and for each missing route."""
    asked = frozenset(proxies)
    lines = []
    for (name, column), cell in found.items():
        should = written.get((name, column))
        if should is None:
            lines.append(f"{name}: is not in the table")
        elif should & asked != cell:
            lines.append(
                f"{name}, {column.title}: lets in by way of {_cell(cell, tuple(asked))}, "
                f"written is {_cell(should & asked, tuple(asked))}"
            )
    gone = {name for name, _ in written} - {name for name, _ in found}
    lines += [f"{name}: is in the table and no route" for name in sorted(gone)]
    return list(dict.fromkeys(lines))


def written() -> dict[tuple[str, Column], frozenset[Proxy]]:
    """Return the cells of the page."""
    return from_table(PAGE.read_text())


async def write() -> None:
    """Make the table and write it to the page."""
    table = as_table(await generated())
    text = await asyncio.to_thread(PAGE.read_text)
    before, _, rest = text.partition(BEGINS)
    _, _, after = rest.partition(ENDS)
    await asyncio.to_thread(PAGE.write_text, f"{before}{BEGINS}\n{table}\n{ENDS}{after}")


def _cell(cell: frozenset[Proxy], proxies: Sequence[Proxy]) -> str:
    if not cell:
        return "no"
    return "yes" if cell >= set(proxies) else "yes: " + ", ".join(proxy for proxy in Proxy if proxy in cell)


def _proxies(cell: str) -> frozenset[Proxy]:
    if cell in ("no", "yes"):
        return frozenset(Proxy) if cell == "yes" else frozenset()
    return frozenset(Proxy(name) for name in re.findall(r"[a-z]+", cell.removeprefix("yes:")))
