"""Recogniser of recordings by NeMo, in an environment without NeMo."""

import sys
from pathlib import Path

import pytest

from parley.core.errors import EngineError
from parley.models.stt.nemo_offline import NemoOfflineSettings, NemoOfflineStt


def test_a_process_that_ends_while_it_loads_is_an_error_and_not_tried_again() -> None:
    settings = NemoOfflineSettings(model="a/model", python=Path(sys.executable), load_s=120)
    with pytest.raises(EngineError, match="the worker ended while it was loading") as raised:
        NemoOfflineStt(settings)
    assert not raised.value.retryable
