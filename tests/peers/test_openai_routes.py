"""OpenAI's official client at the HTTP routes of its API: models, and client secrets for realtime calls."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio
from openai import AsyncOpenAI, AuthenticationError, BadRequestError, NotFoundError
from websockets.exceptions import InvalidStatus

from tests.peers.server import RunningServer, running_server

pytestmark = pytest.mark.asyncio(loop_scope="module")

KEY = "an-application-key-of-32-letters"


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server() -> AsyncIterator[RunningServer]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PARLEY_CALL_KEYS", KEY)
        async with running_server() as server:
            yield server


def client(server: RunningServer, key: str) -> AsyncOpenAI:
    return AsyncOpenAI(api_key=key, base_url=f"{server.url}/v1", max_retries=0)


async def test_the_models_are_the_pipelines(server: RunningServer):
    async with client(server, KEY) as openai:
        models = [model.id async for model in openai.models.list()]
        assert models == ["parley", "parley-cascade", "parley-duplex"]
        assert (await openai.models.retrieve("parley-duplex")).owned_by == "parley"
        with pytest.raises(NotFoundError, match="parley-cascade"):
            await openai.models.retrieve("gpt-realtime")


async def test_a_client_secret_begins_one_realtime_call(server: RunningServer):
    async with client(server, KEY) as openai:
        secret = await openai.realtime.client_secrets.create(
            expires_after={"anchor": "created_at", "seconds": 600},
            session={"type": "realtime", "model": "parley-cascade"},
        )
    assert secret.session.type == "realtime" and secret.session.model == "parley-cascade"
    async with client(server, secret.value) as user:
        async with user.realtime.connect(model="parley-cascade") as connection:
            assert (await connection.recv()).type == "session.created"
        # It was used.
        with pytest.raises(InvalidStatus) as refused:
            await user.realtime.connect(model="parley-cascade").enter()
        assert refused.value.response.status_code == 401


async def test_a_client_secret_needs_a_key_and_holds_no_settings(server: RunningServer):
    async with client(server, "a-wrong-key-that-is-long-enough") as stranger:
        with pytest.raises(AuthenticationError):
            await stranger.realtime.client_secrets.create()
    async with client(server, KEY) as openai:
        with pytest.raises(BadRequestError) as refused:
            await openai.realtime.client_secrets.create(
                session={"type": "realtime", "instructions": "Be kind."}
            )
        assert "instructions" in refused.value.response.json()["error"]["message"]
