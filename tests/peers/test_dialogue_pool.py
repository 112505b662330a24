"""A real pool of two workers with tiny language models: admission by memory, caches of returning turns."""

import asyncio
from collections.abc import AsyncIterator, Iterator
from contextlib import ExitStack, aclosing, asynccontextmanager
from pathlib import Path

import pytest

pytest.importorskip("torch", reason="needs the extra 'local-llm'")
pytest.importorskip("transformers", reason="needs the extra 'local-llm'")

# ruff: noqa: E402
from parley.core.errors import EngineBusyError, EngineError
from parley.evals.tiny_qwen3 import install_tiny_qwen3
from parley.models.llm import Message
from parley.models.llm.hosted.engine import (
    HostedLlm,
    HostedReplies,
    PoolLlmSettings,
    WorkerLlm,
    WorkerLlmSettings,
)
from parley.models.llm.kv.causal import CausalLm
from parley.models.llm.kv.memory import with_room
from parley.serving.pool.dialogues import BUDGET_SHARE, DialogueWorkers
from parley.serving.pool.pool import Pool
from parley.serving.pool.settings import PoolTuning, WorkerSpec
from parley.serving.worker.streams import HostedDialogues
from parley.session_store.compaction import Compactor
from parley.session_store.conversations import Conversations
from parley.session_store.events import Kind
from parley.session_store.settings import StoreSettings
from parley.session_store.store import SessionStore
from tests.fakes.worker import SECRET, SECRET_ENV, Served, worker
from tests.unit.models.llm.kv.test_causal import model

CONTEXT_TOKENS = 1_024
# Two layers, two key-value heads of eight numbers in float32: keys and values.
TOKEN_BYTES = 2 * 2 * 2 * 8 * 4
CONVERSATION_BYTES = TOKEN_BYTES * with_room(CONTEXT_TOKENS)
# A worker's memory holds three conversations, and its budget two.
EACH = 2
MEMORY_BYTES = 3 * CONVERSATION_BYTES
NAMES = ("v", "w")
WITHIN_S = 60


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return install_tiny_qwen3(tmp_path_factory.mktemp("qwen3"), is_ascii=True)


@pytest.fixture
def models(folder: Path) -> list[CausalLm]:
    return [model(folder, context_tokens=CONTEXT_TOKENS, kept_bytes=MEMORY_BYTES) for _ in NAMES]


@pytest.fixture
def served(models: list[CausalLm], monkeypatch: pytest.MonkeyPatch) -> Iterator[list[Served]]:
    monkeypatch.setenv(SECRET_ENV, SECRET)
    with ExitStack() as exits:
        yield [
            exits.enter_context(worker(lambda lm=lm: HostedDialogues(lm, "tiny", streams=16), name=name))
            for name, lm in zip(NAMES, models, strict=True)
        ]


@asynccontextmanager
async def placement(served: list[Served]) -> AsyncIterator[tuple[HostedLlm, DialogueWorkers]]:
    """Start a pool of the workers; return its language models as calls have them, and their placement."""
    specs = [WorkerSpec(name=each.server.settings.name, url=each.url) for each in served]
    limits = PoolLlmSettings(open_timeout_s=WITHIN_S, request_timeout_s=WITHIN_S, queue_timeout_s=0)
    tuning = PoolTuning(workers=specs, secret_env=SECRET_ENV, silent_ms=20_000, dead_ms=60_000)
    async with Pool(tuning) as pool:
        made = pool.streams.dialogues(limits)
        async with asyncio.timeout(WITHIN_S):
            while len(made.memory()) < len(served):
                await asyncio.sleep(0.02)
        yield HostedLlm(made, limits), made


async def said(replies: HostedReplies, *dialogue: Message) -> str:
    async with asyncio.timeout(WITHIN_S), aclosing(replies.reply(dialogue)) as pieces:
        return "".join([piece async for piece in pieces])


