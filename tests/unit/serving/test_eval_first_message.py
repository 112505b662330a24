"""First text of a client of ``/ws``: the beginning of an evaluation, or not."""

import json

import pytest
from pipecat.evals.serializer import EvalConnectionFlags, eval_connect_message

from parley.serving.gateway.sockets.eval_socket import is_eval

BEGINNING = eval_connect_message(EvalConnectionFlags(skip_tts=True))


def test_the_beginning_of_an_evaluation_is_known():
    assert is_eval(BEGINNING)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "what is this",
        '"a text of JSON"',
        "[" * 100_000,
        json.dumps({"event": "start", "start": {}}),
        json.dumps({**json.loads(BEGINNING), "label": "other"}),
        json.dumps({**json.loads(BEGINNING), "data": {"t": "eval-connect", "d": {"skip_tts": "perhaps"}}}),
    ],
)
def test_any_other_text_is_none(text: str):
    assert not is_eval(text)
