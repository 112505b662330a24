"""A session is read from its newest summary on, and the view equals that of the whole timeline."""

import asyncio
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from hypothesis import event as note
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.language import find_language
from parley.session_store.compaction import CompactionTuning, Compactor, covered_until
from parley.session_store.conversation import ConversationTuning
from parley.session_store.conversations import Conversations
from parley.session_store.events import Draft, Event, Kind
from parley.session_store.memory import current_events, fold_state, newest_summary, state_payload
from parley.session_store.prompt import prompt_view, turns_of
from parley.session_store.settings import StoreTuning
from parley.session_store.store import SessionStore
from tests.fakes.timeline import Timeline

SECOND_US = 1_000_000
IN_VIEW = {
    *(Kind.USER_TURN, Kind.HEARD, Kind.BOT_TURN, Kind.TOOL_CALL, Kind.TOOL_RESULT),
    *(Kind.STATE, Kind.SUMMARY),
}
SENTENCES = (
    "My name is Ada.",
    "My account number is 4172.",
    "No, it's 4173.",
    "I live in Berlin.",
    "I'm calling about a lost card.",
    "What does it cost?",
)
# Repeated by their frequency: enough turns that a summary has something to cover.
STEPS = (
    *("said", "said", "said", "heard", "replied", "replied", "replied"),
    *("called", "answered", "answered", "state", "noise", "corrected", "summary", "summary", "withdrawn"),
)
Step = tuple[str, int, int]

steps = st.tuples(st.sampled_from(STEPS), st.integers(0, 9), st.integers(0, 9))
timelines = st.lists(steps, min_size=12, max_size=60) | st.lists(steps, max_size=12)

FACTS = find_language("en").facts
folded = partial(fold_state, facts=FACTS)
viewed = partial(prompt_view, facts=FACTS)
compacting = partial(Compactor, facts=FACTS)


@dataclass
class Narrator:
    """Generator of a timeline from steps.

    Attributes:
        anywhere: a summary ends at any event, with replies and tool calls that lie on both of its sides.
            Otherwise it ends where ``compaction`` lets it, and nothing is added to its covered part.
    """

    anywhere: bool
    line: Timeline = field(default_factory=Timeline)
    covered_seq: int = 0

    def narrate(self, steps: Sequence[Step]) -> list[Event]:
        for name, which, how in steps:
            getattr(self, name)(which, how)
        return self.line.events

    def said(self, which: int, how: int) -> None:
        self.line.said(SENTENCES[which % len(SENTENCES)], at_us=self._at_us(how))

    def heard(self, which: int, how: int) -> None:
        self.line.heard(self._reply_id(which), "It costs", at_us=self._at_us(how))

    def replied(self, which: int, how: int) -> None:
        unheard = "a month" if how % 2 else None
        reply_id = self._reply_id(which)
        self.line.replied("It costs nine.", unheard=unheard, reply_id=reply_id, at_us=self._at_us(how))

    def called(self, which: int, how: int) -> None:
        self.line.called(f"call.{len(self.line.events)}", number=how)

    def answered(self, which: int, how: int) -> None:
        calls = [
            event
            for event in self.line.events
            if event.kind is Kind.TOOL_CALL and (self.anywhere or event.seq > self.covered_seq)
        ]
        answered = {e.payload["call_id"] for e in self.line.events if e.kind is Kind.TOOL_RESULT}
        # A call without a result keeps its turn from being covered: those are mostly answered first.
        open_calls = [event for event in calls if event.payload["call_id"] not in answered]
        calls = open_calls if open_calls and how < 8 else calls
        if calls:
            call_id = calls[-1 - which % len(calls)].payload["call_id"]
            self.line.answered(call_id, how, outcome="done" if how % 3 else "failed")

    def state(self, which: int, how: int) -> None:
        stated: dict[str, Any] = (
            {"slots": {"home": f"Town {which}"}} if how % 2 else {"intent": f"thing {which}"}
        )
        self.line.state(**stated, **({"speaker": "anna"} if how == 9 else {}))

    def noise(self, which: int, how: int) -> None:
        self.line.add(Kind.ANNOTATION, {"order": which})

    def corrected(self, which: int, how: int) -> None:
        """Replace an event, which is named by its seq or its key."""
        kinds = {Kind.USER_TURN, Kind.STATE, Kind.HEARD, Kind.BOT_TURN}
        of_replies = {Kind.HEARD, Kind.BOT_TURN}
        known = [
            event
            for event in self.line.events
            if event.kind in kinds
            and (self.anywhere or event.kind not in of_replies or event.seq > self.covered_seq)
        ]
        if known:
            target = known[-1 - which % len(known)]
            named = target.key if how % 2 else target.seq
            payload = {
                **target.payload,
                "text": "My name is Eve.",
                "supersedes": [named] if how > 5 else named,
            }
            self.line.add(target.kind, payload, at_us=target.event_us)

    def summary(self, which: int, how: int) -> None:
        events = self._in_view()
        until_seq = covered_until(turns_of(events), keep_turns=1 + which % 3)
        if self.anywhere:
            until_seq = (len(self.line.events) + 2) * which // 9 or None
        if until_seq is None:
            return
        previous = newest_summary(current_events(events))
        state = folded([event for event in events if event.seq <= until_seq or event is previous])
        # One in ten is from another source and carries no state.
        carried = {} if how == 4 else {"state": state_payload(state)}
        self.line.summary(f"Summary {len(events)}.", until_seq, **carried)
        self.covered_seq = max(self.covered_seq, until_seq)

    def withdrawn(self, which: int, how: int) -> None:
        newest = newest_summary(current_events(self._in_view()))
        if newest is not None and which in (4, 5):
            self.line.state(supersedes=newest.key if how % 2 else newest.seq)

    def _in_view(self) -> list[Event]:
        return [event for event in self.line.events if event.kind in IN_VIEW]

    def _reply_id(self, which: int) -> str:
        """Return one of a few ids; a new one when that reply has ended or is covered by a summary."""
        reply_id = f"reply.{which % 2}"
        over = {
            event.payload.get("reply_id")
            for event in self.line.events
            if event.kind is Kind.BOT_TURN or event.seq <= self.covered_seq
        }
        while not self.anywhere and reply_id in over:
            reply_id += "'"
        return reply_id

    def _at_us(self, how: int) -> int | None:
        """Return the time of an event: mostly now; sometimes an earlier event is reported only now."""
        now_us = (len(self.line.events) + 1) * SECOND_US
        return max(0, now_us - 5 * SECOND_US - 1) if how == 7 else None


