"""Files of local models: there, or a configuration error that says how to get them.

Decides what a missing or altered file means; loads nothing. Models are never fetched at run time, so a file
that is not there is for the person who starts the server: settings of engines and rows of services ask here
before it says that it is ready.
"""

import hashlib
from collections.abc import Mapping
from pathlib import Path
from typing import Protocol, runtime_checkable

from core.errors import ModelFileError

MODELS_DIR = Path("models-cache")


@runtime_checkable
class Checked(Protocol):
    """Settings that know what they need on this machine."""

    def check(self) -> None:
        """Find out whether the engine can be loaded, without loading it.

        Raises:
            ModelFileError: a file is missing; names it and the command that fetches it.
        """
        ...


def require_files(engine: str, *paths: Path) -> None:
    """Make sure that local model files are there.

    Args:
        engine: who needs them, by the name that ``make models`` knows.
        *paths: the files.

    Raises:
        ModelFileError: names the first missing file and the command that fetches it.
    """
    for path in paths:
        if not path.is_file():
            raise ModelFileError(
                f"{engine!r} needs {path}, which is not there: run `make models` with ARGS={engine}"
            )


def require_hashes(engine: str, folder: Path, sha256: Mapping[str, str]) -> None:
    """Make sure that the files of a model are there and are those that were tested.

    Args:
        engine: who needs them, by the name that ``make models`` knows.
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
                f"{engine!r} needs {folder / name} as it was tested (SHA-256 {expected[:8]}...), and it is "
                f"altered ({found[:8]}...): run `make models` with ARGS={engine}"
            )
