"""Settings in force of this process, for the operator.

    GET /api/admin/settings    {settings: [{path, value, default, is_given, meaning}, ...]}

They are what ``--print-config`` prints, without secrets. A deployment does not change while its process runs:
the rows are made once, in a thread.
"""

import asyncio
from collections.abc import Callable, Sequence
from typing import Protocol

from fastapi import APIRouter, Depends
from pydantic import BaseModel

from parley.serving.gateway.auth.admin_auth import AdminAuth

PATH = "/api/admin/settings"


class ShownSetting(Protocol):
    """Setting of a deployment (``configs.in_force``)."""

    @property
    def path(self) -> str:
        """Names from the root, joined by dots."""
        ...

    @property
    def value(self) -> str:
        """Effective value, without secrets."""
        ...

    @property
    def default(self) -> str:
        """Value where it is left out; empty where there is none, and where the value is the default."""
        ...

    @property
    def is_given(self) -> bool:
        """True when the deployment gives it."""
        ...

    @property
    def meaning(self) -> str:
        """Description, unit and bounds."""
        ...


# Returns the settings; blocks for some tens of milliseconds.
ReadSettings = Callable[[], Sequence[ShownSetting]]


class SettingView(BaseModel):
    """Setting of the deployment; ``ShownSetting`` describes the fields."""

    path: str
    value: str
    default: str
    is_given: bool
    meaning: str


class SettingsView(BaseModel):
    """All settings, in the order of the deployment's groups."""

    settings: list[SettingView]


def settings_api(read: ReadSettings, operators: AdminAuth) -> APIRouter:
    """Return the route.

    Args:
        read: returns the settings of the deployment.
        operators: checks that a request is an operator's.
    """
    router = APIRouter(dependencies=[Depends(operators.check)])
    lock = asyncio.Lock()
    made: list[SettingsView] = []

    @router.get(PATH)
    async def settings() -> SettingsView:
        """Return the settings in force, without secrets."""
        async with lock:
            if not made:
                made.append(await asyncio.to_thread(_view, read))
        return made[0]

    return router


def _view(read: ReadSettings) -> SettingsView:
    return SettingsView(
        settings=[
            SettingView(
                path=each.path,
                value=each.value,
                default=each.default,
                is_given=each.is_given,
                meaning=each.meaning,
            )
            for each in read()
        ]
    )
