"""Routes of the app switches.

GET /api/apps                  the open ones
GET /api/admin/apps            all of them; for the operator
PUT /api/admin/apps/{app_id}   {enabled}; for the operator
"""

from fastapi import APIRouter, Depends, HTTPException, Request
from pydantic import BaseModel, ConfigDict, StrictBool

from parley.serving.gateway.admin.apps import App, Apps, UnknownAppError
from parley.serving.gateway.auth.admin_auth import AdminAuth
from parley.serving.gateway.http.requests import check_origin
from parley.serving.gateway.settings import ServerSettings


class AppList(BaseModel):
    """Apps in an answer."""

    apps: list[App]


class AppSwitch(BaseModel):
    """Body of a switch."""

    model_config = ConfigDict(extra="forbid")

    # Strict: the text "false" must not open an app.
    enabled: StrictBool


def apps_api(apps: Apps, operators: AdminAuth, settings: ServerSettings) -> APIRouter:
    """Return the routes.

    Args:
        apps: of this process.
        operators: checks that a request is an operator's.
        settings: of the server.
    """
    router = APIRouter()

    @router.get("/api/apps")
    async def enabled() -> AppList:
        """Return the apps that are open to clients."""
        return AppList(apps=apps.enabled())

    @router.get("/api/admin/apps", dependencies=[Depends(operators.check)])
    async def listed() -> AppList:
        """Return all apps with their switches."""
        return AppList(apps=apps.all())

    @router.put("/api/admin/apps/{app_id}", dependencies=[Depends(operators.check)])
    async def switch(app_id: str, body: AppSwitch, request: Request) -> App:
        """Open or close an app for new calls."""
        check_origin(request, allowed=settings.allowed_origins)
        try:
            return await apps.switch(app_id, enabled=body.enabled)
        except UnknownAppError as error:
            raise HTTPException(404, str(error)) from error

    return router
