"""Vault: words that redaction replaced, encrypted, for readers who may see them.

A turn of the caller names the entries of its marks (``redacted`` in its payload, in the order of the marks).
An entry is the words under a name of its own; the timeline, exports and the model never have them. Entries
are written before their turn, so that a turn never names one that is not there. They are deleted with their
session, and after the vault's own retention, which may be shorter. The database holds no key: who has the
database alone reads nothing.

    version 1 | id of the key 8 | salt 32 | nonce 12 | words, AES-256-GCM | tag 16      (in base64)

The associated data are the session, the name of the entry and its kind: an entry that was moved to another
place does not decrypt. Keys are those of ``VAULT_KEYS_ENV`` (``runtime.encryption_keys``).
"""

import asyncio
import base64
import hashlib
import os
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial

import sqlalchemy as sa
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from loguru import logger
from sqlalchemy.dialects import postgresql, sqlite

from parley.core.errors import ConfigError, StoreError
from parley.core.privacy import PersonalData, VaultSettings
from parley.language.personal_data import HiddenPart, Redactor
from parley.runtime.encryption_keys import (
    ID_BYTES,
    MAKE_ONE,
    NONCE_BYTES,
    SALT_BYTES,
    EncryptionKeys,
    derived,
)
from parley.session_store.callers import check_session
from parley.session_store.events import Draft
from parley.session_store.retention import US_PER_DAY
from parley.session_store.schema import vault_entry_table
from parley.session_store.store import SessionStore

VAULT_KEYS_ENV = "PARLEY_VAULT_KEYS"
VERSION = b"\x01"
NAME_CHARS = 32
# Entries of one turn, and of one request.
MOST_PARTS, MOST_NAMES = 32, 32
# Entries that one write deletes because their time is over.
MOST_ENDED = 500
EXPIRE_EVERY_S = 3_600.0
# Turns of a session that are on their way: a call has one, and typed words in it a few more.
MOST_HIDDEN = 16
_HEAD_BYTES = len(VERSION) + ID_BYTES + SALT_BYTES + NONCE_BYTES
_entry = vault_entry_table.c


class VaultKeyError(StoreError):
    """An entry was encrypted with a key that this process does not have, or is damaged."""


class VaultKeys(EncryptionKeys):
    """Keys of the vault."""

    variable = VAULT_KEYS_ENV
    purpose = b"parley vault"

    def seal(self, words: str, place: bytes) -> str:
        """Return words, encrypted and bound to their place.

        Raises:
            VaultKeyError: there is no key.
        """
        key_id = self.first_id()
        key = None if key_id is None else self.find(key_id)
        if key_id is None or key is None:
            raise VaultKeyError(f"the vault is written with a key: set {VAULT_KEYS_ENV}")
        salt, nonce = os.urandom(SALT_BYTES), os.urandom(NONCE_BYTES)
        head = VERSION + key_id + salt + nonce
        sealed = self._cipher(key, salt).encrypt(nonce, words.encode(), head + place)
        return base64.b64encode(head + sealed).decode()

    def open(self, sealed: str, place: bytes) -> str:
        """Return the words of an entry.

        Raises:
            VaultKeyError: its key is not here, or it was altered or moved.
        """
        stored = base64.b64decode(sealed)
        head, key_id = stored[:_HEAD_BYTES], stored[len(VERSION) : len(VERSION) + ID_BYTES]
        key = self.find(key_id)
        if key is None:
            raise VaultKeyError(
                f"this entry is encrypted with the key {key_id.hex()}: add it to {VAULT_KEYS_ENV}"
            )
        salt, nonce = head[len(VERSION) + ID_BYTES : -NONCE_BYTES], head[-NONCE_BYTES:]
        try:
            return self._cipher(key, salt).decrypt(nonce, stored[_HEAD_BYTES:], head + place).decode()
        except InvalidTag:
            raise VaultKeyError("this entry was altered, or belongs to another place") from None

    def _cipher(self, key: bytes, salt: bytes) -> AESGCM:
        return AESGCM(derived(key, salt, self.purpose + b" entry"))


@dataclass(frozen=True, slots=True)
class VaultEntry:
    """Words that redaction replaced.

    Attributes:
        name: name of the entry, which its turn has.
        kind: kind of personal data.
        words: the words.
    """

    name: str
    kind: PersonalData
    words: str


