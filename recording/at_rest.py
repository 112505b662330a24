"""Encrypt the files of recordings at rest, and read them, also from the middle.

Keys are in a variable of the environment (``KEYS_ENV``, ``runtime.encryption_keys``).

A file is a header and chunks (AES-256-GCM):

    magic 8 | id of the key 8 | salt 32 | chunk | chunk | ...     chunk: nonce 12 | up to 64 KiB | tag 16

Each file has a key of its own (HKDF-SHA256 of the key and the salt), so that random nonces do not meet. The
associated data of a chunk are the header, the number of the chunk, that it is the last one, and the place of
the file (``SESSION/CALL/user_audio/000000.flac``). A file that was altered, cut off, or moved to another
place does not decrypt. A chunk is decrypted at a time, so that a part of a long file costs its own chunks.

Everything that reads or writes a file blocks.
"""

import io
import os
from typing import Any, BinaryIO

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from parley.core.errors import ConfigError, MediaError
from parley.runtime.encryption_keys import (
    ID_BYTES,
    MAKE_ONE,
    NONCE_BYTES,
    SALT_BYTES,
    TAG_BYTES,
    EncryptionKeys,
    derived,
)

KEYS_ENV = "PARLEY_RECORDING_KEYS"
PLAIN_BYTES = 65_536
MAGIC = b"PARLEYE1"
HEADER_BYTES = len(MAGIC) + ID_BYTES + SALT_BYTES
_CHUNK_BYTES = NONCE_BYTES + PLAIN_BYTES + TAG_BYTES


class RecordingKeyError(MediaError):
    """A recording was encrypted with a key that this process does not have: add it, and read again."""


class AlteredFileError(MediaError):
    """A file of an encrypted recording is damaged, was altered, or belongs to another place."""


class RecordingKeys(EncryptionKeys):
    """Keys of recordings."""

    variable = KEYS_ENV
    purpose = b"parley recording"

    def header(self) -> bytes:
        """Return the header of a new file.

        Raises:
            RecordingKeyError: there is no key.
        """
        if (key_id := self.first_id()) is not None:
            return MAGIC + key_id + os.urandom(SALT_BYTES)
        raise RecordingKeyError(f"an encrypted recording is written with a key: set {KEYS_ENV}")

    def cipher(self, header: bytes) -> AESGCM:
        """Return the cipher of the file with this header.

        Raises:
            RecordingKeyError: its key is not here.
        """
        key_id, salt = header[len(MAGIC) : -SALT_BYTES], header[-SALT_BYTES:]
        key = self.find(key_id)
        if key is None:
            has = f"has only {', '.join(self.ids)}" if self else "is not set"
            raise RecordingKeyError(
                f"this recording is encrypted with the key {key_id.hex()}: add it to {KEYS_ENV}, which {has}"
            )
        return AESGCM(derived(key, salt, b"parley recording file"))


def check_encryption() -> RecordingKeys:
    """Return the keys of a deployment that encrypts its recordings.

    Raises:
        ConfigError: there is none, or one is wrong.
    """
    if keys := RecordingKeys.from_environment():
        return keys
    raise ConfigError(
        f"recording.encrypted: set {KEYS_ENV} to a key of 32 bytes in base64 ({MAKE_ONE}). Keep it: without "
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
            self._size = stored - self._count * (NONCE_BYTES + TAG_BYTES)
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
        nonce = os.urandom(NONCE_BYTES)
        sealed = self._cipher.encrypt(nonce, bytes(self._chunk), self._bound(self._number, is_last))
        self._raw.seek(HEADER_BYTES + self._number * _CHUNK_BYTES)
        self._raw.write(nonce + sealed)
        self._is_changed = False

    def _decrypted(self, number: int) -> bytearray:
        self._raw.seek(HEADER_BYTES + number * _CHUNK_BYTES)
        stored = self._raw.read(_CHUNK_BYTES)
        bound = self._bound(number, not self._is_new and number == self._count - 1)
        try:
            return bytearray(self._cipher.decrypt(stored[:NONCE_BYTES], stored[NONCE_BYTES:], bound))
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
