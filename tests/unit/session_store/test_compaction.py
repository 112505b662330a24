import asyncio
import unicodedata
from functools import partial
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.core.errors import EngineError
from parley.core.pictures import NO_LONGER_SHOWN, UNSEEN
from parley.core.prompt_notes import parse_notes
from parley.language import find_language
from parley.models.llm import Message
from parley.runtime.loop_clock import LoopClock
from parley.session_store.compaction import (
    CompactionTuning,
    Compactor,
    ExtractiveSummarizer,
    LlmSummarizer,
    SummaryLine,
    SummaryRequest,
    covered_until,
    transcript,
)
from parley.session_store.events import Draft, Kind
from parley.session_store.memory import FactSlot, SessionState, fold_state
from parley.session_store.prompt import approximate_tokens, prompt_view, turns_of
from tests.fakes.scripted_llm import HANG, ScriptedLanguageModel, Step
from tests.fakes.timeline import Timeline
from tests.virtual_time import run

SMALL = CompactionTuning(keep_turns=2, summary_tokens=200, timeout_s=5.0)

FACTS = find_language("en").facts
folded = partial(fold_state, facts=FACTS)
viewed = partial(prompt_view, facts=FACTS)
compacting = partial(Compactor, facts=FACTS)


def talk(turns: int) -> Timeline:
    line = Timeline()
    for number in range(turns):
        line.said(f"What does wire number {number} cost?")
        line.replied(f"It costs {number} dollars.")
    return line


def compactor(*script: Step, budget_tokens: int = 150) -> tuple[Compactor, ScriptedLanguageModel]:
    model = ScriptedLanguageModel(script)

    async def ask(instruction: str, text: str) -> str:
        messages = [Message("system", instruction), Message("user", text)]
        return "".join([piece async for piece in model.reply(messages)])

    return compacting(SMALL, LlmSummarizer(ask), budget_tokens=budget_tokens), model


def summarised(maker: Compactor, line: Timeline) -> Draft | None:
    async def scenario() -> Draft | None:
        return await maker.summary(line.visible(), LoopClock())

    return run(scenario())


def due(maker: Compactor, line: Timeline) -> Draft:
    draft = summarised(maker, line)
    assert draft is not None
    return draft


def test_a_short_conversation_needs_no_summary() -> None:
    assert summarised(compacting(SMALL, budget_tokens=10_000), talk(20)) is None


@pytest.mark.parametrize("chosen", [None, ExtractiveSummarizer()])
def test_without_a_model_it_is_an_extract(chosen: ExtractiveSummarizer | None) -> None:
    assert due(compacting(SMALL, chosen, budget_tokens=150), talk(5)).payload["by"] == "extract"


def test_the_newest_turns_stay_as_they_are() -> None:
    line = talk(5)
    draft = due(compacting(SMALL, budget_tokens=150), line)
    assert (draft.kind, draft.payload["until_seq"], draft.key) == (Kind.SUMMARY, 6, "summary.6")
    line.commit(draft)
    shown = "\n".join(str(m["content"]) for m in viewed(line.visible(), budget_tokens=1_000).messages)
    assert "What does wire number 3 cost?" in shown and "It costs 4 dollars." in shown


def test_long_turns_are_summarised_although_they_are_new_but_for_the_last() -> None:
    line = Timeline()
    for _ in range(3):
        line.said("x" * 400)
    assert due(compacting(SMALL, budget_tokens=300), line).payload["until_seq"] == 2


def test_a_long_summary_makes_the_next_one_due_earlier() -> None:
    maker = compacting(SMALL, budget_tokens=1_000)
    line = talk(22)
    assert maker.due_until(line.events) is None
    line.summary("", 2)
    assert maker.due_until(line.visible()) is None
    # The view would be longer than its budget before the turns alone fill two thirds of it.
    line.summary("They talked about wires. " * 60, 2)
    assert maker.due_until(line.visible()) is not None
    # Half of the budget is for turns, however long it is.
    shorter = talk(18)
    shorter.summary("They talked about wires. " * 60, 2)
    assert maker.due_until(shorter.visible()) is None


def test_the_whole_log_stays() -> None:
    line = talk(5)
    before = list(line.events)
    line.commit(due(compacting(SMALL, budget_tokens=150), line))
    assert line.events[:-1] == before


