"""Requirements of the tests on the system, beyond Python packages."""

import os
from typing import NoReturn

import pytest

# Set by ``make test``, which installs all requirements: there a missing one is a failure.
COMPLETE = "PARLEY_TESTS_COMPLETE"


def missing(*packages: str) -> NoReturn:
    """Skip a test whose Debian packages are missing; in the whole check it fails instead."""
    reason = f"not on this machine: {', '.join(packages)}"
    if os.environ.get(COMPLETE):
        pytest.fail(reason)
    pytest.skip(reason)
