"""A telephone call: what it has beside the pipeline that every call has.

In: a stream that has begun. Out: one call of the session, held by the cascade or by full duplex, over the
line's transport: 8 kHz out, raised to the pipeline's rate in, echo control on (a telephone's speaker is
heard by its microphone, and nobody says whether the line cancels it), what was heard by the stream's clock
and its marks.
"""

import asyncio
from collections.abc import Awaitable, Callable

from pipelines.call import Call, playout_settings
from pipelines.engines import INPUT_RATE_HZ, Engines
from protocols.twilio_media import RATE_HZ
from session_store.conversation import Conversation
from transports.twilio.stream import PhoneStream
from transports.twilio.transport import PhoneTransport, phone_params

Run = Callable[[Engines, PhoneTransport, Call], Awaitable[None]]
TRANSPORT = "phone"


async def hold_phone(
    engines: Engines,
    conversation: Conversation,
    stream: PhoneStream,
    *,
    run: Run,
    caller: str,
    leaving: asyncio.Event | None = None,
    on_call: Callable[[Call], None] | None = None,
) -> None:
    """Hold one call until it ends.

    Args:
        engines: of the process.
        conversation: open.
        stream: of the caller, open.
        run: the pipeline.
        caller: the number, as Twilio says it.
        leaving: set when this call ends and the stream goes on.
        on_call: told the call when it begins; must not block.
    """
    call = Call(
        conversation,
        TRANSPORT,
        playout=playout_settings(engines.deployment).model_copy(update={"flushes": True}),
        peer_cancels_echo=False,
        output_rate_hz=RATE_HZ,
    )
    call.client.reads_rtvi = False
    transport = PhoneTransport(
        stream,
        phone_params(INPUT_RATE_HZ),
        input_rate_hz=INPUT_RATE_HZ,
        on_packet=call.on_packet,
        leaving=leaving,
    )
    if on_call is not None:
        on_call(call)
    await run(engines, transport, call)
