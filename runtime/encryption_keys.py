"""Keys with which a deployment encrypts what it stores.

Keys are in a variable of the environment: 32 bytes each in base64, separated by commas. The first one
encrypts; all of them decrypt, so that what was stored before a change of the key stays readable. A key has an
id that is derived from it, which everything that is encrypted names: a missing key is recognised as such.
Each encrypted thing has a key of its own (HKDF-SHA256 of the key and a salt), so that random nonces do not
meet.
"""

import base64
import binascii
import os
from collections.abc import Sequence
from typing import ClassVar, Self

from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from parley.core.errors import ConfigError

KEY_BYTES = 32
ID_BYTES = 8
SALT_BYTES = 32
NONCE_BYTES, TAG_BYTES = 12, 16
MAKE_ONE = "``openssl rand -base64 32`` prints one"


class EncryptionKeys:
    """Keys of one use; a subclass names it.

    Args:
        keys: 32 bytes each; the first one encrypts.

    Attributes:
        variable: name of the variable of the environment.
        purpose: separates keys of this use from those of others.
    """

    variable: ClassVar[str]
    purpose: ClassVar[bytes]

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._keys = {derived(key, b"", self.purpose + b" key id")[:ID_BYTES]: key for key in keys}

    @classmethod
    def from_environment(cls) -> Self:
        """Return the keys of the environment; none where the variable is not set.

        Raises:
            ConfigError: one of them is not 32 bytes in base64.
        """
        given = [each.strip() for each in os.environ.get(cls.variable, "").split(",")]
        return cls([decoded_key(each, cls.variable) for each in given if each])

    def __bool__(self) -> bool:
        return bool(self._keys)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the keys, the encrypting one first."""
        return tuple(each.hex() for each in self._keys)

    def first_id(self) -> bytes | None:
        """Return the id of the key that encrypts; None without any."""
        return next(iter(self._keys), None)

    def find(self, key_id: bytes) -> bytes | None:
        """Return the key of an id; None when it is not here."""
        return self._keys.get(key_id)


def derived(key: bytes, salt: bytes, purpose: bytes) -> bytes:
    """Return the key of one thing, or of one use."""
    return HKDF(SHA256(), KEY_BYTES, salt, purpose).derive(key)


def decoded_key(text: str, variable: str) -> bytes:
    """Return a key of a variable of the environment.

    Raises:
        ConfigError: it is not 32 bytes in base64.
    """
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(
            f"{variable}: a key has 32 bytes in base64, and several have commas between them ({MAKE_ONE})"
        )
    return key
