"""Removed settings: the error message names the replacement."""

import re

import pytest

from parley.configs.deployment import Deployment
from parley.configs.describe import settings_of
from parley.configs.load import parse_settings
from parley.configs.replaced import REPLACED
from parley.core.errors import ConfigError
from parley.models.omni.two_tier.engine import TwoTierSettings

OF_ENGINES = {"duplex.engine (two_tier).policy": TwoTierSettings}
OF_DEPLOYMENTS = sorted(REPLACED.keys() - OF_ENGINES.keys())
SETTING = re.compile(rf"\b(?:{'|'.join(Deployment.model_fields)})(?:\.[a-z_]+)+")
PHRASE = re.compile(r"(\.phrases)\.[a-z_]+$")


def given(path: str) -> dict[str, object]:
    """Return a deployment that gives a group at a path: no remaining setting takes one."""
    names = path.split(".")
    data: object = {}
    for name in reversed(names):
        data = {name: data}
    assert isinstance(data, dict)
    return data


@pytest.mark.parametrize("path", OF_DEPLOYMENTS)
def test_a_setting_that_is_no_more_is_refused_with_what_replaces_it(path: str):
    with pytest.raises(ConfigError) as raised:
        parse_settings(Deployment, given(path), where="test.yaml")
    assert f", write {REPLACED[path]}" in str(raised.value)


@pytest.mark.parametrize("path", sorted(OF_ENGINES))
def test_a_setting_of_an_engine_that_is_no_more_is_refused_with_what_replaces_it(path: str):
    where, _, name = path.rpartition(".")
    with pytest.raises(ConfigError, match=r"known: apology, .*, write hearing\.barge_in"):
        parse_settings(OF_ENGINES[path], {name: {}}, where=where)


def test_what_replaces_a_setting_is_one():
    def paths(model: type) -> set[str]:
        found = set()
        waiting = list(settings_of(model))
        while waiting:
            setting = waiting.pop()
            found.add(setting.path.removesuffix("[]"))
            if setting.group is not None:
                waiting += settings_of(setting.group, setting.path)
        return found

    named = {name for text in REPLACED.values() for name in SETTING.findall(text)}
    assert named
    # A phrase is an entry of a mapping.
    assert {PHRASE.sub(r"\1", name) for name in named} <= paths(Deployment)


def test_an_unknown_field_that_never_was_has_no_successor():
    with pytest.raises(ConfigError) as raised:
        parse_settings(Deployment, {"hearing": {"colour": "red"}}, where="test.yaml")
    assert ", write" not in str(raised.value)
