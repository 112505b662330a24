"""Encrypt the files of recordings at rest, and read them, also from the middle.

Keys are in a variable of the environment (``KEYS_ENV``): 32 bytes each in base64, separated by commas. The
first one encrypts; all of them decrypt, so that recordings from before a change of the key stay readable. A
key has an id that is derived from it, which every file names: a missing key is recognised as such.

A file is a header and chunks (AES-256-GCM):

    magic 8 | id of the key 8 | salt 32 | chunk | chunk | ...     chunk: nonce 12 | up to 64 KiB | tag 16

Each file has a key of its own (HKDF-SHA256 of the key and the salt), so that random nonces do not meet. The
associated data of a chunk are the header, the number of the chunk, that it is the last one, and the place of
the file (``SESSION/CALL/user_audio/000000.flac``). A file that was altered, cut off, or moved to another
place does not decrypt. A chunk is decrypted at a time, so that a part of a long file costs its own chunks.

Everything that reads or writes a file blocks.
"""

import base64
import binascii
import io
import os
from collections.abc import Sequence
from typing import Any, BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from parley.core.errors import ConfigError, MediaError

KEYS_ENV = "PARLEY_RECORDING_KEYS"
KEY_BYTES = 32
PLAIN_BYTES = 65_536
MAGIC = b"PARLEYE1"
_ID_BYTES, _SALT_BYTES, _NONCE_BYTES, _TAG_BYTES = 8, 32, 12, 16
HEADER_BYTES = len(MAGIC) + _ID_BYTES + _SALT_BYTES
_CHUNK_BYTES = _NONCE_BYTES + PLAIN_BYTES + _TAG_BYTES
_MAKE_ONE = "``openssl rand -base64 32`` prints one"


class RecordingKeyError(MediaError):
    """A recording was encrypted with a key that this process does not have: add it, and read again."""


class AlteredFileError(MediaError):
    """A file of an encrypted recording is damaged, was altered, or belongs to another place."""


class RecordingKeys:
    """Keys of recordings.

    Args:
        keys: 32 bytes each; the first one encrypts.
    """

    def __init__(self, keys: Sequence[bytes] = ()) -> None:
        self._keys = {_derived(key, b"", b"parley recording key id")[:_ID_BYTES]: key for key in keys}

    @classmethod
    def from_environment(cls) -> "RecordingKeys":
        """Return the keys of the environment; none where the variable is not set.

        Raises:
            ConfigError: one of them is not 32 bytes in base64.
        """
        given = [each.strip() for each in os.environ.get(KEYS_ENV, "").split(",")]
        return cls([_decoded(each) for each in given if each])

    def __bool__(self) -> bool:
        return bool(self._keys)

    @property
    def ids(self) -> tuple[str, ...]:
        """Ids of the keys, the encrypting one first."""
        return tuple(each.hex() for each in self._keys)

    def header(self) -> bytes:
        """Return the header of a new file.

        Raises:
            RecordingKeyError: there is no key.
        """
        for key_id in self._keys:
            return MAGIC + key_id + os.urandom(_SALT_BYTES)
        raise RecordingKeyError(f"an encrypted recording is written with a key: set {KEYS_ENV}")

    def cipher(self, header: bytes) -> AESGCM:
        """Return the cipher of the file with this header.

        Raises:
            RecordingKeyError: its key is not here.
        """
        key_id, salt = header[len(MAGIC) : -_SALT_BYTES], header[-_SALT_BYTES:]
        key = self._keys.get(key_id)
        if key is None:
            has = f"has only {', '.join(self.ids)}" if self._keys else "is not set"
            raise RecordingKeyError(
                f"this recording is encrypted with the key {key_id.hex()}: add it to {KEYS_ENV}, which {has}"
            )
        return AESGCM(_derived(key, salt, b"parley recording file"))


def check_encryption() -> RecordingKeys:
    """Return the keys of a deployment that encrypts its recordings.

    Raises:
        ConfigError: there is none, or one is wrong.
    """
    if keys := RecordingKeys.from_environment():
        return keys
    raise ConfigError(
        f"recording.encrypted: set {KEYS_ENV} to a key of 32 bytes in base64 ({_MAKE_ONE}). Keep it: without "
        "it the recordings cannot be read"
    )