def from_newest_summary(events: Sequence[Event]) -> list[Event]:
    """Return the events that must be read, derived in another way."""
    newest = newest_summary(current_events(events))
    if newest is None or "state" not in newest.payload:
        return list(events)
    return [event for event in events if event.seq > newest.payload["until_seq"] or event.seq == newest.seq]


@dataclass
class Bench:
    """A store and a loop that serve many examples."""

    runner: asyncio.Runner
    store: SessionStore

    def stored(self, events: Sequence[Event]) -> str:
        async def store() -> str:
            writer = await self.store.claim((await self.store.create()).id)
            drafts = [
                Draft(each.kind, each.payload, each.event_us, each.arrival_us, each.source, key=each.key)
                for each in events
            ]
            await writer.append(*drafts)
            return writer.session_id

        return self.runner.run(store())

    def read(self, session_id: str, chosen: ConversationTuning) -> tuple[Any, Any, list[Event], list[Event]]:
        """Return the view before and after the session is opened, the held events, and all in the view."""

        async def read() -> tuple[Any, Any, list[Event], list[Event]]:
            whole = await self.store.events(session_id, limit=1_000)
            opened = Conversations(
                self.store, chosen, compactor=compacting(budget_tokens=chosen.budget_tokens)
            )
            apart = await opened.view(session_id)
            async with opened.open(session_id) as conversation:
                held, events = conversation.view(), list(conversation.events)
            await opened.close()
            return apart, held, events, [event for event in whole if event.kind in IN_VIEW]

        return self.runner.run(read())


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Bench]:
    url = f"sqlite:///{tmp_path_factory.mktemp('bench')}/a.db"
    with asyncio.Runner() as runner:
        store = runner.run(SessionStore.open(StoreTuning(url=url)))
        yield Bench(runner, store)
        runner.run(store.close())


@settings(max_examples=150, deadline=None)
@given(timelines, st.sampled_from([200, 400, 5_000]))
def test_the_view_from_the_newest_summary_on_is_that_of_the_whole_timeline(
    bench: Bench, steps: list[Step], budget_tokens: int
) -> None:
    session_id = bench.stored(Narrator(anywhere=False).narrate(steps))
    apart, held, events, whole = bench.read(session_id, ConversationTuning(budget_tokens=budget_tokens))
    note(f"events left out: {len(events) < len(whole)}")
    expected = viewed(whole, budget_tokens=budget_tokens)
    assert apart == expected
    assert held == expected
    assert events == from_newest_summary(whole)


@settings(max_examples=150, deadline=None)
@given(timelines)
def test_a_summary_that_ends_anywhere_is_read_from_there_on(bench: Bench, steps: list[Step]) -> None:
    session_id = bench.stored(Narrator(anywhere=True).narrate(steps))
    apart, held, events, whole = bench.read(session_id, ConversationTuning())
    note(f"events left out: {len(events) < len(whole)}")
    assert events == from_newest_summary(whole)
    assert apart == held == viewed(from_newest_summary(whole), budget_tokens=6_000)


def received(bench: Bench, line: Timeline) -> tuple[str, list[Event]]:
    apart, held, events, whole = bench.read(bench.stored(line.events), ConversationTuning())
    assert apart == held == viewed(whole, budget_tokens=6_000)
    return str(held.messages[0]["content"]), events


def talk() -> Timeline:
    line = Timeline()
    line.said("My name is Ada.")
    line.replied("Hello Ada.")
    line.said("What does it cost?")
    line.replied("Nine euros.")
    return line


