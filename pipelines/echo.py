"""Echo control of one call: whether it has any, and its parts.

``wants_echo_control`` decides, by the capabilities of the transport. A client that cancels the echo by itself
(a browser) is taken to do so unless it says that it does not, because browsers do unless a page forbids it,
and two cancellers in a row hurt the caller's voice. Where there is no room in which a loudspeaker could be
heard (a file, an evaluation) there is nothing to cancel. Everything else (this machine's devices, a
telephone) gets echo control.

``open_front_end`` builds the processor that stands behind the microphone and gives it what is played: from a
device with the moment at which it took its audio, or as the packets leave. With it comes what tells the
bot's voice from a caller's: by levels, and by what was said. An engine that does not open costs this call its
echo control and nothing else.
"""

import asyncio
from collections.abc import Callable
from dataclasses import dataclass

from loguru import logger

from configs.deployment import EchoMode
from core.call_events import WordsSpoken
from core.errors import EngineError
from models.echo.control import EchoControl, EchoControlSettings
from pipelines.call import Call
from pipelines.engines import Engines
from processors.front_end.echo import EchoProcessor
from processors.front_end.hosted import HostedFrontEnd
from transports.device_output import StatesLatency
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


@dataclass(frozen=True, slots=True)
class FrontEnd:
    """Echo control and voice activity of one call, and what tells the bot's own voice.

    Attributes:
        hosted: the caller's part of the process with echo control and voice activity; None: in threads.
        echo: for directly after the microphone; empty without echo control.
        self_voice: whether a voice is the bot's own, by its level; None without echo control.
        are_own: whether words are those that the bot said a moment ago; None without echo control.
    """

    hosted: HostedFrontEnd | None
    echo: tuple[EchoProcessor, ...] = ()
    self_voice: SelfVoice | None = None
    are_own: Callable[[str], bool] | None = None


async def open_front_end(
    engines: Engines,
    transport: object,
    call: Call,
    hosted: HostedFrontEnd | None,
    *,
    on_cancelled: Callable[[bytes], None] | None = None,
) -> FrontEnd:
    """Return what stands in front of the ears of a call.

    Args:
        engines: of the process.
        transport: tells what is played, or not.
        call: whose ears.
        hosted: the caller's part of the process for it, where there is one.
        on_cancelled: see ``EchoProcessor``.
    """
    hearing, engine, executor = engines.deployment.hearing, engines.echo, engines.executors.echo
    if engine is None or not wants_echo_control(
        hearing.echo_mode, call.capabilities, peer_cancels=call.peer_cancels_echo
    ):
        return FrontEnd(hosted)
    settings = _expecting(transport)
    control: EchoControl | HostedFrontEnd
    if hosted is not None and await _open_echo(hosted, settings):
        control = hosted
    else:
        hosted, loop = None, asyncio.get_running_loop()
        try:
            # Filters and two native modules: some milliseconds.
            control = await loop.run_in_executor(executor, EchoControl, engine, settings)
        except EngineError as error:
            logger.warning(f"this call has no echo control: {error}")
            return FrontEnd(None)
    voice, words, clock = SelfVoice(), OwnWords(), call.conversation.clock
    call.events.subscribe(WordsSpoken, lambda event: words.said(event.text, clock.now_us() // 1000))
    # On the loop's clock and not the session's, which is the wall's: audio is placed to the sample, and a
    # device's thread can read the loop's.
    processor = EchoProcessor(control, executor=executor, self_voice=voice, on_cancelled=on_cancelled)
    playout = call.live.playout
    call.live.follow_packets(lambda pcm, at_us: processor.played(pcm, playout.rate_hz, at_us))
    return FrontEnd(hosted, (processor,), voice, lambda text: words.explains(text, clock.now_us() // 1000))


async def _open_echo(hosted: HostedFrontEnd, settings: EchoControlSettings) -> bool:
    """Open echo control in the process of its own; close the caller's part of it where that fails."""
    try:
        await hosted.open_echo(settings)
    except EngineError as error:
        logger.warning(f"the front end of a call runs in threads of this process: {error}")
        hosted.close()
        return False
    return True


def _expecting(transport: object) -> EchoControlSettings:
    """Return where the echo is looked for first: where the device says that its sound is."""
    settings = EchoControlSettings()
    if not isinstance(transport, StatesLatency):
        return settings
    expected_ms = float(min(transport.output_latency_ms, settings.longest_ms))
    return settings.model_copy(update={"expected_ms": expected_ms})
