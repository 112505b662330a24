"""Durable tools on a real store: times of commits, tools that run, and tools that never run twice."""

import asyncio
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractContextManager, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from pipecat.adapters.llm.schemas.function_schema import FunctionSchema
from pipecat.adapters.llm.schemas.tools_schema import ToolsSchema
from pipecat.frames.frames import LLMContextFrame
from pipecat.processors.aggregators.llm_context import LLMContext
from pipecat.services.llm_service import FunctionCallParams

from parley.core.client_rules import CLIENT_TEXT, OPERATOR, ClientRules, ToolClients
from parley.core.errors import ConfigError, EngineError, FencedError, UnknownSessionError
from parley.core.grants import ANONYMOUS, ClientIdentity
from parley.core.privacy import PrivacySettings
from parley.language import find_language
from parley.language.personal_data import Redactor
from parley.models.tools import NOT_SHOWN, EffectUnknownError
from parley.processors.dialogue import durable_tools
from parley.processors.dialogue.durable_tools import DurableTools
from parley.processors.dialogue.engine_llm import EngineLlmService
from parley.processors.dialogue.services import OpenAiCompatible, OpenAiCompatibleSettings
from parley.processors.dialogue.shared_tools import SharedTools
from parley.processors.dialogue.tool_exchange import AnsweredCall, ToolExchange
from parley.session_store.compaction import CompactionTuning, Compactor
from parley.session_store.conversation import Conversation, ConversationTuning
from parley.session_store.conversations import Conversations
from parley.session_store.events import Event, Kind
from parley.session_store.memory import has_client_text
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from tests.fakes.scripted_llm import ScriptedLanguageModel
from tests.fakes.tools import FakeTool
from tests.session_files import locked, new_session_file
from tests.virtual_time import run

TEA = {"item": "tea"}
NOW = 0.001


class World:
    """A database file, and processes that open its sessions."""

    def __init__(self, folder: Path, redactor: Redactor | None = None) -> None:
        self.file = folder / "sessions.db"
        self.redactor = redactor

    @asynccontextmanager
    async def process(self, **limits: Any) -> AsyncIterator[Conversations]:
        settings = StoreTuning(url=new_session_file(self.file), busy_timeout_ms=0, **limits)
        store = await SessionStore.open(settings)
        try:
            yield Conversations(store, ConversationTuning(), compactor=Compactor(), redactor=self.redactor)
        finally:
            await store.close()

    @asynccontextmanager
    async def session(self, session_id: str | None = None, **limits: Any) -> AsyncIterator[Conversation]:
        async with self.process(**limits) as conversations, conversations.open(session_id) as conversation:
            yield conversation

    def database_away(self) -> AbstractContextManager[None]:
        return locked(self.file, reads=False)


@pytest.fixture
def world(tmp_path: Path) -> World:
    return World(tmp_path)


@pytest.fixture
def redacting(tmp_path: Path) -> World:
    """Return a world whose sessions hold no phone number."""
    privacy = PrivacySettings(redact=("phone_number",))
    return World(tmp_path, Redactor(privacy, find_language("en").personal))


async def ask(conversation: Conversation, text: str = "Order tea.") -> Event:
    return await conversation.user_turn(text, transport="text")


def received(conversation: Conversation) -> list[tuple[str, str | None]]:
    """Return the tool events in order of commit, with their outcome."""
    kinds = (Kind.TOOL_CALL, Kind.TOOL_RESULT)
    return [(e.kind.value, e.payload.get("outcome")) for e in conversation.events if e.kind in kinds]


CALLED = ("tool_call", None)


def result(outcome: str) -> tuple[str, str | None]:
    return ("tool_result", outcome)


def last_result(conversation: Conversation) -> Any:
    return [e for e in conversation.events if e.kind is Kind.TOOL_RESULT][-1].payload["result"]


async def start(call: Awaitable[Any], tool: FakeTool) -> "asyncio.Task[Any]":
    task = asyncio.ensure_future(call)
    await tool.reached.wait()
    tool.reached.clear()
    return task


async def cancel(task: "asyncio.Task[Any]") -> None:
    task.cancel()
    await asyncio.wait({task})
    assert task.cancelled()


async def killed(world: World, tool: FakeTool, **call: Any) -> str:
    """Let a process die while its tool runs, with an effect and no result; return the session."""
    tool.hold = asyncio.Event()
    async with world.session() as conversation:
        tools = DurableTools([tool], conversation, drain_s=NOW)
        await ask(conversation)
        task = await start(tools.call(tool.name, call.get("arguments", TEA)), tool)
        await cancel(task)
        await tools.drain()
        assert received(conversation) == [CALLED]
    tool.hold = None
    return conversation.session_id


def test_a_call_is_committed_before_it_runs_and_its_result_after_it(world: World):
    async def scenario() -> None:
        async with world.session() as conversation:
            seen: list[Any] = []

            class Watching(FakeTool):
                async def run(self, arguments: Any, *, key: str) -> Any:
                    seen.append((await conversation_in_store(world, conversation), dict(arguments)))
                    return await super().run(arguments, key=key)

            tools = DurableTools([Watching(idempotent=True)], conversation)
            turn = await ask(conversation)
            assert await tools.call("order", {"item": "tea", "count": 2}) == {"number": 7}
            [(before, arguments)] = seen
            assert before == [CALLED]
            assert arguments == {"item": "tea", "count": 2}
            called, answered = [e for e in conversation.events if e.source in ("bot", "tool")]
            assert received(conversation) == [CALLED, result("done")]
            assert called.payload["name"] == answered.payload["name"] == "order"
            assert called.payload["arguments"] == {"item": "tea", "count": 2}
            assert called.payload["idempotent"] is True
            assert called.payload["call_id"] == answered.payload["call_id"]
            assert answered.payload["result"] == {"number": 7}
            assert called.key.startswith(f"tool.{turn.seq}.")

    run(scenario())


