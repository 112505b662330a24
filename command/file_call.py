"""Hold a call with audio of a file as the caller."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.command.call_files import FILE_RATE_HZ, callers_pcm, write_document
from parley.core.client_rules import OPERATOR, ClientRules
from parley.core.errors import ConfigError
from parley.pipelines.modes import CASCADE, DUPLEX
from parley.runtime.event_loop import run_asyncio
from parley.runtime.loop_clock import LoopClock

if TYPE_CHECKING:
    from parley.configs.deployment import Deployment
    from parley.core.call_events import TurnEstimated, UtteranceRead
    from parley.pipelines.call import Call, LiveCall
    from parley.pipelines.engines.engines import Engines
    from parley.recording.typed import TypedTurn
    from parley.session_store.conversation import Conversation
    from parley.transports.local.file import FileCall

# Row of the transport.
FILE = "file"


def call_from_file(
    deployment: "Deployment",
    source: Path,
    output: Path,
    *,
    session_id: str | None = None,
    mode: str = CASCADE,
) -> int:
    """Play a WAV as the caller in real time; write the call in stereo and, in the same folder, as JSON.

    Nothing is created before the engines are loaded, and the caller's WAV is never written to.

    Raises:
        MediaError: the input is not audio.
        ConfigError: a file cannot be read or written, or the output would replace the input.
        EngineError: an engine does not load.
    """
    pcm = callers_pcm(source, output)
    document = run_asyncio(_call_from_pcm(deployment, pcm, output, session_id, mode))
    write_document(document, output)
    return 0


async def _call_from_pcm(
    deployment: "Deployment", pcm: bytes, output: Path, session_id: str | None, mode: str
) -> dict[str, Any]:
    from parley.pipelines.engines.engines import Engines
    from parley.pipelines.sessions import open_conversations

    async with (
        await Engines.load(deployment, duplex=mode == DUPLEX) as engines,
        open_conversations(deployment, engines.answering) as conversations,
        conversations.open(session_id) as conversation,
    ):
        call, played = await hold_from_file(engines, conversation, pcm, output, mode)
        return {
            "deployment": deployment.name,
            "mode": mode,
            "session": conversation.session_id,
            "recording": output.name,
            "duration_ms": played.recording.end_samples * 1000 // FILE_RATE_HZ,
            "engines": engines.describe(),
            "turns": [record.as_message() for record in call.live.turns.finished],
        }


@dataclass(frozen=True, slots=True)
class RecordedCaller:
    """Caller of a call that is held again. Times count from the arrival.

    Attributes:
        row: row of the transport whose capabilities the call had.
        begins_ms, first_samples, pauses: as for ``FileCall``; the caller does not wait for a greeting.
        words: utterances that keep their words, as for ``Call``.
        estimates: of the completeness model, as for ``Call``.
        typed: turns that the caller types: on a page, where a text interrupts the bot, or by the keys of a
            telephone, which do not.
        delays: reports of the time until the caller hears a packet, each with that time, in milliseconds.
    """

    row: str
    begins_ms: int = 0
    first_samples: int = 0
    pauses: Sequence[tuple[int, int]] = ()
    words: "Sequence[UtteranceRead]" = ()
    estimates: "Sequence[TurnEstimated]" = ()
    typed: "Sequence[TypedTurn]" = ()
    delays: Sequence[tuple[int, int]] = ()


async def hold_from_file(
    engines: "Engines",
    conversation: "Conversation",
    pcm: bytes,
    output: Path,
    mode: str,
    recorded: RecordedCaller | None = None,
) -> tuple["Call", "FileCall"]:
    """Hold a call whose caller is 16-bit mono PCM at ``FILE_RATE_HZ``; return it when it is over.

    ``output`` is the stereo WAV to write; ``recorded``: the call is held again.

    Raises:
        ConfigError: the WAV cannot be written.
    """
    from parley.pipelines.call import Call, CallPeer, LiveCall, Resumption
    from parley.pipelines.dispatch import pipeline_of
    from parley.transports.local.file import FileTransport, file_call_params

    live = LiveCall(conversation.clock, rate_hz=FILE_RATE_HZ)
    played = _file_call(live, pcm, output, recorded)
    transport = FileTransport(played, file_call_params(FILE_RATE_HZ), live.events)
    caller = recorded or RecordedCaller(FILE)
    call = Call(
        conversation,
        caller.row,
        live,
        rules=ClientRules(OPERATOR),
        peer=CallPeer(bool(caller.typed) and not _has_keys(caller), recorded_as=FILE),
        finished=played.finished,
        resumption=Resumption(recorded_words=caller.words, recorded_estimates=caller.estimates),
    )
    acting = None if recorded is None else asyncio.create_task(_act(call, caller), name="recorded caller")
    try:
        await pipeline_of(mode)(engines, transport, call)
    finally:
        played.recording.close()
        if acting is not None:
            acting.cancel()
            await asyncio.gather(acting, return_exceptions=True)
    return call, played


def _file_call(live: "LiveCall", pcm: bytes, output: Path, recorded: RecordedCaller | None) -> "FileCall":
    from parley.transports.local.file import FileCall

    caller = recorded or RecordedCaller(FILE)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        return FileCall(
            pcm,
            rate_hz=FILE_RATE_HZ,
            output=output,
            talks_over=recorded is not None,
            begins_ms=caller.begins_ms,
            first_samples=caller.first_samples,
            pauses=caller.pauses,
            # The caller heard the bot as late as then.
            reports_delay=recorded is None,
            on_packet=live.on_packet,
        )
    except OSError as error:
        raise ConfigError(f"{error.filename or output}: {error.strerror}") from error


def _has_keys(caller: RecordedCaller) -> bool:
    from parley.transports.registry import TRANSPORTS

    return TRANSPORTS.row(caller.row).capabilities.is_phone


async def _act(call: "Call", caller: RecordedCaller) -> None:
    """Type the turns and report the delays, each at its time after the caller's arrival."""
    from parley.core.call_events import CallerJoined, ClientDelayReported

    arrived, clock = asyncio.Event(), LoopClock()
    arrived_ms = 0

    def on_joined(event: CallerJoined) -> None:
        nonlocal arrived_ms
        arrived_ms = event.at_ms
        arrived.set()

    call.events.subscribe(CallerJoined, on_joined)
    await arrived.wait()
    due: list[tuple[int, int | str]] = [(turn.at_ms, turn.text) for turn in caller.typed]
    due += caller.delays
    for at_ms, what in sorted(due, key=lambda each: each[0]):
        await clock.sleep_until_ms(arrived_ms + at_ms)
        if isinstance(what, int):
            call.events.publish(ClientDelayReported(clock.now_ms(), what))
        else:
            await _type(call, what, by_keys=_has_keys(caller))


async def _type(call: "Call", text: str, *, by_keys: bool) -> None:
    from pipecat.frames.frames import InputTransportMessageFrame, LLMMessagesAppendFrame

    from parley.processors.dialogue.rtvi import typed_message

    if by_keys:
        keys = LLMMessagesAppendFrame([{"role": "user", "content": text}], run_llm=True)
        await call.live.input.queue(keys)
    else:
        await call.live.input.queue(InputTransportMessageFrame(message=typed_message(text)))
