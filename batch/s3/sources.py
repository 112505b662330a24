"""Find what a batch job transcribes in a bucket: objects with audio, and recorded calls.

A source's name is that of its object below the given prefix. A recorded call is one source, as in a folder:
its objects are ``.../SESSION/CALL/...``. It is complete when its ``meta.json`` is there, which is uploaded
last; without it the call is left for the next run. Nothing is read here but names, sizes and tags.
"""

import hashlib
from pathlib import PurePosixPath

from parley.batch.s3.address import ObjectAddress
from parley.batch.sources import SUFFIXES, BatchSource, SourceKind, nothing_found
from parley.core.errors import ConfigError
from parley.recording.folder import BOT_AUDIO, CALLER_AUDIO, META, is_call, is_session
from parley.runtime.object_store import ObjectStore, StoredObject


def find_objects(address: ObjectAddress, store: ObjectStore) -> tuple[str, list[BatchSource]]:
    """Return the place below which the sources have their names, and the sources in the order of names.

    Raises:
        ConfigError: there is nothing below the address, or nothing that is audio.
        ObjectStoreError: the bucket does not answer, or refuses.
    """
    if _is_audio(address.prefix) and (found := store.facts(address.prefix)) is not None:
        folder, _, name = address.prefix.rpartition("/")
        return str(ObjectAddress(address.bucket, folder)), [_object(address, name, address.prefix, found)]
    beginning = f"{address.prefix}/" if address.prefix else ""
    calls: dict[PurePosixPath, dict[str, StoredObject]] = {}
    sources: list[BatchSource] = []
    is_empty = True
    for name, found in store.objects(beginning):
        is_empty = False
        key = PurePosixPath(beginning + name)
        if (call := _call_of(key)) is not None:
            calls.setdefault(call, {})[key.relative_to(call).as_posix()] = found
        elif _is_audio(name):
            sources.append(_object(address, name, beginning + name, found))
    if is_empty:
        raise ConfigError(f"{address}: there is no such object, and none below this name")
    sources += [_call(address, call, objects) for call, objects in calls.items() if META in objects]
    if not sources:
        raise nothing_found(str(address))
    return str(address), sorted(sources, key=lambda source: source.name)


def _is_audio(name: str) -> bool:
    return PurePosixPath(name).suffix.lower() in SUFFIXES


def _call_of(key: PurePosixPath) -> PurePosixPath | None:
    """Return the folder of the recorded call that an object belongs to."""
    parts = key.parts
    for place in range(1, len(parts) - 1):
        if is_call(parts[place]) and is_session(parts[place - 1]):
            return PurePosixPath(*parts[: place + 1])
    return None


def _object(address: ObjectAddress, name: str, key: str, found: StoredObject) -> BatchSource:
    location = str(ObjectAddress(address.bucket, key))
    return BatchSource(name, location, SourceKind.OBJECT, found.tag, found.modified_ns // 1_000)


def _call(address: ObjectAddress, call: PurePosixPath, objects: dict[str, StoredObject]) -> BatchSource:
    root = PurePosixPath(address.prefix)
    name = call.relative_to(root).as_posix() if call.is_relative_to(root) and call != root else call.name
    digest = hashlib.sha256()
    for each, found in sorted(objects.items()):
        if each.startswith((f"{CALLER_AUDIO}/", f"{BOT_AUDIO}/")):
            digest.update(f"{each} {found.tag}\n".encode())
    location = str(ObjectAddress(address.bucket, call.as_posix()))
    written_us = objects[META].modified_ns // 1_000
    return BatchSource(name, location, SourceKind.STORED_CALL, digest.hexdigest()[:16], written_us)
