"""Limits of tenants over real gateways with one store: refusals, running calls, and what operators see."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import Any

import httpx
import pytest
from fastapi import FastAPI
from pipecat.runner.types import RunnerArguments
from pydantic import ValidationError

from parley.core.errors import ConfigError, StoreUnavailableError
from parley.core.grants import ANONYMOUS, ClientIdentity
from parley.serving.gateway.app import create_app
from parley.serving.gateway.auth.client_keys import ClientKeys
from parley.serving.gateway.auth.tenant_settings import TenantsSettings
from parley.serving.gateway.auth.tenants import REPORT_S, TenantLimitError, Tenants
from parley.serving.gateway.auth.usage import UsageLimits
from parley.serving.gateway.phone.settings import PhoneRoutesSettings
from parley.serving.gateway.settings import CALL_KEYS_ENV, ServerTuning
from parley.session_store.compaction import Compactor
from parley.session_store.conversations import Conversations
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from parley.transports.webrtc.signaling import Signaling
from tests.peers.operations_gateway import BEARER, TOKEN

KEYS = {"acme": "acme-key-0123456789", "blue": "blue-key-0123456789"}
WITHIN_S = 30.0


def settings_of(**limits: Any) -> dict[str, Any]:
    """Return settings with the tenants acme, which has the limits, and blue, which has none."""
    return {
        "named": {
            "acme": {"keys_env": "ACME_KEYS", "limits": limits},
            "blue": {"keys_env": "BLUE_KEYS"},
        }
    }


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ACME_KEYS", f"{KEYS['acme']},acme-other-0123456789")
    monkeypatch.setenv("BLUE_KEYS", KEYS["blue"])
    monkeypatch.delenv(CALL_KEYS_ENV, raising=False)


@dataclass
class Gateway:
    """Gateway process of a deployment."""

    app: FastAPI
    client: httpx.AsyncClient
    store: SessionStore
    usage: UsageLimits
    end: asyncio.Event
    started: list[str] = field(default_factory=list)

    def identity(self, tenant: str) -> ClientIdentity:
        application = ClientKeys(self.app.state.settings).application_of(KEYS[tenant])
        return ClientIdentity(owner=str(application), address="192.0.2.1")

    async def start(self, tenant: str) -> httpx.Response:
        headers = {"Authorization": f"Bearer {KEYS[tenant]}"}
        return await self.client.post("/start", json={"body": {}}, headers=headers)

    def call(self, tenant: str) -> asyncio.Task[None]:
        """Begin a call that lasts until ``end``."""

        async def hang_up() -> None:
            return None

        call_id = f"{tenant} {len(self.started)}"
        self.started.append(call_id)
        return self.app.state.calls.start(
            RunnerArguments(), call_id=call_id, hang_up=hang_up, identity=self.identity(tenant)
        )

    async def limits(self, tenant: str) -> dict[str, float]:
        """Return the use of the limits of a tenant, by the operator's route."""
        await self.usage.tenants.report()
        answer = await self.client.get("/api/admin/tenants", headers=BEARER)
        [found] = [each for each in answer.json()["tenants"] if each["name"] == tenant]
        return {each["name"]: each["used"] for each in found["limits"]}

    async def until(self, condition: Callable[[], Any]) -> None:
        async with asyncio.timeout(WITHIN_S):
            while not await condition():
                await asyncio.sleep(0.02)


