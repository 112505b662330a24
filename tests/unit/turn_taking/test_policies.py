"""The four policies through their one interface."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turn_taking.endpointing import BoundarySettings, Endpointer, EndpointPolicy, EndpointSettings
from turn_taking.evidence import EvidenceSettings
from turn_taking.evidence_pitch import Contour
from turn_taking.evidence_tempo import Tempo
from turn_taking.evidence_voice import VoiceEnd
from turn_taking.pauses import PauseLaw
from turn_taking.policies import (
    LOOKS_MS,
    BoundaryPolicy,
    PredictivePolicy,
    SilenceTimer,
    endpoint_policy,
    price_of,
)

KINDS = ("timer", "adaptive", "boundary", "predictive")
# A level, drawn out word of a caller of the general tempo.
DRAWN_OUT = VoiceEnd(Tempo(final=0.4, whole=0.9), 0.5, 0.0)


def turn(
    policy: EndpointPolicy,
    text: str = "what are your hours",
    completeness: float | None = 0.9,
    *,
    at_ms: int = 0,
    speech_ms: int = 800,
) -> int:
    """A voice from ``at_ms`` on, then silence; words and score are known. When the voice ended."""
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
        ("boundary", BoundaryPolicy),
        ("predictive", PredictivePolicy),
    ],
)
def test_the_configuration_chooses(kind: str, policy: type):
    assert type(endpoint_policy(EndpointSettings.model_validate({"kind": kind}))) is policy


def test_the_default_is_predictive_and_the_waits_of_adaptive_choose_that():
    assert type(endpoint_policy(EndpointSettings())) is PredictivePolicy
    assert type(endpoint_policy(EndpointSettings(min_silence_ms=250))) is Endpointer
    chosen = EndpointSettings(kind="boundary", min_silence_ms=250)
    assert type(endpoint_policy(chosen)) is BoundaryPolicy


def test_the_adaptive_wait_learns_nothing_by_default():
    policy = endpoint_policy(EndpointSettings(kind="adaptive"))
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
def test_every_policy_ends_a_turn_once_and_not_while_somebody_speaks(kind: str):
    policy = endpoint_policy(EndpointSettings.model_validate({"kind": kind}))
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
    policy = endpoint_policy(EndpointSettings.model_validate({"kind": kind}))
    since_ms = turn(policy, "", None)
    assert wait_ms(policy, since_ms) == 1_500


def test_a_timer_hears_nothing():
    policy = SilenceTimer(EndpointSettings(kind="timer", timer_ms=700))
    assert wait_ms(policy, turn(policy, "and um", 0.01)) == 700
    policy.reset()
    assert wait_ms(policy, turn(policy, at_ms=9_000)) == 700


def boundary(**changes: object) -> BoundaryPolicy:
    learn = bool(changes.pop("learn", False))
    settings = BoundarySettings.model_validate(changes)
    return BoundaryPolicy(EndpointSettings(kind="boundary", boundary=settings, learn=learn))


@given(one=st.floats(0, 1), other=st.floats(0, 1))
def test_a_more_complete_turn_never_waits_longer(one: float, other: float):
    low, high = sorted((one, other))
    waits = [wait_ms(policy, turn(policy, completeness=p)) for p in (high, low) for policy in [boundary()]]
    assert waits[0] <= waits[1]


@given(cheap=st.floats(500, 50_000), completeness=st.floats(0.01, 0.99))
def test_a_dearer_cut_in_never_waits_shorter(cheap: float, completeness: float):
    policies = [boundary(cut_cost_ms=cost) for cost in (cheap, 2 * cheap)]
    waits = [wait_ms(policy, turn(policy, completeness=completeness)) for policy in policies]
    assert waits[0] <= waits[1]


def test_words_that_hang_wait_longer_than_the_same_score_after_a_clause():
    whole, open_ = boundary(), boundary()
    assert wait_ms(open_, turn(open_, "what are your", 0.6)) > wait_ms(whole, turn(whole, completeness=0.6))


def test_an_open_number_waits_longer_when_the_bot_asked_for_one():
    asked, unasked = boundary(), boundary()
    asked.on_bot_said("What is your account number?")
    assert wait_ms(asked, turn(asked, "four one", 0.6)) > wait_ms(unasked, turn(unasked, "four one", 0.6))


def test_the_contour_counts_only_where_it_is_asked_for():
    deaf, keen = boundary(), boundary(contour=True)
    assert (deaf.wants_contour, keen.wants_contour) == (False, True)
    for policy in (deaf, keen):
        turn(policy, completeness=0.6)
    before = deaf.end_log_odds(), keen.end_log_odds()
    for policy in (deaf, keen):
        policy.on_contour(Contour.LEVEL)
    assert deaf.end_log_odds() == before[0]
    assert keen.end_log_odds() < before[1]


def test_the_longest_wait_holds():
    policy = boundary(longest_ms=900, cut_cost_ms=1_000_000)
    assert wait_ms(policy, turn(policy, "and um", 0.001)) == 900


def test_the_model_is_asked_again_while_the_turn_is_open():
    policy = boundary(looks_ms=(400, 700), cut_cost_ms=50_000)
    since_ms = turn(policy, completeness=0.2)
    assert policy.next_look_ms() == since_ms + 400
    policy.on_look(since_ms + 400)
    assert policy.next_look_ms() == since_ms + 700
    policy.on_completeness(0.99)
    assert policy.next_look_ms() is None


def test_early_evidence_that_gives_the_shortest_wait_needs_no_second_look():
    policy = boundary()
    assert policy.is_complete(0.999)
    assert not policy.is_complete(0.3)


def holds(policy: EndpointPolicy, lengths_ms: list[int]) -> int:
    """A turn with pauses of these lengths; when its last voice ended."""
    at_ms = 0
    for length_ms in lengths_ms:
        at_ms = turn(policy, "and", 0.01, at_ms=at_ms) + length_ms
    return turn(policy, at_ms=at_ms)


@pytest.mark.parametrize("kind", ["adaptive", "boundary", "predictive"])
def test_who_pauses_long_is_waited_for_longer(kind: str):
    def learnt(lengths_ms: list[int]) -> int:
        policy = endpoint_policy(EndpointSettings.model_validate({"kind": kind, "learn": True}))
        since_ms = holds(policy, lengths_ms)
        policy.on_completeness(0.3)
        return wait_ms(policy, since_ms)

    # Shorter than any wait behind a hanging word, so that every one is seen as a hold.
    assert learnt([250] * 20) < learnt([800] * 20)
    assert learnt([]) < learnt([800] * 20)


def test_a_hold_that_was_cut_is_learnt_from_who_goes_on_at_once():
    waits = []
    for resumes_ms in (400, 4_000):
        policy = boundary(learn=True)
        at_ms = 0
        for _ in range(12):
            since_ms = turn(policy, "yes", 0.97, at_ms=at_ms)
            deadline_ms = policy.next_deadline_ms()
            assert deadline_ms is not None and policy.on_deadline(deadline_ms) is not None
            policy.reset()
            at_ms = deadline_ms + resumes_ms
        since_ms = turn(policy, completeness=0.5, at_ms=at_ms)
        waits.append(wait_ms(policy, since_ms))
    assert waits[0] > waits[1]


def test_an_open_number_and_a_rise_are_waited_for_where_they_are_set():
    chosen = EndpointSettings(open_silence_ms=1_200, rising_silence_ms=700)
    policy = Endpointer(chosen)
    assert policy.wants_contour
    assert wait_ms(policy, turn(policy, "my number is four one five", 0.9)) == 1_200
    policy = Endpointer(chosen)
    since_ms = turn(policy, "milk bread", 0.9)
    assert wait_ms(policy, since_ms) == 190
    policy.on_contour(Contour.RISE)
    assert wait_ms(policy, since_ms) == 700
    policy = Endpointer(chosen)
    since_ms = turn(policy, "are you open", 0.9)
    policy.on_contour(Contour.RISE)
    assert wait_ms(policy, since_ms) == 190


def test_who_tells_something_is_waited_for_where_that_is_set_and_not_for_an_answer():
    told = "we went down to the market"
    for chosen, expected in ((EndpointSettings(), 190), (EndpointSettings(told_silence_ms=1_000), 1_000)):
        policy = Endpointer(chosen)
        assert wait_ms(policy, turn(policy, told, 0.9)) == expected
    policy = Endpointer(EndpointSettings(told_silence_ms=1_000))
    policy.on_bot_said("What did you do yesterday?")
    assert wait_ms(policy, turn(policy, told, 0.9)) == 190


def test_the_end_of_the_voice_counts_only_where_it_is_asked_for():
    deaf, keen = boundary(), boundary(voice=True)
    assert (deaf.wants_voice_end, keen.wants_voice_end) == (False, True)
    for policy in (deaf, keen):
        turn(policy, completeness=0.6)
    before = deaf.end_log_odds(), keen.end_log_odds()
    for policy in (deaf, keen):
        policy.on_voice_end(DRAWN_OUT)
    assert deaf.end_log_odds() == before[0]
    assert keen.end_log_odds() < before[1]


def test_the_end_of_the_voice_is_that_of_one_pause_and_the_caller_s_tempo_that_of_the_call():
    policy = boundary(voice=True)
    turn(policy, completeness=0.6)
    before = policy.end_log_odds()
    slow = VoiceEnd(Tempo(final=0.2, whole=0.2), None, None)
    policy.on_voice_end(slow)
    at_first = policy.end_log_odds()
    for place in range(1, 30):
        # Sometimes the caller goes on, sometimes the turn is over: both are this caller's speech.
        if place % 3 == 0:
            policy.reset()
        policy.on_voice_started(10_000 * place)
        policy.on_voice_stopped(10_000 * place + 960, silence_ms=160)
        policy.on_voice_end(slow)
    policy.reset()
    turn(policy, completeness=0.6, at_ms=400_000)
    assert policy.end_log_odds() == before
    policy.on_voice_end(slow)
    assert at_first < before
    assert policy.end_log_odds() > at_first + 0.5


def test_the_boundary_keeps_what_its_price_promises():
    """With a calibrated score, the share of cut holds and the waits are those of the least cost."""
    rng, law = np.random.default_rng(2), PauseLaw()
    costs = {}
    for scale in (0.25, 1.0, 4.0):
        deaf = EvidenceSettings(words_weight=0.0)
        policy = boundary(cut_cost_ms=scale * 6_000, longest_ms=5_000, evidence=deaf)
        cost, at_ms = 0.0, 0
        for _ in range(1_500):
            end = rng.random() > 0.638
            log_odds = rng.normal(2 if end else -2, 2)
            since_ms = turn(policy, "so it is", 1 / (1 + np.exp(-log_odds)), at_ms=at_ms)
            waited_ms = wait_ms(policy, since_ms)
            cost += waited_ms if end else 6_000 * (waited_ms < law.sample(rng))
            policy.reset()
            at_ms = since_ms + 20_000
        costs[scale] = cost
    assert costs[1.0] == min(costs.values())


def call_with_a_lying_score(policy: EndpointPolicy, *, pauses: int) -> int:
    """Each turn sounds complete at its pause and open at its end. The wait at the last pause."""
    at_ms, wait = 0, 0
    for _ in range(pauses):
        policy.reset()
        held_ms = turn(policy, "what are your hours", 0.99, at_ms=at_ms)
        wait = wait_ms(policy, held_ms)
        decided = policy.on_deadline(held_ms + wait) if wait < 700 else None
        if decided is not None:
            policy.reset()
        since_ms = turn(policy, "on sunday", 0.01, at_ms=held_ms + 700)
        deadline_ms = policy.next_deadline_ms()
        assert deadline_ms is not None
        assert policy.on_deadline(deadline_ms) is not None
        at_ms = since_ms + 8_000
    return wait


def test_a_score_that_lies_is_believed_less_and_less():
    learning, trusting = boundary(learn=True), boundary(learn=True, score_doubt=0.0)
    first = call_with_a_lying_score(boundary(learn=True), pauses=1)
    assert call_with_a_lying_score(learning, pauses=12) > first + 300
    assert call_with_a_lying_score(trusting, pauses=12) < call_with_a_lying_score(learning, pauses=1)


def test_the_boundary_hears_a_filler_by_its_sound():
    def waited(filler_log_odds: float | None, **changes: object) -> int:
        policy = boundary(**changes)
        since_ms = turn(policy, "please send it stone")
        policy.on_completeness(0.8, filler_log_odds=filler_log_odds)
        return wait_ms(policy, since_ms)

    assert waited(5.0) > waited(-5.0) == waited(None)
    policy = boundary()
    assert policy.is_complete(0.999, filler_log_odds=-5.0)
    assert not policy.is_complete(0.9, filler_log_odds=5.0)


def predictive(patience: float = 0.4) -> PredictivePolicy:
    return PredictivePolicy(EndpointSettings(kind="predictive", patience=patience))


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
    assert wait_ms(policy, turn(policy, "and um", 0.001)) <= price_of(patience)["longest_ms"]


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
    """The line that hears fillers was fitted on the first look; more silence sounds like one to it."""
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