async def conversation_in_store(world: World, conversation: Conversation) -> list[tuple[str, str | None]]:
    """Return the events that another reader of the database finds at this moment."""
    with sqlite3.connect(world.file) as reader:
        rows = reader.execute(
            "SELECT kind FROM event WHERE session_id = ? ORDER BY seq", (conversation.session_id,)
        ).fetchall()
    return [(kind, None) for (kind,) in rows if kind.startswith("tool")]


def test_every_call_has_an_id_of_its_own_in_the_session_that_every_provider_takes(world: World):
    async def scenario() -> list[str]:
        async with world.session() as conversation:
            tools = DurableTools([FakeTool()], conversation)
            for _turn in range(2):
                await ask(conversation)
                for item in ("tea", "milk"):
                    await tools.call("order", {"item": item})
            return [e.payload["call_id"] for e in conversation.events if e.kind is Kind.TOOL_CALL]

    ids = run(scenario())
    assert len(set(ids)) == 4
    assert all(len(call_id) <= 40 and call_id.replace("_", "").isalnum() for call_id in ids)


def test_the_next_view_has_the_call_and_its_result(world: World):
    async def scenario() -> None:
        async with world.session() as conversation:
            await ask(conversation)
            await DurableTools([FakeTool()], conversation).call("order", TEA)
            roles = [message["role"] for message in conversation.view().messages]
            assert roles == ["user", "assistant", "tool"]
            assert conversation.view().messages[-1]["content"] == '{"number": 7}'

    run(scenario())


@pytest.mark.parametrize(
    "arguments",
    [{}, {"item": 3}, {"item": "tea", "count": 0}, {"item": "tea", "when": "now"}, [], "tea", None],
)
def test_arguments_that_do_not_fit_are_not_run_and_the_model_is_told(world: World, arguments: Any):
    async def scenario() -> None:
        tool = FakeTool()
        async with world.session() as conversation:
            await ask(conversation)
            given = await DurableTools([tool], conversation).call("order", arguments)
            assert given["outcome"] == "failed"
            assert "do not fit" in given["error"]
            assert tool.runs == []
            assert received(conversation) == []

    run(scenario())


def test_arguments_that_are_no_json_or_without_end_are_not_run(world: World):
    async def scenario() -> None:
        tool = FakeTool()
        async with world.session() as conversation:
            await ask(conversation)
            tools = DurableTools([tool], conversation)
            for item in (float("nan"), "x" * 100_000):
                assert (await tools.call("order", {"item": item}))["outcome"] == "failed"
            assert tool.runs == []

    run(scenario())


@pytest.mark.parametrize(
    ("answer", "outcome", "reason"),
    [
        (EngineError("no table is free", engine="order"), "failed", "no table is free"),
        (EffectUnknownError("the line broke", engine="order"), "unknown", "the line broke; it is not known"),
        (RuntimeError("a bug"), "unknown", "it broke (RuntimeError); it is not known"),
        (TimeoutError("of its own"), "unknown", "it broke (TimeoutError); it is not known"),
    ],
)
def test_a_tool_that_fails_says_so_to_the_model_and_in_the_session(
    world: World, answer: Exception, outcome: str, reason: str
):
    async def scenario() -> None:
        async with world.session() as conversation:
            await ask(conversation)
            given = await DurableTools([FakeTool(answer=answer)], conversation).call("order", TEA)
            assert given["outcome"] == outcome
            assert given["error"].startswith(reason)
            assert received(conversation) == [CALLED, result(outcome)]
            assert last_result(conversation)["error"] == given["error"]

    run(scenario())


def test_a_slow_tool_is_given_up_in_its_time_and_its_effect_is_unknown(world: World):
    async def scenario() -> None:
        tool = FakeTool(hold=asyncio.Event(), timeout_s=2.0)
        async with world.session() as conversation:
            await ask(conversation)
            loop = asyncio.get_running_loop()
            before_s = loop.time()
            given = await DurableTools([tool], conversation).call("order", TEA)
            assert 2.0 <= loop.time() - before_s < 2.1
            assert given["outcome"] == "unknown"
            assert "within 2 s" in given["error"]
            assert received(conversation) == [CALLED, result("unknown")]

    run(scenario())


@pytest.mark.parametrize(
    ("answer", "given"),
    [
        ({}, {"note": durable_tools.NO_ANSWER}),
        ([1, 2], {"result": [1, 2]}),
        ({"at": {1, 2}}, {"note": NOT_SHOWN}),
        ({"at": float("inf")}, {"note": NOT_SHOWN}),
        ({"text": "x" * 300_000}, {"note": NOT_SHOWN}),
    ],
    ids=["empty", "no object", "no json", "infinite", "too long"],
)
def test_every_result_can_be_written_down_and_makes_the_model_answer(world: World, answer: Any, given: Any):
    async def scenario() -> None:
        async with world.session() as conversation:
            await ask(conversation)
            assert await DurableTools([FakeTool(answer=answer)], conversation).call("order", TEA) == given
            assert received(conversation) == [CALLED, result("done")]

    run(scenario())


