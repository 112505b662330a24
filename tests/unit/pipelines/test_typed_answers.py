"""Typed turns on virtual time: repeated turns, abandoned turns, and a server that stops meanwhile."""

import asyncio
import io
import sqlite3
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa

from parley.configs.deployment import Choice, Deployment, Thinking
from parley.core.client_rules import ClientRules
from parley.core.errors import EngineError, KeyReusedError, StoreUnavailableError
from parley.core.grants import ClientIdentity, Grants
from parley.core.passage_notes import CitedPassage
from parley.core.provenance import Provenance, digest_of
from parley.core.tiers import Tier, TierEvent
from parley.models.llm import LanguageModel, Message
from parley.pipelines.engines.llm_runtime import AnsweringPlan, LlmRuntime
from parley.pipelines.sessions import TypedTurns
from parley.pipelines.text.printed_answer import print_answer
from parley.pipelines.text.typed_turns import (
    CLOSE_S,
    AnswerCommitted,
    AnswerPiece,
    TurnCommitted,
    TurnHeld,
    ask,
)
from parley.processors.dialogue.services import Documents, DocumentsSettings, LlmRow
from parley.serving.gateway.limits import ShareError
from parley.serving.gateway.session_api import TurnEvent, on_store_error
from parley.session_store.compaction import CompactionTuning, Compactor
from parley.session_store.conversation import Conversation, ConversationTuning
from parley.session_store.conversations import Conversations
from parley.session_store.events import Draft, Event, Kind
from parley.session_store.evidence import EvidenceSigner, EvidenceSource
from parley.session_store.evidence_check import verify_session
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from tests import virtual_time
from tests.fakes.scripted_llm import HANG, CitingLanguageModel, ScriptedLanguageModel, ScriptedRow

OPEN = "When do you open?"
FEE = "What does it cost?"
SMALL = ConversationTuning(budget_tokens=400, compaction=CompactionTuning(keep_turns=2, summary_tokens=100))


@dataclass
class World:
    """Process with its store and its language model."""

    store: SessionStore
    conversations: Conversations
    answering: LlmRuntime
    model: LanguageModel

    def asked(self, at: int) -> list[tuple[str, str]]:
        """Return request ``at`` of the model, without the instruction."""
        assert isinstance(self.model, ScriptedLanguageModel)
        return [(one.role, one.text) for one in self.model.asked[at] if one.role != "system"]

    @property
    def requests(self) -> int:
        assert isinstance(self.model, ScriptedLanguageModel)
        return len(self.model.asked)

    async def answer(self, conversation: Conversation, text: str, key: str) -> AnswerCommitted:
        """Run a typed turn to its end and return the answer."""
        *_, last = [
            event async for event in ask(conversation, self.answering, text, key=key, store=self.store)
        ]
        assert isinstance(last, AnswerCommitted)
        return last

    async def leave(self, conversation: Conversation, text: str, key: str) -> None:
        """Run a typed turn whose reader leaves after the first piece."""
        turn = ask(conversation, self.answering, text, key=key, store=self.store)
        async for event in turn:
            if isinstance(event, AnswerPiece):
                break
        await turn.aclose()
        await conversation.flushed()

    async def events(self, session_id: str, *kinds: Kind) -> list[Event]:
        found = await self.store.events(session_id, limit=10_000)
        return [event for event in found if not kinds or event.kind in kinds]


def play(
    folder: Path,
    model: LanguageModel,
    scenario: Callable[[World], Coroutine[Any, Any, None]],
    settings: ConversationTuning | None = None,
    evidence: EvidenceSource | None = None,
    failing: LlmRow | None = None,
) -> None:
    @asynccontextmanager
    async def world() -> AsyncIterator[World]:
        url = f"sqlite:///{folder}/sessions.db"
        store = await SessionStore.open(StoreTuning(url=url, busy_timeout_ms=0))
        chosen = settings or ConversationTuning()
        compactor = Compactor(chosen.compaction, budget_tokens=chosen.budget_tokens)
        conversations = Conversations(store, chosen, compactor=compactor, evidence=evidence)
        # The model of a failing row is its fallback.
        row = failing or Documents(DocumentsSettings())
        plan = AnsweringPlan(row, None, guarded=failing is not None)
        thinking = Thinking(llm=Choice(name="documents" if failing is None else "anthropic"))
        answering = LlmRuntime(Deployment(thinking=thinking), plan, model)
        try:
            yield World(store, conversations, answering, model)
        finally:
            await conversations.close()
            await answering.close()
            await store.close()

    async def whole() -> None:
        async with world() as opened:
            await scenario(opened)

    virtual_time.run(whole())


