"""Programs of Debian packages that the tests use and that must not be installed, because they start daemons.

``make`` unpacks prometheus and coturn into ``servers`` of the virtual environment
(``scripts/unpacked_packages.sh``). ``PARLEY_TEST_SERVERS`` names another folder with them. An installed
program is used as well.
"""

import os
import shutil
import sys
from pathlib import Path

from tests.system import missing


def _folder() -> Path:
    return Path(os.environ.get("PARLEY_TEST_SERVERS") or Path(sys.prefix) / "servers")


def program(name: str) -> str:
    """Return the path of a program; as for ``missing`` where it is not on this machine."""
    found = shutil.which(name, path=_folder() / "usr" / "bin") or shutil.which(name)
    if found is None:
        missing(name)
    return found


def surroundings() -> dict[str, str]:
    """Return the environment in which an unpacked program finds its libraries."""
    libraries = [str(each) for each in (_folder() / "usr" / "lib").glob("*-linux-gnu*")]
    return {**os.environ, "LD_LIBRARY_PATH": ":".join(libraries)}
