"""What operators see and change of one server: the parts, and their routes as one router.

Built beside the application (``bot``), because other surfaces ask the same parts: ``apps.check`` before they
let somebody in.
"""

from dataclasses import dataclass, field
from pathlib import Path

from fastapi import APIRouter
from pydantic import BaseModel, ConfigDict, Field

from serving.gateway.apps import AppId, Apps
from serving.gateway.apps_api import apps_api
from serving.gateway.operators import Operators
from serving.gateway.pool_api import pool_api
from serving.gateway.settings import ServerSettings
from serving.pool.pool import Pool

# Paths whose answers no browser or proxy keeps.
PRIVATE_PATHS = ("/api/admin", "/api/queue", "/workers")


class OperationsSettings(BaseModel):
    """What operators find when the server starts."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    data_dir: Path = Field(
        Path("data"), description="folder of what operators change; made when it is needed"
    )
    apps: dict[AppId, bool] = Field(
        default_factory=dict,
        description="false: that way to talk to this server is closed at the start; an operator's switch "
        "holds over it",
    )


@dataclass(frozen=True)
class Operations:
    """The parts of one process.

    Attributes:
        pool: of workers, if there is one.
        apps: the ways in.
    """

    pool: Pool | None = None
    apps: Apps = field(default_factory=Apps)

    @classmethod
    def open(cls, settings: OperationsSettings, *, pool: Pool | None) -> "Operations":
        """Those of a deployment, with what operators have left there. Reads files."""
        return cls(pool, Apps(settings.apps, path=settings.data_dir / "apps.json"))

    def router(self, operators: Operators, settings: ServerSettings) -> APIRouter:
        """Every route of theirs."""
        router = APIRouter()
        router.include_router(operators.router())
        router.include_router(pool_api(self.pool, operators, settings))
        router.include_router(apps_api(self.apps, operators, settings))
        return router
