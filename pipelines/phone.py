"""A telephone call: what it has beside the pipeline that every call has.

In: a stream that has begun. Out: one call of the session, held by the cascade or by full duplex, over the
line's transport: 8 kHz out, raised to the pipeline's rate in, echo control on (a telephone's speaker is
heard by its microphone, and nobody says whether the line cancels it), what was heard by the stream's clock
and its marks.

A call that this side ends is ended behind its last word: the caller has heard all of it (``PLAYED_OUT_S``
at most), then Twilio is told by REST, and then the stream is closed.
"""

import asyncio
from collections.abc import Awaitable, Callable
from functools import lru_cache
from typing import Protocol

from pipecat.frames.frames import Frame

from audio.speech_level import SpeechLevel, active_level_dbm0
from core.media import pcm16_to_float
from pipelines.call import Call, playout_settings
from pipelines.engines import INPUT_RATE_HZ, Engines
from pipelines.phone_control import Desk, PhoneControl, PhoneFacts
from protocols.twilio_media import RATE_HZ
from serving.gateway.phone_settings import PhoneRoutesSettings
from session_store.conversation import Conversation
from transports.twilio.stream import PhoneStream
from transports.twilio.transport import PhoneTransport, phone_params

TRANSPORT = "phone"
PLAYED_OUT_S = 5.0


class Run(Protocol):
    """See ``pipelines.cascade.run_conversation``."""

    def __call__(
        self,
        engines: Engines,
        transport: PhoneTransport,
        call: Call,
        *,
        rtvi: bool,
        finished: asyncio.Event | None,
    ) -> Awaitable[None]: ...


async def hold_phone(
    engines: Engines,
    conversation: Conversation,
    stream: PhoneStream,
    *,
    run: Run,
    facts: PhoneFacts,
    desk: Desk,
    settings: PhoneRoutesSettings,
    leaving: asyncio.Event | None = None,
    on_call: Callable[[Call], None] | None = None,
) -> None:
    """Hold one call until it ends.

    Args:
        engines: of the process.
        conversation: open.
        stream: of the caller, open.
        run: the pipeline.
        facts: of the call.
        desk: what can be done with it.
        settings: of telephone calls.
        leaving: set when this call ends and the stream goes on.
        on_call: told the call when it begins; must not block.
    """
    call = Call(
        conversation,
        TRANSPORT,
        playout=playout_settings(engines.deployment).model_copy(update={"flushes": True}),
        peer_quiet_ms=lambda: stream.quiet_ms,
        peer_cancels_echo=False,
        output_rate_hz=RATE_HZ,
    )
    control = PhoneControl(desk, facts, settings, summarize=conversation.summary)
    call.on_turn, call.on_reply_over = control.on_turn, control.on_reply
    if engines.answering.calls_tools:
        call.tools = control.tools()

    async def say(frame: Frame) -> None:
        if call.report is not None:
            await call.report(frame)

    def on_waiting(waiting: bool) -> None:
        if call.on_waiting is not None:
            call.on_waiting(waiting)

    control.say, control.on_waiting = say, on_waiting
    if facts.direction == "outbound" and engines.deployment.phone is not None:
        call.voicemail = engines.deployment.phone.voicemail
    transport = PhoneTransport(
        stream,
        phone_params(INPUT_RATE_HZ),
        input_rate_hz=INPUT_RATE_HZ,
        on_packet=call.on_packet,
        on_key=control.on_key,
        leaving=leaving,
        level=_level(engines, stream.settings.level_dbm0),
    )
    if on_call is not None:
        on_call(call)
    watching = asyncio.create_task(control.run(), name="phone.control")
    try:
        await run(engines, transport, call, rtvi=False, finished=control.finished)
    finally:
        watching.cancel()
        await asyncio.gather(watching, return_exceptions=True)
    if not stream.gone.is_set() and not (leaving is not None and leaving.is_set()):
        await stream.played_out(PLAYED_OUT_S)
        await desk.hang_up(facts.call_sid)


def _level(engines: Engines, target_dbm0: float | None) -> SpeechLevel | None:
    """How loud the bot speaks: an embedded voice is known by its greeting, another is found out."""
    if target_dbm0 is None:
        return None
    kept = engines.kept_speech(engines.deployment.bot.greeting)
    known = _level_of(kept, engines.output_rate_hz) if kept else None
    return SpeechLevel(target_dbm0, rate_hz=RATE_HZ, expected_dbm0=known)


@lru_cache(maxsize=4)
def _level_of(pcm: bytes, rate_hz: int) -> float | None:
    """Once for all calls of a process: they have one greeting."""
    return active_level_dbm0(pcm16_to_float(pcm), rate_hz)