class Vault:
    """Vault of a store.

    Args:
        store: the store.
        settings: retention.
        keys: its keys.
    """

    def __init__(self, store: SessionStore, settings: VaultSettings, keys: VaultKeys) -> None:
        self._store, self._settings, self._keys = store, settings, keys

    async def keep(self, session_id: str, turn_key: str, parts: Sequence[HiddenPart]) -> list[str]:
        """Store the words of a turn's marks; return the names of their entries. A repeated turn has the same.

        Entries whose time is over are deleted on the way.

        Raises:
            UnknownSessionError: there is no such session.
            StoreError: the database does not answer, or there is no key.
        """
        until_us = self._store.wall_us() + round(self._settings.retention_days * US_PER_DAY)
        rows: list[dict[str, object]] = []
        for number, part in enumerate(parts[:MOST_PARTS]):
            name = hashlib.sha256(f"{session_id}\n{turn_key}\n{number}".encode()).hexdigest()[:NAME_CHARS]
            sealed = self._keys.seal(part.words, _place(session_id, name, part.kind))
            rows.append(
                {
                    "name": name,
                    "session_id": session_id,
                    "kind": part.kind.value,
                    "sealed": sealed,
                    "until_us": until_us,
                }
            )
        work = partial(_put, session_id=session_id, rows=rows, now_us=self._store.wall_us())
        await self._store.transact(work)
        return [str(row["name"]) for row in rows]

    async def reveal(self, session_id: str, names: Sequence[str]) -> list[VaultEntry]:
        """Return the entries of these names that the session has and whose time is not over, in their order.

        Raises:
            VaultKeyError: a key is missing, or an entry was altered.
            StoreError: the database does not answer.
        """
        wanted = list(names[:MOST_NAMES])
        rows = await self._store.look(
            partial(_read, session_id=session_id, names=wanted, now_us=self._store.wall_us())
        )
        found = {}
        for name, kind, sealed in rows:
            words = self._keys.open(sealed, _place(session_id, name, PersonalData(kind)))
            found[name] = VaultEntry(name, PersonalData(kind), words)
        return [found[name] for name in wanted if name in found]

    async def run(self) -> None:
        """Delete entries whose time is over, until cancelled."""
        while True:
            try:
                while await self.expire() == MOST_ENDED:
                    continue
            except StoreError as error:
                # The database is unavailable: the next pass tries again. Nothing that is over is readable.
                logger.warning(f"vault: postponing the deletion of old entries: {error}")
            await asyncio.sleep(EXPIRE_EVERY_S)

    async def expire(self) -> int:
        """Delete entries whose time is over, at most ``MOST_ENDED``; return their number.

        Raises:
            StoreError: the database does not answer.
        """
        return await self._store.transact(partial(_drop_ended, now_us=self._store.wall_us()))


class HiddenWords:
    """Words that redaction hides in the turns of one session, in memory on their way to the vault.

    Args:
        redactor: hides words that were not redacted on their way; None for none.
        vault: the vault; None: what is hidden is gone.
    """

    def __init__(self, redactor: Redactor | None, vault: Vault | None) -> None:
        self._redactor, self._vault = redactor, vault
        # Words of turns as they are shown, with what their marks replace.
        self._noted: deque[tuple[str, tuple[HiddenPart, ...]]] = deque(maxlen=MOST_HIDDEN)

    def note(self, shown: str, parts: Sequence[HiddenPart]) -> None:
        """Note what the marks replace of words that are about to become a turn."""
        if self._vault is not None:
            self._noted.append((shown, tuple(parts)))

    def of_turn(self, text: str) -> list[HiddenPart]:
        """Return what is hidden of a turn: noted before, or to be hidden in its words now."""
        if self._vault is None or self._redactor is None:
            return []
        noted = [each for each in self._noted if each[0] in text]
        for each in noted:
            self._noted.remove(each)
        return [*(part for _, parts in noted for part in parts), *self._redactor.parts(text)]

    async def kept(self, session_id: str, turn: Draft, hidden: Sequence[HiddenPart]) -> Draft:
        """Keep what is hidden of a turn; return the turn with the names of the entries.

        Raises:
            StoreError: as ``Vault.keep`` does.
        """
        if self._vault is None or not hidden:
            return turn
        names = await self._vault.keep(session_id, turn.key, hidden)
        return replace(turn, payload={**turn.payload, "redacted": names})


def open_vault(store: SessionStore, settings: VaultSettings | None) -> Vault | None:
    """Return the vault of a deployment; None where it has none.

    Raises:
        ConfigError: there is no key, or one is wrong.
    """
    if settings is None:
        return None
    keys = VaultKeys.from_environment()
    if not keys:
        raise ConfigError(
            f"privacy.vault: set {VAULT_KEYS_ENV} to a key of 32 bytes in base64 ({MAKE_ONE}). Keep it: "
            "without it the vault cannot be read"
        )
    return Vault(store, settings, keys)


def _place(session_id: str, name: str, kind: PersonalData) -> bytes:
    return f"{session_id}\n{name}\n{kind.value}".encode()


def _put(
    connection: sa.Connection, *, session_id: str, rows: Sequence[dict[str, object]], now_us: int
) -> None:
    check_session(connection, session_id)
    _drop_ended(connection, now_us=now_us)
    made = postgresql if connection.dialect.name == "postgresql" else sqlite
    # A second attempt, after the answer to the first was lost, changes nothing.
    connection.execute(made.insert(vault_entry_table).on_conflict_do_nothing(), list(rows))


def _drop_ended(connection: sa.Connection, *, now_us: int) -> int:
    ended = sa.select(_entry.name).where(_entry.until_us <= now_us).limit(MOST_ENDED)
    return connection.execute(sa.delete(vault_entry_table).where(_entry.name.in_(ended))).rowcount


def _read(
    connection: sa.Connection, *, session_id: str, names: Sequence[str], now_us: int
) -> list[tuple[str, str, str]]:
    found = sa.select(_entry.name, _entry.kind, _entry.sealed).where(
        _entry.session_id == session_id, _entry.name.in_(names), _entry.until_us > now_us
    )
    return [(str(name), str(kind), str(sealed)) for name, kind, sealed in connection.execute(found)]
