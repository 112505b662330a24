"""Readers of all protocols in this process: the fuzzer's payloads without a server, thousands a second.

Each reader takes the payloads of a conversation in order, as it does in the server, and may refuse any of
them with the errors of its protocol. Another exception is a finding: in the server it would end a call, or
answer 500. The state of a reader lives as long as its conversation.
"""

import json
import random
import time
import traceback
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import cycle
from typing import Any

from aiortc.sdp import SessionDescription
from pydantic import ValidationError

from parley.core.errors import AgentError, ShapeError
from parley.evals.abuse.mutations import mutated_bytes, mutated_text
from parley.evals.abuse.protocols import ANNOTATIONS, PROTOCOLS, RTVI, Protocol
from parley.evals.abuse.samples import OFFER
from parley.evals.fuzz.dialects.http import CHAT, SEES, SPEECH
from parley.evals.fuzz.dialects.phone import CARRIERS
from parley.evals.fuzz.dialects.sockets import frame
from parley.evals.fuzz.dialects.webrtc import changed
from parley.evals.fuzz.dialects.worker import SAMPLES, packed
from parley.evals.fuzz.generate import Dice, Payload, payload
from parley.evals.fuzz.report import Finding, FuzzRun
from parley.evals.harness.launcher import ROOT
from parley.models.tools.arguments import schema_faults
from parley.protocols import annotations, chat_ws, openai_chat, openai_http
from parley.protocols.client_protocol import (
    ClientProtocol,
    ProtocolError,
    Send,
    Speech,
    json_object,
    json_text,
)
from parley.protocols.half_duplex import HalfDuplex
from parley.protocols.minicpm_duplex import MiniCpmDuplex
from parley.protocols.minicpm_realtime import MiniCpmRealtime
from parley.protocols.openai_realtime import OpenAIRealtime
from parley.protocols.unmute import Unmute
from parley.protocols.worker_tokens import claimed
from parley.runtime.engine_hosting.codec import decode
from parley.transports.registry import TRANSPORTS
from parley.transports.webrtc.offer_bounds import check_bounds
from parley.transports.webrtc.signaling import NEGOTIATION_ERRORS
from parley.transports.websocket.codecs import Decoder
from parley.transports.websocket.pipecat_frames import client_frame

# Errors by which a reader refuses a message.
REFUSALS = (AgentError, ShapeError, ValidationError)
CALL_RATE_HZ = 16_000
PAYLOADS, AT_MS = 200, 20
KEPT = 3


class _Speaking:
    """Reader of a socket's protocol, with the decoder of its audio."""

    def __init__(self, protocol: ClientProtocol) -> None:
        self._protocol = protocol
        self._decoder = Decoder(CALL_RATE_HZ)
        self._at_ms = 0

    async def __call__(self, data: Payload) -> None:
        """Read one message; what a refused one is answered with must be JSON."""
        self._at_ms += AT_MS
        if isinstance(data, bytes):
            return
        try:
            for action in self._protocol.read(data, self._at_ms):
                if isinstance(action, Speech):
                    self._decoder.open(action.data, self._protocol.input_format).decode()
                elif isinstance(action, Send):
                    json_text(action.message)
        except ProtocolError as refusal:
            for message in self._protocol.refused(refusal):
                json_text(message)


Read = Callable[[Payload], Awaitable[None]]


def _text(read: Callable[[str], object]) -> Callable[[], Read]:
    """Return a maker of readers of texts without a state."""

    async def take(data: Payload) -> None:
        if isinstance(data, str):
            read(data)

    return lambda: take


def _bytes(read: Callable[[Any], object]) -> Callable[[], Read]:
    async def take(data: Payload) -> None:
        read(data)

    return lambda: take


def _stream(name: str) -> Callable[[], Read]:
    """Return a maker of readers of a phone network's stream."""

    def make() -> Read:
        stream = TRANSPORTS.create(name)

        async def take(data: Payload) -> None:
            await stream.read(data)

        return take

    return make


def _chat(text: str) -> None:
    request = chat_ws.chat_request(text)
    if isinstance(request, chat_ws.ChatRequest):
        chat_ws.given(request, sees=True)


def _placed(text: str) -> None:
    annotations.placed(annotations.parse_batch(text), now_us=10**12, began_us=0)


def _completion(text: str) -> None:
    openai_chat.completion_parts(openai_chat.CompletionRequest.model_validate_json(text))


