import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from parley.language.english.intents import asks_for_a_moment, ends_in_farewell, says_goodbye
from parley.turn_taking.idle import (
    IGNORED,
    TRANSITIONS,
    Decision,
    Goodbye,
    HangUp,
    IdleAct,
    IdleEvent,
    IdleState,
    IdleTuning,
    IdleWatch,
    Prompt,
    TurnLimit,
)

CHOSEN = IdleTuning()
SPEECH_MS = 1_500


class Line:
    """A call in which the bot speaks the texts of its decisions, for 1.5 s each time."""

    def __init__(self, settings: IdleTuning | None = None) -> None:
        self.watch = IdleWatch(settings)
        self.decisions: list[Decision] = []
        self.now_ms = 0

    def run(self, until_ms: int) -> "Line":
        for _ in range(1_000):
            due_ms = self.watch.next_deadline_ms()
            if due_ms is None or due_ms > until_ms:
                self.now_ms = max(self.now_ms, until_ms)
                return self
            self.now_ms = max(self.now_ms, due_ms)
            decision = self.watch.on_deadline(self.now_ms)
            if decision is not None:
                self.decisions.append(decision)
            if isinstance(decision, (Prompt, Goodbye)):
                self.bot(decision.text)
        raise AssertionError("deadlines without end")

    def bot(self, text: str) -> None:
        self.watch.on_bot_started(self.now_ms + 100)
        self.now_ms += 100 + SPEECH_MS
        self.watch.on_bot_stopped(self.now_ms, text)

    def caller(self, text: str, length_ms: int = 1_000) -> None:
        self.watch.on_voice_started(self.now_ms)
        self.run(self.now_ms + length_ms)
        self.watch.on_voice_stopped(self.now_ms)
        self.run(self.now_ms + 500)
        self.watch.on_turn_ended(self.now_ms, text)

    def asks(self, text: str, answer: str = "The answer is yes.") -> None:
        self.caller(text)
        self.bot(answer)


def test_every_pair_of_state_and_event_has_one_meaning():
    for state in IdleState:
        for event in IdleEvent:
            assert ((state, event) in TRANSITIONS) != (event in IGNORED[state]), (state, event)


def test_only_a_closed_call_is_never_left():
    assert {state for state, _ in TRANSITIONS} == set(IdleState) - {IdleState.ENDED}
    assert all((to is IdleState.ENDED) == (act is IdleAct.HANG_UP) for to, act in TRANSITIONS.values())


def test_a_caller_who_says_nothing_is_prompted_then_let_go():
    line = Line().run(300_000)
    kinds = [type(decision) for decision in line.decisions]
    assert kinds == [Prompt, Prompt, Prompt, Goodbye, HangUp]
    waits_ms = [7_000, 10_500, 15_750, 20_000]
    at_ms, expected = 0, []
    for wait_ms in waits_ms:
        expected.append(at_ms + wait_ms)
        at_ms += wait_ms + 100 + SPEECH_MS
    assert [decision.at_ms for decision in line.decisions[:-1]] == expected
    assert line.decisions[-1].at_ms == at_ms + CHOSEN.hang_up_ms
    assert line.watch.state is IdleState.ENDED


def test_no_prompt_repeats_the_one_before():
    prompts = [decision for decision in Line().run(300_000).decisions if isinstance(decision, Prompt)]
    assert [prompt.number for prompt in prompts] == [1, 2, 3]
    assert [prompt.text for prompt in prompts] == list(CHOSEN.prompts)


def test_a_caller_who_only_coughs_is_treated_like_one_who_says_nothing():
    line = Line()
    for _ in range(60):
        line.run(line.now_ms + 2_500)
        if line.watch.state is IdleState.ENDED:
            break
        line.caller("", 300)
    kinds = [type(decision) for decision in line.decisions]
    assert kinds == [Prompt, Prompt, Prompt, Goodbye, HangUp]


def test_no_prompt_comes_into_a_voice_or_right_after_it():
    line = Line()
    line.run(6_900)
    line.caller("", 5_000)
    assert line.decisions == []
    line.run(11_900 + CHOSEN.hold_ms)
    assert [decision.at_ms for decision in line.decisions] == [11_900 + CHOSEN.hold_ms]


def test_words_begin_the_count_anew():
    line = Line().run(20_000)
    assert line.watch.prompts == 2
    line.asks("what are your opening hours")
    assert line.watch.prompts == 0
    answered_ms = line.now_ms
    line.run(answered_ms + 8_000)
    assert line.decisions[-1] == Prompt(answered_ms + CHOSEN.prompt_after_ms, 1, CHOSEN.prompts[0])


def test_silence_counts_from_the_end_of_what_the_bot_says():
    line = Line()
    line.caller("tell me everything")
    line.watch.on_bot_started(line.now_ms)
    line.run(line.now_ms + 60_000)
    assert line.decisions == []
    line.watch.on_bot_stopped(line.now_ms, "That is all there is.")
    stopped_ms = line.now_ms
    line.run(stopped_ms + 7_500)
    assert [decision.at_ms for decision in line.decisions] == [stopped_ms + CHOSEN.prompt_after_ms]


def test_a_model_that_says_nothing_does_not_hold_the_silence():
    line = Line()
    line.caller("what are your opening hours")
    asked_ms = line.now_ms
    line.run(asked_ms + CHOSEN.bot_longest_ms + CHOSEN.prompt_after_ms)
    assert [type(decision) for decision in line.decisions] == [Prompt]


