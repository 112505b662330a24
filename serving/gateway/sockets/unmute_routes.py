"""HTTP routes that Unmute's front end requests before it opens its socket: health, and voices.

The engines run in this process and are loaded before it listens, so they are reported as available. The
voices are those that a caller may choose. Voices are not cloned here, and a request to do so is refused with
that reason.
"""

from collections.abc import Callable, Mapping, Sequence

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from parley.core.call_choices import OWN_VOICE

NOT_CLONED = "voices are not cloned here: choose one of GET /v1/voices"


def unmute_router(
    describe: Callable[[], Mapping[str, object]], voices: Callable[[], Sequence[str]]
) -> APIRouter:
    """Return the routes.

    Args:
        describe: returns the names of the engines, as in ``/status``.
        voices: returns the names of the voices that a caller may choose, the deployment's own first.
    """
    router = APIRouter()

    @router.get("/v1/health")
    async def health() -> dict[str, bool]:
        """Report which engines are available, for Unmute's front end."""
        names = describe()
        up = {f"{part}_up": bool(names.get(part)) for part in ("tts", "stt", "llm")}
        return {**up, "voice_cloning_up": False, "ok": all(up.values())}

    @router.get("/v1/voices")
    async def listed() -> list[dict[str, object]]:
        """Return the voices that a caller may choose, for Unmute's front end."""
        engine = str(describe().get("tts", OWN_VOICE))
        return [_sample(name, engine if name == OWN_VOICE else name) for name in voices()]

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


def _sample(name: str, comment: str) -> dict[str, object]:
    """Return a voice as the front end lists it; its choice comes back as the ``path_on_server``."""
    source = {"source_type": "file", "path_on_server": name, "description": comment}
    return {"name": name, "comment": comment, "good": True, "instructions": None, "source": source}