async def test_conversations_are_admitted_by_memory_and_keep_their_caches(
    models: list[CausalLm], served: list[Served]
) -> None:
    question = Message("user", "How much is a card? " * 20)
    async with placement(served) as (llm, made):
        talks = [llm.open_replies() for _ in range(EACH * len(NAMES))]
        answers = [await said(talk, question) for talk in talks]
        late = llm.open_replies()
        with pytest.raises(EngineBusyError, match="memory of every llm worker"):
            await said(late, question)
        for memory in made.memory().values():
            assert memory.conversations == EACH
            assert memory.budget_bytes is not None
            assert memory.reserved_bytes == EACH * CONVERSATION_BYTES <= memory.budget_bytes
            assert memory.budget_bytes <= BUDGET_SHARE * MEMORY_BYTES
        # Turn by turn, as calls do: each finds what it has read.
        dialogues = [[question, Message("assistant", answer)] for answer in answers]
        for turn in range(3):
            for talk, dialogue in zip(talks, dialogues, strict=True):
                dialogue.append(Message("user", f"And question {turn}?"))
                dialogue.append(Message("assistant", await said(talk, *dialogue)))
                assert talk.prefilled is not None and not talk.prefilled.refused
                assert talk.prefilled.cached_tokens > 300
        for lm in models:
            assert lm.memory_bytes == MEMORY_BYTES
            # What the configuration states is what the caches take, and the budget holds.
            assert TOKEN_BYTES * lm.kept_tokens < lm.kept_bytes <= BUDGET_SHARE * MEMORY_BYTES
        # The place of a conversation that ends is free.
        talks[0].close()
        async with asyncio.timeout(WITHIN_S):
            while sum(memory.conversations for memory in made.memory().values()) == len(talks):
                await asyncio.sleep(0.02)
        await said(late, question)
        for talk in (*talks[1:], late):
            talk.close()


async def test_a_conversation_whose_link_breaks_returns_to_the_worker_with_its_cache(
    served: list[Served],
) -> None:
    hello, following = Message("user", "Hello? " * 30), Message("user", "And now?")
    async with placement(served) as (llm, made):
        other, mine = llm.open_replies(), llm.open_replies()
        await said(other, hello)
        answer = await said(mine, hello)
        assert mine.handle is not None and mine.handle.worker == NAMES[1]
        # By load alone it would now go to the other worker.
        other.close()
        async with asyncio.timeout(WITHIN_S):
            while made.memory()[NAMES[0]].conversations:
                await asyncio.sleep(0.02)
        assert mine._link is not None
        await asyncio.to_thread(mine._link.close)
        await said(mine, hello, Message("assistant", answer), following)
        assert mine.handle.worker == NAMES[1] and made.memory()[NAMES[0]].conversations == 0
        assert mine.prefilled is not None and not mine.prefilled.refused
        assert mine.prefilled.cached_tokens > 200
        mine.close()


async def test_the_next_stream_of_a_session_finds_its_cache_from_another_gateway(
    served: list[Served], models: list[CausalLm], tmp_path: Path
) -> None:
    hello, following = Message("user", "Hello? " * 30), Message("user", "And now?")
    settings = StoreSettings(url=f"sqlite:///{tmp_path}/sessions.db")
    store = await SessionStore.open(settings)
    conversations = Conversations(store, compactor=Compactor())
    try:
        session = await store.create()
        async with placement(served) as (llm, _):
            other = llm.open_replies()
            await said(other, hello)
            async with conversations.open(session.id) as conversation:
                mine, aside = llm.open_replies(conversation), llm.open_replies(conversation)
                answer = await said(mine, hello)
                # A second stream of the session has a context of its own, which ends with it.
                await said(aside, hello)
                assert mine.handle is not None and mine.handle.worker == NAMES[1]
                await conversation.append(conversation.draft(Kind.USER_TURN, "user", {"text": "Hello?"}))
                for each in (other, mine, aside):
                    await closed(each)
        # The row is all that the next gateway has.
        async with placement(served) as (llm, _), conversations.open(session.id) as conversation:
            again = llm.open_replies(conversation)
            await said(again, hello, Message("assistant", answer), following)
            assert again.handle is not None and again.handle.worker == NAMES[1]
            assert again.prefilled is not None and not again.prefilled.refused
            assert again.prefilled.cached_tokens > 200
            await closed(again)
        # Of all streams, only that of the session has left its context.
        assert [bool(lm.kept_tokens) for lm in models] == [False, True]
    finally:
        await conversations.close()
        await store.close()