def shown(conversation: Conversation) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in conversation.view().messages]


# The same key


def test_an_answer_names_its_maker_where_the_session_has_evidence(tmp_path: Path):
    maker = Provenance("0.2.0", digest_of("{}"))

    async def scenario(world: World) -> None:
        async with world.conversations.open() as conversation:
            answer = await world.answer(conversation, "What does it cost?", "k")
        prompt = world.answering.instruction()
        assert answer.turn.payload["made_by"] == maker.of_reply({"llm": "documents"}, prompt)
        found = await verify_session(world.store, conversation.session_id)
        assert (found.entries, found.problems) == (1, ())

    source = EvidenceSource(EvidenceSigner(bytes(32)), maker)
    play(tmp_path, ScriptedLanguageModel(("Nothing.",)), scenario, evidence=source)


def test_a_written_answer_of_the_fallback_names_it_and_what_failed(tmp_path: Path):
    maker = Provenance("0.2.0", digest_of("{}"))

    async def scenario(world: World) -> None:
        async with world.conversations.open() as conversation:
            first = await world.answer(conversation, "What does it cost?", "k")
            await conversation.flushed()
        [failover] = await world.events(conversation.session_id, Kind.FAILOVER)
        assert (failover.payload["engine"], failover.payload["successor"]) == ("anthropic", "documents")
        prompt = world.answering.instruction()
        expected = maker.of_reply({"llm": "anthropic"}, prompt, writers=("", "documents"))
        assert (expected["engines"], expected["begun_by"]) == ({"llm": "documents"}, ["anthropic"])
        assert first.turn.payload["made_by"] == expected

    source = EvidenceSource(EvidenceSigner(bytes(32)), maker)
    row = ScriptedRow(["We ask. ", EngineError("cut", engine="llm")])
    play(tmp_path, ScriptedLanguageModel(("Four euros.",)), scenario, evidence=source, failing=row)


def test_a_turn_that_was_given_up_is_asked_again_as_it_was_said(tmp_path: Path):
    model = ScriptedLanguageModel(("We open ", HANG), ("Four euros.",), ("We open at ten.",))

    async def scenario(world: World) -> None:
        async with world.conversations.open() as conversation:
            await world.leave(conversation, OPEN, "a")
            await world.answer(conversation, FEE, "b")
            piece, question = [text for _, text in world.asked(1)][1:]
            # The first remark is explained before the question that comes after it.
            assert piece.split(" [")[0] == "We open" and question.endswith(f"[End of notes]\n\n{FEE}")
            again = await world.answer(conversation, OPEN, "a")
            assert world.asked(2) == [("user", OPEN)]
            assert again.turn.payload["text"] == "We open at ten."
            # The result stands in its turn, in place of the piece.
            whole_view = [
                ("user", OPEN),
                ("assistant", "We open at ten."),
                ("user", FEE),
                ("assistant", "Four euros."),
            ]
            assert shown(conversation) == whole_view
        async with world.conversations.open(conversation.session_id) as reopened:
            assert shown(reopened) == whole_view
        first, _, second = await world.events(conversation.session_id, Kind.BOT_TURN)
        assert (first.key, first.payload["truncated"]) == ("reply.a", True)
        assert second.key == "reply.a.2"
        assert second.payload["supersedes"] == ["reply.a"]
        turns = await world.events(conversation.session_id, Kind.USER_TURN)
        assert second.payload["turn"] == turns[0].seq
        assert len(turns) == 2

    play(tmp_path, model, scenario)


