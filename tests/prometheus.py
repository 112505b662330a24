"""Programs of Prometheus, which come with Debian's package ``prometheus``.

``PROMETHEUS_DIR`` names a folder with them where the package is not installed.
"""

import os
import shutil

import pytest


def program(name: str) -> str:
    """Return the path of a program; skip the test where it is not on this machine."""
    folder = os.environ.get("PROMETHEUS_DIR")
    found = shutil.which(name, path=folder) if folder else shutil.which(name)
    if found is None:
        pytest.skip(f"{name} is not on this machine: install the package prometheus, or set PROMETHEUS_DIR")
    return found
