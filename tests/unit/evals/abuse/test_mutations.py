"""Mutations: the same seed makes the same mutations, and all of them can be sent."""

import copy
import json
import random

import pytest

from parley.evals.abuse.mutations import mutated, mutated_bytes, mutated_text
from parley.evals.abuse.protocols import ANNOTATIONS, PROTOCOLS, RTVI, twilio_messages
from parley.evals.abuse.routes import sockets
from parley.evals.abuse.samples import FORM, SDP, path_of

MESSAGES = [message for protocol in (*PROTOCOLS, ANNOTATIONS) for message in protocol.messages]


def drawn(seed: int, count: int = 300) -> list[str]:
    dice = random.Random(seed)
    return [mutated(dice.choice(MESSAGES), dice) for _ in range(count)]


def test_mutations_are_those_of_their_seed():
    assert drawn(1) == drawn(1)
    assert drawn(1) != drawn(2)


def test_a_message_is_not_changed_itself():
    before = copy.deepcopy(MESSAGES)
    drawn(3)
    assert before == MESSAGES


def test_mutations_differ_from_what_they_are_made_of():
    dice = random.Random(4)
    same = sum(mutated(message, dice) == json.dumps(message) for message in MESSAGES * 20)
    assert same < len(MESSAGES) * 20 * 0.1


@pytest.mark.parametrize("seed", range(5))
def test_every_mutation_can_be_sent(seed: int):
    for text in drawn(seed):
        assert text.encode() is not None


def test_texts_and_bytes_of_one_seed_are_the_same():
    made = [
        (mutated_text(SDP, random.Random(seed)), mutated_bytes(SDP.encode(), random.Random(seed)))
        for seed in (1, 1, 2)
    ]
    assert made[0] == made[1] != made[2]


def test_every_socket_has_a_protocol():
    spoken = {protocol.path.partition("?")[0] for protocol in PROTOCOLS}
    spoken = {path.rpartition("/")[0] if path.startswith("/ws/") else path for path in spoken}
    for entry in sockets():
        path = path_of(entry).partition("?")[0]
        known = entry.path == ANNOTATIONS.path or path in spoken or path.rpartition("/")[0] in spoken
        # Those of telephone carriers have messages of a call of their own.
        assert known or path.split("/")[2] == "media", entry


def test_messages_of_a_stream_and_of_a_browser_are_json():
    for message in (*twilio_messages("CA1"), *RTVI, FORM):
        assert json.loads(json.dumps(message)) == message
