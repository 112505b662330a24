"""Folders of this installation: a checkout, or an installed wheel.

A checkout holds everything in the folder of the repository: what is shipped (``knowledge``, ``presets``), and
by default what is written (``models-cache``, ``data``, ``sessions``). The folder of an installed package is
not for data of users, so that the defaults are in the current directory there.
"""

from pathlib import Path

import parley

# The import package. In a checkout it holds links to the folders of the repository.
PACKAGE_DIR = Path(parley.__file__).resolve().parent
# The folder from which ``import parley`` works.
IMPORT_DIR = PACKAGE_DIR.parent
IS_CHECKOUT = (IMPORT_DIR / "pyproject.toml").is_file()
# Holds what is shipped: ``configs``, ``knowledge``, ``presets``, ``web``.
SHIPPED_DIR = IMPORT_DIR if IS_CHECKOUT else PACKAGE_DIR


def written_dir() -> Path:
    """Return the folder at which default paths of written data and of weights start."""
    return SHIPPED_DIR if IS_CHECKOUT else Path.cwd()


def pip_command(extra: str) -> str:
    """Return the command that installs an optional dependency group."""
    return f"pip install -e '.[{extra}]'" if IS_CHECKOUT else f"pip install 'parley[{extra}]'"


def fetch_command(model: str) -> str:
    """Return the command that fetches the weights of a model."""
    return f"make models ARGS={model}" if IS_CHECKOUT else f"parley models {model}"
