"""A causal model in a worker, in this process: its contexts after a restart, and the order of requests."""

import asyncio
from collections.abc import Iterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("torch", reason="needs the extra 'local-llm'")
pytest.importorskip("transformers", reason="needs the extra 'local-llm'")

# ruff: noqa: E402
from parley.evals.tiny_qwen3 import install_tiny_qwen3
from parley.models.llm import Message
from parley.models.llm.hosted.engine import HostedReplies, WorkerLlm, WorkerLlmSettings
from parley.models.llm.kv.causal import CausalLm
from parley.runtime.trace_context import open_call_trace
from parley.serving.worker.streams import HostedDialogues
from parley.telemetry.settings import TraceSettings
from parley.telemetry.trace_export import TraceExport
from parley.telemetry.worker_traces import WorkerTraces
from tests.fakes.collector import collecting
from tests.fakes.worker import Served, shared_secret, worker
from tests.peers.server import free_port
from tests.unit.models.llm.kv.test_causal import Talk, model
from tests.unit.serving.worker.test_server import eventually

HELLO, NEXT = Message("user", "Hello?"), Message("user", "And now?")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_tiny_qwen3(tmp_path_factory.mktemp("qwen3"), is_ascii=True)


@pytest.fixture
def port() -> Iterator[int]:
    yield free_port()


def hosting(lm: CausalLm, port: int = 0, **limits: Any) -> Any:
    return worker(lambda: HostedDialogues(lm, "tiny", streams=4), port=port, **limits)


def opened(served: Served) -> HostedReplies:
    # These tests check no deadline, and loading another model meanwhile takes seconds.
    settings = WorkerLlmSettings(
        url=served.url, secret_env=shared_secret(), open_timeout_s=20, request_timeout_s=20
    )
    llm = WorkerLlm(settings)
    llm.wait_until_loaded()
    return llm.open_replies()


async def said(replies: HostedReplies, *dialogue: Message) -> str:
    async with asyncio.timeout(20), aclosing(replies.reply(dialogue)) as pieces:
        return "".join([piece async for piece in pieces])


def check(lm: CausalLm, replies: HostedReplies) -> None:
    """Compare the logits of the conversation's context with those of one cold run over the same tokens."""
    Talk(lm, replies._leasing._session_id).check()


async def test_logits_are_those_of_a_cold_run_in_each_turn_and_after_a_restart(
    folder: Path, port: int
) -> None:
    lm, restarted = model(folder), model(folder)
    with hosting(lm, port) as served:
        replies = await asyncio.to_thread(opened, served)
        first = await said(replies, HELLO)
        dialogue = (HELLO, Message("assistant", first), NEXT)
        await said(replies, *dialogue)
        assert replies.prefilled is not None and replies.prefilled.cached_tokens > 0
        check(lm, replies)
    with hosting(restarted, port) as served:
        await asyncio.to_thread(lambda: opened(served).close())
        await said(replies, *dialogue)
        assert replies.prefilled.refused and replies.prefilled.cached_tokens == 0
        check(restarted, replies)
        replies.close()
        # The conversation has ended, and its context is gone.
        await asyncio.to_thread(eventually, lambda: restarted.kept_tokens == 0)


async def test_a_conversation_that_is_over_is_forgotten_and_one_that_broke_off_is_kept(folder: Path) -> None:
    lm = model(folder)
    with hosting(lm) as served:
        broken, over = await asyncio.to_thread(lambda: (opened(served), opened(served)))
        await asyncio.gather(said(broken, HELLO), said(over, HELLO))
        assert len(lm._contexts) == 2
        over.close()
        await asyncio.to_thread(eventually, lambda: len(lm._contexts) == 1)
        assert broken._link is not None
        broken._link.close()
        await asyncio.to_thread(eventually, lambda: not served.server.facts()["streams"])
        assert broken.answered is not None
        heard = Message("assistant", broken.answered.text)
        await said(broken, HELLO, heard, NEXT)
        assert broken.prefilled is not None
        assert not broken.prefilled.refused and broken.prefilled.cached_tokens > 0
        check(lm, broken)
        broken.close()


async def test_an_answer_has_a_span_below_that_of_the_caller_and_reading_ahead_has_none(folder: Path) -> None:
    lm, parent = model(folder), "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"
    with collecting() as collector:
        export = TraceExport(TraceSettings(endpoint=collector.endpoint))
        tracing = WorkerTraces(export.tracer, worker="worker", engine="tiny")
        with hosting(lm, tracing=tracing) as served:
            replies = await asyncio.to_thread(opened, served)
            # Before the call has a trace.
            await said(replies, HELLO)
            open_call_trace().turn_began(parent)
            first = await said(replies, HELLO)
            await replies.read_ahead((HELLO, Message("assistant", first), NEXT))
            replies.close()
        export.close()
        [span] = collector.spans()
    assert (span.name, span.trace_id.hex(), span.parent_span_id.hex()) == (
        "chat",
        parent[3:35],
        parent[36:52],
    )
    assert [event.name for event in span.events] == ["first piece"]


async def test_a_long_dialogue_is_a_sign_of_life_and_none_that_is_late(folder: Path) -> None:
    # Thousands of tokens, one at a time: longer than a call may take without a sign.
    lm = model(folder, prefill_tokens=1, context_tokens=8_192)
    with hosting(lm, call_ms=100) as served:
        replies = await asyncio.to_thread(opened, served)
        loop = asyncio.get_running_loop()
        began_s = loop.time()
        async with asyncio.timeout(60):
            read = await replies.prefill([Message("user", "Hello? " * 400)])
        assert loop.time() - began_s > 0.2
        assert read.input_tokens > 2_000
        replies.close()


async def test_who_cancels_while_it_reads_stops_it(folder: Path) -> None:
    lm = model(folder, prefill_tokens=1, context_tokens=65_536)
    with hosting(lm) as served:
        replies = await asyncio.to_thread(opened, served)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.5):
                await replies.prefill([Message("user", "Hello? " * 8_000)])
        # Tens of thousands of tokens, read one at a time, would take longer.
        async with asyncio.timeout(10):
            assert await said(replies, HELLO)
        replies.close()
