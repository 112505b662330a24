"""Hold a call with audio of a file as the caller."""

import asyncio
from collections.abc import Sequence
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
    from parley.core.call_events import UtteranceRead
    from parley.pipelines.call import Call
    from parley.pipelines.engines.engines import Engines
    from parley.recording.typed import TypedTurn
    from parley.session_store.conversation import Conversation
    from parley.transports.local.file import FileCall


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


async def hold_from_file(
    engines: "Engines",
    conversation: "Conversation",
    pcm: bytes,
    output: Path,
    mode: str,
    *,
    talks_over: bool = False,
    begins_ms: int = 0,
    first_samples: int = 0,
    recorded_words: Sequence["UtteranceRead"] = (),
    typed: Sequence["TypedTurn"] = (),
    by_keys: bool = False,
) -> tuple["Call", "FileCall"]:
    """Hold a call whose caller is 16-bit mono PCM at ``FILE_RATE_HZ``; return it when it is over.

    ``output`` is the stereo WAV to write; ``recorded_words`` are as for ``Call``, others for ``FileCall``.
    ``typed`` are turns that the caller types: on a page, where a text interrupts the bot, or ``by_keys`` of a
    telephone, which do not.

    Raises:
        ConfigError: the WAV cannot be written.
    """
    from parley.pipelines.call import Call, LiveCall
    from parley.pipelines.dispatch import pipeline_of
    from parley.transports.local.file import FileCall, FileTransport, file_call_params

    live = LiveCall(conversation.clock, rate_hz=FILE_RATE_HZ)
    try:
        output.parent.mkdir(parents=True, exist_ok=True)
        played = FileCall(
            pcm,
            rate_hz=FILE_RATE_HZ,
            output=output,
            talks_over=talks_over,
            begins_ms=begins_ms,
            first_samples=first_samples,
            on_packet=live.on_packet,
        )
    except OSError as error:
        raise ConfigError(f"{error.filename or output}: {error.strerror}") from error
    transport = FileTransport(played, file_call_params(FILE_RATE_HZ), live.events)
    rules = ClientRules(OPERATOR)
    call = Call(
        conversation,
        "file",
        live,
        rules=rules,
        rtvi=bool(typed) and not by_keys,
        finished=played.finished,
        recorded_words=recorded_words,
    )
    typing = asyncio.create_task(_type(call, typed, by_keys=by_keys), name="typing") if typed else None
    try:
        await pipeline_of(mode)(engines, transport, call)
    finally:
        played.recording.close()
        if typing is not None:
            typing.cancel()
            await asyncio.gather(typing, return_exceptions=True)
    return call, played


async def _type(call: "Call", typed: Sequence["TypedTurn"], *, by_keys: bool) -> None:
    """Type the turns, each at its time after the caller's arrival."""
    from pipecat.frames.frames import InputTransportMessageFrame, LLMMessagesAppendFrame

    from parley.core.call_events import CallerJoined
    from parley.processors.dialogue.rtvi import typed_message

    arrived, clock = asyncio.Event(), LoopClock()
    arrived_ms = 0

    def on_joined(event: CallerJoined) -> None:
        nonlocal arrived_ms
        arrived_ms = event.at_ms
        arrived.set()

    call.events.subscribe(CallerJoined, on_joined)
    await arrived.wait()
    for turn in typed:
        await clock.sleep_until_ms(arrived_ms + turn.at_ms)
        if by_keys:
            keys = LLMMessagesAppendFrame([{"role": "user", "content": turn.text}], run_llm=True)
            await call.live.input.queue(keys)
        else:
            await call.live.input.queue(InputTransportMessageFrame(message=typed_message(turn.text)))
