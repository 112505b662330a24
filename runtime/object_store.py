"""Objects in a bucket of S3, or of a server that speaks its protocol: list, read, write with conditions.

Credentials are those of AWS's own variables of the environment (``AWS_ACCESS_KEY_ID``, ...), or of the
machine's role. Slow or away: a request has the time of ``RequestLimits``, is tried again, and fails with an
``ObjectStoreError``. Everything here blocks, without holding the interpreter.
"""

import os
import re
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import timedelta
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from typing import Any, TypeVar

from parley.core.errors import ConfigError, MediaError, one_line
from parley.core.installation import pip_command

_T = TypeVar("_T")
EXTRA = "s3"
# Objects that S3 removes in one request, with room to spare.
_MOST_REMOVED = 500
_MOST_SHOWN = 300
# Variables of another server than AWS's, which S3's own clients read.
ENDPOINT_ENV = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL")
_REFUSED = re.compile(r"status code: (401|403)\b")
_CODE = re.compile(r"<Code>(\w{1,64})</Code>")


class ObjectStoreError(MediaError):
    """The bucket does not answer, or refuses: try again later.

    Attributes:
        code: S3's own name of the failure, such as ``NoSuchBucket``; empty without an answer.
    """

    def __init__(self, message: str, *, code: str = "") -> None:
        super().__init__(message)
        self.code = code


class ObjectDeniedError(ObjectStoreError):
    """The credentials do not permit this request."""


class ObjectMissingError(ObjectStoreError):
    """The bucket has no such object."""


class ObjectChangedError(ObjectStoreError):
    """The object is not the one that the request is for: it was written or removed meanwhile."""


@dataclass(frozen=True, slots=True)
class StoredObject:
    """Facts of an object.

    Attributes:
        modified_ns: time when it was written, on the clock of the bucket.
        size: in bytes.
        tag: changes with the content (``ETag``).
    """

    modified_ns: int
    size: int
    tag: str = ""


@dataclass(frozen=True, slots=True)
class Expected:
    """Condition of a write: the object has this tag; None: there is no object."""

    tag: str | None = None


@dataclass(frozen=True, slots=True)
class RequestLimits:
    """Time and tries of a request.

    Attributes:
        connect_s: longest time to connect.
        read_s: longest request of a reader, who waits.
        write_s: longest upload, of 5 MB.
        retries: number of times that a failed request is tried again.
        retry_s: time during which it is.
    """

    connect_s: float = 5
    read_s: float = 10
    write_s: float = 60
    retries: int = 2
    retry_s: float = 20


LIMITS = RequestLimits()


