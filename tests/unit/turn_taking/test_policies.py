"""The three policies through their one interface."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.turn_taking.endpointing.endpointer import Endpointer, EndpointPolicy, EndpointTuning
from parley.turn_taking.endpointing.policies import (
    LOOKS_MS,
    PredictivePolicy,
    SilenceTimer,
    endpoint_policy,
    price_of,
)

KINDS = ("timer", "adaptive", "predictive")


def turn(
    policy: EndpointPolicy,
    text: str = "what are your hours",
    completeness: float | None = 0.9,
    *,
    at_ms: int = 0,
    speech_ms: int = 800,
) -> int:
    """Run a voice from ``at_ms`` on, then silence, with words and score; return the end of the voice."""
    policy.on_maybe_voice(at_ms)
    policy.on_voice_started(at_ms + 96)
    since_ms = at_ms + speech_ms
    policy.on_voice_stopped(since_ms + 160, silence_ms=160)
    if completeness is not None:
        policy.on_completeness(completeness)
    if text:
        policy.on_transcript(since_ms + 180, text)
    return since_ms


def wait_ms(policy: EndpointPolicy, since_ms: int) -> int:
    deadline_ms = policy.next_deadline_ms()
    assert deadline_ms is not None
    return deadline_ms - since_ms


@pytest.mark.parametrize(
    ("kind", "policy"),
    [
        ("timer", SilenceTimer),
        ("adaptive", Endpointer),
        ("predictive", PredictivePolicy),
    ],
)
def test_the_configuration_chooses(kind: str, policy: type):
    assert type(endpoint_policy(EndpointTuning.model_validate({"kind": kind}))) is policy


def test_the_default_is_predictive():
    assert type(endpoint_policy(EndpointTuning())) is PredictivePolicy


def test_the_adaptive_wait_learns_nothing_by_default():
    policy = endpoint_policy(EndpointTuning(kind="adaptive"))
    assert wait_ms(policy, turn(policy)) == 190
    for call_ms in range(10_000, 200_000, 10_000):
        # A caller with long pauses, again and again: the waits stay.
        turn(policy, "i would like", 0.1, at_ms=call_ms)
        since_ms = turn(policy, "to send money", 0.9, at_ms=call_ms + 1_400)
        assert wait_ms(policy, since_ms) == 190
        deadline_ms = policy.next_deadline_ms()
        assert deadline_ms is not None and policy.on_deadline(deadline_ms) is not None
        policy.reset()


@pytest.mark.parametrize("kind", KINDS)
def test_every_policy_ends_a_turn_once_and_not_while_someone_speaks(kind: str):
    policy = endpoint_policy(EndpointTuning.model_validate({"kind": kind}))
    assert policy.next_deadline_ms() is None
    since_ms = turn(policy)
    deadline_ms = policy.next_deadline_ms()
    assert deadline_ms is not None
    assert policy.on_deadline(deadline_ms - 1) is None
    endpoint = policy.on_deadline(deadline_ms)
    assert endpoint is not None
    assert endpoint.silence_ms == deadline_ms - since_ms
    assert policy.on_deadline(deadline_ms + 5_000) is None
    policy.on_voice_started(deadline_ms + 6_000)
    assert policy.next_deadline_ms() is None


@pytest.mark.parametrize("kind", KINDS)
def test_a_turn_of_noise_ends_empty_with_every_policy(kind: str):
    policy = endpoint_policy(EndpointTuning.model_validate({"kind": kind}))
    since_ms = turn(policy, "", None)
    assert wait_ms(policy, since_ms) == 1_500


def test_a_timer_hears_nothing():
    policy = SilenceTimer(EndpointTuning(kind="timer", timer_ms=700))
    assert wait_ms(policy, turn(policy, "and um", 0.01)) == 700
    policy.reset()
    assert wait_ms(policy, turn(policy, at_ms=9_000)) == 700


def holds(policy: EndpointPolicy, lengths_ms: list[int]) -> int:
    """Run a turn with pauses of these lengths; return the end of its last voice."""
    at_ms = 0
    for length_ms in lengths_ms:
        at_ms = turn(policy, "and", 0.01, at_ms=at_ms) + length_ms
    return turn(policy, at_ms=at_ms)


@pytest.mark.parametrize("kind", ["adaptive", "predictive"])
def test_who_pauses_long_is_waited_for_longer(kind: str):
    def learnt(lengths_ms: list[int]) -> int:
        policy = endpoint_policy(EndpointTuning.model_validate({"kind": kind, "learn": True}))
        since_ms = holds(policy, lengths_ms)
        policy.on_completeness(0.3)
        return wait_ms(policy, since_ms)

    # Shorter than any wait after a hanging word, so that every one counts as a hold.
    assert learnt([250] * 20) < learnt([800] * 20)
    assert learnt([]) < learnt([800] * 20)


def test_who_tells_something_is_waited_for_where_that_is_set_and_not_for_an_answer():
    received = "we went down to the market"
    for chosen, expected in ((EndpointTuning(), 190), (EndpointTuning(told_silence_ms=1_000), 1_000)):
        policy = Endpointer(chosen)
        assert wait_ms(policy, turn(policy, received, 0.9)) == expected
    policy = Endpointer(EndpointTuning(told_silence_ms=1_000))
    policy.on_bot_said("What did you do yesterday?")
    assert wait_ms(policy, turn(policy, received, 0.9)) == 190


def predictive(patience: float = 0.4) -> PredictivePolicy:
    return PredictivePolicy(EndpointTuning(kind="predictive", patience=patience))


@given(
    patience=st.floats(0, 0.9),
    completeness=st.floats(0.001, 0.999),
    text=st.sampled_from(["what are your hours", "what are your", "my number is four one"]),
)
def test_more_patience_never_waits_shorter(patience: float, completeness: float, text: str):
    policies = [predictive(patience), predictive(patience + 0.1)]
    waits = [wait_ms(policy, turn(policy, text, completeness)) for policy in policies]
    assert waits[0] <= waits[1]


@given(patience=st.floats(0, 1))
def test_every_patience_answers_within_its_longest_wait(patience: float):
    policy = predictive(patience)
    assert wait_ms(policy, turn(policy, "and um", 0.001)) <= price_of(patience).longest_ms


@pytest.mark.parametrize(
    "open_", ["what are your", "my number is four one five", "what are the fees of", "the number of my"]
)
def test_predictive_waits_for_what_is_not_whole(open_: str):
    whole, other = predictive(), predictive()
    at_whole = wait_ms(whole, turn(whole, "what are your opening hours", 0.5))
    assert wait_ms(other, turn(other, open_, 0.5)) > at_whole + 100


def test_predictive_looks_again_only_while_an_answer_could_end_the_turn():
    policy = predictive(1.0)
    since_ms = turn(policy, "i would like", 0.02)
    looks = []
    while (look_ms := policy.next_look_ms()) is not None:
        looks.append(look_ms - since_ms)
        policy.on_look(look_ms)
        policy.on_completeness(0.02)
    assert tuple(looks) == LOOKS_MS
    policy = predictive(0.0)
    turn(policy, "what are your opening hours", 0.99)
    assert policy.next_look_ms() is None


def test_predictive_works_without_a_completeness_model():
    whole, other = predictive(), predictive()
    at_whole = wait_ms(whole, turn(whole, "what are your opening hours", None))
    assert wait_ms(other, turn(other, "what are your", None)) > at_whole


def test_a_later_look_scores_the_turn_and_leaves_the_odds_of_a_filler():
    """A later look scores the turn and leaves the other evidence.

    The linear model of fillers was fitted on the first look; more silence sounds like a filler to it.
    """
    policy = PredictivePolicy()
    since_ms = turn(policy, completeness=None)
    policy.on_completeness(0.9, filler_log_odds=-2.0)
    policy.on_look(since_ms + LOOKS_MS[0])
    policy.on_completeness(0.97, filler_log_odds=3.0)
    looked_once = PredictivePolicy()
    turn(looked_once, completeness=None)
    looked_once.on_completeness(0.9, filler_log_odds=-2.0)
    looked_once.on_look(since_ms + LOOKS_MS[0])
    looked_once.on_completeness(0.97, filler_log_odds=-2.0)
    assert policy.end_log_odds() == looked_once.end_log_odds()
    # At the next pause the first look counts again.
    again_ms = turn(policy, "and when do you close", None, at_ms=10_000)
    policy.on_completeness(0.9, filler_log_odds=-2.0)
    at_an_end_ms = wait_ms(policy, again_ms)
    policy.on_completeness(0.9, filler_log_odds=3.0)
    assert wait_ms(policy, again_ms) > at_an_end_ms


def learning() -> EndpointPolicy:
    return endpoint_policy(EndpointTuning(kind="predictive", learn=True))


def test_a_hold_that_was_cut_is_learnt_from_a_caller_who_goes_on_at_once():
    waits = []
    for resumes_ms in (400, 4_000):
        policy, at_ms = learning(), 0
        for _ in range(12):
            turn(policy, "yes", 0.97, at_ms=at_ms)
            deadline_ms = policy.next_deadline_ms()
            assert deadline_ms is not None and policy.on_deadline(deadline_ms) is not None
            policy.reset()
            at_ms = deadline_ms + resumes_ms
        waits.append(wait_ms(policy, turn(policy, completeness=0.5, at_ms=at_ms)))
    assert waits[0] > waits[1]


def test_a_score_that_lies_is_believed_less_and_less():
    def wait_after(policy: EndpointPolicy, pauses: int) -> int:
        """Return the wait at the last pause; each turn sounds complete at its pause and open at its end."""
        at_ms, wait = 0, 0
        for _ in range(pauses):
            policy.reset()
            held_ms = turn(policy, "what are your hours", 0.99, at_ms=at_ms)
            wait = wait_ms(policy, held_ms)
            if wait < 700 and policy.on_deadline(held_ms + wait) is not None:
                policy.reset()
            since_ms = turn(policy, "on sunday", 0.01, at_ms=held_ms + 700)
            deadline_ms = policy.next_deadline_ms()
            assert deadline_ms is not None and policy.on_deadline(deadline_ms) is not None
            at_ms = since_ms + 8_000
        return wait

    assert wait_after(learning(), 12) > wait_after(learning(), 1) + 100
