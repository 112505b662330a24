"""Bucket as the place of a job's outputs.

Outputs have the names of a folder's files below the prefix. There is no database: the JSON of a source is
the record that it is done, and holds its key. It is written last, and on the condition that the object which
the plan saw (or none) is still in its place, so that of two writers one succeeds, whatever happened to the
lease. What failed is an object of its own, ``.parley/failed/KEY``. A run that was killed at any moment leaves
objects that are complete.
"""

import json
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress

from parley.batch.destination import PARKED_FILE, OutputError, ParkedItem, UnusableNameError
from parley.batch.s3.address import ObjectAddress
from parley.batch.s3.lease import LEASE_S, RENEW_S, BucketLease
from parley.batch.sources import BatchSource
from parley.batch.transcript import JSON, KEY_BYTES, SUFFIXES, Transcription, contents, key_in
from parley.core.errors import ConfigError
from parley.runtime.object_store import (
    Expected,
    ObjectChangedError,
    ObjectMissingError,
    ObjectStore,
    ObjectStoreError,
)

OWN = ".parley"
LEASE, ROOT, FAILED = f"{OWN}/lease.json", f"{OWN}/root", f"{OWN}/failed"
# Requests at a time: the heads of 10,000 transcripts are read in some seconds.
AT_ONCE = 16
# Of S3: the longest name of an object.
MOST_NAME_BYTES = 1_024
_MOST_BYTES = 100_000
_TAKEN_OVER = "another run is writing there, with other options or another source"


@contextmanager
def bucket_destination(
    address: ObjectAddress, store: ObjectStore, *, lease_s: float = LEASE_S, renew_s: float = RENEW_S
) -> Iterator["BucketDestination"]:
    """Hold the place below an address for this run.

    Raises:
        ConfigError: another run holds it, or the server ignores conditions.
        ObjectStoreError: the bucket does not answer, or refuses.
    """
    with BucketLease(store, address.key(LEASE), str(address), lease_s=lease_s, renew_s=renew_s) as lease:
        yield BucketDestination(address, store, lease)


