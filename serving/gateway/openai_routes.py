"""HTTP routes that OpenAI's clients request: the models, which are the pipelines of the deployment.

``POST /v1/realtime/client_secrets`` is with the other credentials (``auth.client_auth``).
"""

from collections.abc import Sequence

from fastapi import APIRouter
from fastapi.responses import JSONResponse

# The name that leaves the choice of the pipeline to the deployment.
MODEL = "parley"
OWNER = "parley"


def openai_router(modes: Sequence[str]) -> APIRouter:
    """Return the routes.

    Args:
        modes: pipelines that are served: cascade, duplex.
    """
    router = APIRouter()
    models = {name: _model(name) for name in (MODEL, *(f"{MODEL}-{mode}" for mode in modes))}

    @router.get("/v1/models")
    async def listed() -> dict[str, object]:
        """Return the models, for OpenAI's clients."""
        return {"object": "list", "data": list(models.values())}

    @router.get("/v1/models/{model}")
    async def shown(model: str) -> JSONResponse:
        """Return one model."""
        found = models.get(model)
        if found is not None:
            return JSONResponse(found)
        error = {
            "message": f"there is no model {model[:64]!r}; known: {', '.join(models)}",
            "type": "invalid_request_error",
            "param": "model",
            "code": "model_not_found",
        }
        return JSONResponse({"error": error}, status_code=404)

    return router


def _model(name: str) -> dict[str, object]:
    # The protocol requires a time of creation; there is none.
    return {"id": name, "object": "model", "created": 0, "owned_by": OWNER}
