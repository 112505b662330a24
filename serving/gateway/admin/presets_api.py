"""Routes of presets, and of the initial settings of pages.

GET /api/presets                      {mode: [preset]}, without samples
GET /api/presets/{mode}/{id}/audio    the sounds of one, as float32 PCM of 16 kHz in base64
GET /api/frontend_defaults            {playback_delay_ms, default_lang?}
"""

import asyncio

from fastapi import APIRouter, HTTPException, Request, Response
from pydantic import Field

from parley.core.strict_model import StrictModel
from parley.serving.gateway.admin.presets import Mode, PresetError, Presets, PresetSounds, PresetView
from parley.serving.gateway.http.read_pace import ReadPace
from parley.serving.gateway.http.requests import client_of
from parley.serving.gateway.settings import ServerSettings


class FrontendDefaults(StrictModel):
    """Initial settings of pages for the MiniCPM-o server."""

    playback_delay_ms: int = Field(
        200, ge=0, le=2_000, description="delay of audio on a page, for even playback"
    )
    default_lang: str | None = Field(
        None,
        pattern=r"^[a-z]{2,3}(-[A-Z]{2})?$",
        description="language of the page's texts; null: the browser's",
    )


def presets_api(
    presets: Presets | None, frontend: FrontendDefaults, settings: ServerSettings, pace: ReadPace
) -> APIRouter:
    """Return the routes.

    Args:
        presets: of this deployment, if it has any.
        frontend: initial settings of pages.
        settings: of the server.
        pace: limits the reads of clients.
    """
    router = APIRouter()

    @router.get("/api/presets", response_model_exclude_none=True)
    async def listed() -> dict[Mode, list[PresetView]]:
        """Return the presets of each mode, without their sounds."""
        if presets is None:
            return {}
        found = await asyncio.to_thread(presets.all)
        return {mode: [preset.view for preset in of_mode] for mode, of_mode in found.items()}

    @router.get("/api/presets/{mode}/{preset_id}/audio", response_model=PresetSounds)
    async def sounds(request: Request, mode: str, preset_id: str) -> Response:
        """Return the sounds of a preset: float32 PCM of 16 kHz in base64."""
        if presets is None:
            raise HTTPException(404, "there is no such preset")
        try:
            return await pace.made(
                client_of(request, trusted_proxies=settings.trusted_proxies),
                lambda: presets.sounds(mode, preset_id).model_dump_json(exclude_none=True),
            )
        except PresetError as error:
            raise HTTPException(404, str(error)) from error

    @router.get("/api/frontend_defaults", response_model_exclude_none=True)
    async def defaults() -> FrontendDefaults:
        """Return the initial settings of pages."""
        return frontend

    return router