async def closed(replies: HostedReplies) -> None:
    """Close a conversation, and wait until its thread has ended."""
    replies.close()
    async with asyncio.timeout(WITHIN_S):
        await asyncio.to_thread(replies._thread.shutdown)


class OfEarlierRelease(HostedDialogues):
    """Language model of a worker that does not know the message about deleted sessions."""

    def offers(self) -> dict[str, object]:
        return {name: value for name, value in super().offers().items() if name != "forgets"}


async def test_workers_drop_the_context_of_a_deleted_session_at_once(
    served: list[Served], models: list[CausalLm], tmp_path: Path
) -> None:
    hello = Message("user", "Hello? " * 30)
    store = await SessionStore.open(StoreSettings(url=f"sqlite:///{tmp_path}/sessions.db"))
    try:
        async with placement(served) as (llm, _):
            conversations = Conversations(store, compactor=Compactor(), contexts=llm)
            deleted, kept = (await store.create()).id, (await store.create()).id
            for session in (deleted, kept):
                async with conversations.open(session) as conversation:
                    replies = llm.open_replies(conversation)
                    await said(replies, hello)
                    await closed(replies)
            assert sum(len(lm._contexts) for lm in models) == 2
            assert await llm.forget(deleted) == 1
            assert sum(len(lm._contexts) for lm in models) == 1
            assert await llm.forget(deleted) == 0
            # The other session goes on from its context.
            async with conversations.open(kept) as conversation:
                again = llm.open_replies(conversation)
                await said(again, hello)
                assert again.prefilled is not None and again.prefilled.cached_tokens > 200
                await closed(again)
            await conversations.close()
    finally:
        await store.close()


async def test_a_context_that_is_in_use_is_not_kept_after_its_session_is_deleted(
    served: list[Served], models: list[CausalLm], tmp_path: Path
) -> None:
    hello = Message("user", "Hello? " * 30)
    store = await SessionStore.open(StoreSettings(url=f"sqlite:///{tmp_path}/sessions.db"))
    conversations = Conversations(store, compactor=Compactor())
    try:
        session = (await store.create()).id
        async with placement(served) as (llm, _), conversations.open(session) as conversation:
            replies = llm.open_replies(conversation)
            async with asyncio.timeout(WITHIN_S), aclosing(replies.reply([hello])) as pieces:
                await anext(pieces)
                # The stream is open, and its answer is being written.
                assert await llm.forget(session) == 1
                async for _ in pieces:
                    pass
            assert [len(lm._contexts) for lm in models] == [0, 0]
            # The call does not know yet, and asks again: it is answered, and nothing is kept.
            await said(replies, hello)
            assert replies.prefilled is not None and replies.prefilled.cached_tokens == 0
            assert [len(lm._contexts) for lm in models] == [0, 0]
            await closed(replies)
    finally:
        await conversations.close()
        await store.close()


async def test_a_worker_of_an_earlier_release_is_left_alone(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(SECRET_ENV, SECRET)
    lm = model(folder, context_tokens=CONTEXT_TOKENS)
    with worker(lambda: OfEarlierRelease(lm, "tiny", streams=4), name=NAMES[0]) as old:
        async with placement([old]) as (llm, made):
            replies = llm.open_replies()
            await said(replies, Message("user", "Hello? " * 30))
            assert await llm.forget("a session") == 0
            # It is asked nothing that it would not understand: it goes on, with its contexts.
            assert lm.kept_tokens and made.memory()[NAMES[0]].conversations == 1
            await said(replies, Message("user", "Hello? " * 30), Message("assistant", "yes"))
            await closed(replies)


async def test_a_worker_that_does_not_answer_is_named(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(SECRET_ENV, SECRET)
    with worker(lambda: HostedDialogues(model(folder), "tiny", streams=4), name=NAMES[0]) as gone:
        settings = WorkerLlmSettings(url=gone.url, name=NAMES[0], secret_env=SECRET_ENV)
        llm = WorkerLlm(settings)
        await asyncio.to_thread(llm.wait_until_loaded)
        assert await llm.forget("a session") == 0
    with pytest.raises(EngineError, match="1 of 1 workers did not confirm"):
        await llm.forget("a session")
