"""Keys of applications as a variable of the environment lists them: plain or hashed, with scopes.

An entry is ``[SCOPE[+SCOPE]:]KEY``, where KEY is the key itself, without a colon, or ``hash:HEX``. The hash
is the SHA-256 of a label and the key, so its first half is the application's name whether the key is plain or
hashed: sessions keep their owner when a key is replaced by its hash.

A process keeps hashes and the secrets with which tokens are signed, no keys. The secret of a plain key is
derived from the key. A hash is no secret, so the secrets of hashed keys are derived from
``PARLEY_TOKEN_SECRET``, which all servers of a deployment share.
"""

import hashlib
import hmac
import os
import re
from dataclasses import dataclass

from parley.core.errors import ConfigError
from parley.core.grants import KeyScope

TOKEN_SECRET_ENV = "PARLEY_TOKEN_SECRET"
LEAST_KEY_CHARS = 16
HASHED = "hash:"
_NAME_CHARS = 32
_HASH = re.compile(r"[0-9a-f]{64}")
_SCOPES = "|".join(KeyScope)
_ENTRY = re.compile(rf"(?:(?P<scopes>(?:{_SCOPES})(?:\+(?:{_SCOPES}))*):)?(?P<key>.*)", re.DOTALL)


@dataclass(frozen=True, slots=True)
class KeyEntry:
    """Key of an application.

    Attributes:
        hashed: SHA-256 of the key (``hash_of``), hexadecimal.
        secret: with which tokens of the key are signed.
        scopes: of the key; None: all of them.
    """

    hashed: str
    secret: bytes
    scopes: frozenset[str] | None

    @property
    def application(self) -> str:
        """Name of the application whose key it is."""
        return self.hashed[:_NAME_CHARS]

    def matches(self, hashed: str) -> bool:
        """Return whether this is the key with a hash; the time that takes reveals nothing."""
        return hmac.compare_digest(self.hashed, hashed)


def hash_of(key: str) -> str:
    """Return the hash of a key, hexadecimal."""
    return hashlib.sha256(b"parley client application\0" + key.encode("utf-8", "surrogateescape")).hexdigest()


def read_entries(variable: str) -> list[KeyEntry]:
    """Return the keys in a variable of the environment.

    Raises:
        ConfigError: an entry is no key, or the secret for hashed ones is missing.
    """
    given = os.environ.get(variable, "").split(",")
    return [_read_entry(variable, entry.strip()) for entry in given if entry.strip()]


def _read_entry(variable: str, entry: str) -> KeyEntry:
    found = _ENTRY.fullmatch(entry)
    assert found is not None
    key, scopes = found["key"].strip(), found["scopes"]
    granted = None if scopes is None else frozenset(scopes.split("+"))
    if key.startswith(HASHED):
        hashed = key.removeprefix(HASHED)
        if not _HASH.fullmatch(hashed):
            raise ConfigError(f"{variable}: after {HASHED} expected 64 digits, as `parley key` prints them")
        return KeyEntry(hashed, _secret_of(variable, hashed), granted)
    if ":" in key:
        # A mistyped scope or hash would be a key that the variable shows.
        raise ConfigError(
            f"{variable}: before a colon expected {HASHED[:-1]} or scopes ({', '.join(KeyScope)}, joined by "
            "+); a key has no colon"
        )
    if len(key.encode("utf-8", "surrogateescape")) < LEAST_KEY_CHARS:
        raise ConfigError(f"{variable}: expected a key of at least {LEAST_KEY_CHARS} characters")
    secret = hashlib.sha256(b"parley client token v2\0" + key.encode("utf-8", "surrogateescape")).digest()
    return KeyEntry(hash_of(key), secret, granted)


def _secret_of(variable: str, hashed: str) -> bytes:
    """Return the secret of a hashed key."""
    shared = os.environ.get(TOKEN_SECRET_ENV, "").strip()
    if len(shared) < LEAST_KEY_CHARS:
        raise ConfigError(
            f"{variable} has a hashed key: set {TOKEN_SECRET_ENV} to a secret of at least "
            f"{LEAST_KEY_CHARS} characters, the same on every server; their tokens are signed with it"
        )
    label = b"parley client token v2 of hash\0" + hashed.encode()
    return hmac.digest(shared.encode("utf-8", "surrogateescape"), label, "sha256")
