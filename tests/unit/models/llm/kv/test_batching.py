"""Answers of several conversations in one pass of a tiny random model: the same ones as each on its own."""

import json
import threading
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs the extra 'moshi'")
pytest.importorskip("transformers", reason="needs the extra 'moshi'")

# ruff: noqa: E402
from parley.core.errors import EngineError
from parley.evals.bench import answer_batching
from parley.evals.tiny_qwen3 import install_tiny_qwen3
from parley.models.llm import Message
from parley.models.llm.kv.causal import CausalLm, CausalSettings
from parley.models.llm.kv.dialogue import GenerationRequest, GenerationResult, Remembered

STREAMS = 8
TURNS = 3


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_tiny_qwen3(tmp_path_factory.mktemp("qwen3"), is_ascii=True)


@pytest.fixture(scope="module")
def windowed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_tiny_qwen3(tmp_path_factory.mktemp("windowed"), is_ascii=True, window=24)


def model(folder: Path, **more: object) -> CausalLm:
    chosen = {"model": folder, "device": "cpu", "dtype": "float32", "threads": 1, "answer_tokens": 40}
    return CausalLm(CausalSettings.model_validate(chosen | more))


def talk(lm: CausalLm, number: int, begun: threading.Barrier) -> list[str]:
    """Return the answers of a conversation whose questions have a length of their own."""
    scope, remembered, dialogue, answers = (
        lm.scope(f"talk {number}"),
        Remembered(),
        list[Message](),
        list[str](),
    )
    for turn in range(TURNS):
        dialogue.append(Message("user", "why " * (1 + 7 * number + turn)))
        asked = remembered.ask(dialogue)
        begun.wait(timeout=30)
        *_, answered = lm.answer(scope, asked)
        assert isinstance(answered, GenerationResult)
        remembered.answered(asked, answered)
        dialogue.append(Message("assistant", answered.text))
        answers.append(answered.text)
    return answers


def talks(lm: CausalLm, at_once: int) -> list[list[str]]:
    """Return the answers of all conversations, of which this number is held at a time."""
    found: list[list[str]] = []
    for first in range(0, STREAMS, at_once):
        begun = threading.Barrier(at_once)
        with ThreadPoolExecutor(at_once) as threads:
            held = [threads.submit(talk, lm, first + number, begun) for number in range(at_once)]
            found += [each.result(timeout=60) for each in held]
    return found


def test_answers_that_are_written_at_once_are_those_of_each_conversation(folder: Path):
    alone = talks(model(folder), 1)
    lm = model(folder)
    assert talks(lm, STREAMS) == alone
    assert len({answer for answers in alone for answer in answers}) > STREAMS
    assert lm.mean_rows > STREAMS / 2


@pytest.mark.parametrize("more", [{"batch_rows": 1}, {"batch_rows": 3}])
def test_the_number_of_rows_is_bounded(folder: Path, more: dict[str, object]):
    lm = model(folder, **more)
    assert talks(lm, STREAMS) == talks(model(folder), 1)
    assert lm.mean_rows <= 3


def test_a_model_with_windows_is_not_batched_and_answers_the_same(windowed: Path):
    lm = model(windowed)
    assert talks(lm, STREAMS) == talks(model(windowed), 1)
    assert lm.mean_rows == 0


def ask(
    lm: CausalLm, number: int, begun: threading.Barrier, stop_after: int | None = None
) -> Sequence[object]:
    begun.wait(timeout=30)
    pieces: list[object] = []
    answer = lm.answer(
        lm.scope(f"talk {number}"),
        GenerationRequest((Message("user", "why " * (1 + number)),)),
        is_stopped=lambda: stop_after is not None and len(pieces) > stop_after,
    )
    pieces += answer
    return pieces


def test_an_answer_that_is_stopped_holds_up_no_other(folder: Path):
    lm, begun = model(folder, answer_tokens=100), threading.Barrier(STREAMS)
    with ThreadPoolExecutor(STREAMS) as threads:
        held = [
            threads.submit(ask, lm, number, begun, 0 if number % 2 else None) for number in range(STREAMS)
        ]
        found = [each.result(timeout=60) for each in held]
    assert all(isinstance(pieces[-1], GenerationResult) for pieces in found[::2])


def test_a_pass_that_fails_fails_each_of_its_answers_once_and_the_next_ones_are_right(
    folder: Path, monkeypatch: pytest.MonkeyPatch
):
    lm, begun = model(folder), threading.Barrier(STREAMS)
    attention = torch.nn.functional.scaled_dot_product_attention
    steps = count()

    def broken(*arguments: torch.Tensor, **settings: object) -> torch.Tensor:
        # In the middle of a pass over several rows.
        if arguments[0].shape[2] == 1 and next(steps) == 200:
            raise RuntimeError("out of memory")
        return attention(*arguments, **settings)  # type: ignore[arg-type]

    monkeypatch.setattr(torch.nn.functional, "scaled_dot_product_attention", broken)
    with ThreadPoolExecutor(STREAMS) as threads:
        held = [threads.submit(ask, lm, number, begun) for number in range(STREAMS)]
        errors = [each.exception(timeout=60) for each in held]
    failed = [number for number, error in enumerate(errors) if error is not None]
    assert 1 < len(failed) <= STREAMS
    assert all(isinstance(errors[number], EngineError) for number in failed)
    # What a failed pass has left in a cache is not used again.
    again, fresh = talks(lm, STREAMS), talks(model(folder), 1)
    assert again == fresh


def test_the_measurement_measures(capsys: pytest.CaptureFixture[str]):
    arguments = ["--layers", "2", "--width", "32", "--tokens", "30", "--streams", "1", "4", "--device", "cpu"]
    assert answer_batching.main(arguments) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["mean_rows"] > 2 and set(found["times"]) == {"1", "4"}
