"""The route of the vault: who may read it, what it answers, and what the audit log has of it."""

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import httpx
import pytest

from parley.core.privacy import PersonalData, VaultSettings
from parley.language.personal_data import HiddenPart
from parley.serving.gateway.auth.audit import AuditLog
from parley.serving.gateway.auth.client_keys import CALL_KEYS_ENV
from parley.session_store.rows import shown_id
from parley.session_store.vault import Vault, VaultKeys
from tests.peers.session_gateway import Turns, application, client_of

READER, OTHER, PLAIN = "reader-key-of-the-test", "other-key-of-the-test", "plain-key-of-the-test"
CARD = "4242 4242 4242 4242"


@dataclass
class Opened:
    """An application with a session of its own that has an entry in the vault."""

    client: httpx.AsyncClient
    operator: httpx.AsyncClient
    session: str
    name: str
    audit: AuditLog

    async def read(self, credential: str, *names: str) -> httpx.Response:
        path = f"/api/sessions/{self.session}/redacted"
        headers = {"authorization": f"Bearer {credential}"}
        return await self.client.get(path, params={"name": list(names)}, headers=headers)


@asynccontextmanager
async def opened(folder: Path, keys: VaultKeys | None = None) -> AsyncIterator[Opened]:
    """Serve keys with and without the scope; the session belongs to the one with it."""
    written = VaultKeys([bytes(32)])
    audit = AuditLog(folder / "audit.jsonl")
    async with application(folder, Turns(), audit=audit, vault_keys=keys or written) as (app, store):
        async with client_of(app) as client, client_of(app, operator=True) as operator:
            bearer = {"authorization": f"Bearer {READER}"}
            made = await client.post("/api/sessions", headers=bearer)
            session = made.json()["id"]
            vault = Vault(store, VaultSettings(), written)
            [name] = await vault.keep(session, "turn", [HiddenPart(PersonalData.PAYMENT_CARD, CARD)])
            yield Opened(client, operator, session, name, audit)


@pytest.fixture(autouse=True)
def keys(monkeypatch: pytest.MonkeyPatch) -> None:
    entries = f"talk+reveal:{READER},reveal:{OTHER},{PLAIN}"
    monkeypatch.setenv(CALL_KEYS_ENV, entries)
    monkeypatch.setenv("PARLEY_TOKEN_SECRET", "a secret of the test that is long enough")


async def test_a_key_with_the_scope_reads_words_of_its_session_and_the_audit_log_says_so(tmp_path: Path):
    async with opened(tmp_path) as vault:
        answer = await vault.read(READER, vault.name, "0" * 32)
        assert answer.json() == {"redacted": [{"name": vault.name, "kind": "payment_card", "words": CARD}]}
        assert (await vault.read(READER)).json() == {"redacted": []}
        assert (await vault.read(READER, "of another form")).status_code == 422
        vault.audit.close()
    lines = [json.loads(line) for line in (tmp_path / "audit.jsonl").read_text().splitlines()]
    [first, _] = [line for line in lines if line["act"] == "vault.read"]
    assert first["names"].startswith(vault.name)
    assert first["session"] == shown_id(vault.session)
    assert CARD not in (tmp_path / "audit.jsonl").read_text()


async def test_no_other_credential_reads_them(tmp_path: Path):
    async with opened(tmp_path) as vault:
        bearer = {"authorization": f"Bearer {READER}"}
        token = (await vault.client.post("/api/token", json={"user": "ann"}, headers=bearer)).json()["token"]
        for credential in (OTHER, PLAIN, token):
            answer = await vault.read(credential, vault.name)
            assert answer.status_code == 403, credential
            assert CARD not in answer.text
        path = f"/api/sessions/{vault.session}/redacted?name={vault.name}"
        assert (await vault.operator.get(path)).status_code == 403
        assert (await vault.client.get(path)).status_code == 401


async def test_without_client_keys_no_client_reads_them(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv(CALL_KEYS_ENV)
    async with opened(tmp_path) as vault:
        for client in (vault.client, vault.operator):
            path = f"/api/sessions/{vault.session}/redacted?name={vault.name}"
            assert (await client.get(path)).status_code == 403


async def test_a_vault_whose_key_is_missing_says_so_in_the_log_alone(tmp_path: Path):
    async with opened(tmp_path, VaultKeys([bytes(range(32))])) as vault:
        answer = await vault.read(READER, vault.name)
        assert answer.status_code == 503
        assert CARD not in answer.text
