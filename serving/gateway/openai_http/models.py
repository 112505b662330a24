"""HTTP routes that OpenAI's clients request: the models, which are the pipelines of the deployment.

``POST /v1/realtime/client_secrets`` is with the other credentials (``auth.client_auth``).
"""

from collections.abc import Sequence

from fastapi import APIRouter
from fastapi.responses import JSONResponse

from parley.protocols.openai_http import OpenAiHttpError, check_model, error_body

# The name that leaves the choice of the pipeline to the deployment.
MODEL = "parley"
OWNER = "parley"


def model_names(modes: Sequence[str]) -> tuple[str, ...]:
    """Return the names of the models: one for each pipeline (``cascade``, ``duplex``), and one for any."""
    return (MODEL, *(f"{MODEL}-{mode}" for mode in modes))


def models_router(names: Sequence[str]) -> APIRouter:
    """Return the routes.

    Args:
        names: of the models.
    """
    router = APIRouter()
    models = {name: _model(name) for name in names}

    @router.get("/v1/models")
    async def listed() -> dict[str, object]:
        """Return the models, for OpenAI's clients."""
        return {"object": "list", "data": list(models.values())}

    @router.get("/v1/models/{model}")
    async def shown(model: str) -> JSONResponse:
        """Return one model."""
        try:
            check_model(model, names)
        except OpenAiHttpError as error:
            body = error_body(str(error), kind=error.kind, param=error.param, code=error.code)
            return JSONResponse(body, status_code=error.status)
        return JSONResponse(models[model])

    return router


def _model(name: str) -> dict[str, object]:
    # The protocol requires a time of creation; there is none.
    return {"id": name, "object": "model", "created": 0, "owned_by": OWNER}