class EncryptedFile(io.RawIOBase):
    """Encrypted file as its content: it can be read, or written, at any place.

    Writing has to begin at an end that exists; what was written is encrypted anew where it is written over. A
    reader knows the length for certain, because it has checked the last chunk.

    Args:
        raw: the file as it is stored, seekable; closed with this one.
        keys: of recordings.
        place: of the file, which it is bound to.
        is_new: it is written; otherwise it is read.

    Raises:
        RecordingKeyError: its key is not here.
        AlteredFileError: it is not an encrypted file, or not the one of this place.
    """

    def __init__(self, raw: BinaryIO, keys: RecordingKeys, place: str, *, is_new: bool = False) -> None:
        self._raw, self._place, self._is_new = raw, place, is_new
        self._at = 0
        self._number, self._chunk, self._is_changed = 0, bytearray(), is_new
        if is_new:
            self._header, self._count, self._size = keys.header(), 1, 0
            raw.write(self._header)
        else:
            self._header = raw.read(HEADER_BYTES)
            stored = raw.seek(0, os.SEEK_END) - HEADER_BYTES
            self._count = -(-stored // _CHUNK_BYTES)
            self._size = stored - self._count * (_NONCE_BYTES + _TAG_BYTES)
            if not self._header.startswith(MAGIC) or self._count < 1:
                raise AlteredFileError(f"{place}: not encrypted, or cut off, and so not of its recording")
        self._cipher = keys.cipher(self._header)
        if not is_new:
            self._chunk = self._decrypted(self._count - 1)
            self._number = self._count - 1

    def readable(self) -> bool:
        return not self._is_new

    def writable(self) -> bool:
        return self._is_new

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        start = {os.SEEK_SET: 0, os.SEEK_CUR: self._at, os.SEEK_END: self._size}[whence]
        if start + offset < 0 or (self._is_new and start + offset > self._size):
            raise OSError(f"{self._place}: there is no such place in the file")
        self._at = start + offset
        return self._at

    def tell(self) -> int:
        return self._at

    def readinto(self, buffer: Any) -> int:
        if self._at >= self._size:
            return 0
        number, offset = divmod(self._at, PLAIN_BYTES)
        self._turn_to(number)
        taken = self._chunk[offset : offset + len(buffer)]
        buffer[: len(taken)] = taken
        self._at += len(taken)
        return len(taken)

    def write(self, data: Any) -> int:
        left = memoryview(data).cast("B")
        length = len(left)
        while left:
            number, offset = divmod(self._at, PLAIN_BYTES)
            self._turn_to(number)
            taken = left[: PLAIN_BYTES - offset]
            self._chunk[offset : offset + len(taken)] = taken
            self._is_changed = True
            self._at += len(taken)
            self._size = max(self._size, self._at)
            left = left[len(taken) :]
        return length

    def finish(self) -> None:
        """Write the rest. Without it a file that was written cannot be read."""
        self._turn_to(self._count - 1)
        self._store(is_last=True)
        self._raw.flush()

    def close(self) -> None:
        if not self.closed:
            self._raw.close()
        super().close()

    def _turn_to(self, number: int) -> None:
        """Make another chunk the present one."""
        if number == self._number:
            return
        if self._is_changed:
            self._store(is_last=False)
        if number == self._count and self._is_new:
            self._chunk, self._count = bytearray(), number + 1
        else:
            self._chunk = self._decrypted(number)
        self._number = number

    def _store(self, *, is_last: bool) -> None:
        nonce = os.urandom(_NONCE_BYTES)
        sealed = self._cipher.encrypt(nonce, bytes(self._chunk), self._bound(self._number, is_last))
        self._raw.seek(HEADER_BYTES + self._number * _CHUNK_BYTES)
        self._raw.write(nonce + sealed)
        self._is_changed = False

    def _decrypted(self, number: int) -> bytearray:
        self._raw.seek(HEADER_BYTES + number * _CHUNK_BYTES)
        stored = self._raw.read(_CHUNK_BYTES)
        bound = self._bound(number, not self._is_new and number == self._count - 1)
        try:
            return bytearray(self._cipher.decrypt(stored[:_NONCE_BYTES], stored[_NONCE_BYTES:], bound))
        except (InvalidTag, ValueError) as error:
            raise AlteredFileError(
                f"{self._place}: damaged, altered, or moved here from another place"
            ) from error

    def _bound(self, number: int, is_last: bool) -> bytes:
        return self._header + number.to_bytes(8) + bytes([is_last]) + self._place.encode()


def encrypted(content: bytes, keys: RecordingKeys, place: str) -> bytes:
    """Return a small file as it is stored.

    Raises:
        RecordingKeyError: there is no key.
    """
    raw = io.BytesIO()
    file = EncryptedFile(raw, keys, place, is_new=True)
    file.write(content)
    file.finish()
    return raw.getvalue()


def _derived(key: bytes, salt: bytes, purpose: bytes) -> bytes:
    return HKDF(SHA256(), KEY_BYTES, salt, purpose).derive(key)


def _decoded(text: str) -> bytes:
    try:
        key = base64.b64decode(text, validate=True)
    except binascii.Error:
        key = b""
    if len(key) != KEY_BYTES:
        raise ConfigError(
            f"{KEYS_ENV}: a key has 32 bytes in base64, and several have commas between them ({_MAKE_ONE})"
        )
    return key