def test_a_result_that_is_more_than_the_store_takes_is_recorded_as_done(world: World):
    async def scenario() -> None:
        async with world.session(max_payload_bytes=1_000) as conversation:
            await ask(conversation)
            tool = FakeTool(answer={"text": "x" * 2_000})
            given = await DurableTools([tool], conversation).call("order", TEA)
            assert given == {"note": NOT_SHOWN}
            assert received(conversation) == [CALLED, result("done")]

    run(scenario())


def test_a_call_that_the_store_refuses_is_not_run(world: World):
    async def scenario() -> None:
        tool = FakeTool()
        async with world.session(max_payload_bytes=1_000) as conversation:
            await ask(conversation)
            tools = DurableTools([tool], conversation)
            with pytest.raises(Exception, match="over the limit"):
                await tools.call("order", {"item": "x" * 2_000})
            assert tool.runs == []

    run(scenario())


# The same call


def test_a_call_that_is_repeated_in_its_turn_is_not_run_again(world: World):
    async def scenario() -> None:
        tool = FakeTool()
        async with world.session() as conversation:
            tools = DurableTools([tool], conversation)
            await ask(conversation)
            await tools.call("order", {"item": "tea", "count": 1})
            again = await tools.call("order", {"count": 1, "item": "tea"})
            assert again == {"result": {"number": 7}, "note": durable_tools.REPEATED}
            assert len(tool.effects) == 1
            assert received(conversation) == [CALLED, result("done")]

    run(scenario())


def test_a_failure_is_given_again_too(world: World):
    async def scenario() -> None:
        tool = FakeTool(answer=EngineError("no table is free", engine="order"))
        async with world.session() as conversation:
            tools = DurableTools([tool], conversation)
            await ask(conversation)
            first = await tools.call("order", TEA)
            assert (await tools.call("order", TEA))["result"] == first
            assert len(tool.runs) == 1

    run(scenario())


def test_other_arguments_and_another_turn_are_another_call(world: World):
    async def scenario() -> None:
        tool = FakeTool()
        async with world.session() as conversation:
            tools = DurableTools([tool], conversation)
            await ask(conversation)
            await tools.call("order", TEA)
            await tools.call("order", {"item": "milk"})
            await ask(conversation, "The same again.")
            assert await tools.call("order", TEA) == {"number": 7}
            assert len(set(tool.effects)) == 3

    run(scenario())


def test_two_equal_calls_at_once_are_one(world: World):
    async def scenario() -> None:
        tool = FakeTool()
        async with world.session() as conversation:
            tools = DurableTools([tool], conversation)
            await ask(conversation)
            given = await asyncio.gather(tools.call("order", TEA), tools.call("order", TEA))
            assert given == [{"number": 7}, {"result": {"number": 7}, "note": durable_tools.REPEATED}]
            assert len(tool.effects) == 1
            assert received(conversation) == [CALLED, result("done")]

    run(scenario())


def test_two_different_calls_run_side_by_side(world: World):
    async def scenario() -> None:
        tools_held = [FakeTool("order", hold=asyncio.Event()), FakeTool("cancel", hold=asyncio.Event())]
        async with world.session() as conversation:
            tools = DurableTools(tools_held, conversation)
            await ask(conversation)
            tasks = [await start(tools.call(tool.name, TEA), tool) for tool in tools_held]
            assert received(conversation) == [CALLED, CALLED]
            for tool in reversed(tools_held):
                tool.hold.set()
            assert await asyncio.gather(*tasks) == [{"number": 7}, {"number": 7}]
            assert received(conversation) == [CALLED, CALLED, result("done"), result("done")]

    run(scenario())


def test_the_result_from_before_a_crash_is_given_when_the_turn_is_asked_again(world: World):
    async def scenario() -> None:
        tool = FakeTool()
        async with world.session() as conversation:
            turn = await ask(conversation)
            await DurableTools([tool], conversation).call("order", TEA)
        async with world.session(conversation.session_id) as conversation:
            tools = DurableTools([tool], conversation)
            await tools.recover()
            assert (await tools.call("order", TEA, turn=turn))["result"] == {"number": 7}
            assert len(tool.runs) == 1

    run(scenario())


def test_an_older_turn_that_is_asked_again_keeps_its_calls_apart_from_those_of_a_newer_one(world: World):
    async def scenario() -> None:
        tool = FakeTool()
        async with world.session() as conversation:
            tools = DurableTools([tool], conversation)
            first = await ask(conversation)
            await ask(conversation, "And something else.")
            await tools.call("order", TEA, turn=first)
            assert [e.key for e in conversation.events if e.kind is Kind.TOOL_CALL][0].startswith(
                f"tool.{first.seq}."
            )

    run(scenario())


# Interruptions


def test_an_interruption_does_not_stop_what_has_begun(world: World):
    async def scenario() -> None:
        tool = FakeTool(hold=asyncio.Event())
        async with world.session() as conversation:
            tools = DurableTools([tool], conversation)
            await ask(conversation)
            await cancel(await start(tools.call("order", TEA), tool))
            await ask(conversation, "Hurry up.")
            assert received(conversation) == [CALLED]
            tool.hold.set()
            await tools.drain()
            assert received(conversation) == [CALLED, result("done")]
            assert len(tool.effects) == 1

    run(scenario())


def test_a_call_that_is_repeated_while_it_still_runs_waits_for_it(world: World):
    async def scenario() -> None:
        tool = FakeTool(hold=asyncio.Event())
        async with world.session() as conversation:
            tools = DurableTools([tool], conversation)
            await ask(conversation)
            await cancel(await start(tools.call("order", TEA), tool))
            await ask(conversation, "Where is my tea?")
            again = asyncio.ensure_future(tools.call("order", TEA))
            await asyncio.sleep(0.1)
            assert not again.done()
            tool.hold.set()
            assert (await again)["result"] == {"number": 7}
            assert len(tool.runs) == 1
            assert received(conversation) == [CALLED, result("done")]

    run(scenario())


