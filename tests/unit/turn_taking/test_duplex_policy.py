"""The vote of a tick."""

from collections.abc import Callable

import pytest

from parley.turn_taking.duplex_policy import (
    Act,
    Ask,
    CloseTurn,
    ContinueReply,
    DiscardWords,
    DuplexPolicy,
    EmitBackchannel,
    Guess,
    Open,
    Volume,
    Yield,
)

TICK_MS = 80


class Talk:
    """A caller and a bot on a time line, and a policy that is called every 80 ms."""

    def __init__(self) -> None:
        self.policy = DuplexPolicy()
        self._events: list[tuple[int, Callable[[int], None]]] = []
        self.acts: list[tuple[int, Act]] = []

    def at(self, at_ms: int, event: Callable[[int], None]) -> None:
        self._events.append((at_ms, event))

    def voice(
        self,
        at_ms: int,
        length_ms: int,
        *,
        text: str = "",
        confidence: float = 0.9,
        completeness: float = 0.9,
    ) -> None:
        policy, end_ms = self.policy, at_ms + length_ms
        confidences = (confidence,) * len(text.split())
        self.at(at_ms + 32, policy.on_onset)
        self.at(at_ms + 128, lambda now: policy.on_voice_started(now, voiced_ms=128))
        self.at(end_ms + 96, policy.on_pause)
        self.at(end_ms + 128, lambda now: policy.on_voice_stopped(now, silence_ms=128))
        self.at(end_ms + 140, lambda _now: policy.on_completeness(completeness))
        if text:
            self.at(end_ms + 60, lambda now: policy.on_partial(now, text, confidences=(0.0,)))
            self.at(end_ms + 160, lambda now: policy.on_final(now, text, confidences=confidences))

    def bot(self, at_ms: int, length_ms: int, text: str) -> None:
        policy = self.policy
        self.at(at_ms - 100, policy.on_reply_coming)
        self.at(at_ms - 50, lambda _now: policy.on_saying(text))
        self.at(at_ms, policy.on_bot_started)
        self.at(at_ms + length_ms, lambda now: policy.on_bot_stopped(now, text))

    def run(self, until_ms: int) -> list[tuple[int, Act]]:
        events = sorted(self._events, key=lambda event: event[0])
        for tick_ms in range(0, until_ms, TICK_MS):
            while events and events[0][0] <= tick_ms:
                at_ms, event = events.pop(0)
                event(at_ms)
            self.acts += [(tick_ms, act) for act in self.policy.on_tick(tick_ms)]
        return self.acts

    def of(self, kind: type) -> list[Act]:
        return [act for _, act in self.acts if isinstance(act, kind)]


def test_a_question_is_guessed_before_it_is_over_and_asked_when_it_is() -> None:
    talk = Talk()
    talk.voice(1_000, 1_500, text="what are your hours")
    acts = talk.run(6_000)
    [(asked_ms, ask)] = [(at_ms, act) for at_ms, act in acts if isinstance(act, Ask)]
    assert ask.text == "what are your hours" and asked_ms - 2_500 <= 320
    [guess, *_] = [at_ms for at_ms, act in acts if isinstance(act, Guess)]
    assert guess < asked_ms
    assert talk.policy.may_speak


def test_a_pause_after_an_unfinished_clause_ends_nothing() -> None:
    talk = Talk()
    talk.voice(1_000, 1_500, text="i would like to go to the", completeness=0.05)
    talk.voice(2_900, 800, text="branch in town", completeness=0.95)
    talk.run(8_000)
    assert [ask.text for ask in talk.of(Ask)] == ["i would like to go to the branch in town"]


def test_a_caller_who_goes_on_takes_the_guess_back() -> None:
    talk = Talk()
    talk.voice(1_000, 1_500, text="send it", completeness=0.3)
    talk.voice(2_800, 800, text="to bob")
    acts = talk.run(8_000)
    guesses = [act.text for _, act in acts if isinstance(act, Guess)]
    assert guesses[0] == "send it" and None in guesses and guesses[-1] == "send it to bob"


def test_an_interruption_ducks_then_yields_and_its_words_are_asked() -> None:
    talk = Talk()
    talk.bot(1_000, 10_000, "We are open from nine to five on weekdays.")
    talk.voice(3_000, 1_800, text="and on saturday please")
    talk.run(9_000)
    assert [type(act) for _, act in talk.acts if not isinstance(act, Guess)] == [
        Volume, Yield, Volume, Open, Ask,
    ]  # fmt: skip
    [yielded_ms] = [at_ms for at_ms, act in talk.acts if isinstance(act, Yield)]
    assert 3_500 <= yielded_ms <= 3_900
    assert [ask.text for ask in talk.of(Ask)] == ["and on saturday please"]


@pytest.mark.parametrize("text", ["mhm", "yeah", ""])
def test_a_listener_changes_the_volume_and_nothing_else(text: str) -> None:
    talk = Talk()
    talk.bot(1_000, 6_000, "We are open from nine to five on weekdays.")
    talk.voice(3_000, 350, text=text)
    talk.run(10_000)
    acts = [act for _, act in talk.acts if not isinstance(act, Guess | DiscardWords)]
    assert acts == [Volume(-12.0), Volume(0.0)]
    assert talk.policy.may_speak


def test_a_cough_that_cut_has_the_rest_said() -> None:
    talk = Talk()
    talk.bot(1_000, 10_000, "We are open from nine to five on weekdays.")
    talk.at(2_900, lambda _now: talk.policy.on_heard(4))
    talk.voice(3_000, 900)
    talk.run(12_000)
    assert talk.of(Yield) and talk.of(ContinueReply) == [ContinueReply(5)] and not talk.of(Ask)
    assert talk.policy.may_speak


