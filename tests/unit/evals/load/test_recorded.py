"""Systems with and without recording, and what the command refuses."""

import json
from pathlib import Path

import pytest

from parley.configs.load import load_deployment
from parley.evals.load.__main__ import RECORDED, deployment_of, main


@pytest.mark.parametrize("system", ["parley", "parley_faked"])
def test_a_recorded_system_differs_by_its_recording_alone(tmp_path: Path, system: str):
    without, recorded = (
        json.loads(deployment_of(name, 20, tmp_path)) for name in (system, system + RECORDED)
    )
    recording = recorded.pop("recording")
    for settings in (without, recorded):
        settings["remembering"]["store"].pop("url")
    assert recorded == without
    assert recording["enabled"] and Path(recording["folder"]).parent == tmp_path.resolve()
    (tmp_path / "recorded.yaml").write_text(deployment_of(system + RECORDED, 20, tmp_path))
    assert load_deployment(str(tmp_path / "recorded.yaml")).recording.enabled


@pytest.mark.parametrize(
    "arguments", [("--kind", "phone"), ("--systems", "stock"), ("--systems", "parley_faked", "aiortc")]
)
def test_recording_is_compared_for_browser_calls_to_parley(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
):
    assert main(["--recorded", "--out-dir", str(tmp_path), *arguments]) == 2
    assert "--recorded is for browser calls" in capsys.readouterr().err