def test_a_result_that_came_after_the_persons_newest_words_is_given_and_not_made_again(world: World):
    async def scenario() -> None:
        tool = FakeTool(hold=asyncio.Event())
        async with world.session() as conversation:
            tools = DurableTools([tool], conversation)
            await ask(conversation)
            await cancel(await start(tools.call("order", TEA), tool))
            # The model's context lacks the result.
            await ask(conversation, "Where is my tea?")
            tool.hold.set()
            await tools.drain()
            assert (await tools.call("order", TEA))["result"] == {"number": 7}
            assert len(tool.runs) == 1

    run(scenario())


# An unavailable database


def test_while_the_database_is_away_a_tool_waits_and_then_runs(world: World):
    async def scenario() -> None:
        tool = FakeTool()
        async with world.session() as conversation:
            tools = DurableTools([tool], conversation)
            await ask(conversation)
            with world.database_away():
                call = asyncio.ensure_future(tools.call("order", TEA))
                await asyncio.sleep(5)
                assert tool.runs == []
                assert not call.done()
            assert await call == {"number": 7}
            assert len(tool.effects) == 1

    run(scenario())


def test_a_tool_that_has_waited_too_long_never_runs(world: World):
    async def scenario() -> None:
        tool = FakeTool()
        async with world.session() as conversation:
            tools = DurableTools([tool], conversation, commit_wait_s=3)
            await ask(conversation)
            with world.database_away():
                loop = asyncio.get_running_loop()
                before_s = loop.time()
                given = await tools.call("order", TEA)
                assert given == {"outcome": "failed", "error": durable_tools.NOT_RUN}
                assert 3.0 <= loop.time() - before_s < 3.1
                # The model retries at once, and once more.
                for _again in range(2):
                    assert (await tools.call("order", TEA))["result"]["outcome"] == "failed"
                    await asyncio.sleep(0.1)
            await conversation.flushed()
            assert received(conversation) == [CALLED, result("failed")]
            await tools.recover()
            assert tool.runs == []

    run(scenario())


def test_an_interruption_before_the_commit_withdraws_the_call(world: World):
    async def scenario() -> None:
        tool = FakeTool(idempotent=True)
        async with world.session() as conversation:
            tools = DurableTools([tool], conversation)
            await ask(conversation)
            with world.database_away():
                call = asyncio.ensure_future(tools.call("order", TEA))
                await asyncio.sleep(1)
                await cancel(call)
                # A recovery does not take queued calls either.
                await tools.recover()
            await conversation.flushed()
            assert received(conversation) == [CALLED, result("failed")]
            await tools.recover()
            assert tool.runs == []

    run(scenario())


def test_a_recovery_between_a_withdrawn_call_and_its_result_does_not_run_it(world: World):
    async def scenario() -> None:
        tool = FakeTool(idempotent=True)
        async with world.session() as conversation:
            tools = DurableTools([tool], conversation)
            await ask(conversation)
            with world.database_away():
                call = asyncio.ensure_future(tools.call("order", TEA))
                await asyncio.sleep(1)
                await cancel(call)
            # The two are committed one after the other at one moment of this clock.
            while not received(conversation):
                await asyncio.sleep(0.001)
                for _step in range(100):
                    if received(conversation):
                        break
                    await asyncio.sleep(0)
            assert received(conversation) == [CALLED]
            await tools.recover()
            await conversation.flushed()
            assert tool.runs == []
            assert received(conversation) == [CALLED, result("failed")]

    run(scenario())


def test_one_of_two_who_wait_may_leave(world: World):
    async def scenario() -> None:
        tool = FakeTool()
        async with world.session() as conversation:
            tools = DurableTools([tool], conversation)
            await ask(conversation)
            with world.database_away():
                first, second = (asyncio.ensure_future(tools.call("order", TEA)) for _ in range(2))
                await asyncio.sleep(1)
                await cancel(first)
            assert (await second)["result"] == {"number": 7}
            assert len(tool.runs) == 1

    run(scenario())


def test_a_result_waits_for_the_database_and_the_model_is_not_told_before(world: World):
    async def scenario() -> None:
        tool = FakeTool(hold=asyncio.Event())
        async with world.session() as conversation:
            tools = DurableTools([tool], conversation)
            await ask(conversation)
            call = await start(tools.call("order", TEA), tool)
            with world.database_away():
                tool.hold.set()
                await asyncio.sleep(5)
                assert not call.done()
            assert await call == {"number": 7}
            assert received(conversation) == [CALLED, result("done")]

    run(scenario())


def test_a_result_that_cannot_be_written_down_in_time_is_not_told(world: World):
    async def scenario() -> None:
        tool = FakeTool(hold=asyncio.Event(), timeout_s=1)
        async with world.session() as conversation:
            tools = DurableTools([tool], conversation, commit_wait_s=2)
            await ask(conversation)
            call = await start(tools.call("order", TEA), tool)
            with world.database_away():
                tool.hold.set()
                assert await call == {"outcome": "unknown", "error": durable_tools.NO_RECORD}
            await tools.drain()
            assert received(conversation) == [CALLED, result("done")]

    run(scenario())


# A session that another process has claimed