def test_the_language_model_writes_the_summary_from_all_that_is_covered() -> None:
    line = talk(5)
    maker, model = compactor("They talked ", "about wires.")
    draft = due(maker, line)
    assert (draft.payload["text"], draft.payload["by"]) == ("They talked about wires.", "summarizer")
    [system, user] = model.asked[0]
    assert "Invent nothing" in system.text
    assert "Person: What does wire number 2 cost?" in user.text
    assert "wire number 3" not in user.text


def test_a_summary_does_not_call_a_picture_unseen() -> None:
    line = Timeline()
    line.said("What is this?", pictures=[{"key": f"picture.{0:064x}", "width": 4, "height": 3, "number": 0}])
    line.replied("A red lamp.")
    for number in range(5):
        line.said(f"What does wire number {number} cost?")
        line.replied(f"It costs {number} dollars.")
    maker, model = compactor("They talked about wires.")
    due(maker, line)
    asked = model.asked[0][1].text
    assert f"Person: {NO_LONGER_SHOWN} What is this?" in asked and UNSEEN not in asked


@pytest.mark.parametrize(
    "script",
    [(HANG,), ("Half a ", 60.0), (EngineError("down", engine="x"),), ("   ",)],
    ids=["silent", "slow", "failed", "empty"],
)
def test_a_model_that_gives_no_summary_is_replaced_by_an_extract(script: Any) -> None:
    maker, model = compactor(*script)
    draft = due(maker, talk(5))
    assert draft.payload["by"] == "extract"
    assert "What does wire number 2 cost?" in draft.payload["text"]
    assert model.closed == 1


def test_a_slow_model_is_given_its_time_and_no_more() -> None:
    maker, _ = compactor(HANG)

    async def scenario() -> float:
        before_s = asyncio.get_running_loop().time()
        await maker.summary(talk(5).events, LoopClock())
        return asyncio.get_running_loop().time() - before_s

    assert run(scenario()) == pytest.approx(SMALL.timeout_s)


async def test_the_loop_goes_on_while_a_long_conversation_is_summarised() -> None:
    maker = compacting(SMALL, budget_tokens=150)
    making = asyncio.create_task(maker.summary(talk(500).events, LoopClock()))
    turns_of_the_loop = 0
    while not making.done():
        await asyncio.sleep(0)
        turns_of_the_loop += 1
    assert (await making) is not None
    # One turn for each of its usual waits would be three.
    assert turns_of_the_loop > 20


def test_a_cancelled_summary_is_cancelled() -> None:
    maker, model = compactor(HANG)

    async def scenario() -> None:
        task = asyncio.create_task(maker.summary(talk(5).events, LoopClock()))
        await asyncio.sleep(1)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    run(scenario())
    assert model.closed == 1


def test_a_model_that_writes_too_much_is_cut_at_a_sentence() -> None:
    maker, _ = compactor("A sentence of six words here. " * 200)
    text = due(maker, talk(5)).payload["text"]
    assert approximate_tokens(text) <= SMALL.summary_tokens and text.endswith("here.")


def test_the_next_summary_takes_the_one_before_it_in() -> None:
    line = talk(5)
    maker, model = compactor("First summary.")
    line.commit(due(maker, line))
    for number in range(5, 9):
        line.said(f"What does wire number {number} cost?")
        line.replied(f"It costs {number} dollars.")
    draft = due(maker, line)
    asked = model.asked[1][1].text
    assert "Earlier summary:\nFirst summary." in asked
    assert "wire number 2" not in asked and "wire number 3" in asked
    assert draft.payload["until_seq"] > 11


def test_an_extract_keeps_lines_of_the_extract_before_it() -> None:
    line = Timeline()
    line.said("My order number is AB1234, please.")
    line.replied("Thank you.")
    maker = compacting(SMALL, budget_tokens=150)
    for round_ in range(3):
        for number in range(4):
            line.said(f"Is it warm in room {round_} {number}?")
            line.replied("Yes.")
        line.commit(due(maker, line))
    assert "AB1234" in line.events[-1].payload["text"]


def test_facts_survive_any_number_of_summaries_word_for_word() -> None:
    line = Timeline()
    line.said("My name is Ada and my account number is four one seven two.")
    line.replied("Thank you.")
    line.said("I'm calling about a lost card.")
    maker, _ = compactor("Nothing of interest.")
    for _ in range(4):
        for number in range(6):
            line.said(f"Is it warm in room {number}?")
            line.replied("Yes.")
        line.commit(due(maker, line))
    state = folded(line.visible())
    assert state.values == {"name": "Ada", "account number": "4172"}
    assert state.slots["account number"] == FactSlot("4172", 1)
    assert state.intent == "a lost card"
    view = viewed(line.visible(), budget_tokens=1_000)
    notes, _ = parse_notes(view.messages[0]["content"])
    assert dict(notes.facts) == state.values


