"""Short runs of the benchmarks of kept caches: conversations over workers, and the prompts of a call."""

import asyncio
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra 'local-llm'")
pytest.importorskip("transformers", reason="needs the extra 'local-llm'")

# ruff: noqa: E402
from parley.evals.bench.kv_cache.prompts import CallCounts, RequestCount, run_call, script
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


# ---- the prompts of a call


def counted(folder: Path, **more: bool) -> CallCounts:
    install_tiny_qwen3(folder, is_ascii=True)
    # As short as a call may be in which a summary comes after a fact, an interruption and tags.
    return asyncio.run(run_call(folder, script(15), answer_tokens=60, budget_tokens=1_000, **more))


def test_a_call_keeps_its_history_but_for_a_summary(tmp_path: Path) -> None:
    counts = counted(tmp_path)
    assert counts.summaries == 1
    happened = {cause for request in counts.requests for cause in request.causes}
    assert happened == {"fact", "interruption", "summary", "tag"}
    for request in counts.requests:
        assert 0 < request.kept_tokens <= request.history_tokens <= request.earlier_tokens
        # The end of an answer without its last token, and what was cut off of it.
        lost = request.history_tokens - request.kept_tokens
        assert lost <= 5 or "summary" in request.causes
        assert "summary" in request.causes or request.sent_kept_chars == request.sent_history_chars
    assert counts.kept_share >= counts.strict_share


def test_passages_cost_the_question_and_the_answer_after_them(tmp_path: Path) -> None:
    before: RequestCount | None = None
    for request in counted(tmp_path, has_documents=True).requests:
        if before is not None and "summary" not in request.causes:
            # All that was before the passages of the last question stays.
            assert request.kept_tokens >= before.earlier_tokens - 5
        before = request
