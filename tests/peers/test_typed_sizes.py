"""Requests with more text than a session takes in a minute, and such that fit, over HTTP."""

from collections.abc import AsyncIterator
from typing import Any

import httpx
import pytest
import pytest_asyncio
import yaml
from openai import AsyncOpenAI, RateLimitError

from tests.peers.llm_script import Turn
from tests.peers.openai_server import OpenAiServer
from tests.peers.operations_gateway import BEARER
from tests.peers.text_gateway import text_gateway

pytestmark = pytest.mark.asyncio(loop_scope="module")


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def llm() -> AsyncIterator[OpenAiServer]:
    async with OpenAiServer([Turn(("Good ", "morning."))]) as llm:
        yield llm


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def url(llm: OpenAiServer, tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[str]:
    folder = tmp_path_factory.mktemp("own")
    model = {"name": "openai_compatible", "settings": {"base_url": f"{llm.url}/v1", "model": "m"}}
    configuration = {
        "thinking": {"llm": model},
        "remembering": {"store": {"url": f"sqlite:///{folder}/sessions.db"}},
    }
    async with text_gateway(folder, yaml.safe_dump(configuration)) as url:
        yield url


async def session_of(url: str) -> str:
    async with httpx.AsyncClient(base_url=url, headers=BEARER) as client:
        return str((await client.post("/api/sessions", json={})).json()["id"])


def said(text: str, role: str = "user") -> Any:
    return {"role": role, "content": text}


def history(count: int) -> list[Any]:
    return [said("x" * 32_000, "assistant" if number % 2 else "user") for number in range(count)]


async def test_a_request_that_no_session_takes_is_refused_in_openais_words_and_not_repeated(
    url: str, llm: OpenAiServer
):
    sent: list[str] = []

    async def note(request: httpx.Request) -> None:
        sent.append(request.url.path)

    before = len(llm.requests)
    async with (
        httpx.AsyncClient(event_hooks={"request": [note]}) as http,
        AsyncOpenAI(api_key="unused", base_url=f"{url}/v1", max_retries=2, http_client=http) as openai,
    ):
        session = await session_of(url)
        with pytest.raises(RateLimitError, match="Request too large for .parley.") as refused:
            await openai.chat.completions.create(
                model="parley",
                messages=[*history(4), said("y" * 32_000)],
                extra_headers={"Parley-Session": session},
            )
        assert (refused.value.type, refused.value.code) == ("tokens", "rate_limit_exceeded")
        assert "Limit 150000, Requested 160004" in refused.value.message
        assert sent == ["/v1/chat/completions"] and len(llm.requests) == before
        # Nothing of it is in the session, and it paid nothing.
        async with httpx.AsyncClient(base_url=url, headers=BEARER) as client:
            timeline = (await client.get(f"/api/sessions/{session}/timeline")).json()
        assert [each for each in timeline["events"] if each["kind"] in ("user_turn", "bot_turn")] == []
        answer = await openai.chat.completions.create(
            model="parley",
            messages=[*history(2), said("y" * 32_000)],
            extra_headers={"Parley-Session": session},
        )
        assert answer.choices[0].message.content == "Good morning."


async def test_a_history_and_its_turn_are_paid_together_and_in_full(url: str):
    session = await session_of(url)
    async with AsyncOpenAI(api_key="unused", base_url=f"{url}/v1", max_retries=0) as openai:

        async def ask(messages: list[Any]) -> Any:
            return await openai.chat.completions.create(
                model="parley", messages=messages, extra_headers={"Parley-Session": session}
            )

        shown = [*history(2), said("y" * 32_000)]
        shown.append((await ask(shown)).choices[0].message)
        # 96 kB are paid; 54 kB, and what has come back since, are left.
        shown += [said("z" * 32_000), said("x" * 32_000, "assistant"), said("w" * 8_000)]
        with pytest.raises(RateLimitError, match="too much text") as refused:
            await ask(shown)
        wait_s = int(refused.value.response.headers["retry-after"])
        assert 1 <= wait_s <= 10
        shown[-3:] = [said("z" * 32_000)]
        await ask(shown)


async def test_typed_turns_of_the_sessions_api_are_paid_in_full(url: str):
    session = await session_of(url)
    # 8,000 characters of four bytes: four of these fit into 150 kB, the fifth does not.
    statuses: list[int] = []
    async with httpx.AsyncClient(base_url=url, headers=BEARER, timeout=60) as client:
        for _ in range(5):
            answer = await client.post(
                f"/api/sessions/{session}/messages", json={"text": "\U0001f600" * 8_000}
            )
            statuses.append(answer.status_code)
    assert statuses == [200, 200, 200, 200, 429]
    assert 1 <= int(answer.headers["retry-after"]) <= 10