@asynccontextmanager
async def gateway(
    folder: Path,
    tenants: dict[str, Any],
    *,
    report_s: float = REPORT_S,
    bounds: dict[str, Any] | None = None,
    **more: Any,
) -> AsyncIterator[Gateway]:
    server = ServerTuning(drain_s=0, hang_up_s=0.2, tenants=TenantsSettings(**tenants), **(bounds or {}))
    store = await SessionStore.open(StoreTuning(url=f"sqlite:///{folder}/sessions.db"))
    conversations = Conversations(store, compactor=Compactor())
    usage, end = UsageLimits(server), asyncio.Event()
    usage.tenants = Tenants(server.tenants, report_s=report_s)

    async def run_call(_arguments: RunnerArguments) -> None:
        await end.wait()

    app = create_app(
        server,
        run_call=run_call,
        describe=dict,
        open_door=lambda on_call: Signaling(on_call, max_calls=8, hang_up_s=0.2),
        conversations=conversations,
        usage=usage,
        operator_token=TOKEN,
        **more,
    )
    app.state.settings = server
    try:
        transport = httpx.ASGITransport(app, client=("192.0.2.1", 1234))
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=transport, base_url="http://localhost") as client,
        ):
            yield Gateway(app, client, store, usage, end)
            end.set()
    finally:
        await conversations.close()
        await store.close()


async def test_calls_of_one_tenant_are_counted_over_both_gateways(tmp_path: Path):
    async with AsyncExitStack() as stack:
        settings = settings_of(concurrent_calls=2)
        # No report comes but that of the end itself.
        first, second = [
            await stack.enter_async_context(gateway(tmp_path, settings, report_s=600)) for _ in range(2)
        ]
        for each in (first, second):
            each.call("acme")
        await first.until(lambda: begun(first, 2))
        for each in (first, second):
            refused = await each.start("acme")
            assert refused.status_code == 429 and refused.headers["retry-after"] == "5"
            assert "concurrent_calls (2)" in refused.json()["error"]
            assert (await each.start("blue")).status_code == 200
        second.end.set()
        await first.until(lambda: begun(first, 1))
        assert (await first.start("acme")).status_code == 200


async def begun(server: Gateway, count: int) -> bool:
    return (await server.limits("acme"))["concurrent_calls"] == count


async def test_a_call_that_another_gateway_has_overtaken_ends_before_it_begins(tmp_path: Path):
    async with AsyncExitStack() as stack:
        settings = settings_of(concurrent_calls=1)
        first, second = [await stack.enter_async_context(gateway(tmp_path, settings)) for _ in range(2)]
        # Both were admitted when there was none.
        running = [each.call("acme") for each in (first, second) for _ in range(3)]
        async with asyncio.timeout(WITHIN_S):
            while sum(task.done() for task in running) < 5:
                await asyncio.sleep(0.02)
        assert await begun(first, 1)


@pytest.mark.parametrize("limit", ["calls_per_hour", "calls_per_day"])
async def test_calls_are_counted_by_hour_and_day(tmp_path: Path, limit: str):
    async with gateway(tmp_path, settings_of(**{limit: 1})) as server:
        assert (await server.start("acme")).status_code == 200
        server.call("acme")
        await server.until(lambda: begun(server, 1))
        refused = await server.start("acme")
        assert refused.status_code == 429 and f"{limit} (1); it frees at 2" in refused.json()["error"]
        assert 1 <= int(refused.headers["retry-after"]) <= 86_400
        assert (await server.start("blue")).status_code == 200


@pytest.mark.parametrize(
    ("limit", "used"),
    [
        ("tokens_per_day", {"tokens": 1_000}),
        ("tokens_per_month", {"tokens": 1_000}),
        ("cost_per_day", {"cost": Decimal("1000.5")}),
        ("cost_per_month", {"cost": Decimal("1000.5")}),
    ],
)
async def test_tokens_and_cost_of_a_tenant_are_counted_over_both_gateways(
    tmp_path: Path, limit: str, used: dict[str, Any]
):
    async with AsyncExitStack() as stack:
        settings = settings_of(**{limit: 1_000})
        first, second = [await stack.enter_async_context(gateway(tmp_path, settings)) for _ in range(2)]
        identity = first.identity("acme")
        first.usage.tenants.check_turn(identity)
        first.usage.tenants.spend(identity, **used)
        # At once where it was used, and elsewhere with the next report.
        with pytest.raises(TenantLimitError, match=limit):
            await first.usage.take(identity)
        await first.usage.tenants.report()
        refused = await second.start("acme")
        assert refused.status_code == 429 and limit in refused.json()["error"]
        with pytest.raises(TenantLimitError, match=limit):
            second.usage.check(identity)
        # A running call is ended, or goes on; its turns are answered until then.
        assert await second.usage.try_take(identity)
        first.usage.check(first.identity("blue"))
        assert (await second.limits("acme"))[limit] == pytest.approx(float(next(iter(used.values()))))


