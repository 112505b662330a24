"""The operator changes the documents of a running server."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest

from parley.models.retrieval.files import MOST_BYTES
from parley.models.retrieval.library import DocumentLibrary
from parley.serving.gateway.admin.documents_api import PATH
from parley.serving.gateway.admin.operations import Operations
from tests.fakes.embedder import WordCountEmbedder
from tests.peers.operations_gateway import BEARER, asking, gateway

FEES = b"# Fees\n\n## Wire fee\n\nA wire costs twenty dollars.\n"


@pytest.fixture
def library(tmp_path: Path) -> DocumentLibrary:
    (tmp_path / "hours.md").write_text("# Guide\n\n## Opening hours\n\nBranches open at nine.\n")
    return DocumentLibrary(tmp_path, WordCountEmbedder())


@pytest.fixture
async def client(library: DocumentLibrary) -> AsyncIterator[httpx.AsyncClient]:
    async with asking(gateway(Operations(documents=library)), headers=BEARER) as client:
        yield client


def names(answer: httpx.Response) -> list[str]:
    assert answer.status_code == 200, answer.text
    return [each["name"] for each in answer.json()["documents"]]


async def test_a_document_is_added_replaced_listed_and_deleted(
    client: httpx.AsyncClient, library: DocumentLibrary
):
    assert names(await client.put(PATH, params={"name": "fees/2026.md"}, content=FEES)) == [
        "fees/2026.md",
        "hours.md",
    ]
    longer = FEES + b"\nA wire abroad costs forty dollars.\n"
    await client.put(PATH, params={"name": "fees/2026.md"}, content=longer)
    listed = (await client.get(PATH)).json()
    assert listed["documents"][0] == {"name": "fees/2026.md", "size_bytes": len(longer), "passages": 2}
    assert listed["passages"] == 3 == len(library.index.passages)
    assert names(await client.delete(PATH, params={"name": "fees/2026.md"})) == ["hours.md"]


async def test_the_folder_is_read_again(client: httpx.AsyncClient, library: DocumentLibrary):
    (library.folder / "fees.md").write_bytes(FEES)
    assert names(await client.get(PATH)) == ["hours.md"]
    assert names(await client.post(f"{PATH}/reading")) == ["fees.md", "hours.md"]


@pytest.mark.parametrize(
    ("method", "name", "content", "status", "reason"),
    [
        ("PUT", "../out.md", FEES, 422, "begins with a dot"),
        ("PUT", "scan.pdf", b"%PDF", 422, "cannot read the document scan.pdf"),
        ("PUT", "fees.exe", FEES, 422, "documents have the formats"),
        ("PUT", "", FEES, 422, "name"),
        ("DELETE", "nowhere.md", b"", 404, "no such document"),
        ("DELETE", "hours.md", b"", 422, "contains no passage"),
    ],
)
async def test_a_change_that_is_refused_says_why_and_changes_nothing(
    client: httpx.AsyncClient,
    library: DocumentLibrary,
    method: str,
    name: str,
    content: bytes,
    status: int,
    reason: str,
):
    answer = await client.request(method, PATH, params={"name": name}, content=content)
    assert answer.status_code == status and reason in answer.text
    assert [path.name for path in library.folder.iterdir()] == ["hours.md"]


async def test_a_file_of_200_mb_is_refused_by_its_length(client: httpx.AsyncClient):
    headers = {"content-length": "200000000"}
    answer = await client.put(PATH, params={"name": "all.txt"}, content=b"x", headers=headers)
    assert answer.status_code == 413 and MOST_BYTES < 200_000_000


async def test_a_change_during_another_one_waits_for_no_one(
    client: httpx.AsyncClient, library: DocumentLibrary
):
    with library._one_change():
        answer = await client.post(f"{PATH}/reading")
    assert answer.status_code == 409


async def test_a_folder_that_cannot_be_written_is_reported_without_its_path(
    client: httpx.AsyncClient, library: DocumentLibrary, monkeypatch: pytest.MonkeyPatch
):
    def is_full(*_arguments: object, **_named: object) -> None:
        raise OSError(28, "No space left on device", str(library.folder))

    monkeypatch.setattr("tempfile.mkstemp", is_full)
    answer = await client.put(PATH, params={"name": "fees.md"}, content=FEES)
    assert answer.status_code == 507 and str(library.folder) not in answer.text


async def test_only_the_operator_sees_and_changes_documents(library: DocumentLibrary):
    async with asking(gateway(Operations(documents=library))) as stranger:
        for answer in (
            await stranger.get(PATH),
            await stranger.put(PATH, params={"name": "fees.md"}, content=FEES),
            await stranger.delete(PATH, params={"name": "hours.md"}),
            await stranger.post(f"{PATH}/reading"),
        ):
            assert answer.status_code in (401, 403)
    assert [path.name for path in library.folder.iterdir()] == ["hours.md"]


async def test_a_server_without_documents_says_so():
    async with asking(gateway(Operations()), headers=BEARER) as client:
        none = {"documents": [], "passages": 0, "most_bytes": MOST_BYTES}
        assert (await client.get(PATH)).json() == none
        answer = await client.post(f"{PATH}/reading")
    assert answer.status_code == 404 and "bot.knowledge" in answer.text
