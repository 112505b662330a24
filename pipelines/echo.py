"""Echo control of one call: whether it has any, and its parts.

``wants_echo_control`` decides, by the capabilities of the transport. A client that cancels the echo by itself
(a browser) is taken to do so unless it says that it does not, because browsers do unless a page forbids it,
and two cancellers in a row hurt the caller's voice. Where there is no room in which a loudspeaker could be
heard (a file, an evaluation) there is nothing to cancel. Everything else (this machine's devices, a
telephone) gets echo control.

``open_echo_control`` builds the processor that stands behind the microphone and gives it what is played:
from a device that tells when it took its audio, or from the packets as they leave. It leaves on the call
what tells the bot's voice from a caller's: ``self_voice`` by levels, ``own_words`` by what was said. An
engine that does not open costs this call its echo control and nothing else.

Where a process of their own is ready for echo control and voice activity (``Engines.host_front_end``), the
caller's part of it is opened here and left on the call as ``front_end``, for the voice activity behind.
"""

import asyncio
from collections.abc import Callable

from loguru import logger

from configs.deployment import EchoMode
from core.call_events import WordsSpoken
from core.errors import EngineError
from models.echo.control import EchoControl, EchoControlSettings
from pipelines.call import Call
from pipelines.engines import Engines
from processors.front_end.echo import EchoProcessor
from processors.front_end.hosted import HostedFrontEnd
from transports.device_output import TellsTaken
from transports.registry import Capabilities
from turn_taking.self_voice import OwnWords, SelfVoice


def wants_echo_control(mode: EchoMode, transport: Capabilities, *, peer_cancels: bool | None) -> bool:
    """Return whether a call gets echo control.

    Args:
        mode: of the deployment.
        transport: capabilities of what the call came over.
        peer_cancels: what a client says of its own echo cancellation; None when it says nothing.
    """
    if mode != "auto":
        return mode == "on"
    cancels = transport.cancels_echo if peer_cancels is None else peer_cancels
    return transport.has_room and not cancels


async def open_echo_control(
    engines: Engines,
    transport: object,
    call: Call,
    *,
    on_cancelled: Callable[[bytes], None] | None = None,
) -> list[EchoProcessor]:
    """Return the processor for directly after the microphone, or none.

    Args:
        engines: of the process.
        transport: tells what is played, or not.
        call: which gets what tells its bot's voice from a caller's.
        on_cancelled: see ``EchoProcessor``.
    """
    hearing = engines.deployment.hearing
    engine = engines.echo
    call.take_front_end(engines.open_front_end())
    if engine is None or not wants_echo_control(
        hearing.echo_mode, call.capabilities, peer_cancels=call.peer_cancels_echo
    ):
        return []
    settings = _expecting(transport)
    executor = engines.executors.echo
    try:
        # Filters and two native modules: some milliseconds.
        control: EchoControl | HostedFrontEnd | None = await _open(call, settings)
        if control is None:
            control = await asyncio.get_running_loop().run_in_executor(
                executor, EchoControl, engine, settings
            )
    except EngineError as error:
        logger.warning(f"this call has no echo control: {error}")
        return []
    voice, words = SelfVoice(), OwnWords()
    call.know_own_voice(voice, words)
    clock = call.conversation.clock
    call.events.subscribe(WordsSpoken, lambda event: words.said(event.text, clock.now_us() // 1000))
    # On the loop's clock and not the session's, which is the wall's: audio is placed to the sample, and a
    # device's thread can read the loop's.
    processor = EchoProcessor(control, executor=executor, self_voice=voice, on_cancelled=on_cancelled)
    if isinstance(transport, TellsTaken):
        transport.tell_taken(processor.played)
    else:
        call.tell_far_end(processor.played)
    return [processor]


async def _open(call: Call, settings: EchoControlSettings) -> HostedFrontEnd | None:
    """Echo control in the process of its own, if there is one and it works."""
    if call.front_end is None:
        return None
    try:
        await call.front_end.open_echo(settings)
    except EngineError as error:
        logger.warning(f"the front end of a call runs in threads of this process: {error}")
        call.drop_front_end()
    return call.front_end


def _expecting(transport: object) -> EchoControlSettings:
    """Return where the echo is looked for first: where the device says that its sound is."""
    settings = EchoControlSettings()
    if not isinstance(transport, TellsTaken):
        return settings
    expected_ms = float(min(transport.output_latency_ms, settings.longest_ms))
    return settings.model_copy(update={"expected_ms": expected_ms})