def test_a_tool_of_a_session_that_another_process_claimed_does_not_run(world: World):
    async def scenario() -> None:
        tool = FakeTool()
        async with world.session() as conversation:
            tools = DurableTools([tool], conversation)
            await ask(conversation)
            async with world.session(conversation.session_id):
                with pytest.raises(FencedError):
                    await tools.call("order", TEA)
                assert tool.runs == []
                with pytest.raises(FencedError):
                    await tools.call("order", TEA)

    run(scenario())


def test_a_tool_of_a_session_that_was_deleted_does_not_run(world: World):
    async def scenario() -> None:
        tool = FakeTool()
        async with world.process() as conversations, conversations.open() as conversation:
            tools = DurableTools([tool], conversation)
            await ask(conversation)
            await conversations.store.delete(conversation.session_id)
            with pytest.raises(UnknownSessionError):
                await tools.call("order", TEA)
            assert tool.runs == []

    run(scenario())


def test_a_recovery_of_a_session_that_is_gone_runs_to_its_end(world: World):
    async def scenario() -> None:
        tool = FakeTool()
        session_id = await killed(world, tool)
        async with world.session(session_id) as conversation:
            async with world.session(session_id):
                await DurableTools([tool], conversation).recover()
            assert conversation.lost.is_set()
            assert received(conversation) == [CALLED]

    run(scenario())


# After a crash


def test_a_call_that_a_crash_cut_off_has_an_unknown_outcome(world: World):
    async def scenario() -> None:
        tool = FakeTool()
        session_id = await killed(world, tool)
        async with world.session(session_id) as conversation:
            await DurableTools([tool], conversation).recover()
            assert received(conversation) == [CALLED, result("unknown")]
            assert last_result(conversation) == {"error": durable_tools.UNKNOWN}
            assert len(tool.effects) == len(tool.runs) == 1

    run(scenario())


def test_an_idempotent_call_that_a_crash_cut_off_runs_again_with_its_key(world: World):
    async def scenario() -> None:
        tool = FakeTool(idempotent=True)
        session_id = await killed(world, tool, arguments={"item": "tea", "count": 3})
        async with world.session(session_id) as conversation:
            await DurableTools([tool], conversation).recover()
            assert received(conversation) == [CALLED, result("done")]
            assert last_result(conversation) == {"number": 7}
            assert len(tool.runs) == 2
            assert len(tool.effects) == 1
            assert tool.arguments[1] == {"item": "tea", "count": 3}

    run(scenario())


def test_a_call_that_was_not_idempotent_when_it_was_made_is_not_run_again(world: World):
    async def scenario() -> None:
        session_id = await killed(world, FakeTool(idempotent=False))
        now = FakeTool(idempotent=True)
        async with world.session(session_id) as conversation:
            await DurableTools([now], conversation).recover()
            assert received(conversation) == [CALLED, result("unknown")]
            assert now.runs == []

    run(scenario())


@pytest.mark.parametrize("now", ["gone", "not idempotent any more", "other arguments"])
def test_a_call_that_cannot_be_run_again_as_it_was_has_an_unknown_outcome(world: World, now: str):
    async def scenario() -> None:
        tool = FakeTool(idempotent=True)
        session_id = await killed(world, tool)
        of_now = {
            "gone": [],
            "not idempotent any more": [FakeTool()],
            "other arguments": [
                FakeTool(idempotent=True, parameters={"type": "object", "required": ["number"]})
            ],
        }[now]
        async with world.session(session_id) as conversation:
            await DurableTools(of_now, conversation).recover()
            assert received(conversation) == [CALLED, result("unknown")]
            assert [len(tool.runs) for tool in of_now] == [0] * len(of_now)

    run(scenario())


def test_two_recoveries_at_once_run_a_call_once(world: World):
    async def scenario() -> None:
        tool = FakeTool(idempotent=True)
        session_id = await killed(world, tool)
        tool.hold = asyncio.Event()
        async with world.session(session_id) as conversation:
            tools = DurableTools([tool], conversation)
            both = asyncio.ensure_future(asyncio.gather(tools.recover(), tools.recover()))
            await asyncio.sleep(1)
            assert not both.done()
            tool.hold.set()
            await both
            await tools.recover()
            assert len(tool.runs) == 2
            assert received(conversation) == [CALLED, result("done")]

    run(scenario())


def test_a_call_of_the_model_joins_the_recovery_of_the_same_call(world: World):
    async def scenario() -> None:
        tool = FakeTool(idempotent=True)
        session_id = await killed(world, tool)
        tool.hold = asyncio.Event()
        async with world.session(session_id) as conversation:
            tools = DurableTools([tool], conversation)
            recovery = await start(tools.recover(), tool)
            call = asyncio.ensure_future(tools.call("order", TEA))
            await asyncio.sleep(1)
            tool.hold.set()
            assert (await call)["result"] == {"number": 7}
            await recovery
            assert len(tool.runs) == 2

    run(scenario())


@pytest.mark.parametrize(("idempotent", "outcome"), [(True, "done"), (False, "unknown")])
def test_the_same_turn_asked_again_before_any_recovery_settles_its_call(
    world: World, idempotent: bool, outcome: str
):
    async def scenario() -> None:
        tool = FakeTool(idempotent=idempotent)
        session_id = await killed(world, tool)
        async with world.session(session_id) as conversation:
            given = await DurableTools([tool], conversation).call("order", TEA)
            assert given.get("outcome", "done") == outcome
            assert received(conversation) == [CALLED, result(outcome)]
            assert len(tool.effects) == 1

    run(scenario())


