"""HTTP routes that Unmute's front end requests before it opens its socket: health, and voices.

The engines run in this process and are loaded before it listens, so they are reported as available. There is
one voice, the deployment's. Voices are not cloned here, and a request to do so is refused with that reason.
"""

from collections.abc import Callable, Mapping

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from parley.protocols.unmute import VOICE

NOT_CLONED = "voices are not cloned here: the deployment has one voice"


def unmute_router(describe: Callable[[], Mapping[str, object]]) -> APIRouter:
    """Return the routes.

    Args:
        describe: returns the names of the engines, as in ``/status``.
    """
    router = APIRouter()

    @router.get("/v1/health")
    async def health() -> dict[str, bool]:
        """Report which engines are available, for Unmute's front end."""
        names = describe()
        up = {f"{part}_up": bool(names.get(part)) for part in ("tts", "stt", "llm")}
        return {**up, "voice_cloning_up": False, "ok": all(up.values())}

    @router.get("/v1/voices")
    async def voices() -> list[dict[str, object]]:
        """Return the one voice of the deployment, for Unmute's front end."""
        voice = str(describe().get("tts", VOICE))
        source = {"source_type": "file", "path_on_server": VOICE, "description": voice}
        return [{"name": VOICE, "comment": voice, "good": True, "instructions": None, "source": source}]

    @router.post("/v1/voices")
    async def clone() -> JSONResponse:
        """Refuse to clone a voice (501)."""
        return JSONResponse({"error": NOT_CLONED}, status_code=501)

    @router.get("/v1/voice-donation")
    @router.post("/v1/voice-donation")
    async def donation() -> JSONResponse:
        """Refuse a voice donation (501)."""
        return JSONResponse({"error": "voices are not collected here"}, status_code=501)

    return router
