"""Files of the pages as they are sent: compressed, with tags, and with the modules that a page needs."""

import gzip
import re
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI, Request, Response

from parley.core.errors import ConfigError
from parley.serving.gateway.page_files import PageFiles, takes_gzip, with_preloads

LONG = "// A comment that is long enough for gzip to make it shorter. " * 20
PAGE = """<head>
  <link rel="stylesheet" href="/shared/a.css">
  <script type="module" src="/shared/a.js"></script>
</head>"""
MODULES = {
    "a.js": f"""{LONG}
/** @import {{ Kind }} from "./types_only.js" */
import {{
  b,
}} from "./b.js";
import "./c.js";
export {{ d }} from "./d.js";
const text = 'import x from "./never.js"';
""",
    "b.js": 'import { d } from "./d.js";\nimport { a } from "./a.js";\n',
    "c.js": "export const c = 1;\n",
    "d.js": 'import { e } from "./e.js";\n',
    "e.js": "export const e = 1;\n",
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in ("pages", "shared"):
        (tmp_path / name).mkdir()
    (tmp_path / "pages" / "index.html").write_text(PAGE)
    for name, text in MODULES.items():
        (tmp_path / "shared" / name).write_text(text)
    (tmp_path / "shared" / "a.css").write_text("a { color: red }")
    return tmp_path


def client_of(folder: Path) -> httpx.AsyncClient:
    files, app = PageFiles(folder), FastAPI()

    @app.get("/")
    async def page(request: Request) -> Response:
        return files.page("index.html", request)

    app.mount("/shared", files.shared)
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://localhost")


def test_a_page_names_every_module_that_its_own_one_imports_nearest_first(folder: Path):
    graph = {"a.js": ["b.js", "c.js"], "b.js": ["d.js", "a.js"], "c.js": [], "d.js": []}
    found = re.findall(r'rel="modulepreload" href="/shared/(\w+\.js)"', with_preloads(PAGE, graph))
    assert found == ["b.js", "c.js", "d.js"]


async def test_a_page_has_the_parts_that_it_names(folder: Path):
    (folder / "pages" / "index.html").write_text(PAGE + "\n  <!-- part: sound.html -->\n")
    with pytest.raises(ConfigError, match=r"there is no parts/sound\.html"):
        PageFiles(folder)
    (folder / "parts").mkdir()
    (folder / "parts" / "sound.html").write_text("  <dialog>Sound</dialog>\n")
    async with client_of(folder) as client:
        page = (await client.get("/")).text
    assert page.endswith("  <dialog>Sound</dialog>\n") and "part:" not in page


def test_a_module_that_is_missing_is_reported_at_the_start(folder: Path):
    (folder / "shared" / "e.js").unlink()
    with pytest.raises(ConfigError, match=r"there is no shared/e\.js"):
        PageFiles(folder)


async def test_imports_of_types_and_texts_are_no_modules_of_a_page(folder: Path):
    async with client_of(folder) as client:
        page = (await client.get("/")).text
    assert re.findall(r'rel="modulepreload" href="/shared/(\w+\.js)"', page) == [
        "b.js",
        "c.js",
        "d.js",
        "e.js",
    ]


async def test_a_file_is_compressed_for_a_client_that_takes_that_and_as_it_is_for_another(folder: Path):
    async with client_of(folder) as client:
        async with client.stream("GET", "/shared/a.js", headers={"Accept-Encoding": "br, gzip"}) as packed:
            raw = b"".join([piece async for piece in packed.aiter_raw()])
        plain = await client.get("/shared/a.js", headers={"Accept-Encoding": "identity"})
    assert packed.headers["content-encoding"] == "gzip" and "content-encoding" not in plain.headers
    assert gzip.decompress(raw) == plain.content == (folder / "shared" / "a.js").read_bytes()
    assert packed.headers["content-length"] == str(len(raw)) and len(raw) < len(plain.content) / 4
    assert packed.headers["vary"] == plain.headers["vary"] == "Accept-Encoding"
    assert packed.headers["content-type"] == plain.headers["content-type"] == "text/javascript; charset=utf-8"
    # One tag for each sequence of bytes.
    assert packed.headers["etag"] != plain.headers["etag"]


async def test_a_file_that_compression_would_make_longer_is_sent_as_it_is(folder: Path):
    async with client_of(folder) as client:
        answer = await client.get("/shared/a.css", headers={"Accept-Encoding": "gzip"})
    assert answer.text == "a { color: red }"
    assert "content-encoding" not in answer.headers and "vary" not in answer.headers


@pytest.mark.parametrize("path", ["/", "/shared/a.js"])
@pytest.mark.parametrize("encoding", ["gzip", "identity"])
@pytest.mark.parametrize("form", ["{}", "W/{}", '"other", {}'])
async def test_an_unchanged_file_is_not_sent_again(folder: Path, path: str, encoding: str, form: str):
    async with client_of(folder) as client:
        first = await client.get(path, headers={"Accept-Encoding": encoding})
        given = {"Accept-Encoding": encoding, "If-None-Match": form.format(first.headers["etag"])}
        again = await client.get(path, headers=given)
    assert (again.status_code, again.content) == (304, b"")
    assert again.headers["etag"] == first.headers["etag"]
    assert again.headers.get("vary") == first.headers.get("vary")


@pytest.mark.parametrize(("has", "takes"), [("gzip", "identity"), ("identity", "gzip")])
async def test_a_client_that_has_a_file_in_the_other_form_gets_it_in_its_own(
    folder: Path, has: str, takes: str
):
    async with client_of(folder) as client:
        first = await client.get("/shared/a.js", headers={"Accept-Encoding": has})
        given = {"Accept-Encoding": takes, "If-None-Match": first.headers["etag"]}
        again = await client.get("/shared/a.js", headers=given)
    assert (again.status_code, again.text) == (200, first.text)
    assert again.headers["etag"] != first.headers["etag"]


async def test_a_file_that_changed_is_sent_after_the_next_start(folder: Path):
    async with client_of(folder) as client:
        before = await client.get("/shared/c.js")
        (folder / "shared" / "c.js").write_text("export const c = 2;\n")
        # A page that is open goes on with the scripts that it began with.
        assert (await client.get("/shared/c.js")).text == before.text
    async with client_of(folder) as client:
        after = await client.get("/shared/c.js", headers={"If-None-Match": before.headers["etag"]})
    assert (after.status_code, after.text) == (200, "export const c = 2;\n")


async def test_only_reading_is_possible_and_only_what_is_there(folder: Path):
    async with client_of(folder) as client:
        assert (await client.head("/shared/a.js")).status_code == 200
        refused = await client.post("/shared/a.js")
        assert (refused.status_code, refused.headers["allow"]) == (405, "GET, HEAD")
        for name in ("x.js", "", "../pages/index.html", "%2e%2e/pages/index.html", "a.js/"):
            assert (await client.get(f"/shared/{name}")).status_code == 404


@pytest.mark.parametrize(
    ("accepted", "takes"),
    [
        ("", False),
        ("gzip", True),
        ("GZIP;q=0.5, br", True),
        ("gzip;q=0", False),
        ("gzip; q=0.000, *", False),
        ("br", False),
        ("*", True),
        ("*;q=0", False),
        ("identity, gzip ;q=1.0", True),
    ],
)
def test_a_client_says_by_its_header_if_it_takes_gzip(accepted: str, takes: bool):
    assert takes_gzip(accepted) is takes