def _offer(sdp: str) -> None:
    check_bounds(sdp)
    try:
        SessionDescription.parse(sdp)
    except NEGOTIATION_ERRORS as error:
        # As the signalling does.
        raise ProtocolError(str(error), code="invalid_value") from error


def _claim(data: Payload) -> None:
    claimed(decode(data).facts)


_SOCKETS: dict[str, Callable[[], ClientProtocol]] = {
    "openai": lambda: OpenAIRealtime("parley", schema_faults=schema_faults),
    "unmute": Unmute,
    "minicpm-realtime": lambda: MiniCpmRealtime(sees=True),
    "minicpm-duplex": lambda: MiniCpmDuplex(lambda: 1.7e9),
    "half-duplex": lambda: HalfDuplex(longest_s=600),
    "half-duplex-omni": lambda: HalfDuplex(longest_s=600, sees=True),
}
Make = Callable[[Dice], Payload]


def _of(messages: Sequence[Any]) -> Make:
    return lambda dice: payload(messages, dice)


def _protocol(name: str) -> Protocol:
    return next(each for each in PROTOCOLS if each.name == name)


def _socket(name: str) -> tuple[Callable[[], Read], Make]:
    make = _SOCKETS[name]
    return lambda: _Speaking(make()), _of(_protocol(name).messages)


READERS: dict[str, tuple[Callable[[], Read], Make]] = {
    **{name: _socket(name) for name in _SOCKETS},
    "chat": (_text(_chat), _of(_protocol("chat").messages)),
    "streaming": (_text(chat_ws.streaming_message), _of(_protocol("streaming").messages)),
    "annotations": (_text(_placed), _of(ANNOTATIONS.messages)),
    "rtvi": (_text(json_object), _of(RTVI)),
    "pipecat": (_bytes(client_frame), lambda dice: _framed(dice)),
    **{name: (_stream(name), _of(carrier.messages("CA1"))) for name, carrier in CARRIERS.items()},
    "completions": (_text(_completion), _of((CHAT, SEES))),
    "speech": (_text(openai_http.SpeechRequest.model_validate_json), _of((SPEECH,))),
    "sdp": (_text(_offer), lambda dice: mutated_text(changed(OFFER["sdp"], dice), dice)),
    "worker": (_bytes(_claim), lambda dice: packed(payload(SAMPLES, dice), dice)),
}


def _framed(dice: Dice) -> bytes:
    made = frame(dice, dice.random())
    data = made if isinstance(made, bytes) else made.encode()
    return mutated_bytes(data, dice) if dice.random() < 0.3 else data


async def read_all(seed: int, messages: int, names: Sequence[str] = tuple(READERS)) -> FuzzRun:
    """Give the readers payloads; return the figures and the findings."""
    found, began_s = FuzzRun(seed), time.monotonic()
    sent, conversations = Counter[str](), Counter[str]()
    for name in cycle(names):
        if sent.total() >= messages:
            break
        await _converse(found, name, conversations[name])
        conversations[name] += 1
        sent[name] += PAYLOADS
    found.sent, found.conversations = dict(sent), dict(conversations)
    found.seconds = time.monotonic() - began_s
    return found


async def _converse(found: FuzzRun, name: str, number: int) -> None:
    """Give a new reader the payloads of one conversation, its beginning first where it has one."""
    make, draw = READERS[name]
    dice, read = random.Random(f"{found.seed} {name} {number}"), make()
    carrier = CARRIERS.get(name)
    begins = carrier.messages("CA1")[: carrier.beginning] if carrier else []
    for place in range(PAYLOADS):
        data = json.dumps(begins[place]) if place < len(begins) else draw(dice)
        try:
            await read(data)
        except REFUSALS:
            continue
        except Exception as error:  # each of them is a finding
            _take(found, error, {"protocol": name, "conversation": number, "last": [f"{place}: {data!r}"]})


def _take(found: FuzzRun, error: Exception, suspect: Mapping[str, Any]) -> None:
    frames = traceback.extract_tb(error.__traceback__)
    ours = [each for each in frames if str(ROOT) in each.filename and "site-packages" not in each.filename]
    last = (ours or list(frames))[-1]
    place = f"{last.filename.rpartition('parley/')[2]} {last.name}: {type(error).__name__}"
    found.places[place] += 1
    if found.places[place] <= KEPT:
        found.findings.append(Finding(place, str(error)[:200], [suspect]))
