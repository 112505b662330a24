"""Checks of the body with which a client begins a call, before anything of the call exists."""

import time
from collections.abc import Mapping, Sequence
from types import NoneType

from parley.core.call_choices import CallChoices
from parley.core.errors import PeerError, StoreUnavailableError
from parley.core.grants import ClientIdentity
from parley.serving.gateway.admin.apps import Apps
from parley.serving.gateway.auth.client_auth import Access
from parley.serving.gateway.auth.usage import UsageLimits
from parley.serving.gateway.call_choices import CallChooser
from parley.serving.gateway.desk.desk import DESK_CALL, Desk, DeskError
from parley.session_store.conversations import Conversations
from parley.session_store.lost_calls import lost_call


class CallBodies:
    """Checks of the bodies of calls; each raises a ``PeerError`` or an ``AgentError`` with the reason.

    Args:
        modes: that a call may request.
        conversations: of this process; None: there are no sessions to go on with.
        usage: limits of the tenants.
        access: checks that a client may begin a session, or go on with it.
        chooser: has what a caller may choose.
        apps: switches of the surfaces.
        human_desk: desk at which humans take sessions over; None: there is none.
    """

    def __init__(
        self,
        modes: Sequence[str],
        *,
        conversations: Conversations | None,
        usage: UsageLimits,
        access: Access,
        chooser: CallChooser,
        apps: Apps,
        human_desk: Desk | None,
    ) -> None:
        self._modes, self._conversations = modes, conversations
        self._tenants, self._access = usage.tenants, access
        self._chooser, self._apps, self._human_desk = chooser, apps, human_desk

    async def check_browser(self, body: Mapping[str, object], identity: ClientIdentity) -> None:
        """Check the body of a browser's call, or of a desk's."""
        self._apps.check("browser")
        if body.get("mode") == DESK_CALL:
            self._check_desk_call(body, identity)
            return
        await self.check_chosen(body, identity)

    async def check_chosen(self, body: Mapping[str, object], identity: ClientIdentity) -> None:
        """Check the body of a call whose client may choose how the bot speaks."""
        await self._check_call(body, identity)
        await self._chooser.choose(body, identity)

    async def choices(self, body: Mapping[str, object], identity: ClientIdentity) -> CallChoices:
        """Return what the client of a browser's call has chosen, after its check."""
        await self.check_browser(body, identity)
        return await self._chooser.choose(body, identity)

    def _check_desk_call(self, body: Mapping[str, object], identity: ClientIdentity) -> None:
        if self._human_desk is None or not identity.is_operator:
            raise PeerError("mode: a call of the desk is for the operator of a server that has a desk")
        try:
            self._human_desk.check_speaker(str(body.get("session")), str(body.get("desk")))
        except DeskError as error:
            raise PeerError(str(error)) from error

    async def _check_call(self, body: Mapping[str, object], identity: ClientIdentity) -> None:
        await self.check(body, identity)
        if body.get("session") is None:
            self._tenants.check_session(identity)
        await self._tenants.check_call(identity, is_counted=await self.is_counted(body))

    async def is_counted(self, body: Mapping[str, object]) -> bool:
        """Return whether a client goes on with a call that it has lost, and that is counted already."""
        if not body.get("reconnect") or self._conversations is None or not self._tenants.names():
            return False
        session_id, now_us = str(body.get("session")), time.time_ns() // 1_000
        return await lost_call(self._conversations.store, session_id, now_us=now_us) is not None

    async def check(self, body: Mapping[str, object], identity: ClientIdentity) -> None:
        """Check the fields of a body, and the session that it names."""
        self._check_fields(body)
        if self._conversations is not None and not self._conversations.store.available:
            # Otherwise a call would be picked up and stay silent until its session can be claimed.
            raise StoreUnavailableError("the session store is unavailable, try again in a moment")
        session_id = body.get("session")
        if session_id is None:
            self._access.check_new_session(identity)
            return
        if self._conversations is None or not isinstance(session_id, str):
            raise PeerError("session: not a session id")
        info = await self._conversations.store.info(session_id)
        self._access.check_use(identity, session_id, info.owner)

    def _check_fields(self, body: Mapping[str, object]) -> None:
        for name in ("echo_cancellation", "reconnect", "held"):
            if not isinstance(body.get(name), (bool, NoneType)):
                raise PeerError(f"{name}: expected true, false or nothing")
        if body.get("reconnect") and body.get("session") is None:
            raise PeerError("reconnect: expected with the session that goes on")
        if body.get("held") and not body.get("reconnect"):
            raise PeerError("held: expected with the reconnection of a call that was on hold")
        if body.get("mode") is not None and body["mode"] not in self._modes:
            offered = " or ".join(self._modes) or "none is offered here"
            raise PeerError(f"mode: expected {offered}, or nothing")