async def test_use_is_counted_once_when_reports_meet_or_are_cut(tmp_path: Path):
    async with gateway(tmp_path, settings_of(tokens_per_day=1_000_000)) as first:
        tenants, identity = first.usage.tenants, first.identity("acme")
        for _ in range(5):
            tenants.spend(identity, tokens=1)
            await asyncio.gather(*(tenants.report() for _ in range(3)))
        # Cut at different steps on its way.
        for steps in range(60):
            tenants.spend(identity, tokens=1)
            reporting = asyncio.create_task(tenants.report())
            for _ in range(steps):
                await asyncio.sleep(0)
            reporting.cancel()
            await asyncio.gather(reporting, return_exceptions=True)
        assert (await first.limits("acme"))["tokens_per_day"] == 65
    async with gateway(tmp_path, settings_of(tokens_per_day=1_000_000)) as second:
        assert (await second.limits("acme"))["tokens_per_day"] == 65


async def test_a_report_whose_answer_is_lost_is_counted_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    async with gateway(tmp_path, settings_of(tokens_per_day=1_000)) as server:
        tenants, transact = server.usage.tenants, server.store.transact

        async def lose_the_answer(work: Any) -> None:
            await transact(work)
            raise StoreUnavailableError("the answer is lost")

        tenants.spend(server.identity("acme"), tokens=7)
        monkeypatch.setattr(server.store, "transact", lose_the_answer)
        with pytest.raises(StoreUnavailableError):
            await tenants.report()
        monkeypatch.setattr(server.store, "transact", transact)
        tenants.spend(server.identity("acme"), tokens=2)
        assert (await server.limits("acme"))["tokens_per_day"] == 9


async def test_a_call_that_its_client_calls_counted_passes_no_limit_but_that_of_new_calls(tmp_path: Path):
    limits = {"calls_per_day": 1, "concurrent_calls": 1}
    async with gateway(tmp_path, settings_of(**limits)) as server:
        tenants, identity = server.usage.tenants, server.identity("acme")
        async with AsyncExitStack() as stack:

            async def begin(**how: bool) -> None:
                await tenants.check_call(identity, **how)
                await stack.enter_async_context(tenants.call(identity, lambda: True, **how))

            await begin()
            with pytest.raises(TenantLimitError, match="concurrent_calls"):
                await begin()
            # The lost connection may still count as running, once.
            await begin(is_counted=True)
            with pytest.raises(TenantLimitError, match="concurrent_calls"):
                await begin(is_counted=True)
            assert (await server.limits("acme"))["calls_per_day"] == 1
        async with gateway(tmp_path, settings_of(tokens_per_day=1)) as other:
            other.usage.tenants.spend(identity, tokens=1)
            await other.usage.tenants.report()
            with pytest.raises(TenantLimitError, match="tokens_per_day"):
                await other.usage.tenants.check_call(identity, is_counted=True)


@pytest.mark.parametrize("at_limit", ["end", "finish"])
async def test_running_calls_end_when_the_minutes_are_used_up(tmp_path: Path, at_limit: str):
    settings = {**settings_of(minutes_per_month=0.001), "at_limit": at_limit}
    async with gateway(tmp_path, settings) as server:
        server.call("acme")
        used_up = server.usage.tenants.used_up(server.identity("acme"))
        assert used_up is not None and not used_up.is_set()

        async def is_over() -> bool:
            return (await server.limits("acme"))["minutes_per_month"] >= 0.001

        await server.until(is_over)
        assert used_up.is_set() is (at_limit == "end")
        assert (await server.start("acme")).status_code == 429


