"""Deployments of measurements, with techniques switched off."""

from pathlib import Path

import pytest

from parley.configs.load import load_deployment
from parley.evals.latency.techniques import TECHNIQUES, write
from parley.pipelines.engines.plan import plan

EMBEDDED = Path("configs/embedded.yaml")


def test_a_deployment_is_the_given_one_otherwise(tmp_path: Path):
    given = load_deployment(EMBEDDED)
    assert load_deployment(write(EMBEDDED, [], tmp_path / "same.yaml")) == given
    changed = load_deployment(write(EMBEDDED, ["speculation"], tmp_path / "changed.yaml"))
    assert changed.thinking.speculation.on == "off"
    assert changed.model_copy(update={"thinking": given.thinking}) == given


@pytest.mark.parametrize("name", TECHNIQUES)
def test_each_technique_is_on_in_the_default_and_can_be_switched_off(tmp_path: Path, name: str):
    assert load_deployment(write(EMBEDDED, [name], tmp_path / "off.yaml")) != load_deployment(EMBEDDED)


def test_what_a_deployment_leaves_to_its_recogniser_stays_so(tmp_path: Path):
    written = load_deployment(write(EMBEDDED, ["adaptive-wait"], tmp_path / "off.yaml"))
    assert plan(written).hearing.ask_back == plan(load_deployment(EMBEDDED)).hearing.ask_back is not None


def test_several_are_switched_off_together(tmp_path: Path):
    off = load_deployment(write(EMBEDDED, ["masking", "admission"], tmp_path / "off.yaml"))
    assert off.thinking.guard.waiting.masking is None
    assert off.server.admission == "off"