def test_a_turn_that_is_given_up_again_and_again_keeps_the_last_piece_until_it_is_answered(tmp_path: Path):
    model = ScriptedLanguageModel(("We ", HANG), ("We open ", HANG), ("We open at ten.",))

    async def scenario(world: World) -> None:
        async with world.conversations.open() as conversation:
            for piece in ("We", "We open"):
                await world.leave(conversation, OPEN, "a")
                [(_, question), (role, text)] = shown(conversation)
                assert (role, text.split(" [")[0]) == ("assistant", piece)
                assert question.endswith(OPEN)
            await world.answer(conversation, OPEN, "a")
            assert [world.asked(at) for at in range(3)] == [[("user", OPEN)]] * 3
            assert shown(conversation) == [("user", OPEN), ("assistant", "We open at ten.")]
            # From now on it is returned without a request to the model.
            assert (await world.answer(conversation, OPEN, "a")).turn.key == "reply.a.3"
            assert world.requests == 3

    play(tmp_path, model, scenario)


def test_a_turn_whose_piece_still_waits_for_its_commit_is_not_answered_over_it(tmp_path: Path):
    model = ScriptedLanguageModel(("We open ", HANG), ("We open at ten.",))

    async def scenario(world: World) -> None:
        typed = TypedTurns(world.conversations, world.answering)
        session_id = (await world.store.create()).id
        first = typed(session_id, OPEN, key="a")
        while (await anext(first)).name != "delta":
            pass
        await first.aclose()
        events = [event async for event in typed(session_id, OPEN, key="a")]
        assert [event.name for event in events] == ["turn", "delta", "done"]
        assert world.asked(1) == [("user", OPEN)]
        replies = await world.events(session_id, Kind.BOT_TURN)
        assert [(reply.key, reply.payload["truncated"]) for reply in replies] == [
            ("reply.a", True),
            ("reply.a.2", False),
        ]
        await typed.close()

    play(tmp_path, model, scenario)


async def _until_summarised(world: World, conversation: Conversation, turns: int) -> None:
    for number in range(turns):
        await world.answer(conversation, f"Tell me about fee number {number}, please.", f"fee{number}")
        await asyncio.sleep(1)
    assert OPEN not in [event.payload.get("text") for event in conversation.events]
    assert any(event.kind is Kind.SUMMARY for event in conversation.events)


FEES = ("That fee is four euros a month, and it is taken on the first of each month.",)


def test_the_answer_of_long_ago_is_given_again_from_after_a_summary(tmp_path: Path):
    model = ScriptedLanguageModel(("We open at ten.",), FEES)

    async def scenario(world: World) -> None:
        async with world.conversations.open() as conversation:
            first = await world.answer(conversation, OPEN, "a")
            await _until_summarised(world, conversation, 12)
            before = world.requests, len(await world.events(conversation.session_id))
            again = await world.answer(conversation, OPEN, "a")
            assert again == first
            assert (world.requests, len(await world.events(conversation.session_id))) == before

    play(tmp_path, model, scenario, SMALL)


def test_a_turn_of_long_ago_that_was_given_up_is_asked_again_over_the_view_of_its_time(tmp_path: Path):
    model = ScriptedLanguageModel(("Hello Ada.",), ("We open ", HANG), *[FEES] * 12, ("We open at ten.",))

    async def scenario(world: World) -> None:
        async with world.conversations.open() as conversation:
            await world.answer(conversation, "Good day.", "hello")
            await world.leave(conversation, OPEN, "a")
            await _until_summarised(world, conversation, 12)
            again = await world.answer(conversation, OPEN, "a")
            assert world.asked(14) == [
                ("user", "Good day."),
                ("assistant", "Hello Ada."),
                ("user", OPEN),
            ]
            assert (again.turn.key, again.turn.payload["supersedes"]) == ("reply.a.2", ["reply.a"])

    play(tmp_path, model, scenario, SMALL)


