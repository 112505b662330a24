"""Shared configuration of the tests.

Only warnings and errors are logged: failures stay readable, and logging takes no virtual time.
"""

import functools
import gc
import os
import signal
import sys

import pytest
from hypothesis import HealthCheck, settings
from loguru import logger

logger.remove()
logger.add(sys.stderr, level="WARNING")

# A job in the background ignores interrupts, and so would every process that a test starts and interrupts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# A test that other processes slow down proves the same.
settings.register_profile("untimed", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("untimed")


# The Makefile looks here for tests that run alone or in pairs: collecting all tests takes longer than some.
PLACES = {
    "alone": ("tests/peers/",),
    "paired": ("tests/peers/",),
}


# Almost all that is imported to collect the tests lasts for the run: a collection would find little to free.
gc.disable()


def pytest_collection_finish() -> None:
    """Exempt what lasts for the run from garbage collection, which takes seconds for it each time."""
    gc.collect()
    gc.freeze()
    # As in a server, less memory apart.
    gc.set_threshold(2_000, 10, 50)
    gc.enable()


def pytest_runtest_logfinish() -> None:
    """Let go of the applications that FastAPI's caches of callables keep.

    They kept the routes of the last dozens, a million objects. The collection that a gateway makes when its
    last call has ended went through them all: that was half of the processor time of the gateway's tests.
    """
    module = sys.modules.get("fastapi.dependencies.models")
    for member in () if module is None else vars(module).values():
        if isinstance(member, functools._lru_cache_wrapper):
            member.cache_clear()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        for mark, places in PLACES.items():
            if item.get_closest_marker(mark) and not item.nodeid.startswith(places):
                raise pytest.UsageError(f"{item.nodeid}: the Makefile looks for no {mark!r} test there")


@pytest.fixture(autouse=True, scope="session")
def typed_lines_of_the_tests(tmp_path_factory: pytest.TempPathFactory):
    """Keep the lines that tests type into a console out of the user's history."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture(autouse=True, scope="session")
def sessions_of_the_tests(tmp_path_factory: pytest.TempPathFactory):
    """Keep the sessions of the tests, and of the servers that they start, in a folder of their own."""
    url = f"sqlite:///{tmp_path_factory.mktemp('sessions')}/sessions.db"
    before, os.environ["PARLEY_STORE_URL"] = os.environ.get("PARLEY_STORE_URL"), url
    yield
    if before is None:
        del os.environ["PARLEY_STORE_URL"]
    else:
        os.environ["PARLEY_STORE_URL"] = before
