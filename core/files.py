"""Check that the files of local models exist, and report how to get those that do not.

Decides what a missing or altered file means; loads nothing. Models are never fetched at run time, so a
missing file is a matter for the person who starts the server. The settings of engines and the rows of
services run these checks before the server reports that it is ready.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from parley.core.errors import ModelFileError
from parley.core.installation import fetch_command

MODELS_DIR = Path("models-cache")


@runtime_checkable
class Checked(Protocol):
    """Settings that can check their own requirements on this machine."""

    def check(self) -> None:
        """Check whether the engine can be loaded, without loading it.

        Raises:
            ModelFileError: a file is missing; names it and the command that fetches it.
        """
        ...


def require_files(engine: str, *paths: Path) -> None:
    """Check that local model files exist.

    Args:
        engine: name of the engine that needs them, as ``parley models`` takes it.
        *paths: the files.

    Raises:
        ModelFileError: names the first missing file and the command that fetches it.
    """
    for path in paths:
        if not path.is_file():
            raise ModelFileError(
                f"{engine!r} needs {path}, which does not exist: run `{fetch_command(engine)}`"
            )


def require_hashes(engine: str, folder: Path, sha256: Mapping[str, str]) -> None:
    """Check that the files of a model exist and are the tested ones.

    Args:
        engine: name of the engine that needs them, as ``parley models`` takes it.
        folder: holds the files.
        sha256: name of each file to the SHA-256 of its content, in hexadecimal digits.

    Raises:
        ModelFileError: names the first file that is missing or altered, and the command that fetches it.
    """
    require_files(engine, *(folder / name for name in sha256))
    for name, expected in sha256.items():
        with (folder / name).open("rb") as file:
            found = hashlib.file_digest(file, "sha256").hexdigest()
        if found != expected:
            raise ModelFileError(
                f"{engine!r} needs {folder / name} as it was tested (SHA-256 {expected[:8]}...), but the "
                f"file has changed ({found[:8]}...): run `{fetch_command(engine)}`"
            )