@pytest.mark.parametrize("summarised", [False, True])
def test_a_key_that_belongs_to_other_words_is_refused_and_teaches_nothing(tmp_path: Path, summarised: bool):
    model = ScriptedLanguageModel(("We open at ten.",), FEES)

    async def scenario(world: World) -> None:
        async with world.conversations.open() as conversation:
            await world.answer(conversation, OPEN, "a")
            if summarised:
                await _until_summarised(world, conversation, 12)
            before = world.requests, len(await world.events(conversation.session_id))
            with pytest.raises(KeyReusedError) as refused:
                await world.answer(conversation, "My name is Eve.", "a")
            assert (world.requests, len(await world.events(conversation.session_id))) == before
            assert "name" not in conversation.state.values
            assert not conversation.lost.is_set()
        assert "Eve" not in str(refused.value)
        request: Any = None
        assert (await on_store_error(request, refused.value)).status_code == 409

    play(tmp_path, model, scenario, SMALL)


def test_a_key_is_refused_also_while_its_own_turn_waits_for_the_database(tmp_path: Path):
    model = ScriptedLanguageModel(("We open at ten.",))

    async def scenario(world: World) -> None:
        async with world.conversations.open() as conversation:
            other = sqlite3.connect(tmp_path / "sessions.db", isolation_level=None)
            other.execute("BEGIN EXCLUSIVE")
            waiting = asyncio.create_task(conversation.user_turn(OPEN, transport="text", key="a"))
            await asyncio.sleep(1)
            with pytest.raises(KeyReusedError):
                await conversation.user_turn("My name is Eve.", transport="text", key="a")
            other.rollback()
            other.close()
            await waiting
            kinds = [event.kind for event in await world.events(conversation.session_id)]
            assert kinds == [Kind.USER_TURN]

    play(tmp_path, model, scenario)


def test_a_turn_waits_for_a_tool_that_a_crash_cut_off_no_longer_than_for_its_answer(tmp_path: Path):
    async def scenario(world: World) -> None:
        async with world.conversations.open() as conversation:
            call = {"call_id": "call_1", "name": "order", "arguments": {}}
            await conversation.append(conversation.draft(Kind.TOOL_CALL, "bot", call))
            turn = ask(conversation, world.answering, OPEN, key="a", answer_timeout_s=5)
            assert isinstance(await anext(turn), TurnCommitted)
            other = sqlite3.connect(tmp_path / "sessions.db", isolation_level=None)
            other.execute("BEGIN EXCLUSIVE")
            try:
                # Its outcome cannot be written now.
                async with asyncio.timeout(30):
                    with pytest.raises(EngineError, match="not finished"):
                        await anext(turn)
            finally:
                other.rollback()
                other.close()

    play(tmp_path, ScriptedLanguageModel(("We open at nine.",)), scenario)


# A full disk


class Disk:
    """Disk of every SQLite file that is opened while the block runs; the test can make it full."""

    def __init__(self) -> None:
        self._connections: list[sqlite3.Connection] = []
        self.is_full = False

    def __enter__(self) -> "Disk":
        sa.event.listen(sa.engine.Engine, "connect", self._on_connect)
        return self

    def __exit__(self, *_: object) -> None:
        sa.event.remove(sa.engine.Engine, "connect", self._on_connect)

    def fill(self) -> None:
        self.is_full = True
        for connection in self._connections:
            self._limit(connection)

    def free(self) -> None:
        self.is_full = False
        for connection in self._connections:
            self._limit(connection)

    def _on_connect(self, connection: sqlite3.Connection, _record: object) -> None:
        self._connections.append(connection)
        self._limit(connection)

    def _limit(self, connection: sqlite3.Connection) -> None:
        # SQLite refuses to grow a file beyond this limit with SQLITE_FULL, as on a full disk. The limit
        # belongs to the connection; one that was closed since has none.
        with suppress(sqlite3.ProgrammingError):
            connection.execute(f"PRAGMA max_page_count = {1 if self.is_full else 1_000_000}").close()


# More than fits into the pages that the file has.
LONG = "When do you open? " + "I ask because I am on my way. " * 260


