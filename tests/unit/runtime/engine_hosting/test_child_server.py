"""Child's side of an engine's socket, in a process of its own."""

import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from parley.core.errors import ConfigError, EngineError
from parley.runtime.engine_hosting.blocking import BlockingChild
from parley.runtime.engine_hosting.child import ChildSettings
from parley.runtime.engine_hosting.messages import MessageType

CHILD = """
import socket
import sys
import threading

from parley.core.errors import ConfigError
from parley.runtime.engine_hosting.child_server import ChildServer
from parley.runtime.engine_hosting.messages import MessageType

stopped = threading.Event()

def carry_out(question):
    match question.type:
        case MessageType.LOAD:
            return {"loaded": question.facts["model"]}, b""
        case MessageType.AUDIO:
            return {"bytes": len(question.payload)}, question.payload[::-1]
        case MessageType.GENERATE:
            return {"was_stopped": stopped.wait(30)}, b""
        case MessageType.PREPARE:
            raise ConfigError("not this one")
    raise ValueError(question)

with socket.socket(fileno=int(sys.argv[1])) as connection:
    ChildServer(connection, carry_out, name="engine", stop=stopped.set).serve()
"""
WITHIN_S = 60.0


@pytest.fixture(scope="module")
def child(tmp_path_factory: pytest.TempPathFactory) -> Iterator[BlockingChild]:
    script: Path = tmp_path_factory.mktemp("child") / "child.py"
    script.write_text(CHILD)
    limits = ChildSettings(start_timeout_s=WITHIN_S)
    made = BlockingChild((sys.executable, str(script)), {"model": "m"}, limits=limits, name="engine")
    made.start()
    with closing(made):
        yield made


def test_a_question_is_answered_with_facts_and_payload(child: BlockingChild):
    assert child.loaded == {"loaded": "m"}
    answer = child.ask(MessageType.AUDIO, payload=b"abc", life=child.restarts, within_s=WITHIN_S)
    assert answer is not None
    assert (answer.facts, answer.payload) == ({"bytes": 3}, b"cba")


def test_an_error_keeps_its_class_and_any_other_is_the_engines(child: BlockingChild):
    with pytest.raises(ConfigError, match="not this one"):
        child.ask(MessageType.PREPARE, life=child.restarts, within_s=WITHIN_S)
    with pytest.raises(EngineError, match="the model raised ValueError"):
        child.ask(MessageType.FINALIZE, life=child.restarts, within_s=WITHIN_S)


def test_a_computation_is_stopped_while_it_runs(child: BlockingChild):
    looks = iter((False, False, True))
    answer = child.ask(
        MessageType.GENERATE, life=child.restarts, within_s=WITHIN_S, is_stopped=lambda: next(looks)
    )
    assert answer is None
    again = child.ask(MessageType.GENERATE, life=child.restarts, within_s=WITHIN_S)
    assert again is not None and again.facts == {"was_stopped": True}
