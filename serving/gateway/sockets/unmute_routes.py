"""HTTP routes that Unmute's front end requests before it opens its socket: health, and voices.

The engines run in this process and are loaded before it listens, so they are reported as available. The
voices are those that a caller may choose. Voices are not cloned here, and a request to do so is refused with
that reason.
"""

from collections.abc import Callable, Mapping

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from parley.core.call_choices import OWN_VOICE
from parley.serving.gateway.call_choices import CallChooser

NOT_CLONED = "voices are not cloned here: choose one of GET /v1/voices"


def unmute_router(describe: Callable[[], Mapping[str, object]], chooser: CallChooser, mode: str) -> APIRouter:
    """Return the routes.

    Args:
        describe: returns the names of the engines, as in ``/status``.
        chooser: has the voices that a caller may choose.
        mode: of the calls of such clients.
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
        named = [(name, name) for name in chooser.voices_of(mode).names]
        named += [(voice.id, voice.name) for voice in await chooser.references_of(mode)]
        return [_sample(name, shown, engine if name == OWN_VOICE else shown) for name, shown in named]

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


def _sample(path: str, name: str, comment: str) -> dict[str, object]:
    """Return a voice as the front end lists it; its choice comes back as the path."""
    source = {"source_type": "file", "path_on_server": path, "description": comment}
    return {"name": name, "comment": comment, "good": True, "instructions": None, "source": source}
