"""A call of a simulated telephone: a server on this machine, and a caller who reaches it as Twilio would."""

import socket
from pathlib import Path
from typing import TYPE_CHECKING, Any

from parley.command.call_files import FILE_RATE_HZ, callers_pcm, write_document
from parley.command.gateway import gateway
from parley.command.listener import claim_port
from parley.command.server import check_phone
from parley.core.errors import ConfigError, PeerError
from parley.pipelines.modes import CASCADE, DUPLEX
from parley.runtime.event_loop import run_asyncio

if TYPE_CHECKING:
    from parley.configs.deployment import Deployment
    from parley.pipelines.call import Call


def call_by_telephone(
    deployment: "Deployment",
    source: Path | None,
    output: Path | None,
    *,
    mode: str = CASCADE,
    port: int = 0,
) -> int:
    """Serve on this machine and call it as Twilio would, with a simulated caller; no credentials are needed.

    Args:
        deployment: deployment of the server.
        source: speech of the caller; None for a question.
        output: stereo WAV to write; None to print the call only.
        mode: mode of the call.
        port: port to listen on; 0 for any that is free.

    Raises:
        MediaError: the input is not audio.
        ConfigError: a file cannot be read or written, the port is taken, or the call is refused.
        EngineError: an engine does not load.
    """
    from parley.pipelines.phone.simulated_phone import simulated

    pcm = callers_pcm(source, output)
    deployment = simulated(deployment)
    check_phone(deployment, mode)
    listener = claim_port(deployment.server.host, port)
    document = run_asyncio(_call_by_telephone(deployment, listener, pcm, output, mode))
    for turn in document["turns"]:
        print(
            *(
                f"{who}: {said}"
                for who, said in (("caller", turn["user_text"]), ("bot", turn["bot_text"]))
                if said
            ),
            sep="\n",
        )
    if output is not None:
        write_document(document, output)
    return 0


async def _call_by_telephone(
    deployment: "Deployment", listener: socket.socket, pcm: bytes, output: Path | None, mode: str
) -> dict[str, Any]:
    from parley.pipelines.engines.engines import Engines
    from parley.pipelines.phone.simulated_phone import (
        asked_aloud,
        call_here,
        on_the_line,
        open_recording,
        record_of,
    )
    from parley.pipelines.sessions import open_conversations
    from parley.serving.gateway.phone.call_manager import CallManager

    calls: list[Call] = []
    async with (
        await Engines.load(deployment, duplex=mode == DUPLEX) as engines,
        open_conversations(deployment, engines.answering) as conversations,
        gateway(engines, conversations, mode=mode, on_call=calls.append, desk=CallManager(None)) as server,
    ):
        speech = on_the_line(pcm, FILE_RATE_HZ) if pcm else await asked_aloud(engines.voice)
        recording = open_recording(output)
        try:
            heard = await call_here(server, listener, speech, recording)
        except PeerError as error:
            raise ConfigError(str(error)) from error
        finally:
            if recording is not None:
                recording.close()
        return record_of(
            calls[-1] if calls else None,
            heard,
            deployment=deployment.name,
            mode=mode,
            recording=None if output is None else output.name,
            engines=engines.describe(),
        )
