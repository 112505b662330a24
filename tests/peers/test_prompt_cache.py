"""Claude's requests of a long conversation, as its SDK sends them: the history that its cache finds again."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path

import pytest

from parley.configs.load import load_deployment
from parley.core.passage_notes import is_passages
from parley.evals.bench.kv_cache.prompts import CALL, ClaudeCache
from parley.pipelines.engines.llm_runtime import LlmRuntime, plan_answering
from parley.pipelines.sessions import open_conversations
from parley.pipelines.text.typed_turns import AnswerPiece, ask
from parley.session_store.conversation import Conversation
from parley.session_store.events import Kind
from tests.peers.anthropic_server import AnthropicServer
from tests.peers.llm_script import Turn

LEAST_SHARE = 0.95
# Claude takes no more.
MOST_BREAKPOINTS = 4
PIECE = "The fee for that is four euros a month, and the bank takes it on the first working day. "
SUMMARY = "The person asked about fees abroad and about the limit of the card."


@asynccontextmanager
async def conversation(url: str, tmp_path: Path, more: str) -> AsyncIterator[tuple[Conversation, LlmRuntime]]:
    (tmp_path / "own.yaml").write_text(
        f"thinking: {{llm: {{name: anthropic, settings: {{base_url: '{url}', sdk_retries: 0}}}}}}\n"
        "remembering: {extract_facts: true, conversation: {budget_tokens: 3500}}\n" + more
    )
    deployment = load_deployment(tmp_path / "own.yaml")
    answering = await LlmRuntime.load(deployment, plan_answering(deployment))
    try:
        async with open_conversations(deployment, answering) as opened, opened.open() as held:
            yield held, answering
    finally:
        await answering.close()


async def hold_call(held: Conversation, answering: LlmRuntime) -> int:
    """Ask all turns, some of which are cut off after the first piece; return the number of summaries."""
    summaries: set[str] = set()
    for turn in CALL:
        async with aclosing(ask(held, answering, turn.said)) as events:
            async for event in events:
                if turn.heard < 1 and isinstance(event, AnswerPiece):
                    break
        await held.flushed()
        await held.kept_short()
        summaries |= {event.key for event in held.events if event.kind is Kind.SUMMARY}
    return len(summaries)


@pytest.mark.parametrize("has_documents", [False, True])
async def test_claude_finds_the_history_again(
    has_documents: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("ANTHROPIC_API_KEY", "test-key")
    more = ""
    if has_documents:
        (tmp_path / "documents").mkdir()
        (tmp_path / "documents" / "fees.md").write_text(
            "# Fees\n\n## Cards abroad\n\nIt costs 1.5 percent.\n"
        )
        more = "bot: {knowledge: documents}\n"
    answer, summary = Turn([PIECE] * 4), Turn([SUMMARY])
    async with AnthropicServer([answer], unstreamed=[summary]) as server:
        async with conversation(server.url, tmp_path, more) as (held, answering):
            assert await hold_call(held, answering) == 1
        requests = [request for request in server.requests if request.get("stream")]
    assert len(requests) == len(CALL)
    cache = ClaudeCache()
    counts = [cache.ask(request) for request in requests][1:]
    share = sum(kept for _, kept in counts) / sum(sent for sent, _ in counts)
    assert share >= LEAST_SHARE
    found_passages = 0
    for request in requests:
        blocks = [block for message in request["messages"] for block in message["content"]]
        assert sum("cache_control" in block for block in (*request["system"], *blocks)) <= MOST_BREAKPOINTS
        assert "cache_control" in request["system"][-1] and "cache_control" in blocks[-1]
        for before, block in zip(blocks, blocks[1:], strict=False):
            if block["type"] == "text" and is_passages(block["text"]):
                found_passages += 1
                # The history ends there: what follows is in no later request.
                assert "cache_control" in before and "cache_control" not in block
    assert bool(found_passages) == has_documents