@pytest.mark.parametrize("is_open", [True, False], ids=["in an open session", "in a session of the store"])
def test_a_typed_turn_on_a_full_disk_is_refused_within_five_seconds(tmp_path: Path, is_open: bool):
    model = ScriptedLanguageModel(("We open at ten.",))

    async def turn(turns: TypedTurns, session_id: str) -> list[str]:
        return [event.name async for event in turns(session_id, LONG, key="a")]

    async def scenario(world: World) -> None:
        turns = TypedTurns(world.conversations, world.answering)
        session_id = (await world.store.create()).id
        async with AsyncExitStack() as held:
            if is_open:
                await held.enter_async_context(world.conversations.open(session_id))
            disk.fill()
            loop = asyncio.get_running_loop()
            begun_s = loop.time()
            with pytest.raises(StoreUnavailableError) as refused:
                await turn(turns, session_id)
            assert loop.time() - begun_s == pytest.approx(5, abs=0.1)
            assert (await on_store_error(None, refused.value)).status_code == 503  # type: ignore[arg-type]
            disk.free()
            assert (await turn(turns, session_id))[-1] == "done"
        assert len(await world.events(session_id, Kind.USER_TURN)) == 1
        await turns.close()

    with Disk() as disk:
        play(tmp_path, model, scenario)


def test_turns_that_wait_for_each_other_are_refused_together_on_a_full_disk(tmp_path: Path):
    async def scenario(world: World) -> None:
        turns = TypedTurns(world.conversations, world.answering)
        session_id = (await world.store.create()).id

        async def turn(key: str) -> list[str]:
            return [event.name async for event in turns(session_id, LONG, key=key)]

        disk.fill()
        loop = asyncio.get_running_loop()
        begun_s = loop.time()
        refused = await asyncio.gather(*(turn(key) for key in "abc"), return_exceptions=True)
        assert all(isinstance(error, StoreUnavailableError) for error in refused), refused
        # Each append that waited after the first gets one more attempt of the writer, not another five
        # seconds.
        assert 5 <= loop.time() - begun_s <= 7.1
        disk.free()
        await turns.close()

    with Disk() as disk:
        play(tmp_path, ScriptedLanguageModel(), scenario)


def test_an_answer_that_a_full_disk_does_not_take_is_given_up_within_five_seconds(tmp_path: Path):
    model = ScriptedLanguageModel((LONG,))

    async def scenario(world: World) -> None:
        async with world.conversations.open() as conversation:
            disk_full_s = 0.0
            with pytest.raises(StoreUnavailableError):
                async for event in ask(conversation, world.answering, OPEN, key="a", store=world.store):
                    if isinstance(event, AnswerPiece) and not disk_full_s:
                        disk.fill()
                        disk_full_s = asyncio.get_running_loop().time()
            assert asyncio.get_running_loop().time() - disk_full_s < 5 + CLOSE_S
            disk.free()
            # The answer waits in the session, and the same key returns it.
            await conversation.flushed()
            again = [event async for event in ask(conversation, world.answering, OPEN, key="a")]
            assert isinstance(again[-1], AnswerCommitted) and world.requests == 1

    with Disk() as disk:
        play(tmp_path, model, scenario)


# A reader that leaves, a server that stops


class Lingering:
    """``models.llm.LanguageModel`` that sends the beginning of an answer and withholds its end."""

    def __init__(self, *pieces: str, ends_after_s: float) -> None:
        self._pieces = pieces
        self._ends_after_s = ends_after_s
        self.ended = 0

    async def reply(self, messages: Sequence[Message]) -> AsyncIterator[str]:
        loop = asyncio.get_running_loop()
        try:
            for piece in self._pieces:
                yield piece
            await asyncio.Event().wait()
        finally:
            deadline_s = loop.time() + self._ends_after_s
            while loop.time() < deadline_s:
                try:
                    await asyncio.sleep(deadline_s - loop.time())
                except asyncio.CancelledError:
                    continue
            self.ended += 1


async def _begun(typed: TypedTurns, session_id: str) -> Any:
    """Start a typed turn, up to the first piece of its answer."""
    reader = typed(session_id, OPEN, key="a")
    event = TurnEvent("", {})
    while event.name != "delta":
        event = await anext(reader)
    return reader


def test_what_was_handed_out_is_durable_before_the_pipeline_has_ended(tmp_path: Path):
    model = Lingering("We open ", ends_after_s=10)

    async def scenario(world: World) -> None:
        typed = TypedTurns(world.conversations, world.answering)
        session_id = (await world.store.create()).id
        reader = await _begun(typed, session_id)
        await reader.aclose()
        await asyncio.sleep(0.5)
        assert model.ended == 0
        [reply] = await world.events(session_id, Kind.BOT_TURN)
        assert (reply.payload["text"], reply.payload["truncated"]) == ("We open", True)
        await typed.close()

    play(tmp_path, model, scenario)


