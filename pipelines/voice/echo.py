"""Echo control of one call: the decision whether it is used, and its parts.

``wants_echo_control`` decides by the capabilities of the transport. A client that cancels the echo by itself
(a browser) is assumed to do so unless it reports otherwise. Browsers do unless a page forbids it, and two
cancellers in a row damage the caller's voice. Where no microphone can pick up a loudspeaker (a file, an
evaluation) there is nothing to cancel. All other transports (this machine's devices, a phone) get echo
control.

``with_echo_control`` builds the processor that follows the microphone and gives it the audio that is played:
from a device with the moment at which it took its audio, or as the packets leave. With it come the tests by
which the bot's voice differs from a caller's: by levels, and by words. An engine that does not open costs
this call its echo control and nothing else.
"""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from loguru import logger

from parley.configs.deployment import EchoMode
from parley.core.call_events import WordsSpoken
from parley.core.errors import EngineError
from parley.models.echo.control import EchoControl, EchoControlSettings
from parley.pipelines.call import Call
from parley.pipelines.engines.engines import Engines
from parley.pipelines.listeners import fan_out
from parley.processors.front_end.echo import EchoProcessor
from parley.processors.front_end.hosted import HostedFrontEnd
from parley.transports.device_output import StatesLatency
from parley.transports.registry import Capabilities
from parley.turn_taking.barge_in.self_voice import OwnWords, SelfVoice


def wants_echo_control(mode: EchoMode, transport: Capabilities, *, peer_cancels: bool | None) -> bool:
    """Return whether a call gets echo control.

    Args:
        mode: mode of the deployment.
        transport: capabilities of the call's transport.
        peer_cancels: the client's report of its own echo cancellation; None without one.
    """
    if mode != "auto":
        return mode == "on"
    cancels = transport.cancels_echo if peer_cancels is None else peer_cancels
    return transport.has_room and not cancels


class OwnVoiceTest(Protocol):
    """Test by its level whether a voice is the bot's own: ``SelfVoice``, or ``NoOwnVoice`` without one."""

    def is_own(self) -> bool | None:
        """Return whether the last sound is the bot's own voice; None when that is not known."""
        ...


class NoOwnVoice:
    """Test of a call without echo control, in which that is not known."""

    def is_own(self) -> bool | None:
        """Return None."""
        return None


_NO_OWN_VOICE = NoOwnVoice()


def _no_words_are_own(_text: str) -> bool:
    return False


@dataclass(frozen=True, slots=True)
class CallFrontEnd:
    """Echo control and voice activity of one call, and the tests for the bot's own voice.

    Attributes:
        hosted: the caller's part of the process with echo control and voice activity; None when they run in
            threads.
        echo: processors directly after the microphone; empty without echo control.
        self_voice: tests by its level whether a voice is the bot's own.
        are_own: returns whether words are those that the bot spoke recently.
    """

    hosted: HostedFrontEnd | None = None
    echo: tuple[EchoProcessor, ...] = ()
    self_voice: OwnVoiceTest = _NO_OWN_VOICE
    are_own: Callable[[str], bool] = _no_words_are_own

    def close(self) -> None:
        """Close the caller's part of the process; its stages close it where they were built."""
        if self.hosted is not None:
            self.hosted.close()


async def with_echo_control(
    engines: Engines,
    transport: object,
    call: Call,
    front: CallFrontEnd,
    *,
    cancelled: Sequence[Callable[[bytes], None]] = (),
) -> CallFrontEnd:
    """Return the front end of a call with its echo control, where the call gets one.

    Args:
        engines: engines of the process.
        transport: transport of the call, which may report when its device took audio.
        call: the call.
        front: the front end without echo control.
        cancelled: receivers of each piece after the canceller alone; see ``EchoProcessor``.
    """
    hearing, engine, executor = engines.deployment.hearing, engines.echo, engines.executors.echo
    if engine is None or not wants_echo_control(
        hearing.echo_mode, call.capabilities, peer_cancels=call.peer.cancels_echo
    ):
        return front
    settings, hosted = _expecting(transport), front.hosted
    control: EchoControl | HostedFrontEnd
    if hosted is not None and await _open_echo(hosted, settings):
        control = hosted
    else:
        hosted, loop = None, asyncio.get_running_loop()
        try:
            # Filters and two native modules take some milliseconds.
            control = await loop.run_in_executor(executor, EchoControl, engine, settings)
        except EngineError as error:
            logger.warning(f"this call has no echo control: {error}")
            return CallFrontEnd()
    if hearing.echo is not None:
        call.live.has_echo_control(hearing.echo.name, hearing.echo.settings)
    voice, words, clock = SelfVoice(), OwnWords(), call.conversation.clock
    call.events.subscribe(WordsSpoken, lambda event: words.said(event.text, clock.now_us() // 1000))
    # On the loop's clock, not the session's wall clock: audio is placed to the sample, and a device's thread
    # can read the loop's clock.
    processor = EchoProcessor(control, executor=executor, self_voice=voice, on_cancelled=_all(cancelled))
    playout = call.live.playout
    call.live.follow_packets(lambda pcm, at_us: processor.played(pcm, playout.rate_hz, at_us))
    return CallFrontEnd(
        hosted, (processor,), voice, lambda text: words.explains(text, clock.now_us() // 1000)
    )


def _all(listeners: Sequence[Callable[[bytes], None]]) -> Callable[[bytes], None] | None:
    """Return a function that passes audio to all of these; None without any, which costs no signal."""
    return fan_out(listeners) if listeners else None


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
    """Return settings that search for the echo first at the latency that the device reports."""
    settings = EchoControlSettings()
    if not isinstance(transport, StatesLatency):
        return settings
    expected_ms = float(min(transport.output_latency_ms, settings.longest_ms))
    return settings.model_copy(update={"expected_ms": expected_ms})
