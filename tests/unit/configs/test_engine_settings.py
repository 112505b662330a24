"""The settings of an engine are found in its constructor; what has none is a mistake of the deployment."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
from pydantic import BaseModel

from parley.configs.engines import settings_model
from parley.core.errors import ConfigError


class ParrotSettings(BaseModel):
    """Settings of a parrot."""


class Parrot:
    """Engine with settings."""

    def __init__(self, settings: ParrotSettings | None = None) -> None: ...

    def __call__(self) -> None: ...


class Unfinished:
    """Engine with settings that are not defined."""

    def __init__(self, settings: "NoSuchSettings") -> None: ...  # type: ignore[name-defined]  # noqa: F821


def parrot(settings: ParrotSettings) -> Parrot:
    """Return an engine."""
    return Parrot(settings)


@pytest.mark.parametrize("factory", [Parrot, parrot])
def test_a_class_and_a_function_take_settings(factory: Callable[..., Any]):
    assert settings_model(factory) is ParrotSettings


@pytest.mark.parametrize(
    ("factory", "message"),
    [
        (functools.partial(Parrot), "an instance of functools:partial"),
        (Parrot(), f"an instance of {__name__}:Parrot"),
        (Unfinished, f"{__name__}:Unfinished has no types of its parameters: NameError"),
        (dict, "builtins:dict takes no 'settings'"),
    ],
)
def test_what_takes_no_settings_is_refused(factory: Callable[..., Any], message: str):
    with pytest.raises(ConfigError) as caught:
        settings_model(factory)
    assert str(caught.value).startswith(message)