@pytest.mark.parametrize(
    "text", ["one moment please", "hold on", "uh just a second", "let me look", "okay wait"]
)
def test_a_caller_who_asks_for_a_moment_gets_it(text: str):
    line = Line()
    line.asks(text, "Take your time.")
    answered_ms = line.now_ms
    assert line.watch.state is IdleState.PATIENT
    line.run(answered_ms + CHOSEN.patience_ms + 13_000)
    first, second = line.decisions
    assert first.at_ms == answered_ms + CHOSEN.patience_ms
    # The wait is extended once.
    assert second.at_ms == first.at_ms + 100 + SPEECH_MS + 10_500


def test_goodbye_of_the_caller_closes_the_call():
    line = Line()
    line.asks("okay thank you bye", "You are welcome.")
    answered_ms = line.now_ms
    line.run(answered_ms + 60_000)
    assert line.decisions == [HangUp(answered_ms + CHOSEN.hang_up_ms)]


def test_goodbye_of_the_bot_closes_the_call():
    line = Line()
    line.asks("what are your opening hours", "From nine to five. Bye!")
    answered_ms = line.now_ms
    line.run(answered_ms + 60_000)
    assert line.decisions == [HangUp(answered_ms + CHOSEN.hang_up_ms)]


def test_a_caller_who_speaks_after_the_goodbye_keeps_the_call():
    line = Line()
    line.asks("goodbye", "Goodbye!")
    line.run(line.now_ms + 500)
    line.asks("oh wait what about the fees", "There are none.")
    line.run(line.now_ms + 5_000)
    assert line.decisions == []
    assert line.watch.state is IdleState.WAITING


def test_a_cough_after_the_goodbye_does_not_keep_it():
    line = Line()
    line.asks("goodbye", "Goodbye!")
    line.run(line.now_ms + 500)
    line.caller("", 300)
    line.run(line.now_ms + 60_000)
    assert [type(decision) for decision in line.decisions] == [HangUp]


def test_a_goodbye_that_is_never_spoken_closes_the_call_too():
    watch = IdleWatch(IdleTuning(prompts=("Hello?",)))
    decisions = []
    while (due_ms := watch.next_deadline_ms()) is not None:
        decisions.append(watch.on_deadline(due_ms))
    kinds = [type(decision) for decision in decisions if decision is not None]
    assert kinds == [Prompt, Goodbye, HangUp]


def test_farewells_can_be_left_to_the_caller():
    line = Line(IdleTuning(hang_up_on_farewell=False))
    line.asks("goodbye", "Goodbye!")
    line.run(line.now_ms + 6_000)
    assert line.decisions == []


def test_a_voice_that_never_ends_is_reported_again_and_again():
    line = Line()
    line.watch.on_voice_started(1_000)
    line.run(400_000)
    limit_ms = CHOSEN.turn_limit_ms
    assert line.decisions == [TurnLimit(1_000 + limit_ms * number, limit_ms) for number in (1, 2, 3)]


@pytest.mark.parametrize(
    "text",
    ["bye", "Okay, goodbye.", "thanks that's all", "see you later", "that is all thank you", "bye then"],
)
def test_farewells(text: str):
    assert ends_in_farewell(text)


@pytest.mark.parametrize(
    "text",
    ["", "how do i ever say my bank and i are done goodbye", "is that all i owe", "thank you", "by the way"],
)
def test_no_farewells(text: str):
    assert not ends_in_farewell(text)


def test_a_long_text_of_the_bot_may_end_in_goodbye():
    assert says_goodbye("Everything is arranged, the card is on its way to you. Goodbye!")
    assert not says_goodbye("Say goodbye to fees.")


def test_a_question_about_waiting_asks_for_no_moment():
    assert not asks_for_a_moment("how long do i have to wait")
    assert not asks_for_a_moment("")


STEPS = st.one_of(
    st.tuples(st.just("voice"), st.just("")),
    st.tuples(st.just("quiet"), st.just("")),
    st.tuples(st.just("turn"), st.sampled_from(("", "bye", "one moment", "what are the fees"))),
    st.tuples(st.just("speaks"), st.just("")),
    st.tuples(st.just("done"), st.sampled_from(("", "It is free.", "Goodbye!"))),
)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 30_000), STEPS), max_size=40))
def test_whatever_happens_a_call_without_anybody_ends(steps: list):
    watch = IdleWatch()
    at_ms, hung_up = 0, 0

    def keep_deadlines(until_ms: int) -> None:
        nonlocal hung_up
        for _ in range(1_000):
            due_ms = watch.next_deadline_ms()
            assert (due_ms is None) == (watch.state is IdleState.ENDED)
            if due_ms is None or due_ms > until_ms:
                return
            hung_up += isinstance(watch.on_deadline(due_ms), HangUp)
        raise AssertionError("deadlines without end")

    for wait_ms, (name, text) in steps:
        keep_deadlines(at_ms + wait_ms)
        at_ms += wait_ms
        if name == "voice":
            watch.on_voice_started(at_ms)
        elif name == "quiet":
            watch.on_voice_stopped(at_ms)
        elif name == "turn":
            watch.on_turn_ended(at_ms, text)
        elif name == "speaks":
            watch.on_bot_started(at_ms)
        else:
            watch.on_bot_stopped(at_ms, text)
    watch.on_voice_stopped(at_ms)
    keep_deadlines(at_ms + 1_000_000)
    assert watch.state is IdleState.ENDED
    assert hung_up == 1