def test_a_recovery_lets_calls_be_that_run(world: World):
    async def scenario() -> None:
        tool = FakeTool(hold=asyncio.Event())
        async with world.session() as conversation:
            tools = DurableTools([tool], conversation)
            await ask(conversation)
            call = await start(tools.call("order", TEA), tool)
            await tools.recover()
            assert received(conversation) == [CALLED]
            tool.hold.set()
            assert await call == {"number": 7}

    run(scenario())


def test_who_asks_again_for_an_idempotent_call_of_unknown_outcome_has_its_effect_once(world: World):
    async def scenario() -> None:
        tool = FakeTool(idempotent=True, answer=EffectUnknownError("the line broke", engine="order"))
        async with world.session() as conversation:
            tools = DurableTools([tool], conversation)
            await ask(conversation)
            assert (await tools.call("order", TEA))["outcome"] == "unknown"
            tool.answer = EngineError("its server cannot be reached", engine="order")
            await ask(conversation, "Try again.")
            assert (await tools.call("order", TEA))["outcome"] == "failed"
            tool.answer = {"number": 7}
            await ask(conversation, "And again.")
            assert await tools.call("order", TEA) == {"number": 7}
            assert len(tool.runs) == 3
            assert len(tool.effects) == 1
            # That call is settled now: the next one is new.
            await ask(conversation, "One more tea.")
            await tools.call("order", TEA)
            assert len(tool.effects) == 2

    run(scenario())


# Shared by the transports of a session


def test_transports_of_a_session_share_its_tools_and_the_last_one_lets_them_end(world: World):
    async def scenario() -> None:
        tool = FakeTool(hold=asyncio.Event())
        shared = SharedTools([tool])
        async with world.session() as conversation:
            await ask(conversation)
            async with shared.of(conversation) as first:
                call = await start(first.call("order", TEA), tool)
                async with shared.of(conversation) as second:
                    assert second is first
                    await second.recover()
                await cancel(call)
                assert received(conversation) == [CALLED]
                asyncio.get_running_loop().call_later(1, tool.hold.set)
            assert received(conversation) == [CALLED, result("done")]
            async with shared.of(conversation) as third:
                assert third is not first

    run(scenario())


def test_what_does_not_end_is_cut_off_and_left_for_a_recovery(world: World):
    async def scenario() -> None:
        tool = FakeTool(hold=asyncio.Event(), timeout_s=60)
        async with world.session() as conversation:
            tools = DurableTools([tool], conversation, drain_s=2)
            await ask(conversation)
            call = await start(tools.call("order", TEA), tool)
            await tools.drain()
            assert (await call)["outcome"] == "unknown"
            assert received(conversation) == [CALLED]
            await tools.recover()
            assert received(conversation) == [CALLED, result("unknown")]

    run(scenario())


def test_what_waits_for_its_commit_when_the_last_one_leaves_never_runs(world: World):
    async def scenario() -> None:
        tool = FakeTool()
        async with world.session() as conversation:
            tools = DurableTools([tool], conversation)
            await ask(conversation)
            with world.database_away():
                call = asyncio.ensure_future(tools.call("order", TEA))
                await asyncio.sleep(1)
                await tools.drain()
                assert await call == {"outcome": "failed", "error": durable_tools.WITHDRAWN}
            await conversation.flushed()
            assert received(conversation) == [CALLED, result("failed")]
            assert tool.runs == []

    run(scenario())


# Offered tools


def compatible() -> Any:
    settings = OpenAiCompatibleSettings(base_url="http://127.0.0.1:9/v1", model="m")
    return OpenAiCompatible(settings).build()


def test_tools_are_put_alongside_those_that_the_context_has(world: World):
    async def scenario() -> None:
        own = FunctionSchema(name="look_up", description="hours", properties={}, required=[])
        context = LLMContext(tools=ToolsSchema([own]))
        llm = compatible()
        async with world.session() as conversation:
            assert DurableTools([FakeTool()], conversation).offer(llm, context)
        names = {schema.name: schema for schema in context.tools.standard_tools}
        assert set(names) == {"look_up", "order"}
        assert names["order"].properties["count"] == {"type": "integer", "minimum": 1}
        assert names["order"].required == ["item"]
        assert llm.has_function("order")

    run(scenario())


def test_an_embedded_engine_is_offered_nothing(world: World):
    async def scenario() -> None:
        context = LLMContext()
        async with world.session() as conversation:
            llm = EngineLlmService(ScriptedLanguageModel(["Hi."]))
            assert not DurableTools([FakeTool()], conversation).offer(llm, context)
            assert not DurableTools([], conversation).offer(compatible(), context)
        assert not isinstance(context.tools, ToolsSchema)

    run(scenario())


@pytest.mark.parametrize(
    ("tools", "message"),
    [
        (lambda: [FakeTool(), FakeTool()], "two tools are named 'order'"),
        (lambda: [FakeTool(parameters={"type": "object", "oneOf": []})], "'oneOf' is not checked"),
    ],
)
def test_tools_that_cannot_be_offered_together_are_refused(tools: Callable[[], list[FakeTool]], message: str):
    with pytest.raises(ConfigError, match=message):
        SharedTools(tools())


# Tools that come and go while a session is open


def offered(context: LLMContext) -> list[str]:
    tools = context.tools
    return [schema.name for schema in tools.standard_tools] if isinstance(tools, ToolsSchema) else []


async def test_tools_of_a_client_are_known_to_the_pipelines_that_are_on(tmp_path: Path):
    async with World(tmp_path).session() as conversation:
        tools, rules = DurableTools([], conversation), ClientRules()
        llm, context = compatible(), LLMContext()
        assert not tools.offer(llm, context, rules=rules)
        first, second = FakeTool("first"), FakeTool("second")
        tools.add([first], rules=rules)
        assert (offered(context), llm.has_function("first")) == (["first"], True)
        tools.replace([first], [second], rules=rules)
        assert (offered(context), llm.has_function("first"), llm.has_function("second")) == (
            ["second"], False, True,
        )  # fmt: skip
        tools.replace([second], [], rules=rules)
        assert (offered(context), llm.has_function("second")) == ([], False)


