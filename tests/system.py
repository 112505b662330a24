"""What the tests need of the system around them, which no Python package brings."""

import os
from typing import NoReturn

import pytest

# Set by ``make test``, which installs all of it: there, what is missing is a failure.
COMPLETE = "PARLEY_TESTS_COMPLETE"


def missing(*packages: str) -> NoReturn:
    """Leave a test out whose Debian packages are not there; in the whole check it fails instead."""
    reason = f"not on this machine: {', '.join(packages)}"
    if os.environ.get(COMPLETE):
        pytest.fail(reason)
    pytest.skip(reason)