async def test_stored_sessions_are_limited_by_number_and_size(tmp_path: Path):
    async with gateway(tmp_path, settings_of(sessions=1)) as server:
        identity = server.identity("acme")
        await server.store.create(owner=f"{identity.owner}:ann")
    async with gateway(tmp_path, settings_of(sessions=1)) as server:

        async def is_measured() -> bool:
            return (await server.limits("acme"))["sessions"] == 1

        await server.until(is_measured)
        refused = await server.start("acme")
        assert refused.status_code == 429 and "it frees when sessions are deleted" in refused.json()["error"]
        with pytest.raises(TenantLimitError, match="sessions"):
            server.usage.take_session(server.identity("acme"))


async def test_a_phone_call_beyond_the_limit_is_refused_with_words_and_not_queued(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    phone = PhoneRoutesSettings(signatures=False, busy="Please call again tomorrow.")
    settings = {**settings_of(), "others": {"calls_per_day": 0}}
    async with gateway(tmp_path, settings, phone=phone, modes=("cascade",)) as server:
        form = {"CallSid": "CA" + "5" * 32, "From": "+15550100", "To": "+15550199", "Direction": "inbound"}
        answer = await server.client.post("/twilio/voice", data=form)
    assert answer.status_code == 200 and "Please call again tomorrow." in answer.text
    assert "<Redirect" not in answer.text and "<Connect" not in answer.text


async def test_a_phone_call_that_finds_no_line_uses_up_nothing(tmp_path: Path):
    phone = PhoneRoutesSettings(signatures=False, busy="All lines are busy.")
    settings = {**settings_of(), "others": {"calls_per_day": 3}}
    more = {"max_calls": 1, "sessions_per_minute": 1}
    async with gateway(tmp_path, settings, bounds=more, phone=phone, modes=("cascade",)) as server:
        server.call("acme")
        await server.until(lambda: begun(server, 1))
        for number in range(4):
            form = {
                "CallSid": f"CA{number:032}", "From": "+15550100", "To": "+15550199", "Direction": "inbound"
            }  # fmt: skip
            answer = await server.client.post("/twilio/voice", data=form)
            assert "All lines are busy." in answer.text
        assert (await server.limits("others"))["calls_per_day"] == 0
        # Of the address of the telephone network.
        server.usage.take_session(ClientIdentity(address="192.0.2.1"))


async def test_the_metrics_show_the_used_part_of_each_limit(tmp_path: Path):
    async with gateway(tmp_path, settings_of(calls_per_day=4)) as server:
        server.call("acme")
        await server.until(lambda: begun(server, 1))
        text = (await server.client.get("/metrics", headers=BEARER)).text
    assert 'parley_tenant_used{limit="calls_per_day",tenant="acme"} 0.25' in text
    assert 'tenant="blue"' not in text


async def test_without_tenants_nothing_is_counted(tmp_path: Path):
    tenants = Tenants()
    assert tenants.name_of(ANONYMOUS) is None and tenants.used_up(ANONYMOUS) is None
    tenants.spend(ANONYMOUS, tokens=1)
    async with tenants.call(ANONYMOUS, lambda: True):
        assert tenants.names() == []


def test_settings_that_cannot_be_kept_are_refused(monkeypatch: pytest.MonkeyPatch):
    with pytest.raises(ValidationError, match="others: sessions cannot be counted"):
        TenantsSettings(others={"sessions": 1})
    with pytest.raises(ValidationError, match="two tenants have one keys_env"):
        TenantsSettings(named={"a": {"keys_env": "KEYS"}, "b": {"keys_env": "KEYS"}})
    server = ServerTuning(tenants=TenantsSettings(**settings_of()))
    monkeypatch.setenv("BLUE_KEYS", KEYS["acme"])
    with pytest.raises(ConfigError, match="is that of another tenant"):
        ClientKeys(server)
    monkeypatch.delenv("BLUE_KEYS")
    with pytest.raises(ConfigError, match="set the variable BLUE_KEYS"):
        ClientKeys(server)