def test_a_caller_who_tells_at_length_is_hummed_to() -> None:
    talk = Talk()
    talk.voice(1_000, 5_000, text="so i went to the bank and the man said", completeness=0.1)
    talk.voice(6_450, 3_000, text="that it was closed", completeness=0.95)
    talk.run(14_000)
    assert len(talk.of(EmitBackchannel)) == 1 and len(talk.of(Ask)) == 1


def test_a_sound_without_words_asks_nothing() -> None:
    talk = Talk()
    talk.voice(1_000, 300)
    talk.run(8_000)
    assert not talk.of(Ask) and talk.policy.may_speak


def test_yes_after_a_question_is_an_answer() -> None:
    talk = Talk()
    talk.bot(1_000, 2_000, "Do you want to hear more?")
    talk.voice(3_600, 300, text="yes")
    talk.run(8_000)
    assert [ask.text for ask in talk.of(Ask)] == ["yes"]


def test_who_goes_on_over_the_first_words_of_an_answer_gets_the_floor_back_at_once() -> None:
    talk = Talk()
    talk.bot(1_000, 10_000, "We are open from nine to five on weekdays.")
    talk.voice(1_300, 900, text="and the other thing is")
    talk.run(6_000)
    [cut_ms] = [at_ms for at_ms, act in talk.acts if isinstance(act, Yield)]
    # A voice in the middle of an answer is weighed for 700 ms.
    assert cut_ms - 1_300 <= 420


def test_after_an_answer_that_came_too_early_the_next_one_waits() -> None:
    talk = Talk()
    talk.bot(1_000, 10_000, "We are open from nine to five on weekdays.")
    talk.voice(1_300, 900, text="what are your hours")
    talk.run(8_000)
    [asked_ms] = [at_ms for at_ms, act in talk.acts if isinstance(act, Ask)]
    assert 2_200 + 2_000 <= asked_ms <= 2_200 + 2_000 + 2 * TICK_MS
    # The next turn is as any other.
    later = Talk()
    later.policy = talk.policy
    talk.acts, talk._events = [], []
    talk.policy.on_bot_stopped(8_000, "")
    talk.voice(9_000, 1_000, text="what are your hours")
    events = sorted(talk._events, key=lambda event: event[0])
    for tick_ms in range(8_000, 14_000, TICK_MS):
        while events and events[0][0] <= tick_ms:
            at_ms, event = events.pop(0)
            event(at_ms)
        talk.acts += [(tick_ms, act) for act in talk.policy.on_tick(tick_ms)]
    [asked_ms] = [at_ms for at_ms, act in talk.acts if isinstance(act, Ask)]
    assert asked_ms <= 10_000 + 500


def test_who_tells_something_is_waited_for_longer_than_who_asks() -> None:
    waits = {}
    for text in ("what are your opening hours", "we went down to the market"):
        talk = Talk()
        talk.voice(1_000, 1_500, text=text)
        talk.run(7_000)
        [waits[text]] = [at_ms - 2_500 for at_ms, act in talk.acts if isinstance(act, Ask)]
    asked_ms, told_ms = waits.values()
    assert asked_ms <= 400 and 1_200 <= told_ms <= 1_200 + 2 * TICK_MS


def test_a_turn_that_someone_ends_is_over_with_the_next_tick() -> None:
    talk = Talk()
    talk.at(1_000, lambda now: talk.policy.on_voice_started(now, voiced_ms=128))
    talk.at(3_000, lambda _now: talk.policy.end_turn())
    talk.run(4_000)
    [closed_ms] = [at_ms for at_ms, act in talk.acts if isinstance(act, CloseTurn)]
    assert 3_000 <= closed_ms <= 3_000 + TICK_MS


def test_words_that_are_hardly_understood_over_the_bot_begin_no_turn() -> None:
    talk = Talk()
    talk.bot(1_000, 8_000, "We are open from nine to five on weekdays.")
    talk.voice(3_000, 650, text="what is it", confidence=0.1)
    talk.run(7_000)
    assert not talk.of(Open) and not talk.of(Ask) and not talk.of(Yield)


def test_a_protected_reply_is_still_protected_when_it_sounds() -> None:
    talk = Talk()
    talk.at(900, lambda now: talk.policy.on_reply_coming(now, protected=True))
    talk.at(1_000, talk.policy.on_bot_started)
    talk.voice(3_000, 1_500)
    talk.run(6_000)
    assert not talk.of(Yield)


def test_the_end_of_one_reply_is_not_that_of_the_next() -> None:
    talk = Talk()
    policy = talk.policy
    talk.at(1_000, lambda now: policy.on_reply_coming(now, reply_id="a"))
    talk.at(1_010, policy.on_bot_started)
    talk.at(3_000, lambda now: policy.on_reply_coming(now, reply_id="b"))
    talk.at(3_010, lambda now: policy.on_bot_stopped(now, "one", reply_id="a"))
    talk.at(3_020, policy.on_bot_started)
    talk.at(6_000, lambda now: policy.on_bot_stopped(now, "two", reply_id="b"))
    talk.voice(7_000, 800, text="yes")
    talk.run(12_000)
    assert [ask.text for ask in talk.of(Ask)] == ["yes"]


def test_who_interrupts_is_not_waited_for_as_who_tells_something_is() -> None:
    talk = Talk()
    talk.bot(1_000, 8_000, "We are open from nine to five on weekdays.")
    talk.voice(4_000, 1_800, text="i meant the business account", completeness=0.05)
    talk.run(9_000)
    [asked_ms] = [at_ms for at_ms, act in talk.acts if isinstance(act, Ask)]
    assert asked_ms - 5_800 <= 640 + 2 * TICK_MS