class ObjectStore:
    """Bucket. Any thread may use it.

    Args:
        bucket: its name.
        endpoint: address of another server than AWS's; None: that of the environment.
        region: of the bucket; None: that of the environment.
        option: that names the bucket, for messages.
        credentials: id and secret of a key; None: those of the environment or of the machine.
        limits: of a request.

    Raises:
        ConfigError: the package is not installed, or a setting is none of S3.
    """

    def __init__(
        self,
        bucket: str,
        *,
        option: str,
        endpoint: str | None = None,
        region: str | None = None,
        credentials: tuple[str, str] | None = None,
        limits: RequestLimits = LIMITS,
    ) -> None:
        check_package(option)
        from obstore.exceptions import BaseError
        from obstore.store import S3Store

        self._bucket = bucket
        self._failures: tuple[type[Exception], ...] = (BaseError, OSError, ValueError)
        address = endpoint or next(filter(None, map(os.environ.get, ENDPOINT_ENV)), None)
        config: Any = {} if address is None else {"endpoint": address}
        if region is not None:
            config["region"] = region
        if credentials is not None:
            config["access_key_id"], config["secret_access_key"] = credentials
        options: Any = {
            "allow_http": (address or "").startswith("http://"),
            "connect_timeout": timedelta(seconds=limits.connect_s),
        }
        tries: Any = {
            "max_retries": limits.retries,
            "retry_timeout": timedelta(seconds=limits.retry_s),
        }
        try:
            self._reading, self._writing = (
                S3Store(
                    bucket,
                    config=config,
                    client_options=options | {"timeout": timedelta(seconds=most_s)},
                    retry_config=tries,
                )
                for most_s in (limits.read_s, limits.write_s)
            )
        except (BaseError, ValueError) as error:
            raise ConfigError(f"{option}: {one_line(error)[:_MOST_SHOWN]}") from error

    def objects(self, beginning: str) -> Iterator[tuple[str, StoredObject]]:
        """Yield the objects below a name that ends with a slash, or all: the rest of the name, and facts.

        Raises:
            ObjectStoreError: the bucket does not answer.
        """
        import obstore

        pages = iter(obstore.list(self._reading, beginning))
        while (page := self._done("list", lambda: next(pages, None))) is not None:
            for each in page:
                yield each["path"].removeprefix(beginning), _facts(each)

    def facts(self, name: str) -> StoredObject | None:
        """Return the facts of an object; None when there is none.

        Raises:
            ObjectStoreError: the bucket does not answer.
        """
        import obstore

        with suppress(ObjectMissingError):
            return _facts(self._done("read", lambda: obstore.head(self._reading, name)))
        return None

    def put_file(self, name: str, path: Path) -> None:
        """Write a file as an object, over one that is there.

        Raises:
            OSError: the file cannot be read.
            ObjectStoreError: the bucket does not answer.
        """
        import obstore

        with path.open("rb") as file:
            self._done("write", partial(obstore.put, self._writing, name, file, max_concurrency=1))

    def put(self, name: str, content: bytes, expected: Expected | None = None) -> str:
        """Write an object at once; return its tag.

        Args:
            name: of the object.
            content: of the object.
            expected: condition; None: over one that is there.

        Raises:
            ObjectChangedError: the condition does not hold; also where an answer was lost and the retry
                finds what this call wrote.
            ObjectStoreError: the bucket does not answer.
        """
        import obstore

        mode: Any = "overwrite"
        if expected is not None:
            mode = "create" if expected.tag is None else {"e_tag": expected.tag}
        put = partial(obstore.put, self._writing, name, content, mode=mode, use_multipart=False)
        return str(self._done("write", put)["e_tag"])

    def read(self, name: str, start: int, end: int, *, tag: str | None = None) -> bytes:
        """Return bytes of an object.

        Args:
            name: of the object.
            start: first byte.
            end: byte after the last one; both may be after the end of the object, which has no more bytes.
            tag: that the object must have; None: any.

        Raises:
            ObjectMissingError: the object is gone.
            ObjectChangedError: it has another tag.
            ObjectStoreError: the bucket does not answer.
        """
        import obstore

        options: Any = {"range": (start, end)} | ({} if tag is None else {"if_match": tag})
        try:
            # The body is part of the request: the connection may be lost in it.
            body = self._done("read", lambda: obstore.get(self._reading, name, options=options).bytes())
        except ObjectStoreError as error:
            if error.code == "InvalidRange":
                return b""
            raise
        return bytes(body)

    def remove(self, names: Sequence[str]) -> None:
        """Remove objects, in this order.

        Raises:
            ObjectStoreError: the bucket does not answer; some may be removed.
        """
        import obstore

        for batch in (names[at : at + _MOST_REMOVED] for at in range(0, len(names), _MOST_REMOVED)):
            self._done("remove", partial(obstore.delete, self._reading, batch))

    def _done(self, verb: str, request: Callable[[], _T]) -> _T:
        try:
            return request()
        except self._failures as error:
            raise self._failure(verb, error) from error

    def _failure(self, verb: str, error: Exception) -> ObjectStoreError:
        from obstore import exceptions

        found = _CODE.search(str(error))
        code = found[1] if found else ""
        if code == "NoSuchBucket":
            return ObjectStoreError(
                f"S3 does not {verb}: there is no bucket {self._bucket!r} (NoSuchBucket)", code=code
            )
        # Its text may hold the answer of a server, of any length.
        reason = one_line(error)[:_MOST_SHOWN]
        # A refused list has no type of its own.
        if (status := _REFUSED.search(str(error))) is not None:
            return ObjectDeniedError(
                f"S3 does not {verb}: access to the bucket {self._bucket!r} is denied "
                f"({status[1]} {code or 'Forbidden'}); check the credentials and the policy of the bucket",
                code=code,
            )
        kind = ObjectStoreError
        if isinstance(error, FileNotFoundError):
            kind = ObjectMissingError
        elif isinstance(error, exceptions.PreconditionError | exceptions.AlreadyExistsError):
            kind = ObjectChangedError
        return kind(f"S3 does not {verb}: {reason}", code=code)


def check_package(option: str) -> None:
    """Check that the package for buckets is installed.

    Args:
        option: that names a bucket, for the message.

    Raises:
        ConfigError: it is not.
    """
    if find_spec("obstore") is None:
        raise ConfigError(f"{option} needs the extra {EXTRA!r}: {pip_command(EXTRA)}")


def _facts(found: Any) -> StoredObject:
    return StoredObject(round(found["last_modified"].timestamp() * 1e9), found["size"], found["e_tag"] or "")
