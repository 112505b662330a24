"""Composition of a server: decides how the parts of a process make one application.

Everything that the application needs is passed to it here; the packages below know each other by interfaces.
"""

import asyncio
from contextlib import asynccontextmanager
from functools import partial
from typing import TYPE_CHECKING

from parley.core.tuning import tuned
from parley.pipelines.held_calls import HeldCalls
from parley.pipelines.modes import CASCADE, DUPLEX
from parley.serving.gateway.auth.admin_token import AdminToken, operator_token
from parley.serving.gateway.settings import ServerTuning
from parley.transports.registry import TRANSPORTS

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    import uvicorn

    from parley.pipelines.call import Call
    from parley.pipelines.engines.engines import Engines
    from parley.runtime.stall_monitor import StallMonitor
    from parley.serving.gateway.phone.call_manager import CallManager
    from parley.serving.gateway.replays.jobs import ReplayJobs
    from parley.session_store.conversations import Conversations


@asynccontextmanager
async def gateway(
    engines: "Engines",
    conversations: "Conversations",
    *,
    mode: str,
    on_call: "Callable[[Call], None] | None" = None,
    desk: "CallManager | None" = None,
    token: "AdminToken | None" = None,
    stalls: "StallMonitor | None" = None,
    replays: "ReplayJobs | None" = None,
) -> "AsyncIterator[uvicorn.Server]":
    """Yield the server of a deployment, ready to run; close its parts on exit.

    Args:
        engines: engines of the process.
        conversations: sessions of the process.
        mode: mode of callers who request none.
        on_call: called with each telephone call that begins; must not block.
        desk: operations on telephone calls; None for those that the environment has an account for.
        token: token of the operator; None for that of the environment or of the data folder.
        stalls: stalls of the event loop, for ``/status``.
        replays: of recorded calls, for the operator; None for none.
    """
    from parley.configs.in_force import settings_in_force
    from parley.pipelines.dispatch import run_session
    from parley.pipelines.engines.settings import effective_settings
    from parley.pipelines.openai_audio import FileSpeaker, FileTranscriber
    from parley.pipelines.phone.calls import open_desk
    from parley.pipelines.phone.sessions import PhoneSessions
    from parley.pipelines.sessions import TypedTurns
    from parley.serving.gateway.admin.failures_api import FailureSources
    from parley.serving.gateway.admin.operations import Operations
    from parley.serving.gateway.admission import AdmissionGate
    from parley.serving.gateway.app import create_app
    from parley.serving.gateway.auth.audit import AuditLog
    from parley.serving.gateway.auth.exposure import describe_exposure
    from parley.serving.gateway.call_choices import CallOffers
    from parley.serving.gateway.desk.desk import Desk
    from parley.serving.gateway.http.idle_memory import returning_memory
    from parley.serving.gateway.http.server import http_server
    from parley.serving.gateway.phone.call_links import CallLinks
    from parley.serving.gateway.phone.caller_directory import CallerDirectory
    from parley.transports.webrtc.signaling import Signaling

    deployment = engines.deployment
    server = tuned(ServerTuning, deployment.server)
    data_dir = deployment.operations.data_dir
    if token is None:
        token = await asyncio.to_thread(operator_token, data_dir)
    typed = TypedTurns(conversations, engines.answering, deployment)
    desk = open_desk(deployment.phone) if desk is None else desk
    book = None
    if (phone := deployment.phone) is not None:
        book = CallerDirectory(
            conversations.store, phone.remember_callers, phone.call_codes, number=phone.number
        )
    # The number for a page that offers to go on by telephone.
    number = book.number if book is not None and book.codes is not None else None
    telephone = {} if number is None else {"telephone": number}
    links = None
    if phone is not None and phone.reconnect is not None:
        links = CallLinks(conversations.store, phone.reconnect)
    held = HeldCalls()
    phones = None if book is None else PhoneSessions(conversations, book, links)
    gate = AdmissionGate(
        deployment.server.max_calls,
        hearing=engines.hearing,
        active=lambda: app.state.calls.active,
        heard=lambda: app.state.calls.heard,
        answers=engines.answers,
    )
    most_waiting = 0 if deployment.server.queue is None else deployment.server.queue.most
    is_bounded = deployment.server.admission == "auto"

    def not_ready() -> list[str]:
        """Return the reasons for which this process should get no new calls."""
        return [*engines.health(), *(gate.full() if is_bounded else [])]

    app = create_app(
        deployment.server,
        admitted=gate.admits if is_bounded else None,
        uses_recogniser=lambda wanted: engines.uses_recogniser(wanted or mode),
        offers=CallOffers(engines.choices_of, lambda client: engines.answering.rules(client).may_instruct),
        usage=engines.answering.usage,
        readiness=not_ready,
        run_call=lambda arguments: run_session(
            engines, conversations, arguments, mode=mode, held=held, phones=phones, on_call=on_call
        ),
        end_lost=partial(held.end, with_task=True),
        conversations=conversations,
        type_turn=typed,
        speak=FileSpeaker(engines),
        transcribe=FileTranscriber(engines),
        language=deployment.bot.language.partition("-")[0].lower(),
        annotations=engines.annotations,
        recordings=engines.recordings,
        replays=replays,
        modes=(CASCADE, DUPLEX),
        default_mode=mode,
        served=TRANSPORTS.served,
        phone=deployment.phone,
        desk=desk,
        human_desk=None if deployment.desk is None else Desk(conversations, deployment.desk),
        book=book,
        call_links=links,
        operator_token=token.text,
        audit=AuditLog(data_dir / "audit.jsonl"),
        shutdown=engines.shutdown,
        metrics=engines.metrics,
        send_traces=None if engines.traces is None else engines.traces.close,
        operations=Operations.open(
            deployment.operations,
            pool=engines.pool,
            voice=deployment.duplex.tts_voice,
            documents=engines.answering.library,
            ledger=engines.ledger,
            prices=engines.prices,
            calls=engines.live_calls,
            failures=FailureSources(
                engines.failures,
                engines.circuits,
                engines.processes,
                lambda: None if stalls is None else stalls.as_message(),
            ),
            in_force=partial(
                settings_in_force, deployment, engine_settings=partial(effective_settings, deployment)
            ),
        ),
        describe=lambda: {
            "mode": mode,
            **telephone,
            **engines.describe(),
            **({} if stalls is None else {"stalls": stalls.as_message()}),
            "admission": gate.describe() if is_bounded else None,
            "waiting": app.state.calls.waiting,
            "not_ready": not_ready(),
            "exposure": describe_exposure(
                deployment.server, public_url=None if phone is None else phone.public_url
            ),
        },
        open_door=lambda on_call: Signaling(
            on_call,
            # A caller in the queue for a line is connected too.
            max_calls=deployment.server.max_calls + most_waiting,
            ice_servers=list(deployment.server.ice_servers),
            hang_up_s=server.hang_up_s,
        ),
    )
    if is_bounded:
        gate.start()
    try:
        async with returning_memory(app.state.calls):
            yield http_server(app, deployment.server)
    finally:
        await gate.close()
        await typed.close()
        await desk.close()
