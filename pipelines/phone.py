"""A telephone call: what it has beside the pipeline that every call has.

In: a stream that has begun. Out: one call of the session, held by the cascade or by full duplex, over the
line's transport: 8 kHz out, raised to the pipeline's rate in, echo control on (a telephone's speaker is
heard by its microphone, and nobody says whether the line cancels it), what was heard by the stream's clock
and its marks.
"""

from collections.abc import Awaitable, Callable
from typing import Literal

from audio.speech_level import SpeechLevel, active_level_dbm0
from core.media import pcm16_to_float
from pipelines.call import Call, playout_settings
from pipelines.engines import INPUT_RATE_HZ, Engines
from protocols.twilio_media import RATE_HZ
from session_store.conversation import Conversation
from transports.twilio.stream import PhoneStream
from transports.twilio.transport import PhoneTransport, phone_params

Direction = Literal["inbound", "outbound"]
Run = Callable[[Engines, PhoneTransport, Call], Awaitable[None]]
TRANSPORT = "phone"
# The last mark of a call comes back within a round trip; a side that sends none back costs so much.
HEARD_S = 1.0


async def hold_phone(
    engines: Engines,
    conversation: Conversation,
    stream: PhoneStream,
    *,
    run: Run,
    caller: str,
    direction: Direction = "inbound",
) -> None:
    """Hold one call until it ends.

    Args:
        engines: of the process.
        conversation: open.
        stream: of the caller, open.
        run: the pipeline.
        caller: the number, as Twilio says it.
        direction: who placed the call: "outbound" is us, and who answers may be a machine.
    """
    call = Call(
        conversation,
        TRANSPORT,
        playout=playout_settings(engines.deployment).model_copy(update={"flushes": True}),
        peer_cancels_echo=False,
        output_rate_hz=RATE_HZ,
    )
    call.client.reads_rtvi = False
    if direction == "outbound" and engines.deployment.phone is not None:
        call.voicemail = engines.deployment.phone.voicemail
    transport = PhoneTransport(
        stream,
        phone_params(INPUT_RATE_HZ),
        input_rate_hz=INPUT_RATE_HZ,
        on_packet=call.on_packet,
        level=_level(engines, stream.settings.level_dbm0),
    )
    await run(engines, transport, call)
    if not stream.gone.is_set():
        # Who closes the line takes back what has left and is not played.
        await stream.heard(stream.mark(), HEARD_S)


def _level(engines: Engines, target_dbm0: float | None) -> SpeechLevel | None:
    """How loud the bot speaks: an embedded voice is known by its greeting, another is found out."""
    if target_dbm0 is None:
        return None
    kept = engines.kept_speech(engines.deployment.bot.greeting)
    known = active_level_dbm0(pcm16_to_float(kept), engines.output_rate_hz) if kept else None
    return SpeechLevel(target_dbm0, rate_hz=RATE_HZ, expected_dbm0=known)
