"""Operators' view and controls of one server: the parts, and their routes as one router.

The parts are created outside the application (``bot``), because other surfaces use them too: they call
``apps.check`` before they admit a client.
"""

from dataclasses import dataclass, field
from pathlib import Path

from fastapi import APIRouter
from pydantic import Field

from parley.core.strict_model import StrictModel
from parley.models.retrieval.library import DocumentLibrary
from parley.serving.gateway.admin.apps import AppId, Apps
from parley.serving.gateway.admin.apps_api import apps_api
from parley.serving.gateway.admin.calls_api import LiveCallEntries, NoLiveCalls, calls_api
from parley.serving.gateway.admin.documents_api import PATH as DOCUMENTS_PATH
from parley.serving.gateway.admin.documents_api import documents_api
from parley.serving.gateway.admin.failures_api import FailureSources, failures_api
from parley.serving.gateway.admin.pool_api import pool_api
from parley.serving.gateway.admin.presets import Presets
from parley.serving.gateway.admin.presets_api import FrontendDefaults, presets_api
from parley.serving.gateway.admin.settings_api import ReadSettings, settings_api
from parley.serving.gateway.admin.storage_api import storage_api
from parley.serving.gateway.admin.usage_api import usage_api
from parley.serving.gateway.auth.admin_auth import AdminAuth
from parley.serving.gateway.auth.audit import AuditLog
from parley.serving.gateway.calls import CallTasks
from parley.serving.gateway.http.read_pace import ReadPace
from parley.serving.gateway.recording_routes import SessionRecordings
from parley.serving.gateway.reference_voices.settings import VoiceTuning
from parley.serving.gateway.reference_voices.voices import VOICES_FOLDER, Voices
from parley.serving.gateway.reference_voices.voices_api import PATH as VOICES_PATH
from parley.serving.gateway.reference_voices.voices_api import voices_api
from parley.serving.gateway.settings import ServerTuning
from parley.serving.pool.pool import Pool
from parley.session_store.store import SessionStore
from parley.telemetry.prices import PriceTable
from parley.telemetry.usage_ledger import UsageLedger

# Paths whose answers no browser or proxy stores.
PRIVATE_PATHS = ("/api/admin", "/api/desk", "/api/queue", "/metrics", "/workers", VOICES_PATH)
# Paths whose bodies are larger than others, and read by their routes.
STREAMED_PATHS = (VOICES_PATH, DOCUMENTS_PATH)


class OperationsSettings(StrictModel):
    """Initial state of the operators' controls, and their folders."""

    data_dir: Path = Field(
        Path("data"), description="folder for the changes that operators make; created when needed"
    )
    apps: dict[AppId, bool] = Field(
        default_factory=dict,
        description="false: the app is disabled at startup; an operator's switch takes precedence",
    )
    presets_dir: Path = Field(Path("presets"), description="folder of presets, one folder for each mode")
    listen_in: bool = Field(
        False,
        description="operators may listen to live calls (docs/how-to/operations.md#live-calls); each time is "
        "recorded in the call's session. Not with the redaction of ``privacy``: a listener hears every word",
    )


@dataclass(frozen=True)
class Operations:
    """Parts of one process.

    Attributes:
        pool: of workers, if there is one.
        apps: switches of the surfaces.
        voices: reference voices of engines; None: there is no folder for them.
        default_voice: file of the voice for clients without one.
        presets: of conversations; None: there is no folder of them.
        frontend: initial settings of pages.
        documents: that answers come from; None: there are none.
        ledger: use and cost of the process's calls.
        prices: of the deployment.
        calls: live calls of the process.
        failures: what knows of the failures of the process.
        settings: returns the settings in force.
    """

    pool: Pool | None = None
    apps: Apps = field(default_factory=Apps)
    voices: Voices | None = None
    default_voice: Path | None = None
    presets: Presets | None = None
    frontend: FrontendDefaults = FrontendDefaults()
    documents: DocumentLibrary | None = None
    ledger: UsageLedger = field(default_factory=UsageLedger)
    prices: PriceTable = field(default_factory=PriceTable)
    calls: LiveCallEntries = field(default_factory=NoLiveCalls)
    failures: FailureSources = field(default_factory=FailureSources)
    settings: ReadSettings = tuple

    @classmethod
    def open(
        cls,
        settings: OperationsSettings,
        *,
        pool: Pool | None,
        voice: Path | None = None,
        voice_bounds: VoiceTuning | None = None,
        documents: DocumentLibrary | None = None,
        ledger: UsageLedger | None = None,
        prices: PriceTable | None = None,
        calls: LiveCallEntries | None = None,
        failures: FailureSources | None = None,
        in_force: ReadSettings = tuple,
    ) -> "Operations":
        """Return the parts of a deployment, with the changes that operators have stored. Reads files.

        Args:
            settings: of the deployment.
            pool: of workers, if there is one.
            voice: file of the voice for clients without one; None: there is none.
            voice_bounds: bounds of uploaded voices; None: the usual ones.
            documents: that answers come from, if there are any.
            ledger: use and cost of the process's calls; None: one of its own.
            prices: of the deployment; None: there are none.
            calls: live calls of the process; None: it holds none.
            failures: what knows of the failures of the process; None: nothing does.
            in_force: returns the settings in force.
        """
        return cls(
            pool,
            Apps(settings.apps, path=settings.data_dir / "apps.json"),
            Voices(settings.data_dir / VOICES_FOLDER, voice_bounds),
            voice,
            Presets(settings.presets_dir),
            FrontendDefaults(),
            documents,
            ledger or UsageLedger(),
            prices or PriceTable(),
            calls or NoLiveCalls(),
            failures or FailureSources(),
            in_force,
        )

    def router(
        self,
        operators: AdminAuth,
        settings: ServerTuning,
        calls: CallTasks,
        audit: AuditLog,
        *,
        store: SessionStore | None = None,
        recordings: SessionRecordings | None = None,
    ) -> APIRouter:
        """Return the routes of all parts.

        Args:
            operators: checks that a request is an operator's.
            settings: of the server.
            calls: conversations of the process.
            audit: records actions of operators.
            store: of sessions, if there is one.
            recordings: of calls, if there are any.
        """
        router = APIRouter()
        pace = ReadPace(settings)
        router.include_router(operators.router())
        router.include_router(pool_api(self.pool, calls, operators, settings))
        router.include_router(apps_api(self.apps, operators, settings))
        if self.voices is not None:
            router.include_router(voices_api(self.voices, self.default_voice, operators, settings, pace))
        router.include_router(usage_api(self.ledger, self.prices, operators))
        router.include_router(calls_api(self.calls, operators, audit, settings))
        router.include_router(storage_api(recordings, store, operators, audit, settings))
        router.include_router(failures_api(self.failures, operators))
        router.include_router(settings_api(self.settings, operators))
        router.include_router(documents_api(self.documents, operators, settings))
        router.include_router(presets_api(self.presets, self.frontend, settings, pace))
        return router
