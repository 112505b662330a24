"""A folder of outputs is free when the workers of other machines are gone too."""

from importlib.util import find_spec
from pathlib import Path

import pytest

from parley.batch.manifest import hold_as_worker, hold_folder
from parley.batch.transcribe import main
from parley.core.errors import ConfigError
from tests.audio_files import write_audio
from tests.voices import silence


@pytest.mark.slow
def test_a_run_waits_for_the_workers_of_the_one_before(tmp_path: Path) -> None:
    with hold_as_worker(tmp_path), hold_as_worker(tmp_path):
        with pytest.raises(ConfigError, match="another run is writing there"), hold_folder(tmp_path):
            pass
    with hold_folder(tmp_path), hold_as_worker(tmp_path):
        pass


@pytest.mark.skipif(find_spec("ray") is not None, reason="Ray is installed here")
def test_a_missing_package_is_named_with_its_extra(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    write_audio(tmp_path / "a.wav", silence(500))
    assert main([str(tmp_path / "a.wav"), "--out", str(tmp_path / "out"), "--ray"]) == 2
    assert "--ray needs the extra 'ray'" in capsys.readouterr().err
