"""Sockets with JSON or Protocol Buffers: protocols of ``evals.abuse.protocols`` and Pipecat's clients."""

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

from pipecat.frames.protobufs import frames_pb2
from websockets.asyncio.client import ClientConnection

from parley.evals.abuse.attacks.annotations import own_call, when_live
from parley.evals.abuse.attacks.requests import GONE
from parley.evals.abuse.mutations import STRANGE_TEXTS, mutated, mutated_bytes
from parley.evals.abuse.protocols import ANNOTATIONS, RTVI, Protocol
from parley.evals.fuzz.conversation import FuzzConversation
from parley.evals.fuzz.generate import Dice, Payload, payload
from parley.evals.harness.socket_caller import RATE_HZ, speech

MESSAGES = 400
# Share of messages that are pings or pongs, and of pauses in which the server speaks.
CONTROL, PAUSE = 0.02, 0.01
LONGEST_PAUSE_S = 0.5
# Share of the conversations that begin with a spoken question, so that a reply is under way.
SPOKEN = 0.15
QUESTION = "What are your opening hours on Saturday?"
# Rates, channels and lengths of audio, some of which no client has.
RATES_HZ = (0, 1, 7, 8_000, 11_025, 16_000, 24_000, 44_100, 48_000, 96_000, 2**31, 2**32 - 1)
CHANNELS = (0, 1, 1, 1, 2, 3, 255, 2**32 - 1)


@asynccontextmanager
async def reading(conversation: FuzzConversation, socket: ClientConnection) -> AsyncIterator[None]:
    """Read a socket meanwhile, and judge its end."""
    task = asyncio.create_task(conversation.read(socket), name="fuzz.read")
    try:
        with suppress(*GONE):
            yield
        # The reasons of the last refusals, and the close.
        await asyncio.sleep(0.05)
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        await conversation.closed(socket)


async def converse(conversation: FuzzConversation, protocol: Protocol) -> None:
    """Hold a conversation of a protocol."""
    dice = conversation.dice
    spoken = protocol.name == "openai" and dice.random() < SPOKEN
    async with (
        await conversation.run.socket(
            protocol.path, conversation.address, subprotocols=protocol.subprotocols
        ) as socket,
        reading(conversation, socket),
    ):
        for message in protocol.opening:
            await conversation.send(socket, json.dumps(message))
        if spoken:
            await speak(conversation, socket)
        await send_many(conversation, socket, protocol.messages)


async def speak(conversation: FuzzConversation, socket: ClientConnection) -> None:
    """Ask a question of OpenAI's protocol, and its end."""
    pcm = await asyncio.to_thread(speech, QUESTION)
    for piece in (pcm, bytes(RATE_HZ * 2)):
        audio = base64.b64encode(piece).decode()
        await conversation.send(socket, json.dumps({"type": "input_audio_buffer.append", "audio": audio}))


async def send_many(
    conversation: FuzzConversation, socket: ClientConnection, messages: Sequence[Any]
) -> None:
    """Send payloads made of the messages, with pings and pauses."""
    dice = conversation.dice
    for _ in range(MESSAGES):
        await _control(conversation, socket)
        await conversation.send(socket, payload(messages, dice, conversation.known))


async def _control(conversation: FuzzConversation, socket: ClientConnection) -> None:
    """Ping, pong or pause, now and then."""
    dice = conversation.dice
    kind, data, pause_s = dice.random(), dice.randbytes(dice.randrange(126)), dice.random() * LONGEST_PAUSE_S
    if kind < CONTROL / 2:
        await conversation.note(b"ping " + data)
        await socket.ping(data)
    elif kind < CONTROL:
        await conversation.note(b"pong " + data)
        await socket.pong(data)
    elif kind < CONTROL + PAUSE:
        await asyncio.sleep(pause_s)


async def annotations(conversation: FuzzConversation) -> None:
    """Report about a call of the fuzzer's own."""
    run, address = conversation.run, conversation.address
    async with (
        own_call(run, address) as path,
        await when_live(run, path, address) as socket,
        reading(conversation, socket),
    ):
        await send_many(conversation, socket, ANNOTATIONS.messages)


async def pipecat(conversation: FuzzConversation) -> None:
    """Send frames of Pipecat's clients."""
    async with (
        await conversation.run.socket("/ws", conversation.address) as socket,
        reading(conversation, socket),
    ):
        for number in range(MESSAGES):
            await _control(conversation, socket)
            # One that is wrong ends the call: most are right, and the first one begins the call.
            kind = conversation.dice.random() if number else 0.0
            await conversation.send(socket, frame(conversation.dice, kind))


def frame(dice: Dice, kind: float) -> Payload:
    """Return a frame: a valid one up to 0.9 of ``kind``, then wrong values, structures and bytes."""
    made: Any = frames_pb2.Frame()  # type: ignore[attr-defined]
    if kind < 0.6:
        made.audio.audio = bytes(320 * 2)
        made.audio.sample_rate, made.audio.num_channels = 16_000, 1
    elif kind < 0.9:
        made.message.data = json.dumps(dice.choice(RTVI[:3]))
    elif kind < 0.92:
        made.audio.audio = dice.randbytes(dice.choice((0, 1, 3, 640, 32_000, 200_000)))
        made.audio.sample_rate, made.audio.num_channels = dice.choice(RATES_HZ), dice.choice(CHANNELS)
        made.audio.pts = dice.choice((0, 1, 2**63, 2**64 - 1))
    elif kind < 0.95:
        made.message.data = mutated(dice.choice(RTVI), dice)
    elif kind < 0.97:
        made.text.text = dice.choice(STRANGE_TEXTS).replace("\ud800", "?")
        made.text.id = dice.randrange(2**64)
    elif kind < 0.98:
        made.transcription.text, made.transcription.user_id = "Hello.", "\0"
    elif kind < 0.99:
        made.message.data = json.dumps(dice.choice(RTVI[:3]))
        return mutated_bytes(made.SerializeToString(), dice)
    else:
        return json.dumps(dice.choice(RTVI))
    return bytes(made.SerializeToString())
