"""Payloads of the fuzzer: the same for the same seed, of every kind, and with the server's identifiers."""

import json
import random

import pytest
from websockets.exceptions import ProtocolError
from websockets.frames import Frame, Opcode
from websockets.protocol import SERVER, Protocol, State

from parley.evals.abuse.protocols import PROTOCOLS
from parley.evals.fuzz.dialects.frames import fragments, frame, handshake, request
from parley.evals.fuzz.dialects.sockets import frame as pipecat_frame
from parley.evals.fuzz.dialects.webrtc import datagram
from parley.evals.fuzz.generate import Payload, identifiers, payload

OPENAI = PROTOCOLS[0].messages


def payloads(seed: int, number: int = 300) -> list[Payload]:
    dice = random.Random(seed)
    return [payload(OPENAI, dice) for _ in range(number)]


def test_a_seed_gives_the_same_payloads_and_another_seed_others():
    assert payloads(1) == payloads(1)
    assert payloads(1) != payloads(2)


def test_payloads_are_valid_changed_and_no_json_at_all():
    texts = [each for each in payloads(1) if isinstance(each, str)]
    valid = {json.dumps(message) for message in OPENAI}
    assert any(text in valid for text in texts)
    assert any(text not in valid for text in texts)

    def reads(text: str) -> bool:
        try:
            json.loads(text)
        except (ValueError, RecursionError):
            return False
        return True

    assert {reads(text) for text in texts} == {True, False}
    assert any(isinstance(each, bytes) for each in payloads(1))


def test_the_servers_identifiers_take_the_place_of_those_of_the_samples():
    assert identifiers({"item": {"id": "item_7", "role": "user"}, "n": [{"response_id": ""}]}) == ["item_7"]
    dice = random.Random(1)
    made = [payload(OPENAI, dice, ["item_7"]) for _ in range(300)]
    assert any("item_7" in str(each) for each in made)


def test_the_dice_do_not_depend_on_the_number_of_identifiers():
    few, many = random.Random(1), random.Random(1)
    for _ in range(100):
        payload(OPENAI, few, ["a"])
        payload(OPENAI, many, ["a", "b", "c"])
    assert few.getstate() == many.getstate()


def received(data: bytes) -> Protocol:
    """Return a server's side of a socket that has received this."""
    server = Protocol(SERVER, state=State.OPEN)
    server.receive_data(data)
    return server


@pytest.mark.parametrize("length", [0, 125, 126, 65_535, 65_536])
def test_a_valid_frame_is_read_by_a_library(length: int):
    [event] = received(frame(b"x" * length)).events_received()
    assert isinstance(event, Frame)
    assert (event.opcode, event.data) == (Opcode.TEXT, b"x" * length)


@pytest.mark.parametrize(
    "wrong",
    [frame(b"x", mask=None), frame(b"x", reserved=1), frame(b"x", 3), frame(b"x" * 200, 9), frame(b"x", 0)],
)
def test_a_wrong_frame_is_refused_by_a_library(wrong: bytes):
    assert isinstance(received(wrong).parser_exc, ProtocolError)


def test_fragments_are_one_message():
    events = received(fragments(random.Random(3), 5)).events_received()
    frames = [event for event in events if isinstance(event, Frame)]
    assert len(frames) > 1 and frames[-1].fin and not any(each.fin for each in frames[:-1])


def test_bytes_of_all_kinds_are_the_same_for_a_seed():
    def made(seed: int) -> list[Payload]:
        dice = random.Random(seed)
        found: list[Payload] = []
        for _ in range(200):
            found += [request(dice), datagram(dice), pipecat_frame(dice, dice.random())]
            found.append(handshake(dice, "/ws", "127.0.0.1:1", is_right=dice.random() < 0.5))
        return found

    assert made(1) == made(1)
    assert made(1) != made(2)
