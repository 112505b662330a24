"""Routes of reference voices for engines.

GET    /api/assets/ref_audio         {total, ref_audios, default?: its name, where there is one}
POST   /api/assets/ref_audio         {name, audio_base64: any audio file}; for the operator
GET    /api/assets/ref_audio/{id}    the WAV; for the operator, because it is a person's voice
DELETE /api/assets/ref_audio/{id}    for the operator
GET    /api/default_ref_audio        name, duration, sample_rate, samples, base64 (float32 PCM)
"""

import asyncio
import base64
import binascii
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, HTTPException, Request, Response
from fastapi import Path as InPath
from fastapi.responses import FileResponse
from loguru import logger
from pydantic import BaseModel, ConfigDict

from parley.core.errors import MediaError
from parley.serving.gateway.auth.admin_auth import AdminAuth
from parley.serving.gateway.http.read_pace import ReadPace
from parley.serving.gateway.http.requests import check_origin, client_of, read_body
from parley.serving.gateway.reference_voices.pcm import Pcm, read_pcm
from parley.serving.gateway.reference_voices.voices import Voice, Voices
from parley.serving.gateway.settings import ServerTuning

PATH = "/api/assets/ref_audio"
# Part of a body other than the file: the name, and the overhead of JSON.
BESIDE_BYTES = 10_000

VoiceId = Annotated[str, InPath(max_length=100)]


class VoiceList(BaseModel):
    """All voices, and the name of the one that ``/api/default_ref_audio`` returns, if there is one."""

    total: int
    ref_audios: list[Voice]
    default: str | None = None


class Upload(BaseModel):
    """Body of an upload."""

    model_config = ConfigDict(extra="forbid")

    name: str
    audio_base64: str


class Done(BaseModel):
    """Result of a change."""

    success: bool
    id: str
    name: str | None
    message: str


def voices_api(
    voices: Voices, default: Path | None, operators: AdminAuth, settings: ServerTuning, pace: ReadPace
) -> APIRouter:
    """Return the routes.

    Args:
        voices: of this deployment.
        default: file of the voice for clients without one.
        operators: checks that a client may change and load voices.
        settings: of the server.
        pace: limits the reads of clients.
    """
    router = APIRouter()
    max_bytes = -(-voices.settings.max_upload_bytes * 4 // 3) + BESIDE_BYTES

    @router.get(PATH, response_model_exclude_none=True)
    async def listed() -> VoiceList:
        """Return all reference voices."""
        found = voices.all()
        name = None if default is None else default.name
        return VoiceList(total=len(found), ref_audios=found, default=name)

    @router.post(PATH, dependencies=[Depends(operators.check)])
    async def upload(request: Request) -> Done:
        """Add a reference voice: ``{name, audio_base64}``."""
        check_origin(request, allowed=settings.allowed_origins)
        body = await read_body(request, max_bytes=max_bytes, within_s=settings.body_s)
        # In a thread: parsing ten megabytes of JSON would silence every call.
        name, data = await asyncio.to_thread(_uploaded, body)
        voice = await voices.add(name, data)
        message = f"kept, {voice.duration_ms / 1000:.1f} s long"
        return Done(success=True, id=voice.id, name=voice.name, message=message)

    @router.get(f"{PATH}/{{voice_id}}", dependencies=[Depends(operators.check)])
    async def heard(voice_id: VoiceId) -> FileResponse:
        """Return the WAV file of a reference voice."""
        path = voices.path(voice_id)
        if not path.is_file():
            raise HTTPException(404, "the file of this voice is missing")
        return FileResponse(path, media_type="audio/wav")

    @router.delete(f"{PATH}/{{voice_id}}", dependencies=[Depends(operators.check)])
    async def remove(voice_id: VoiceId, request: Request) -> Done:
        """Delete a reference voice."""
        check_origin(request, allowed=settings.allowed_origins)
        await voices.remove(voice_id)
        return Done(success=True, id=voice_id, name=None, message="deleted")

    @router.get("/api/default_ref_audio", response_model=Pcm)
    async def default_voice(request: Request) -> Response:
        """Return the voice of clients without one: float32 PCM of 16 kHz in base64."""
        if default is None:
            raise HTTPException(404, "this server has no default voice (duplex.tts_voice)")
        try:
            return await pace.made(
                client_of(request, trusted_proxies=settings.trusted_proxies),
                lambda: read_pcm(default).model_dump_json(),
            )
        except (OSError, MediaError) as error:
            logger.error(f"{default}: cannot read the default voice: {error}")
            raise HTTPException(500, "the default voice of this server cannot be read") from error

    return router


def _uploaded(body: bytes) -> tuple[str, bytes]:
    """Return the name and the file of an upload.

    Raises:
        ValidationError: the body is invalid.
        HTTPException: 400, the file is not base64.
    """
    upload = Upload.model_validate_json(body)
    text = upload.audio_base64
    if text.startswith("data:"):
        # In the form of a browser's FileReader.
        text = text.partition(",")[2]
    try:
        return upload.name, base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError) as error:
        raise HTTPException(400, "audio_base64: not base64") from error