async def test_a_tool_of_the_deployments_is_back_when_a_clients_of_its_name_is_gone(tmp_path: Path):
    async with World(tmp_path).session() as conversation:
        await conversation.user_turn("Tea, please.", transport="text")
        ours, theirs = FakeTool(), FakeTool(answer={"number": 8})
        tools = DurableTools([ours], conversation)
        tools.add([theirs], rules=ClientRules())
        assert await tools.call("order", TEA) == {"number": 8}
        tools.replace([theirs], [], rules=ClientRules())
        assert await tools.call("order", {"item": "milk"}) == {"number": 7}


async def test_a_call_of_a_tool_that_was_taken_back_is_not_run(tmp_path: Path):
    async with World(tmp_path).session() as conversation:
        await conversation.user_turn("Tea, please.", transport="text")
        tool = FakeTool()
        tools = DurableTools([], conversation)
        tools.add([tool], rules=ClientRules())
        tools.replace([tool], [], rules=ClientRules())
        received = await tools.call("order", TEA)
        assert (received["outcome"], tool.runs) == ("failed", [])


async def test_tools_that_cannot_be_offered_change_nothing(tmp_path: Path):
    async with World(tmp_path).session() as conversation:
        first = FakeTool("first")
        tools = DurableTools([first], conversation)
        with pytest.raises(ConfigError):
            tools.replace(
                [first], [FakeTool("second", parameters={"type": "object", "oneOf": []})], rules=ClientRules()
            )
        await conversation.user_turn("Tea, please.", transport="text")
        assert await tools.call("first", TEA) == {"number": 7}


# The tools that a call offers


async def test_a_tool_that_is_for_clients_with_keys_is_offered_to_no_other(tmp_path: Path):
    async with World(tmp_path).session() as conversation:
        tools = DurableTools(
            [FakeTool("refund"), FakeTool("hours")], conversation, clients={"refund": ToolClients.KEYS}
        )
        anonymous, keyed = LLMContext(), LLMContext()
        tools.offer(compatible(), anonymous)
        tools.offer(compatible(), keyed, rules=ClientRules(ClientIdentity(owner="shop")))
        assert (offered(anonymous), offered(keyed)) == (["hours"], ["refund", "hours"])


async def test_tools_of_the_process_go_from_a_pipeline_with_text_of_its_client_and_from_no_other(
    tmp_path: Path,
):
    async with World(tmp_path).session() as conversation:
        tools = DurableTools([FakeTool("refund")], conversation)
        rules, llm, context, other = ClientRules(), compatible(), LLMContext(), LLMContext()
        assert tools.offer(llm, context, rules=rules)
        beside = compatible()
        assert tools.offer(beside, other)
        rules.add_text()
        theirs = FakeTool("weather")
        tools.replace((), [theirs], rules=rules)
        assert (offered(context), llm.has_function("refund")) == (["weather"], False)
        assert "refund" in offered(other) and beside.has_function("refund")


async def test_a_clients_tools_are_offered_to_its_own_pipelines_and_to_no_other(tmp_path: Path):
    async with World(tmp_path).session() as conversation:
        shared = SharedTools([FakeTool("refund")])
        rules, own, other, later = ClientRules(), LLMContext(), LLMContext(), LLMContext()
        rules.add_text()
        async with shared.of(conversation, [FakeTool("weather")], rules=rules) as tools:
            tools.offer(compatible(), own, rules=rules)
            tools.offer(beside := compatible(), other, rules=ClientRules(ClientIdentity(owner="shop")))
            assert (offered(own), offered(other)) == (["weather"], ["refund"])
            tools.replace((), [FakeTool("map")], rules=rules)
            tools.offer(compatible(), later)
            assert (offered(other), offered(later)) == (["refund"], ["refund"])
            assert not beside.has_function("map")


@pytest.mark.parametrize("mark", [{"brought": True}, {CLIENT_TEXT: True}])
def test_a_session_with_text_of_a_client_has_no_tool_of_the_process_after_a_summary_either(
    world: World, mark: dict[str, bool]
):
    settings = ConversationTuning(
        budget_tokens=400, compaction=CompactionTuning(keep_turns=2, summary_tokens=100)
    )

    def names(conversation: Conversation, identity: ClientIdentity = ANONYMOUS) -> list[str]:
        context = LLMContext()
        tools = DurableTools([FakeTool("refund")], conversation)
        tools.offer(compatible(), context, rules=ClientRules(identity))
        return offered(context)

    async def scenario() -> None:
        store = await SessionStore.open(StoreTuning(url=f"sqlite:///{world.file}"))
        compactor = Compactor(settings.compaction, budget_tokens=settings.budget_tokens)
        conversations = Conversations(store, settings, compactor=compactor)
        async with conversations.open() as conversation:
            assert names(conversation) == ["refund"]
            said: dict[str, Any] = {"text": "Of course.", "truncated": False, "unheard": "", **mark}
            await conversation.append(conversation.draft(Kind.BOT_TURN, "bot", {**said, "reply_id": "r"}))
            for summary in range(2):
                number = 0
                while sum(event.kind is Kind.SUMMARY for event in await of(store, conversation)) == summary:
                    await ask(
                        conversation, f"What does wire number {summary}.{number} cost, and why so much?"
                    )
                    reply = {"text": "It costs four dollars.", "truncated": False, "unheard": ""}
                    draft = conversation.draft(
                        Kind.BOT_TURN, "bot", {**reply, "reply_id": f"r{summary}.{number}"}
                    )
                    await conversation.append(draft)
                    await asyncio.sleep(1)
                    number += 1
                    assert number < 100
        async with conversations.open(conversation.session_id) as again:
            assert not any(
                event.kind is Kind.BOT_TURN and mark.keys() & event.payload for event in again.events
            )
            assert names(again) == names(again, ClientIdentity(owner="shop")) == []
            assert names(again, OPERATOR) == ["refund"]
        await conversations.close()
        await store.close()

    run(scenario())


