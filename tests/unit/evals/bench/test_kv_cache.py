"""A short run of the trace benchmark of caches that are kept."""

import pytest

pytest.importorskip("torch", reason="needs the extra 'local-llm'")
pytest.importorskip("transformers", reason="needs the extra 'local-llm'")

# ruff: noqa: E402
from parley.evals.bench.kv_cache.trace import POLICIES, Counts, Step, run, trace
from parley.evals.tiny_qwen3 import install_tiny_qwen3


@pytest.fixture(scope="module")
def found(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Counts]:
    folder = install_tiny_qwen3(tmp_path_factory.mktemp("qwen3"), is_ascii=True)
    steps = trace(0, sessions=8, turns=5)
    return {name: run(policy(folder, steps), steps) for name, policy in POLICIES.items()}


def test_a_trace_has_all_that_is_asked() -> None:
    steps = trace(0)
    assert sum(step.session is not None for step in steps) == 30 * 6
    assert any(step.session is None for step in steps) and any(step.heard < 1 for step in steps)
    assert any(step.text is None and step.session is not None for step in steps)
    assert steps == trace(0) and steps != trace(1)
    assert {type(step) for step in steps} == {Step}


def test_no_answer_stands_on_another_context_and_hardly_a_hit_is_missed(found: dict[str, Counts]) -> None:
    verified, bound = found["verified"], found["clairvoyant"]
    assert verified.false_hits == bound.false_hits == 0
    assert verified.hits >= 0.97 * bound.hits and verified.hits > verified.asked // 2


def test_a_hash_of_the_history_that_no_one_checks_hits_when_it_must_not(found: dict[str, Counts]) -> None:
    hashed = found["history_hash"]
    assert hashed.hits and hashed.false_hits == hashed.hits
