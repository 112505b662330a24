"""``parley doctor`` against a running server: a synthetic phone call, and a PostgreSQL store."""

from pathlib import Path

import pytest

from parley.command.doctor.phone import check_call
from parley.command.doctor.results import Level
from parley.command.doctor.storage import check_store
from parley.configs.deployment import Deployment
from parley.configs.load import load_deployment
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from tests.peers.postgres import postgres, postgres_url  # noqa: F401
from tests.peers.server import free_port
from tests.peers.test_phone import telephone


async def test_a_synthetic_call_hears_the_bot_or_names_what_is_wrong(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with telephone(tmp_path, monkeypatch, more="bot: {greeting: Hello there.}\n") as (server, front):
        deployment = load_deployment(str(tmp_path / "phone.yaml"))
        [heard] = await check_call(deployment, server.url)
        assert heard.level is Level.OK and "hears the bot after" in heard.message
        monkeypatch.setenv("TWILIO_AUTH_TOKEN", "another")
        [refused] = await check_call(deployment, server.url)
        assert refused.level is Level.FAIL and "403" in refused.message
        assert "TWILIO_AUTH_TOKEN" in refused.next_step
    [away] = await check_call(deployment, f"http://127.0.0.1:{free_port()}")
    assert (
        away.level is Level.FAIL and "did not answer" in away.message and "start the server" in away.next_step
    )
    assert front.violations == []


@pytest.mark.slow
async def test_a_line_whose_bot_is_silent_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    silent = "bot: {greeting: '', idle: null}\n"
    async with telephone(tmp_path, monkeypatch, more=silent) as (server, _):
        mute = load_deployment(str(tmp_path / "phone.yaml"))
        [expected] = await check_call(mute, server.url)
        greets = mute.model_copy(update={"bot": mute.bot.model_copy(update={"greeting": "Hello."})})
        [unheard] = await check_call(greets, server.url)
    assert expected.level is Level.WARN and "no greeting" in expected.message
    assert unheard.level is Level.FAIL and "hears nothing" in unheard.message


@pytest.mark.paired
async def test_a_store_of_postgresql_is_checked_without_changing_it(postgres_url: str):  # noqa: F811
    deployment = Deployment.model_validate({"remembering": {"store": {"url": postgres_url}}})
    [missing] = await check_store(deployment)
    assert missing.level is Level.WARN and "does not contain a session store" in missing.message
    store = await SessionStore.open(StoreTuning(url=postgres_url))
    await store.close()
    [present] = await check_store(deployment)
    assert present.level is Level.OK and present.message.startswith("postgresql")
