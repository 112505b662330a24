"""Switches of the surfaces of this server.

A surface calls ``check`` before it admits a client; running conversations are not affected. The deployment
decides which surfaces are open at the start. An operator's switches are kept in a file and take precedence
over the deployment until they are switched again, also after a restart. A file that cannot be read is logged
and ignored.
"""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

from loguru import logger
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from parley.core.errors import AgentError
from parley.runtime.atomic_file import replace_file

AppId = Literal[
    "browser", "turnbased", "half_duplex_audio", "omni", "audio_duplex", "openai_realtime", "unmute"
]
APP_IDS: tuple[AppId, ...] = get_args(AppId)
_SWITCHED = TypeAdapter(dict[str, bool])


class App(BaseModel):
    """Surface that can be switched on and off.

    Attributes:
        app_id: stable.
        name: for people.
        route: path of its page or its socket.
        enabled: true when it is open.
    """

    model_config = ConfigDict(frozen=True)

    app_id: AppId
    name: str
    route: str
    enabled: bool = True


_APPS = (
    App(app_id="browser", name="Browser call", route="/"),
    App(app_id="turnbased", name="Turn-based chat", route="/ws/chat"),
    App(app_id="half_duplex_audio", name="Half-duplex audio", route="/ws/half_duplex/{session_id}"),
    App(app_id="omni", name="Omni full duplex", route="/ws/duplex/{session_id}"),
    App(app_id="audio_duplex", name="Audio full duplex", route="/ws/duplex/{session_id}"),
    App(app_id="openai_realtime", name="OpenAI realtime", route="/v1/realtime"),
    App(app_id="unmute", name="Unmute realtime", route="/v1/realtime"),
)


class AppDisabledError(AgentError):
    """An operator has switched this surface off: use another, or wait until it is open again.

    Attributes:
        app_id: of the surface.
    """

    def __init__(self, app: App) -> None:
        super().__init__(f"{app.name} ({app.app_id}) is switched off on this server")
        self.app_id = app.app_id


class UnknownAppError(AgentError):
    """There is no such app."""


class Apps:
    """Switches of one process.

    Args:
        enabled: of the deployment; an app that it leaves out is open.
        path: of the file; None: switches are lost at the end of the process.
    """

    def __init__(self, enabled: Mapping[AppId, bool] | None = None, *, path: Path | None = None) -> None:
        self._path = path
        self._switched: dict[AppId, bool] = {} if path is None else _read(path)
        defaults = enabled or {}
        self._apps = {
            app.app_id: app.model_copy(
                update={"enabled": self._switched.get(app.app_id, defaults.get(app.app_id, True))}
            )
            for app in _APPS
        }
        self._writing = asyncio.Lock()

    def check(self, app_id: AppId) -> None:
        """Check that an app is open.

        Raises:
            AppDisabledError: it is closed; the message names it.
        """
        app = self._apps[app_id]
        if not app.enabled:
            raise AppDisabledError(app)

    def all(self) -> list[App]:
        """Return all apps, in a fixed order."""
        return list(self._apps.values())

    def enabled(self) -> list[App]:
        """Return the apps that are open."""
        return [app for app in self._apps.values() if app.enabled]

    async def switch(self, app_id: str, *, enabled: bool) -> App:
        """Open or close an app; the switch takes effect once it is stored.

        Raises:
            UnknownAppError: there is no app with that id.
            OSError: it could not be stored, and nothing has changed.
        """
        known = next((app for app in self._apps if app == app_id), None)
        if known is None:
            raise UnknownAppError(f"there is no app {app_id[:40]!r} (known: {', '.join(APP_IDS)})")
        async with self._writing:
            switched = {**self._switched, known: enabled}
            if self._path is not None:
                content = json.dumps(switched, indent=2).encode() + b"\n"
                await asyncio.to_thread(replace_file, self._path, content)
            self._switched = switched
            self._apps[known] = self._apps[known].model_copy(update={"enabled": enabled})
        return self._apps[known]


def _read(path: Path) -> dict[AppId, bool]:
    try:
        switched = _SWITCHED.validate_json(path.read_bytes())
        # Apps of another release are ignored.
        return {app_id: switched[app_id] for app_id in APP_IDS if app_id in switched}
    except FileNotFoundError:
        return {}
    except (OSError, ValidationError) as error:
        logger.error(f"{path}: cannot read the operators' switches, ignoring them: {error}")
        return {}
