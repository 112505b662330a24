"""The ways in which this server can be talked to, and whether each is open.

A surface asks ``check`` before it lets somebody in; conversations that are on are left alone. The deployment
says which are open at the start. What an operator has switched is kept in a file, and holds over the
deployment until it is switched again: it survives a restart, and a file that cannot be read is said in the
log and means that nothing was switched.
"""

import asyncio
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, get_args

from loguru import logger
from pydantic import BaseModel, ConfigDict, TypeAdapter, ValidationError

from core.errors import AgentError
from runtime.replaced_file import replace_file

AppId = Literal[
    "browser", "turnbased", "half_duplex_audio", "omni", "audio_duplex", "openai_realtime", "unmute"
]
APP_IDS: tuple[AppId, ...] = get_args(AppId)
_SWITCHED = TypeAdapter(dict[str, bool])


class App(BaseModel):
    """One of them.

    Attributes:
        app_id: stable.
        name: for people.
        route: the page of it, or the path of its socket.
        enabled: whether it is open.
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
    """An operator has closed this way in: use another, or wait until it is open again.

    Attributes:
        app_id: which one.
    """

    def __init__(self, app: App) -> None:
        super().__init__(f"{app.name} ({app.app_id}) is switched off on this server")
        self.app_id = app.app_id


class UnknownAppError(AgentError):
    """There is no such app."""


class Apps:
    """See the module.

    Args:
        enabled: of the deployment; what it leaves out is open.
        path: of the file; None: switches are forgotten at the end of the process.
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
        """Let somebody in.

        Raises:
            AppDisabledError: it is closed; the text names it.
        """
        app = self._apps[app_id]
        if not app.enabled:
            raise AppDisabledError(app)

    def all(self) -> list[App]:
        """Each of them, in an order that does not change."""
        return list(self._apps.values())

    def enabled(self) -> list[App]:
        """The open ones."""
        return [app for app in self._apps.values() if app.enabled]

    async def switch(self, app_id: str, *, enabled: bool) -> App:
        """Open or close one; it holds once it is written down.

        Raises:
            UnknownAppError: there is none of that id.
            OSError: it could not be written down, and nothing has changed.
        """
        known = next((app for app in self._apps if app == app_id), None)
        if known is None:
            raise UnknownAppError(f"no app {app_id[:40]!r} (known: {', '.join(APP_IDS)})")
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
        # One that another release has, or had, is nobody's here.
        return {app_id: switched[app_id] for app_id in APP_IDS if app_id in switched}
    except FileNotFoundError:
        return {}
    except (OSError, ValidationError) as error:
        logger.error(f"{path}: what operators have switched cannot be read, and is left out: {error}")
        return {}
