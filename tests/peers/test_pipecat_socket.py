"""Pipecat's own WebSocket client with its Protocol Buffers, as a pipeline, against a running server."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import pytest_asyncio
from pipecat.frames.frames import (
    Frame,
    InputAudioRawFrame,
    InputTransportMessageFrame,
    InterruptionFrame,
    OutputAudioRawFrame,
    OutputTransportMessageUrgentFrame,
    TranscriptionFrame,
)
from pipecat.frames.protobufs import frames_pb2
from pipecat.metrics.metrics import LLMTokenUsage, TTFBMetricsData
from pipecat.pipeline.pipeline import Pipeline
from pipecat.pipeline.worker import PipelineParams, PipelineWorker
from pipecat.processors.frame_processor import FrameDirection, FrameProcessor
from pipecat.processors.frameworks.rtvi import models as rtvi
from pipecat.serializers.protobuf import ProtobufFrameSerializer
from pipecat.transports.websocket.client import WebsocketClientParams, WebsocketClientTransport
from pipecat.workers.runner import WorkerRunner
from websockets.asyncio.client import connect
from websockets.exceptions import ConnectionClosed, InvalidStatus

from tests.peers.llm_script import Turn
from tests.peers.openai_server import OpenAiServer
from tests.peers.server import RunningServer, running_server
from tests.peers.test_openai_realtime import events_of
from tests.voices import say

pytestmark = pytest.mark.asyncio(loop_scope="module")

RATE_HZ = 16_000
PIECE_MS = 20
LONG = ("We open at nine. ", "We close at six in the evening. ", "On Saturday we open at ten. ") * 3


class Answering(OpenAiServer):
    async def stream(self, response: Any, turn: Turn) -> None:
        asked = str(self.requests[-1]["messages"][-1]["content"]).lower()
        await super().stream(response, Turn(("It costs ", "five euros.")) if "price" in asked else turn)


class Heard(FrameProcessor):
    """Client side of a call: what came from the bot, and the ends of its waits."""

    def __init__(self) -> None:
        super().__init__()
        self.messages: list[dict[str, Any]] = []
        self.audio = bytearray()
        self.rates: set[int] = set()
        self.interruptions = 0
        self._changed = asyncio.Event()

    async def process_frame(self, frame: Frame, direction: FrameDirection) -> None:
        await super().process_frame(frame, direction)
        if isinstance(frame, InputAudioRawFrame):
            self.audio += frame.audio
            self.rates.add(frame.sample_rate)
        elif isinstance(frame, InputTransportMessageFrame):
            self.messages.append(frame.message)
        elif isinstance(frame, InterruptionFrame):
            self.interruptions += 1
        else:
            # What the test sends.
            await self.push_frame(frame, direction)
        self._changed.set()

    async def until(self, is_so: Callable[[], bool], *, within_s: float = 60) -> None:
        async with asyncio.timeout(within_s):
            while not is_so():
                self._changed.clear()
                await self._changed.wait()

    def kinds(self) -> list[str]:
        return [message["type"] for message in self.messages]

    def data(self, kind: str) -> list[dict[str, Any]]:
        return [message["data"] for message in self.messages if message["type"] == kind]

    def words(self) -> str:
        """Return what the bot has said."""
        return " ".join(data["text"] for data in self.data("bot-tts-text"))

    @property
    def loud_ms(self) -> float:
        samples = np.frombuffer(bytes(self.audio), "<i2")
        return 1000 * np.count_nonzero(np.abs(samples.astype(np.int32)) > 500) / max(self.rates or {1})


class Caller:
    """Pipecat pipeline that calls the server, with a microphone that is never silent on the wire."""

    def __init__(self, worker: PipelineWorker, heard: Heard, rate_hz: int) -> None:
        self.worker = worker
        self.heard = heard
        self.rate_hz = rate_hz
        self._speech = bytearray()

    def say(self, text: str) -> None:
        pcm = np.frombuffer(say(text), "<i2")
        self._speech += np.repeat(pcm, self.rate_hz // RATE_HZ).astype("<i2").tobytes()

    async def send(self, kind: str, data: Any, **more: Any) -> None:
        message = {"label": "rtvi-ai", "type": kind, "id": "1", "data": data, **more}
        await self.worker.queue_frame(OutputTransportMessageUrgentFrame(message=message))

    async def ready(self) -> None:
        about = rtvi.AboutClientData(library="pipecat")
        data = rtvi.ClientReadyData(version=rtvi.PROTOCOL_VERSION, about=about)
        await self.send("client-ready", data.model_dump())
        await self.heard.until(lambda: "bot-ready" in self.heard.kinds())

    async def microphone(self) -> None:
        loop = asyncio.get_running_loop()
        due_s = loop.time()
        size = self.rate_hz * PIECE_MS // 1000 * 2
        while True:
            piece = bytes(self._speech[:size]).ljust(size, b"\0")
            del self._speech[:size]
            await self.worker.queue_frame(OutputAudioRawFrame(piece, self.rate_hz, 1))
            due_s += PIECE_MS / 1000
            await asyncio.sleep(max(0, due_s - loop.time()))


@asynccontextmanager
async def calling(server: RunningServer, *, rate_hz: int = RATE_HZ, query: str = "") -> AsyncIterator[Caller]:
    transport = WebsocketClientTransport(
        f"ws{server.url.removeprefix('http')}/ws{query}",
        WebsocketClientParams(
            audio_in_enabled=True,
            audio_out_enabled=True,
            add_wav_header=False,
            serializer=ProtobufFrameSerializer(),
        ),
    )
    heard = Heard()
    worker = PipelineWorker(
        Pipeline([transport.input(), heard, transport.output()]),
        params=PipelineParams(audio_out_sample_rate=rate_hz),
        enable_rtvi=False,
        idle_timeout_secs=None,
    )
    runner = WorkerRunner(handle_sigint=False)
    await runner.add_workers(worker)
    running = asyncio.create_task(runner.run())
    caller = Caller(worker, heard, rate_hz)
    microphone = asyncio.create_task(caller.microphone())
    try:
        yield caller
    finally:
        microphone.cancel()
        await runner.cancel(reason="the test is over")
        await asyncio.wait({running}, timeout=10)


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    folder = tmp_path_factory.mktemp("own")
    async with Answering([Turn(LONG)]) as llm:
        (folder / "own.yaml").write_text(
            "bot: {greeting: 'Hello there.'}\n"
            "speaking: {voices: {rms: {name: flite, settings: {voice: rms}}}}\n"
            "thinking: {llm: {name: openai_compatible, settings: "
            f'{{base_url: "{llm.url}/v1", model: m}}}}}}\n'
        )
        async with running_server("--config", str(folder / "own.yaml")) as server:
            yield server


@pytest.mark.parametrize("rate_hz", [16_000, 48_000])
async def test_a_conversation_with_greeting_question_and_answer(server: RunningServer, rate_hz: int):
    async with calling(server, rate_hz=rate_hz) as caller:
        heard = caller.heard
        await caller.ready()
        await heard.until(lambda: "hello there" in heard.words().lower() and heard.loud_ms > 100)
        await heard.until(lambda: "bot-stopped-speaking" in heard.kinds())
        caller.say("what is the price")
        await heard.until(lambda: "five euros" in heard.words())
        finals = [data["text"] for data in heard.data("user-transcription") if data["final"]]
        assert finals == ["what is the price"]
        assert {"user-started-speaking", "user-stopped-speaking", "bot-transcription"} <= set(heard.kinds())
        assert len(heard.rates) == 1 and heard.rates <= {16_000, 24_000, 48_000}


async def test_metrics_of_a_turn_come_in_pipecats_messages(server: RunningServer):
    async with calling(server) as caller:
        heard = caller.heard
        await caller.ready()
        await heard.until(lambda: "bot-stopped-speaking" in heard.kinds())
        # Typed: a spoken question may be answered ahead, and again when its last words differ.
        await caller.send("send-text", {"content": "What is the price?"})

        def figures(kind: str) -> list[dict[str, Any]]:
            return [each for data in heard.data("metrics") for each in data.get(kind, ())]

        wanted = {"llm", "tts"}
        await heard.until(lambda: wanted <= {each["processor"] for each in figures("ttfb")})
        await heard.until(lambda: bool(figures("tokens")))
        for message in heard.messages:
            if message["type"] == "metrics":
                rtvi.MetricsMessage.model_validate(message)
        # As Pipecat's own: seconds, by processor.
        assert all(0 <= TTFBMetricsData.model_validate(each).value < 60 for each in figures("ttfb"))
        used = LLMTokenUsage.model_validate(figures("tokens")[-1])
        assert (used.prompt_tokens, used.completion_tokens, used.total_tokens) == (12, 2, 14)
        assert not any("model" in each for each in figures("ttfb"))


async def test_typed_words_are_answered(server: RunningServer):
    async with calling(server) as caller:
        await caller.ready()
        await caller.heard.until(lambda: "bot-stopped-speaking" in caller.heard.kinds())
        await caller.send("send-text", {"content": "What is the price?"})
        await caller.heard.until(lambda: "five euros" in caller.heard.words())


async def test_a_caller_who_interrupts_is_heard_and_the_rest_of_the_reply_is_not_sent(server: RunningServer):
    async with calling(server) as caller:
        heard = caller.heard
        await caller.ready()
        await heard.until(lambda: "bot-stopped-speaking" in heard.kinds())
        before_ms, cuts = heard.loud_ms, heard.interruptions
        caller.say("what are your opening hours")
        await heard.until(lambda: heard.loud_ms > before_ms + 1_500)
        caller.say("wait what is the price please")
        await heard.until(lambda: heard.interruptions > cuts + 1)
        # The bot's audio comes at the pace at which it is played: much of the reply was never sent.
        assert heard.words().count("On Saturday") < 3
        await heard.until(lambda: "five euros" in heard.words())


async def test_a_caller_chooses_a_voice_in_the_address(server: RunningServer):
    async with calling(server, query="?voice=rms") as caller:
        await caller.ready()
        await caller.heard.until(lambda: "server-message" in caller.heard.kinds())
        [session] = [data["id"] for data in caller.heard.data("server-message") if data["kind"] == "session"]
        await caller.heard.until(lambda: caller.heard.loud_ms > 100)
    [*_, joined] = await events_of(server, session, until="joined")
    assert joined["payload"]["choices"] == {"voice": "rms"}
    url = f"ws{server.url.removeprefix('http')}/ws"
    for query in ("?voice=henry", "?reference_voice=anna", "?preset=none"):
        with pytest.raises(InvalidStatus):
            await connect(url + query)


async def test_a_session_goes_on(server: RunningServer):
    async with calling(server) as caller:
        await caller.ready()
        await caller.heard.until(lambda: "server-message" in caller.heard.kinds())
        [session] = [data["id"] for data in caller.heard.data("server-message") if data["kind"] == "session"]
        await caller.heard.until(lambda: "bot-stopped-speaking" in caller.heard.kinds())
        await caller.send("send-text", {"content": "What is the price?"})
        await caller.heard.until(lambda: "five euros" in caller.heard.words())
    async with calling(server, query=f"?session={session}") as caller:
        await caller.ready()
        await caller.heard.until(
            lambda: any(data.get("id") == session for data in caller.heard.data("server-message"))
        )


async def test_a_call_that_lost_its_socket_hears_the_rest_of_the_reply_and_no_greeting(server: RunningServer):
    async with calling(server) as caller:
        heard = caller.heard
        await caller.ready()
        await heard.until(lambda: "bot-stopped-speaking" in heard.kinds())
        [session] = [data["id"] for data in heard.data("server-message") if data["kind"] == "session"]
        before_ms = heard.loud_ms
        await caller.send("send-text", {"content": "What are your opening hours?"})
        await heard.until(lambda: heard.loud_ms > before_ms + 3_000)
    async with calling(server, query=f"?session={session}&reconnect=true") as caller:
        heard = caller.heard
        await caller.ready()
        await heard.until(lambda: "bot-stopped-speaking" in heard.kinds())
        rest, whole = heard.words().split(), "".join(LONG).split()
        assert rest == whole[-len(rest) :]
        assert 3 <= len(rest) < len(whole)


def frame_of(**fields: Any) -> bytes:
    frame = frames_pb2.Frame()  # type: ignore[attr-defined]
    for kind, values in fields.items():
        for name, value in values.items():
            setattr(getattr(frame, kind), name, value)
    return bytes(frame.SerializeToString())


AUDIO = {"audio": bytes(640), "sample_rate": 16_000, "num_channels": 1}
FIRST = frame_of(audio=AUDIO)


@pytest.mark.parametrize(
    ("wrong", "why"),
    [
        ("what is this", "text"),
        (b"\xff\xfe\xfd", "not a frame"),
        (b"", "empty"),
        (frame_of(audio={**AUDIO, "sample_rate": 1_000_000}), "sample_rate"),
        (frame_of(audio={**AUDIO, "sample_rate": 1}), "sample_rate"),
        # Its filter would take a quarter of a second of the loop.
        (frame_of(audio={**AUDIO, "sample_rate": 47_999}), "sample_rate"),
        (frame_of(audio={**AUDIO, "sample_rate": 8_000}), "stays the same"),
        (frame_of(audio={**AUDIO, "num_channels": 9}), "num_channels"),
        (frame_of(audio={**AUDIO, "audio": b"odd"}), "16-bit"),
        (frame_of(audio={**AUDIO, "audio": bytes(64_000)}), "1000 ms"),
        (frame_of(message={"data": "no json"}), "JSON"),
        (frame_of(message={"data": '{"label": "other", "type": "x"}'}), "RTVI"),
        (frame_of(message={"data": json.dumps({"data": "a" * 70_000})}), "characters"),
    ],
)
async def test_a_message_that_cannot_be_used_ends_the_call_with_the_reason(
    server: RunningServer, wrong: str | bytes, why: str
):
    url = f"ws{server.url.removeprefix('http')}/ws"
    reasons: list[str] = []
    async with asyncio.timeout(60), connect(url) as socket:
        await socket.send(FIRST)
        await socket.recv()
        await socket.send(wrong)
        with pytest.raises(ConnectionClosed) as closed:
            while True:
                frame = frames_pb2.Frame.FromString(await socket.recv())  # type: ignore[attr-defined]
                if frame.WhichOneof("frame") == "message":
                    message = json.loads(frame.message.data)
                    reasons += [message["data"]["error"]] if message["type"] == "error" else []
    assert [why in reason for reason in reasons] == [True], reasons
    assert closed.value.rcvd is not None and closed.value.rcvd.code == 1003


async def test_huge_frames_floods_and_sockets_without_a_first_frame_are_closed(server: RunningServer):
    url = f"ws{server.url.removeprefix('http')}/ws"

    async def code_of(*messages: str | bytes) -> int:
        async with asyncio.timeout(60), connect(url, max_size=None) as socket:
            try:
                for message in messages:
                    await socket.send(message)
                while True:
                    await socket.recv()
            except ConnectionClosed as closed:
                return closed.rcvd.code if closed.rcvd is not None else 1006

    assert await code_of("what is this") == 1008
    assert await code_of(FIRST, bytes(5_000_000)) == 1009
    assert await code_of(*[frame_of(audio={**AUDIO, "audio": bytes(32_000)})] * 20) == 1003
    assert await code_of(*[frame_of(audio={**AUDIO, "audio": bytes(2)})] * 2_000) == 1003
    # A caller who talks now is answered.
    async with calling(server) as caller:
        await caller.ready()


async def test_words_that_no_recogniser_heard_are_no_turn(server: RunningServer):
    """A client's text and transcript frames would be turns without a bound."""
    async with calling(server) as caller:
        heard = caller.heard
        await caller.ready()
        await heard.until(lambda: "bot-stopped-speaking" in heard.kinds())
        forged = TranscriptionFrame(text="what is the price", user_id="", timestamp="")
        payload = await ProtobufFrameSerializer().serialize(forged)
        assert payload is not None
    url = f"ws{server.url.removeprefix('http')}/ws"
    async with asyncio.timeout(60), connect(url) as socket:
        await socket.send(FIRST)
        await socket.send(payload)
        await socket.send(frame_of(text={"text": "what is the price"}))
        loop = asyncio.get_running_loop()
        end_s, said = loop.time() + 4, ""
        while loop.time() < end_s:
            await socket.send(FIRST)
            frame = frames_pb2.Frame.FromString(await socket.recv())  # type: ignore[attr-defined]
            if frame.WhichOneof("frame") == "message":
                said += frame.message.data
        assert "five euros" not in said and "user-transcription" not in said


async def test_a_caller_waits_for_a_line_in_their_own_frames(tmp_path: Path):
    (tmp_path / "small.yaml").write_text(
        "server: {max_calls: 1, clients: {anonymous: {max_calls: 9}}}\nbot: {greeting: 'Hello there.'}\n"
    )
    async with running_server("--config", str(tmp_path / "small.yaml")) as server:
        async with AsyncExitStack() as call:
            first = await call.enter_async_context(calling(server))
            await first.ready()
            async with calling(server) as second:
                heard = second.heard
                await heard.until(lambda: "server-message" in heard.kinds())
                assert heard.data("server-message")[0]["kind"] == "queue"
                ready = asyncio.create_task(second.ready())
                await call.aclose()
                await asyncio.wait_for(ready, 20)
                await heard.until(lambda: "hello there" in heard.words().lower())