def test_a_call_without_a_result_is_never_covered() -> None:
    line = talk(2)
    line.called("c1")
    for number in range(5):
        line.said(f"What does wire number {number} cost?")
    assert covered_until(turns_of(line.events), keep_turns=2) == 2
    line.answered("c1", "done")
    # The result came after the kept part: covering the call would leave the result alone.
    assert covered_until(turns_of(line.events), keep_turns=2) == 2


def test_a_late_event_is_not_torn_from_its_turn() -> None:
    line = Timeline()
    line.said("One?", at_us=10)
    line.said("Two?", at_us=30)
    line.said("Three?", at_us=50)
    line.replied("First.", at_us=20)
    assert covered_until(turns_of(line.events), keep_turns=1) is None


def request(*lines: SummaryLine, previous: str = "", max_tokens: int = 100, **slots: str) -> SummaryRequest:
    state = SessionState(slots={name: FactSlot(value, 1) for name, value in slots.items()})
    return SummaryRequest(lines, previous, state, max_tokens)


def test_an_extract_prefers_what_people_come_back_to() -> None:
    text = ExtractiveSummarizer().extract(
        request(
            SummaryLine("person", "Well, I was just wondering about this and that."),
            SummaryLine("assistant", "I see."),
            SummaryLine("person", "My account number is 4172."),
            SummaryLine("assistant", "Thank you."),
            SummaryLine("person", "Okay."),
            SummaryLine("person", "What does a wire cost?"),
            SummaryLine("assistant", "A wire costs twenty dollars."),
            max_tokens=70,
        )
    )
    assert text.splitlines() == [
        'The person said: "My account number is 4172."',
        'The person asked: "What does a wire cost?" The assistant answered: "A wire costs twenty dollars."',
    ]


def test_an_answer_that_was_cut_off_is_told_as_one() -> None:
    heard = 'At nine [interrupted by the person here, who did not hear: "sharp"]'
    text = ExtractiveSummarizer().extract(
        request(SummaryLine("person", "When?"), SummaryLine("assistant", heard))
    )
    assert text == 'The person asked: "When?" The assistant answered: "At nine (cut off)"'


def test_what_tools_did_is_kept() -> None:
    text = ExtractiveSummarizer().extract(
        request(SummaryLine("tool", 'order({"item": "tea"}) -> {"number": 7}'))
    )
    assert "tea" in text and "7" in text


def test_a_paragraph_that_a_model_wrote_is_taken_in_sentence_by_sentence() -> None:
    paragraph = "The person is Ada. " + "They talked about rain at length. " * 40
    text = ExtractiveSummarizer().extract(request(previous=paragraph, max_tokens=30, name="Ada"))
    assert "The person is Ada." in text


@settings(max_examples=100, deadline=None)
@given(
    st.lists(st.tuples(st.sampled_from(["person", "assistant", "tool"]), st.text(max_size=300)), max_size=20),
    st.text(max_size=600),
    st.integers(50, 400),
)
def test_an_extract_is_never_too_long_and_always_the_same(
    said: list[tuple[Any, str]], previous: str, max_tokens: int
) -> None:
    asked = request(*(SummaryLine(who, text) for who, text in said), previous=previous, max_tokens=max_tokens)
    text = ExtractiveSummarizer().extract(asked)
    assert approximate_tokens(text) <= max_tokens
    assert ExtractiveSummarizer().extract(asked) == text


def test_a_transcript_names_who_said_what_and_what_is_known() -> None:
    asked = request(
        SummaryLine("person", "Hi."), SummaryLine("assistant", "Hello."), previous="They met.", name="Ada"
    )
    assert transcript(asked) == (
        "Earlier summary:\nThey met.\n\nKnown about the person:\nname: Ada\n\n"
        "Transcript:\nPerson: Hi.\nAssistant: Hello."
    )


# Texts that do not fit anywhere


def extract(text: str, max_tokens: int = 50) -> str:
    return ExtractiveSummarizer().extract(request(SummaryLine("person", text), max_tokens=max_tokens))


