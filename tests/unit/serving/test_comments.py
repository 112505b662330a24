"""Comments on a session: who writes, who deletes, and their bounds."""

from collections.abc import AsyncIterator
from pathlib import Path

import httpx
import pytest
import pytest_asyncio

from parley.serving.gateway.comment_routes import COMMENTS_PER_MINUTE, MOST_COMMENT_CHARS, MOST_NAME_CHARS
from tests.peers.session_gateway import Turns, application, client_of


class Commented:
    """A session and three clients: its owner, another browser, and the operator.

    Attributes:
        path: of the comments.
        owner, other, operator: clients.
    """

    def __init__(
        self, path: str, owner: httpx.AsyncClient, other: httpx.AsyncClient, operator: httpx.AsyncClient
    ):
        self.path, self.owner, self.other, self.operator = path, owner, other, operator

    async def add(self, client: httpx.AsyncClient, text: str = "hm", **more: object) -> httpx.Response:
        return await client.post(self.path, json={"at_us": 5, "text": text, **more})

    async def listed(self, client: httpx.AsyncClient) -> list[dict[str, object]]:
        return list((await client.get(self.path)).json()["comments"])


@pytest_asyncio.fixture
async def commented(tmp_path: Path) -> AsyncIterator[Commented]:
    async with (
        application(tmp_path, Turns()) as (app, _),
        client_of(app) as owner,
        client_of(app) as other,
        client_of(app, operator=True) as operator,
    ):
        session = (await owner.post("/api/sessions")).json()["id"]
        await other.post("/api/client")
        yield Commented(f"/api/sessions/{session}/comments", owner, other, operator)


async def test_a_comment_has_an_author_a_time_and_its_text(commented: Commented):
    made = (await commented.add(commented.owner, "cut off here", name="Ann")).json()
    assert made["at_us"] == 5 and made["created_us"] > 0
    assert (made["name"], made["role"], made["may_delete"]) == ("Ann", "client", True)
    (seen,) = await commented.listed(commented.other)
    assert (seen["text"], seen["may_delete"]) == ("cut off here", False)
    operators = (await commented.add(commented.operator)).json()
    assert operators["role"] == "operator"
    assert (await commented.add(commented.other, name="Operator")).json()["role"] == "client"


@pytest.mark.parametrize("text", ["<script>alert(1)</script>", "a & b\n<img src=x onerror=y>", "&lt;b&gt;"])
async def test_markup_stays_as_it_was_typed(commented: Commented, text: str):
    await commented.add(commented.owner, text)
    answer = await commented.owner.get(commented.path)
    assert answer.headers["content-type"] == "application/json"
    assert answer.json()["comments"][0]["text"] == text


async def test_only_its_author_and_the_operator_delete_a_comment(commented: Commented):
    mine = (await commented.add(commented.owner)).json()["id"]
    others = (await commented.add(commented.other)).json()["id"]
    assert (await commented.other.delete(f"{commented.path}/{mine}")).status_code == 403
    assert (await commented.owner.delete(f"{commented.path}/{mine}")).status_code == 204
    assert (await commented.owner.delete(f"{commented.path}/{mine}")).status_code == 404
    assert (await commented.operator.delete(f"{commented.path}/{others}")).status_code == 204
    assert await commented.listed(commented.owner) == []


async def test_a_comment_of_the_operator_is_no_clients(commented: Commented):
    made = (await commented.add(commented.operator)).json()["id"]
    assert (await commented.owner.delete(f"{commented.path}/{made}")).status_code == 403


@pytest.mark.parametrize(
    "body",
    [
        {"at_us": 5, "text": ""},
        {"at_us": 5, "text": "  \n "},
        {"at_us": 5, "text": "a\0b"},
        {"at_us": 5, "text": "x" * (MOST_COMMENT_CHARS + 1)},
        {"at_us": 5, "text": "x", "name": "n" * (MOST_NAME_CHARS + 1)},
        {"at_us": -1, "text": "x"},
        {"at_us": 2**63, "text": "x"},
        {"text": "x"},
        {"at_us": 5, "text": "x", "author": "someone"},
    ],
)
async def test_a_comment_that_cannot_be_kept_is_refused(commented: Commented, body: dict[str, object]):
    assert (await commented.owner.post(commented.path, json=body)).status_code == 422
    assert await commented.listed(commented.owner) == []


async def test_half_of_a_surrogate_pair_is_refused(commented: Commented):
    body = b'{"at_us": 5, "text": "\\ud800"}'
    headers = {"content-type": "application/json"}
    answer = await commented.owner.post(commented.path, content=body, headers=headers)
    assert answer.status_code == 422


async def test_comments_of_one_address_are_limited_in_their_rate(commented: Commented):
    answers = []
    while 429 not in answers and len(answers) < 400:
        answers.append((await commented.add(commented.owner)).status_code)
    assert len(answers) > COMMENTS_PER_MINUTE and set(answers) == {201, 429}
