"""Places of sources and outputs by how a command line names them: paths, and addresses in a bucket."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from parley.batch.destination import Destination, OutputWriter
from parley.batch.folder_destination import FolderWriter, folder_destination
from parley.batch.s3.address import ObjectAddress, is_address
from parley.batch.s3.destination import BucketWriter, bucket_destination
from parley.batch.s3.sources import find_objects
from parley.batch.settings import FileLimits
from parley.batch.sources import BatchSource, find_sources, root_of

SOURCE, OUT = "SOURCE", "--out"


def sources_at(place: str, limits: FileLimits) -> tuple[str, list[BatchSource]]:
    """Return the place below which sources have their names, and the sources in the order of names.

    Raises:
        ConfigError: there are none.
        ObjectStoreError: a bucket does not answer, or refuses.
    """
    if is_address(place):
        address = ObjectAddress.parse(place, option=SOURCE)
        return find_objects(address, address.open(option=SOURCE, retry_s=limits.s3_retry_s))
    path = Path(place)
    return root_of(path), find_sources(path)


@contextmanager
def destination_at(place: str, limits: FileLimits) -> Iterator[Destination]:
    """Hold a place of outputs for this run.

    Raises:
        ConfigError: another run holds it, or it is none.
        ObjectStoreError: a bucket does not answer, or refuses.
    """
    if is_address(place):
        address = ObjectAddress.parse(place, option=OUT)
        store = address.open(option=OUT, retry_s=limits.s3_retry_s)
        with bucket_destination(address, store) as bucket:
            yield bucket
        return
    with folder_destination(Path(place).absolute()) as folder:
        yield folder


def writer_at(location: str, limits: FileLimits) -> OutputWriter:
    """Return a writer for a ``Destination.location``.

    Raises:
        ConfigError: a variable of the environment is wrong.
    """
    if is_address(location):
        address = ObjectAddress.parse(location, option=OUT)
        return BucketWriter(address, address.open(option=OUT, retry_s=limits.s3_retry_s))
    return FolderWriter(Path(location))
