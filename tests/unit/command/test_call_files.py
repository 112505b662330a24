"""Files of a call that is held by a command."""

from pathlib import Path

import pytest

from parley.command.call_files import callers_pcm
from parley.core.errors import ConfigError


def test_a_misspelt_folder_of_the_output_is_refused(tmp_path: Path):
    with pytest.raises(ConfigError) as raised:
        callers_pcm(None, tmp_path / "no" / "calls" / "call.wav")
    assert str(raised.value).endswith(f"call.wav: there is no folder {tmp_path / 'no'}")
    assert callers_pcm(None, tmp_path / "calls" / "call.wav") == b""
    assert list(tmp_path.iterdir()) == []