class BucketDestination:
    """Place in a bucket that this process holds (``destination.Destination``).

    Args:
        address: of the place.
        store: its bucket.
        lease: of the place.
    """

    def __init__(self, address: ObjectAddress, store: ObjectStore, lease: BucketLease) -> None:
        self.location = str(address)
        self.descriptors: tuple[int, ...] = ()
        self._address, self._store, self._lease = address, store, lease
        self._keys: dict[str, str] = {}
        self._tags: dict[str, str] = {}
        self._failed: dict[str, ParkedItem] = {}
        self._parked: set[str] = set()
        self._done = 0

    def belong_to(self, root: str) -> None:
        name, content = self._address.key(ROOT), root.encode("utf-8", "surrogateescape")
        with suppress(ObjectChangedError):
            self._store.put(name, content, Expected())
        try:
            self._store.put(name, content, Expected())
        except ObjectChangedError:
            theirs = self._store.read(name, 0, _MOST_BYTES)
        else:
            raise ConfigError(
                f"{self._address}: this server writes over objects although the request forbids it "
                "(If-None-Match): choose a folder as --out"
            )
        if theirs != content:
            where = theirs.decode("utf-8", "backslashreplace")
            raise ConfigError(f"{self._address}: holds the transcripts of {where}; choose another for {root}")

    def plan(
        self, items: Sequence[tuple[BatchSource, str]], *, retry_parked: bool = False
    ) -> list[BatchSource]:
        self._keys = {source.name: key for source, key in items}
        outputs = {f"{name}{suffix}" for name in self._keys for suffix in SUFFIXES}
        failed: set[str] = set()
        for name, found in self._store.objects(self._address.key("")):
            if name in outputs:
                self._tags[name] = found.tag
            elif name.startswith(f"{FAILED}/"):
                failed.add(name.rpartition("/")[2])
        written = [name for name in self._keys if f"{name}{JSON}" in self._tags]
        with ThreadPoolExecutor(AT_ONCE, thread_name_prefix="bucket") as threads:
            keys = dict(zip(written, threads.map(self._written_key, written), strict=True))
            done = {name for name in written if keys[name] == self._keys[name]}
            tried = [name for name, key in self._keys.items() if key in failed and name not in done]
            for name, (item, is_parked) in zip(tried, threads.map(self._failure, tried), strict=True):
                if not (is_parked and retry_parked):
                    self._failed[name] = item
                    self._parked |= {name} if is_parked else set()
        self._done = len(done)
        return [source for source, _ in items if source.name not in done | self._parked]

    def replaced(self, name: str) -> Mapping[str, str]:
        tags = {suffix: self._tags.get(f"{name}{suffix}") for suffix in SUFFIXES}
        return {suffix: tag for suffix, tag in tags.items() if tag is not None}

    def check_held(self) -> None:
        if self._lease.is_lost:
            raise OutputError(f"{self._address}: {_TAKEN_OVER}; the same command goes on")

    def finish(self, name: str, *, audio_ms: int, cpu_ms: int) -> None:
        # Its JSON says so.
        self._done += 1

    def fail(self, name: str, reason: str, *, most_tries: int) -> bool:
        before = self._failed.get(name, ParkedItem(name, "", 0))
        self._failed[name] = item = ParkedItem(name, reason, before.tries + 1)
        is_parked = item.tries >= most_tries
        facts = {"source": name, "reason": reason, "tries": item.tries, "is_parked": is_parked}
        self._store.put(self._failure_name(name), json.dumps(facts).encode())
        if is_parked:
            self._parked.add(name)
        return is_parked

    def parked(self) -> list[ParkedItem]:
        return [self._failed[name] for name in sorted(self._parked)]

    def done(self) -> int:
        return self._done

    def write_parked(self, content: bytes) -> None:
        self._store.put(self._address.key(PARKED_FILE), content)

    def _written_key(self, name: str) -> str | None:
        with suppress(ObjectMissingError):
            return key_in(self._store.read(self._address.key(name + JSON), 0, KEY_BYTES))
        return None

    def _failure(self, name: str) -> tuple[ParkedItem, bool]:
        try:
            facts = json.loads(self._store.read(self._failure_name(name), 0, _MOST_BYTES))
            return ParkedItem(name, str(facts["reason"]), int(facts["tries"])), facts["is_parked"] is True
        except (ValueError, TypeError, KeyError, ObjectMissingError):
            # Written by another program, or removed meanwhile.
            return ParkedItem(name, "", 0), False

    def _failure_name(self, name: str) -> str:
        return self._address.key(f"{FAILED}/{self._keys[name]}")


class BucketWriter:
    """Writer of objects (``destination.OutputWriter``).

    Args:
        address: of the place.
        store: its bucket.
    """

    def __init__(self, address: ObjectAddress, store: ObjectStore) -> None:
        self._address, self._store = address, store

    def write(self, found: Transcription, replaced: Mapping[str, str], session: bytes | None = None) -> None:
        if len(self._address.key(found.source + JSON).encode()) > MOST_NAME_BYTES:
            raise UnusableNameError("its name is too long for the names of its outputs")
        if any(letter < " " or letter == "\x7f" for letter in found.source):
            # S3 takes them, its clients do not.
            raise UnusableNameError("its name has characters that the name of an object cannot have")
        try:
            for suffix, content in contents(found, session).items():
                self._put(found, suffix, content, Expected(replaced.get(suffix)))
        except ObjectStoreError as error:
            raise OutputError(f"{self._address}: cannot be written: {error}") from error

    def _put(self, found: Transcription, suffix: str, content: bytes, expected: Expected) -> None:
        name = self._address.key(found.source + suffix)
        try:
            self._store.put(name, content, expected)
        except ObjectChangedError as error:
            # The write of a run that was killed may end after it; so may that of a lost answer.
            if suffix == JSON:
                is_same = key_in(self._store.read(name, 0, KEY_BYTES)) == found.key
            else:
                is_same = self._store.read(name, 0, len(content) + 1) == content
            if not is_same:
                raise OutputError(f"{self._address}: {_TAKEN_OVER}") from error
