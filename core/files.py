"""Files of local models: there, or a configuration error that says how to get them.

Decides what a missing file means; looks, and reads nothing. Models are never fetched at run time, so a file
that is not there is for the person who starts the server: settings of engines and rows of services ask here
before it says that it is ready.
"""

from pathlib import Path
from typing import Protocol, runtime_checkable

from core.errors import ConfigError

MODELS_DIR = Path("models-cache")


@runtime_checkable
class Checked(Protocol):
    """Settings that know what they need on this machine."""

    def check(self) -> None:
        """Find out whether the engine can be loaded, without loading it.

        Raises:
            ConfigError: a file is missing; names it and the command that fetches it.
        """
        ...


def require_files(engine: str, *paths: Path) -> None:
    """Make sure that local model files are there.

    Args:
        engine: who needs them, by the name that ``make models`` knows.
        *paths: the files.

    Raises:
        ConfigError: names the first missing file and the command that fetches it.
    """
    for path in paths:
        if not path.is_file():
            raise ConfigError(
                f"{engine!r} needs {path}, which is not there: run `make models` with ARGS={engine}"
            )
