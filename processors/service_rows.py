"""Common base of all rows for services that Pipecat ships.

A row is created with its settings, is checked once when the deployment starts (``check``) and builds one
service per call (``build``). Importing a registry of rows imports no vendor SDK: the service class is
imported by ``build``. Settings never contain secrets, only the name of the environment variable that holds
one. Models that run on this machine are no rows here but engines of ``models``.
"""

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from typing import TYPE_CHECKING, ClassVar, Generic, Protocol, TypeVar

from parley.core.errors import ConfigError
from parley.core.installation import pip_command
from parley.core.strict_model import StrictModel
from parley.models.llm import LanguageModel
from parley.models.llm.llamacpp.server import LlamaCppServer

if TYPE_CHECKING:
    import aiohttp
    from pipecat.processors.frame_processor import FrameProcessor


class RowSettings(StrictModel):
    """Base of the settings of every row: frozen, unknown fields refused."""


S = TypeVar("S", bound=RowSettings)


class ReferenceVoices(Protocol):
    """Reference voices of a deployment, for voices that imitate one. Its methods block."""

    def find(self, wanted: str) -> str:
        """Return the id of a reference voice by its id or its name.

        Raises:
            AgentError: there is none, or there are several of that name.
        """
        ...

    def read(self, voice_id: str) -> bytes:
        """Return the WAV file of a reference voice.

        Raises:
            AgentError: it does not exist any more.
        """
        ...


@dataclass(frozen=True, slots=True)
class Shared:
    """Resources that all calls of a process share and a service may need.

    Attributes:
        language_model: the engine behind the ``documents`` row, loaded once per process.
        open_replies: opens a language model for one conversation, of the weights behind the ``transformers``
            row, or in a worker.
        llamacpp: the server behind the ``llamacpp`` row; its owner starts and closes it.
        http: the process's HTTP session; its owner closes it.
        reference_voices: reference voices of the deployment, or None.
    """

    language_model: LanguageModel | None = None
    open_replies: Callable[[], LanguageModel] | None = None
    llamacpp: LlamaCppServer | None = None
    http: "aiohttp.ClientSession | None" = None
    reference_voices: ReferenceVoices | None = None


NOTHING_SHARED = Shared()


class ServiceRow(ABC, Generic[S]):
    """Service of a vendor with its settings.

    Attributes:
        name: the name in the registry, for messages.
        settings_type: the pydantic model of the settings.
        package: the import name of the optional package, or None.
        extra: the optional dependency group that contains the package, or None.
    """

    name: ClassVar[str]
    settings_type: ClassVar[type[RowSettings]]
    package: ClassVar[str | None] = None
    extra: ClassVar[str | None] = None

    def __init__(self, settings: S) -> None:
        self.settings = settings

    @property
    def secret_envs(self) -> tuple[str, ...]:
        """Names of the environment variables of its secrets: by default the value of ``api_key_env``."""
        env = getattr(self.settings, "api_key_env", None)
        return () if env is None else (env,)

    def check(self) -> None:
        """Check whether ``build`` can work, without a connection and without loading a model.

        Raises:
            ConfigError: a package, key or shared part is missing; names what to install or set.
        """
        if self.package is not None and not is_installed(self.package):
            raise ConfigError(
                f"{self.name!r} needs the extra {self.extra!r}: {pip_command(self.extra or '')}"
            )
        for env in self.secret_envs:
            secret(self.name, env)

    async def prepare(self, shared: "Shared") -> None:
        """Load what all calls share, before the server is ready. A failure is logged, and calls try again."""

    @abstractmethod
    def build(self, shared: Shared = NOTHING_SHARED) -> "FrameProcessor":
        """Build the service of one call.

        Imports the vendor's package, which blocks: call it in a thread.

        Raises:
            ConfigError: see ``check``.
        """


def is_installed(package: str) -> bool:
    """Return whether a package can be imported. Imports the parents of a dotted name, but not the package."""
    try:
        return find_spec(package) is not None
    except ModuleNotFoundError:
        # A parent of it is missing.
        return False


def secret(row: str, env: str) -> str:
    """Return the value of an environment variable.

    Raises:
        ConfigError: unset or empty.
    """
    value = os.environ.get(env, "").strip()
    if not value:
        raise ConfigError(f"{row!r} needs its key in the environment variable {env}")
    return value


def http_session(row: str, shared: Shared) -> "aiohttp.ClientSession":
    """Return the process's HTTP session.

    Raises:
        ConfigError: this process has none.
    """
    if shared.http is None:
        raise ConfigError(f"{row!r} needs an HTTP session, which this process has not opened")
    return shared.http