@pytest.mark.parametrize("gone_before_s", [None, 0.0, 0.1, 2.0])
def test_a_server_that_stops_while_a_turn_ends_loses_nothing_of_it(
    tmp_path: Path, gone_before_s: float | None
):
    model = Lingering("We open ", ends_after_s=30)

    async def scenario(world: World) -> None:
        typed = TypedTurns(world.conversations, world.answering)
        session_id = (await world.store.create()).id
        reader = await _begun(typed, session_id)
        if gone_before_s is not None:
            await reader.aclose()
            await asyncio.sleep(gone_before_s)
        await typed.close()
        await world.conversations.close()
        [reply] = await world.events(session_id, Kind.BOT_TURN)
        assert (reply.payload["text"], reply.payload["truncated"]) == ("We open", True)
        assert model.ended == 0
        await reader.aclose()

    play(tmp_path, model, scenario)


def test_a_turn_that_is_cancelled_twice_is_committed_and_leaves_no_pipeline(tmp_path: Path):
    model = Lingering("We open ", ends_after_s=1)

    async def scenario(world: World) -> None:
        async with world.conversations.open() as conversation:

            async def read() -> None:
                async for event in ask(conversation, world.answering, OPEN, key="a", store=world.store):
                    if isinstance(event, AnswerPiece):
                        given.set()

            given = asyncio.Event()
            turn = asyncio.create_task(read())
            await given.wait()
            for _ in range(2):
                turn.cancel()
                await asyncio.sleep(0.01)
            await asyncio.wait({turn})
            assert turn.cancelled()
            await conversation.flushed()
            [reply] = await world.events(conversation.session_id, Kind.BOT_TURN)
            assert (reply.payload["text"], reply.payload["truncated"]) == ("We open", True)
            await asyncio.sleep(10)
            assert model.ended == 1
            names = {task.get_name() for task in asyncio.all_tasks()}
            assert "chat.pipeline" not in names

    play(tmp_path, model, scenario)


def test_an_answer_that_is_complete_stays_so_when_its_reader_leaves_with_it(tmp_path: Path):
    async def scenario(world: World) -> None:
        async with world.conversations.open() as conversation:
            turn = ask(conversation, world.answering, OPEN, key="a", store=world.store)
            seen = [await anext(turn) for _ in range(3)]
            assert [type(event) for event in seen] == [TurnCommitted, AnswerPiece, AnswerCommitted]
            await turn.aclose()
        replies = await world.events(conversation.session_id, Kind.BOT_TURN)
        assert [(reply.payload["text"], reply.payload["truncated"]) for reply in replies] == [
            ("We open at ten.", False)
        ]

    play(tmp_path, ScriptedLanguageModel(("We open at ten.",)), scenario)


# Tiers of the session


@pytest.mark.parametrize("meanwhile", [TierEvent.REPLIED, TierEvent.TAKEN])
def test_an_answer_goes_on_unless_a_human_takes_the_session(tmp_path: Path, meanwhile: TierEvent):
    async def scenario(world: World) -> None:
        async with world.conversations.open() as conversation:
            conversation.change_tier(TierEvent.TAKEN)
            conversation.change_tier(TierEvent.RETURNED)
            turn = ask(conversation, world.answering, OPEN, key="a", store=world.store)
            seen: list[type] = []
            async for event in turn:
                seen.append(type(event))
                if len(seen) == 2:
                    # A call of the session speaks another reply of the agent, or a human comes.
                    conversation.change_tier(meanwhile)
            assert seen[:2] == [TurnCommitted, AnswerPiece]
            if meanwhile is TierEvent.TAKEN:
                assert seen[2:] == [TurnHeld]
            else:
                assert seen[2:] == [AnswerPiece, AnswerCommitted] and conversation.tier.tier is Tier.AGENT

    play(tmp_path, ScriptedLanguageModel(("We open ", 1, "at ten.")), scenario)


