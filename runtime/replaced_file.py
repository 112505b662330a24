"""A small file that is written whole or not at all. Blocks: call it in a thread.

A reader sees the old content or the new one, and so does whoever starts after a crash or a power cut: the new
content is on the disk before it takes the name. What a crash leaves behind is a file with a name of its own
(``.name.XXXX``), which nobody reads; ``sweep`` removes those.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Give a file new content; its folder is made when it is not there.

    Raises:
        OSError: the old content is still there.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        os.replace(name, path)
    except BaseException:
        with suppress(FileNotFoundError):
            os.unlink(name)
        raise
    _sync_folder(path.parent)


def sweep(path: Path) -> None:
    """Remove what crashes have left behind of a file that only this process writes."""
    for left in path.parent.glob(f".{path.name}.*"):
        with suppress(FileNotFoundError):
            left.unlink()


def _sync_folder(folder: Path) -> None:
    """The name is on the disk too."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
