"""Atomic replacement of a small file. Blocks: call it in a thread.

A reader sees either the old content or the new one, also after a crash or a power cut, because the new
content is on the disk before it takes the name. A crash may leave a temporary file (``.name.XXXX``), which is
never read; ``sweep`` removes it.
"""

import os
import tempfile
from contextlib import suppress
from pathlib import Path


def replace_file(path: Path, content: bytes) -> None:
    """Replace the content of a file; create its folder when it is missing.

    Raises:
        OSError: the file could not be written or its folder not synced.
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
    """Remove temporary files that crashes have left of a file that only this process writes."""
    for left in path.parent.glob(f".{path.name}.*"):
        with suppress(FileNotFoundError):
            left.unlink()


def _sync_folder(folder: Path) -> None:
    """Write the entry of a new name to the disk."""
    handle = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
