"""Folders of this installation: a checkout, or an installed wheel.

A checkout holds everything in the folder of the repository: what is shipped (``knowledge``, ``presets``), and
by default what is written (``models-cache``, ``data``, ``sessions``). The folder of an installed package is
not for data of users, so that the defaults are in the current directory there.
"""

import shlex
import sys
from importlib.metadata import PackageNotFoundError, requires, version
from pathlib import Path

import parley

# The import package. In a checkout it holds links to the folders of the repository.
PACKAGE_DIR = Path(parley.__file__).resolve().parent
# The folder from which ``import parley`` works.
IMPORT_DIR = PACKAGE_DIR.parent
# A package next to this one may have left a pyproject.toml of its own.
IS_CHECKOUT = (IMPORT_DIR / "pyproject.toml").is_file() and (PACKAGE_DIR / "core").is_symlink()
# Holds what is shipped: ``configs``, ``knowledge``, ``presets``, ``web``.
SHIPPED_DIR = IMPORT_DIR if IS_CHECKOUT else PACKAGE_DIR


def installed_version() -> str:
    """Return the version of the installed package; that of a checkout is in its changelog."""
    try:
        return version("parley")
    except PackageNotFoundError:
        return "(a checkout)"


def written_dir() -> Path:
    """Return the folder at which default paths of written data and of weights start."""
    return SHIPPED_DIR if IS_CHECKOUT else Path.cwd()


def parley_command() -> str:
    """Return the command ``parley`` as this installation has it: a checkout has a module and no program."""
    return f"{shlex.quote(sys.executable)} -m parley" if IS_CHECKOUT else "parley"


def pip_command(extra: str) -> str:
    """Return the command that installs an optional dependency group.

    That of a wheel names the packages: the public index has another project by the name of ours.
    """
    if IS_CHECKOUT:
        folder = "." if Path.cwd() == IMPORT_DIR else str(IMPORT_DIR)
        return f"pip install -e '{folder}[{extra}]'"
    marked = f'extra == "{extra}"'
    packages = [each.partition(";")[0].strip() for each in requires("parley") or () if marked in each]
    return f"pip install {shlex.join(packages)}"


def fetch_command(model: str) -> str:
    """Return the command that fetches the weights of a model."""
    return f"make models ARGS={model}" if IS_CHECKOUT else f"parley models {model}"