def test_a_summary_without_a_state_leaves_what_was_stated_known(bench: Bench) -> None:
    line = talk()
    line.summary("Somebody said hello.", 2)
    shown, events = received(bench, line)
    assert "Somebody said hello." in shown and "Ada" in shown and "My name is" not in shown
    assert len(events) == 5


def test_a_summary_that_is_superseded_makes_room_for_the_one_before_it(bench: Bench) -> None:
    line = talk()
    first = line.summary("The first one.", 2, state=state_payload(folded(line.events[:2])))
    line.said("And a year?")
    line.replied("Ninety.")
    second = line.summary("The second one.", 4, state=state_payload(folded([*line.events[:4], first])))
    assert "The second one." in received(bench, line)[0]
    line.state(supersedes=second.seq)
    shown, events = received(bench, line)
    assert "The first one." in shown and "The second one." not in shown and "What does it cost?" in shown
    assert [event.seq for event in events] == [3, 4, 5, 6, 7, 8, 9]


def test_a_state_that_was_given_before_the_summary_is_known_and_not_read(bench: Bench) -> None:
    line = Timeline()
    line.state(slots={"home": "Berlin"}, speaker="anna")
    for event in talk().events:
        line.add(event.kind, event.payload)
    line.summary("They said hello.", 3, state=state_payload(folded(line.events[:3])))
    shown, events = received(bench, line)
    assert "Berlin" in shown and "Ada" in shown
    assert [event.seq for event in events] == [4, 5, 6]


def test_the_language_of_a_session_outlives_its_summaries(bench: Bench) -> None:
    line = Timeline()
    line.state(language="es-ES")
    for event in talk().events:
        line.add(event.kind, event.payload)
    first = line.summary("They said hello.", 3, state=state_payload(folded(line.events[:3])))
    line.said("And a year?")
    second = folded([first, *line.events[3:]])
    line.summary("They asked for a price.", 6, state=state_payload(second))
    _, events = received(bench, line)
    assert [event.kind for event in events] == [Kind.USER_TURN, Kind.SUMMARY]
    assert folded(events).language == "es-ES"
    line.state(language="de-DE")
    assert folded([*events, line.events[-1]]).language == "de-DE"


@contextmanager
def rows_counted() -> Iterator[list[int]]:
    """Count the rows that SQLite returns to any connection that is made meanwhile."""
    counted = [0]

    def count(_cursor: object, row: tuple[Any, ...]) -> tuple[Any, ...]:
        counted[0] += 1
        return row

    def on_connect(connection: Any, _record: object) -> None:
        connection.row_factory = count

    sa.event.listen(sa.pool.Pool, "connect", on_connect)
    try:
        yield counted
    finally:
        sa.event.remove(sa.pool.Pool, "connect", on_connect)


def turn(number: int) -> list[Draft]:
    at_us = (2 * number + 1) * SECOND_US
    asked = {"text": f"What does wire number {number} cost?", "transport": "text"}
    answer = {"reply_id": f"reply.{number}", "text": f"It costs {number} dollars.", "truncated": False}
    return [
        Draft(Kind.USER_TURN, asked, at_us, at_us, "user"),
        Draft(Kind.BOT_TURN, answer, at_us + SECOND_US, at_us + SECOND_US, "bot"),
    ]


async def test_ten_thousand_turns_after_a_summary_are_not_read(tmp_path: Path) -> None:
    turns, kept = 10_000, 10
    with rows_counted() as rows:
        store = await SessionStore.open(StoreTuning(url=f"sqlite:///{tmp_path}/a.db"))
        writer = await store.claim((await store.create()).id)
        for first in range(0, turns, 250):
            await writer.append(*(draft for number in range(first, first + 250) for draft in turn(number)))
        end_us = 2 * turns * SECOND_US
        state = {"speaker": None, "intent": None, "slots": {"name": {"value": "Ada", "seq": 1}}}
        summary = {"text": "They asked about wires.", "until_seq": 2 * (turns - kept), "state": state}
        noise = [Draft(Kind.ANNOTATION, {"order": n}, end_us, end_us, "stt") for n in range(500)]
        await writer.append(Draft(Kind.SUMMARY, summary, end_us, end_us, "system"), *noise)
        whole = await store.events(writer.session_id, limit=100_000)
        assert rows[0] >= len(whole) == 2 * turns + 501

        chosen = ConversationTuning(compaction=CompactionTuning(keep_turns=kept))
        opened = Conversations(store, chosen, compactor=compacting(chosen.compaction))
        # The summary is read twice: to find where to start, and among the events from there on. A claim reads
        # the row of the session.
        behind = 2 * kept + 1
        before = rows[0]
        view = await opened.view(writer.session_id)
        assert rows[0] - before == behind + 1
        before = rows[0]
        async with opened.open(writer.session_id) as conversation:
            # In addition, a claim looks for a record of the tier, which a summary may cover.
            assert rows[0] - before == behind + 3
            assert len(conversation.events) == behind
            held = conversation.view()
        expected = viewed(
            [event for event in whole if event.kind in IN_VIEW], budget_tokens=chosen.budget_tokens
        )
        assert len(expected.messages) == 2 * kept
        assert view == held == expected
        await opened.close()
        await store.close()
