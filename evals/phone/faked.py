"""The product's telephone calls with two of their engines faked, for the cost of the rest of a call.

``python -m evals.phone.faked --config FILE --port PORT``. The gateway, its telephone routes, the conversation
and its session, the cascade and the line are the product's. Two engines are faked: voice activity detection
never reports a voice, and the voice synthesises each clause once in the process and then takes it from
memory. Echo control is off in the deployment. The loop is set up as in ``bot.py``.
"""

import argparse
import gc
import socket
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
from loguru import logger
from pipecat.runner.types import RunnerArguments

from parley.audio.comfort_noise import ComfortNoise
from parley.configs.load import load_deployment
from parley.core.errors import PeerError
from parley.evals.harness.comparison_server import HOST
from parley.models.tts import SpeechPiece, TextToSpeech
from parley.pipelines.engines.engines import Engines
from parley.pipelines.phone.calls import hold_phone
from parley.pipelines.phone.control import PhoneFacts
from parley.pipelines.sessions import open_conversations
from parley.pipelines.voice.cascade import run_conversation
from parley.runtime import event_loop
from parley.serving.gateway.app import create_app
from parley.serving.gateway.http.server import http_server
from parley.serving.gateway.phone.routes import PhoneArguments
from parley.serving.gateway.phone.settings import PhoneRoutesSettings
from parley.serving.gateway.settings import MAX_SOCKET_BYTES
from parley.session_store.conversation import Conversations
from parley.transports.twilio.stream import PhoneStream
from parley.transports.webrtc.signaling import Signaling
from parley.transports.websocket.peer import StarlettePeer

SWITCH_S = 0.001


class Deaf:
    """Voice activity detector that never reports a voice; its own stream as well."""

    rate_hz, window_samples = 16_000, 512

    def open_stream(self) -> "Deaf":
        """Return the detector itself."""
        return self

    def probability(self, window: np.ndarray) -> float:
        """Return 0: there is never a voice."""
        return 0.0

    def reset(self) -> None:
        """Do nothing: there is no state."""


class Remembered:
    """Voice that repeats its first synthesis of each text.

    Args:
        voice: synthesises a text for the first time.
    """

    def __init__(self, voice: TextToSpeech) -> None:
        self.rate_hz = voice.rate_hz
        self._voice = voice
        self._said: dict[str, list[SpeechPiece]] = {}

    def synthesize(self, text: str, sink: Callable[[SpeechPiece], bool]) -> bool:
        """Pass the stored pieces of a text to the sink, synthesised at its first use."""
        pieces = self._said.get(text)
        if pieces is None:
            pieces = []

            def keep(piece: SpeechPiece) -> bool:
                pieces.append(piece)
                return True

            self._voice.synthesize(text, keep)
            self._said[text] = pieces
        return all(sink(piece) for piece in pieces)


async def hold(engines: Engines, conversations: Conversations, arguments: RunnerArguments) -> None:
    """Hold one telephone call, as ``bot.py`` does."""
    if not isinstance(arguments, PhoneArguments):
        raise PeerError("only telephone calls are supported")
    peer = StarlettePeer(arguments.websocket, most_bytes=MAX_SOCKET_BYTES)
    stream = PhoneStream(peer, comfort=ComfortNoise().packet)
    try:
        started = await stream.open()
        if started is not None:
            phone = arguments.phone
            async with conversations.open(None) as conversation:
                await hold_phone(
                    engines,
                    stream,
                    conversation,
                    network=phone.network,
                    run=run_conversation,
                    facts=PhoneFacts(started.call_sid, phone.caller, phone.called),
                    desk=arguments.desk,
                    settings=engines.deployment.phone or PhoneRoutesSettings(signatures=False),
                )
    finally:
        await stream.close(stream.end[1])


async def serve(config: Path, port: int) -> None:
    """Serve until a signal."""
    deployment = load_deployment(config)
    async with await Engines.load(deployment) as engines:
        engines.vad = Deaf()
        # It takes no time, unlike a thread.
        engines.executors = replace(engines.executors, vad=None)
        voice = engines.voice
        if voice is None:
            raise PeerError("the deployment's voice is a service")
        engines.exchange(tts=Remembered(voice))
        async with open_conversations(deployment, engines.answering) as conversations:
            app = create_app(
                deployment.server,
                run_call=lambda arguments: hold(engines, conversations, arguments),
                conversations=conversations,
                modes=("cascade",),
                default_mode="cascade",
                phone=deployment.phone,
                describe=engines.describe,
                open_door=lambda on_call: Signaling(on_call, max_calls=1, ice_servers=[], hang_up_s=1.0),
            )
            listener = socket.create_server((HOST, port))
            gc.collect()
            gc.freeze()
            gc.set_threshold(2_000, 10, 500)
            sys.setswitchinterval(SWITCH_S)
            await http_server(app, deployment.server).serve(sockets=[listener])


def main() -> int:
    """Run the command."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--config", type=Path, required=True)
    parser.add_argument("--port", type=int, required=True)
    given = parser.parse_args()
    logger.remove()
    logger.add(sys.stderr, level="WARNING")
    event_loop.run(serve(given.config, given.port))
    return 0


if __name__ == "__main__":
    sys.exit(main())
