"""The end of a turn is told after its words, and no later than a second where nothing tells of them."""

import asyncio
import json

from pipecat.frames.frames import (
    OutputTransportMessageUrgentFrame,
    UserStartedSpeakingFrame,
    UserStoppedSpeakingFrame,
)
from pipecat.tests.utils import SleepFrame, run_test
from pipecat.transports.base_transport import TransportParams

from protocols.openai_realtime import OpenAIRealtime
from tests import virtual_time
from tests.unit.pipelines.test_chat_sockets import Client
from transports.websocket.session import SurfaceSession
from transports.websocket.transport import TURN_OVER, WORDS_S, SocketTransport

STARTED, STOPPED = "input_audio_buffer.speech_started", "input_audio_buffer.speech_stopped"
OVER = OutputTransportMessageUrgentFrame(message={"label": "rtvi-ai", "type": TURN_OVER})


class TimedClient(Client):
    """Notes when it reads what."""

    def __init__(self) -> None:
        super().__init__()
        self.read: list[tuple[float, str]] = []

    async def send(self, text: str) -> bool:
        self.read.append((asyncio.get_running_loop().time(), json.loads(text)["type"]))
        return await super().send(text)


def told(*frames: object) -> list[tuple[float, str]]:
    """Return what a client reads of the caller's turns, and when, as these frames reach the output."""

    async def scenario() -> list[tuple[float, str]]:
        client = TimedClient()
        session = SurfaceSession(client, OpenAIRealtime("parley"), rate_hz=16_000)
        session.open()
        transport = SocketTransport(
            session,
            TransportParams(audio_out_enabled=True, audio_out_sample_rate=24_000),
            input_rate_hz=16_000,
            on_packet=lambda _pcm: None,
            ears=lambda: None,
            reply_of=lambda _context: None,
            reply_named=lambda _frame: None,
        )
        await run_test(transport.output(), frames_to_send=frames)
        await session.close("over")
        first_s = next(at_s for at_s, kind in client.read if kind == STARTED)
        return [(round(at_s - first_s, 1), kind) for at_s, kind in client.read if kind in (STARTED, STOPPED)]

    return virtual_time.run(scenario())


def turn() -> tuple[object, object]:
    return UserStartedSpeakingFrame(), UserStoppedSpeakingFrame()


def test_an_end_is_told_when_rtvi_has_told_of_it():
    assert told(*turn(), SleepFrame(0.3), OVER, SleepFrame(2)) == [(0.0, STARTED), (0.3, STOPPED)]


def test_an_end_of_which_rtvi_tells_nothing_is_told_after_a_second():
    assert told(*turn(), SleepFrame(2)) == [(0.0, STARTED), (WORDS_S, STOPPED)]


def test_each_of_two_ends_that_are_held_has_a_second_of_its_own():
    assert told(*turn(), SleepFrame(0.8), *turn(), SleepFrame(2)) == [
        (0.0, STARTED),
        (WORDS_S, STOPPED),
        (WORDS_S, STARTED),
        (0.8 + WORDS_S, STOPPED),
    ]
