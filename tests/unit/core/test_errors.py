"""Errors keep their fields when they leave a process of a pool."""

import pickle

import pytest

from parley.core.errors import AgentError, CapacityError, ConfigError, EngineError, ModelFileError


@pytest.mark.parametrize(
    "error",
    [
        AgentError("no"),
        ConfigError("unknown", known=("a", "b")),
        ModelFileError("missing"),
        EngineError("it failed", engine="flite", retryable=False),
        CapacityError("full", limit=3),
    ],
    ids=lambda error: type(error).__name__,
)
def test_an_error_is_pickled_with_its_message_and_its_facts(error: AgentError):
    again = pickle.loads(pickle.dumps(error))
    assert type(again) is type(error)
    assert str(again) == str(error)
    assert vars(again) == vars(error)
