"""Vault of redacted words, for applications that may read it.

    GET /api/sessions/{id}/redacted?name=A&name=B     the words of these entries of the session's vault

A turn of the session's timeline has the names of its entries (``redacted``). Only a key of an application
whose scopes name ``reveal`` reads them, for sessions of its own: no token of a user, no key without scopes,
and not the operator. Each reading is in the audit log, with the names and without the words. Unknown names,
and those of entries that are deleted, are left out. 503: a key of the vault is missing, or an entry was
altered.
"""

from typing import Annotated

from fastapi import APIRouter, HTTPException, Query, Request
from loguru import logger
from pydantic import Field

from parley.serving.gateway.auth.audit import AuditLog
from parley.serving.gateway.auth.client_auth import Access
from parley.serving.gateway.session_api import SessionId
from parley.session_store.conversations import Conversations
from parley.session_store.rows import shown_id
from parley.session_store.vault import MOST_NAMES, NAME_CHARS, VaultKeyError

PATH = "/api/sessions/{session_id}/redacted"
Name = Annotated[str, Field(pattern=rf"^[0-9a-f]{{{NAME_CHARS}}}$")]
Names = Annotated[tuple[Name, ...], Query(max_length=MOST_NAMES)]


def vault_api(conversations: Conversations, access: Access, audit: AuditLog) -> APIRouter:
    """Return the route.

    Args:
        conversations: of this process, with the vault.
        access: identifies the client.
        audit: records every reading.
    """
    router = APIRouter()

    @router.get(PATH)
    async def redacted(
        request: Request,
        session_id: SessionId,
        name: Names = (),
    ) -> dict[str, object]:
        """Return words that redaction replaced in the session."""
        identity = await access.identify_reader_of_vault(request)
        access.check_use(identity, session_id, (await conversations.store.info(session_id)).owner)
        audit.record(
            "vault.read",
            address=identity.address,
            session=shown_id(session_id),
            application=identity.application,
            names=",".join(name),
        )
        if conversations.vault is None:
            return {"redacted": []}
        try:
            found = await conversations.vault.reveal(session_id, name)
        except VaultKeyError as error:
            logger.error(f"the vault of session {shown_id(session_id)} cannot be read: {error}")
            raise HTTPException(503, "the vault cannot be read; the log of the server says why") from error
        return {
            "redacted": [{"name": each.name, "kind": each.kind.value, "words": each.words} for each in found]
        }

    return router