# Limits of a client's requests


def test_a_turn_too_many_of_a_client_is_refused_and_changes_nothing(tmp_path: Path):
    model = ScriptedLanguageModel(("We open at ten.",))
    grants = Grants(turns_per_minute=4)

    async def scenario(world: World) -> None:
        typed = TypedTurns(world.conversations, world.answering)
        for user in ("a", "b"):
            async with world.conversations.open() as conversation:
                session = conversation.session_id
            identity = ClientIdentity(owner=f"shop:{user}", grants=grants)
            first = [event.name async for event in typed(session, OPEN, key=None, identity=identity)]
            assert first[-1] == "done"
            with pytest.raises(ShareError) as refused:
                async for _ in typed(session, FEE, key=None, identity=identity):
                    pass
            assert refused.value.retry_s == pytest.approx(15, abs=1)
            [turn] = await world.events(session, Kind.USER_TURN)
            assert turn.payload["text"] == OPEN

    play(tmp_path, model, scenario)


def test_only_turns_that_the_model_is_asked_are_counted(tmp_path: Path):
    model = ScriptedLanguageModel(("We open at ten.",), ("Four euros.",))
    rules = ClientRules(ClientIdentity(owner="shop:ann", grants=Grants(turns_per_minute=8)))

    async def scenario(world: World) -> None:
        async with world.conversations.open() as conversation:

            async def say(text: str, key: str) -> None:
                turn = ask(conversation, world.answering, text, key=key, store=world.store, rules=rules)
                async for _ in turn:
                    pass

            # Two at once: one is answered. Neither its repetitions nor refused requests take the other's
            # allowance.
            for _ in range(5):
                await say(OPEN, "a")
            with pytest.raises(KeyReusedError):
                await say(FEE, "a")
            with pytest.raises(ShareError, match="too much text was typed"):
                await say("x" * 1_800, "long")
            await say(FEE, "b")
            assert world.requests == 2
            with pytest.raises(ShareError, match="over 8"):
                await say("And on Sunday?", "c")

    settings = ConversationTuning(typed_bytes_per_minute=1_900)
    play(tmp_path, model, scenario, settings)


# The terminal


def test_a_terminal_says_that_the_store_is_away_and_goes_on(tmp_path: Path):
    async def scenario(world: World) -> None:
        async with world.conversations.open() as conversation:
            out = io.StringIO()
            other = sqlite3.connect(tmp_path / "sessions.db", isolation_level=None)
            other.execute("BEGIN EXCLUSIVE")
            await print_answer(conversation, world.answering, OPEN, out.write, answer_timeout_s=60)
            other.rollback()
            other.close()
            await conversation.flushed()
            await print_answer(conversation, world.answering, FEE, out.write, answer_timeout_s=60)
            assert out.getvalue().splitlines() == [
                "The session store is unavailable, send the message again in a moment.",
                "Four euros.",
            ]

    play(tmp_path, ScriptedLanguageModel(("Four euros.",)), scenario)


def test_the_console_names_the_passages_of_an_answer_and_other_output_does_not(tmp_path: Path):
    model = CitingLanguageModel(
        ("We open at ten.",), passages={"We open": CitedPassage("the guide", "Opening\x1b hours", 1)}
    )

    async def scenario(world: World) -> None:
        async with world.conversations.open() as conversation:
            plain, console = io.StringIO(), io.StringIO()
            await print_answer(conversation, world.answering, OPEN, plain.write, answer_timeout_s=60)
            await print_answer(
                conversation, world.answering, OPEN, console.write, answer_timeout_s=60, cites=True
            )
            assert plain.getvalue() == "We open at ten.\n"
            assert console.getvalue() == "We open at ten.\n  (from the guide: Opening hours)\n"

    play(tmp_path, model, scenario)


@pytest.mark.parametrize("stored", [5, ["x", None, {"document": "d"}], {"document": 1}])
def test_passages_of_an_imported_answer_that_are_none_are_left_out(stored: object):
    turn = Draft(Kind.BOT_TURN, {"text": "Yes.", "passages": stored}, 1, 1, "bot").at("s", 1, 1)
    assert AnswerCommitted(turn).passages == ()