def test_of_a_sentence_that_is_too_long_the_beginning_is_kept_up_to_a_word() -> None:
    words = "My card was stolen on the 14th of November between Frankfurt and Wiesbaden by somebody".split()
    text = extract(" ".join(words * 9))
    assert text.endswith(" ...")
    assert approximate_tokens(text) <= 50
    kept = text.removeprefix('The person said: "').removesuffix(" ...").split()
    assert kept == (words * 9)[: len(kept)]
    # As much as there is room for.
    assert approximate_tokens(text) >= 45


def test_of_several_that_are_too_long_it_is_the_one_that_says_most() -> None:
    dull = "well as I was saying to somebody or other about this and that and so on and so forth " * 3
    telling = (
        "The contract that I signed has the number 4172 and was made in Wiesbaden with Mister Meier " * 3
    )
    text = ExtractiveSummarizer().extract(
        request(
            SummaryLine("person", dull),
            SummaryLine("person", telling),
            SummaryLine("person", dull),
            max_tokens=50,
        )
    )
    assert "The contract that I signed" in text
    assert text.endswith(" ...")


@pytest.mark.parametrize(
    "sentence",
    [
        "我的账号是四一七二，我昨天在法兰克福的火车站丢了我的银行卡，",
        "わたしのくちざばんごうは4172です、きのうカードをなくしました、",
        "หมายเลขบัญชีของฉันคือ4172และเมื่อวานนี้ฉันทำบัตรหาย",
    ],
    ids=["chinese", "japanese", "thai"],
)
@pytest.mark.parametrize("times", [1, 40])
def test_scripts_without_spaces_are_kept_and_cut_between_characters(sentence: str, times: int) -> None:
    text = extract(sentence * times, max_tokens=80)
    assert approximate_tokens(text) <= 80
    kept = text.removeprefix('The person said: "').removesuffix(" ...").removesuffix('"')
    assert len(kept) >= 15
    assert (sentence * times).startswith(kept)
    assert text.endswith(" ...") == (times > 1)
    # No combining mark is left without its character.
    behind = (sentence * times)[len(kept) : len(kept) + 1]
    assert not behind or not unicodedata.combining(behind)


def test_a_word_without_end_is_cut_inside() -> None:
    text = extract("This is the link 4172 " + "x" * 5_000)
    assert 'said: "This is the link 4172 xxx' in text
    assert text.endswith("x ...")
    assert approximate_tokens(text) <= 50


def test_a_summary_of_a_model_that_never_ends_a_sentence_is_cut_at_a_word() -> None:
    maker, _ = compactor("and then they talked about it " * 200)
    text = due(maker, talk(5)).payload["text"]
    assert approximate_tokens(text) <= SMALL.summary_tokens
    assert text.removesuffix(" ...").split()[-1] in "and then they talked about it".split()


def test_a_summary_leaves_most_of_a_small_context_to_the_turns() -> None:
    def length(budget_tokens: int) -> int:
        line = Timeline()
        for day in range(20):
            line.said(" ".join(f"On day {day} I asked clerk {clerk} about fees." for clerk in range(40)))
            line.replied("All right.")
        maker = Compactor(CompactionTuning(), budget_tokens=budget_tokens)
        return approximate_tokens(due(maker, line).payload["text"])

    assert length(400) <= 100 < length(6_000) <= 500


@pytest.mark.parametrize("filler", ["so I went on and on about it ", "我去了火车站然后又回来了"])
def test_facts_and_intent_survive_when_no_sentence_fits(filler: str) -> None:
    line = Timeline()
    line.said("My name is Ada. " + filler * 200)
    line.said("I'm calling about a lost card.")
    line.state(slots={"tier": "gold"})
    for _ in range(3):
        line.said(filler * 200)
        line.replied(filler * 200)
    chosen = CompactionTuning(keep_turns=1, summary_tokens=50)
    draft = due(compacting(chosen, budget_tokens=300), line)
    assert draft.payload["text"]
    assert approximate_tokens(draft.payload["text"]) <= 50
    line.commit(draft)
    state = folded(line.visible())
    assert (state.values, state.intent) == ({"name": "Ada", "tier": "gold"}, "a lost card")


@settings(max_examples=100, deadline=None)
@given(st.text(min_size=1, max_size=2_000), st.integers(50, 120))
def test_what_the_person_said_with_a_number_in_it_is_never_left_without_a_word(
    text: str, max_tokens: int
) -> None:
    kept = extract(f"Number 4172 {text} {text}", max_tokens=max_tokens)
    assert "4172" in kept
    assert approximate_tokens(kept) <= max_tokens