async def of(store: SessionStore, conversation: Conversation) -> list[Event]:
    return await store.events(conversation.session_id, limit=10_000)


def test_a_call_that_the_model_makes_after_text_of_another_client_is_not_run(world: World):
    async def scenario() -> None:
        tool = FakeTool("refund")
        async with world.session() as conversation:
            tools, llm = DurableTools([tool], conversation), compatible()
            await ask(conversation)
            assert tools.offer(llm, LLMContext())
            shaped = {"text": "Hm.", "truncated": False, "unheard": "", "reply_id": "r", CLIENT_TEXT: True}
            await conversation.append(conversation.draft(Kind.BOT_TURN, "bot", shaped))
            received: list[Any] = []

            async def take(result: Any, **_: Any) -> None:
                received.append(result)

            handler = llm._functions["refund"].handler
            await handler(
                FunctionCallParams(
                    function_name="refund", tool_call_id="1", arguments=TEA, llm=llm, context=LLMContext(),
                    result_callback=take, pipeline_worker=None,
                )
            )  # fmt: skip
            assert received[0]["outcome"] == "failed"
            assert tool.runs == []

    run(scenario())


def test_a_call_of_a_clients_own_tool_says_that_its_text_came_in(world: World):
    async def scenario() -> None:
        async with world.session() as conversation:
            tools, rules = DurableTools([FakeTool("hours")], conversation), ClientRules()
            rules.add_text()
            tools.add([FakeTool("weather")], rules=rules)
            await ask(conversation)
            await tools.call("hours", TEA)
            assert not has_client_text(conversation.events)
            await tools.call("weather", TEA)
            assert has_client_text(conversation.events)

    run(scenario())


NUMBER = {"number": "+4930901820"}
NUMBER_SCHEMA = {"type": "object", "properties": {"number": {"type": "string"}}}


def test_a_tool_never_runs_with_redacted_arguments(redacting: World):
    async def scenario() -> None:
        tool = FakeTool(idempotent=True, parameters=NUMBER_SCHEMA)
        session_id = await killed(redacting, tool, arguments=NUMBER)
        async with redacting.session(session_id) as conversation:
            await DurableTools([tool], conversation).recover()
            assert received(conversation) == [CALLED, result("unknown")]
        assert len(tool.runs) == 1

    run(scenario())


@pytest.mark.parametrize("idempotent", [True, False])
def test_a_repeated_call_with_redacted_arguments_has_its_known_result(redacting: World, idempotent: bool):
    async def scenario() -> None:
        tool = FakeTool(idempotent=idempotent, parameters=NUMBER_SCHEMA)
        async with redacting.session() as conversation:
            tools = DurableTools([tool], conversation)
            await ask(conversation)
            first = await tools.call(tool.name, NUMBER)
            again = await tools.call(tool.name, NUMBER)
            stored = [e for e in conversation.events if e.kind is Kind.TOOL_CALL]
        assert [event.payload["arguments"] for event in stored] == [{"number": "[phone]"}]
        assert again["result"] == first and len(tool.runs) == 1

    run(scenario())


def test_what_a_tool_answers_in_a_private_pause_is_for_the_model_and_not_for_the_session(world: World):
    async def scenario() -> None:
        tool = FakeTool(parameters={"type": "object"}, answer={"status": "declined"})
        context = LLMContext()
        async with world.session() as conversation:
            tools = DurableTools([tool], conversation)
            exchange = ToolExchange(conversation, context, None)
            exchange.add_own([tool.name])
            with conversation.private():
                await ask(conversation, "My code is 1234.")
                await exchange.on_frame(None, LLMContextFrame(context))
                answer = await tools.call(tool.name, {"code": 1234, "4111": [0.5]})
                [called] = [e for e in conversation.events if e.kind is Kind.TOOL_CALL]
                context.add_message({"role": "assistant", "tool_calls": [provider_call("p1", tool.name)]})
                context.add_message({"role": "tool", "tool_call_id": "p1", "content": str(answer)})
                params = FunctionCallParams(tool.name, "p1", {}, compatible(), None, context, drop)
                exchange.record_answer(params, AnsweredCall(answer, called.payload["call_id"]))
                asked = LLMContextFrame(context)
                await exchange.on_frame(None, asked)
            results = [m for m in asked.context.messages if isinstance(m, dict) and m["role"] == "tool"]
            assert [message["content"] for message in results] == ['{"status": "declined"}']
            assert called.payload["arguments"] == {}
            assert last_result(conversation) == {"result": "[private]"}

    run(scenario())


def provider_call(call_id: str, name: str) -> dict[str, Any]:
    """Return a call as a provider writes it."""
    return {"id": call_id, "type": "function", "function": {"name": name, "arguments": "{}"}}


async def drop(*_arguments: Any, **_options: Any) -> None:
    """Take the result of a call."""
