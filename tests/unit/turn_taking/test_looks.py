import pytest
from pydantic import ValidationError

from parley.turn_taking.barge_in.barge_in import BargeIn
from parley.turn_taking.barge_in.looks import LookSettings, LookVerdict
from parley.turn_taking.barge_in.settings import BargeInTuning
from parley.turn_taking.barge_in.table import BargeInState, Cut, CutReason, Duck, Restore
from tests.unit.turn_taking.floor import Floor, check_invariants

TAKE, LEAVE = 2.0, -1.0
LOOKS = LookSettings(take_log_odds=(3.0, TAKE), leave_log_odds=(-3.0, LEAVE), left_confirm_ms=1_200)
CHOSEN = BargeInTuning(looks=True, look_bounds=LOOKS)
LOOK_MS = (224, 320)
BEGAN_MS = 5_000


def looked_at(odds: tuple[float, ...], length_ms: int, settings: BargeInTuning = CHOSEN, **voice: object):
    """Return a bot that has spoken since 0 ms, and a voice over it with an early look for each odds."""
    floor = Floor(settings)
    floor.reply("r1", 0, 60_000)
    floor.voice(BEGAN_MS, length_ms, **voice)  # type: ignore[arg-type]
    for look, log_odds in enumerate(odds):
        floor.at(
            BEGAN_MS + LOOK_MS[look],
            lambda now, look=look, log_odds=log_odds: floor.machine.on_look(now, look, log_odds, voice=1),
        )
    return floor


@pytest.mark.parametrize(
    ("look", "log_odds", "verdict"),
    [
        (0, 3.0, LookVerdict.TAKE),
        (0, 2.9, LookVerdict.AGAIN),
        (0, -3.0, LookVerdict.LEAVE),
        (1, 2.0, LookVerdict.TAKE),
        (1, -0.9, LookVerdict.AGAIN),
        (1, -1.0, LookVerdict.LEAVE),
        (2, 99.0, LookVerdict.AGAIN),
        (-1, 99.0, LookVerdict.AGAIN),
    ],
)
def test_each_look_has_two_bounds_of_its_own(look: int, log_odds: float, verdict: LookVerdict):
    assert LOOKS.verdict(look, log_odds) is verdict


@pytest.mark.parametrize(
    ("take", "leave"), [((1.0,), (0.0, 0.0)), ((1.0, 0.0), (0.0, 0.0)), ((0.0, 2.0), (1.0, 1.0))]
)
def test_bounds_that_contradict_each_other_are_refused(take: tuple[float, ...], leave: tuple[float, ...]):
    with pytest.raises(ValidationError, match="take_log_odds"):
        LookSettings(take_log_odds=take, leave_log_odds=leave)


def test_a_sure_look_cuts_before_the_voice_lasts():
    floor = looked_at((0.0, TAKE), 2_000)
    floor.run(BEGAN_MS + 400)
    [cut] = floor.cuts
    assert (cut.at_ms, cut.reason, cut.reply_id) == (BEGAN_MS + 320, CutReason.SOUND, "r1")
    assert isinstance(floor.decisions[0], Duck)


def test_a_look_that_is_not_sure_leaves_it_to_the_length():
    floor = looked_at((0.0, 0.0), 2_000)
    floor.run(BEGAN_MS + 2_000)
    assert [cut.reason for cut in floor.cuts] == [CutReason.DURATION]


def test_a_look_that_is_sure_of_a_listener_restores_at_once():
    floor = looked_at((-3.0,), 500, final=("mhm", 0.9))
    floor.run(BEGAN_MS + 3_000)
    assert floor.decisions[1:] == [Restore(BEGAN_MS + 224)]
    assert floor.machine.state is BargeInState.REPLYING


def test_words_of_weight_cut_a_voice_that_a_look_took_for_a_listener():
    partials = ((600, "what about the fees", 0.9),)
    floor = looked_at((-3.0,), 1_000, partials=partials)
    floor.run(BEGAN_MS + 700)
    assert [(cut.at_ms, cut.reason) for cut in floor.cuts] == [(BEGAN_MS + 600, CutReason.WORDS)]
    check_invariants(floor.decisions)


def test_a_voice_that_lasts_in_spite_of_a_look_is_meant():
    floor = looked_at((-3.0,), 4_000)
    floor.run(BEGAN_MS + 4_000)
    due_ms = BEGAN_MS + LOOKS.left_confirm_ms + CHOSEN.end_lag_ms
    assert [(cut.at_ms, cut.reason) for cut in floor.cuts] == [(due_ms, CutReason.DURATION)]
    check_invariants(floor.decisions)


def test_a_listener_who_falls_silent_is_not_cut_later():
    floor = looked_at((-3.0,), 900)
    floor.run(BEGAN_MS + 20_000)
    assert not floor.cuts


def test_a_cut_by_its_sound_is_resumed_when_the_words_are_a_listeners():
    floor = looked_at((3.0,), 400, final=("mhm", 0.9))
    floor.run(BEGAN_MS + 2_000)
    assert [type(each).__name__ for each in floor.decisions] == ["Duck", "Cut", "ResumeReply"]


def test_an_answer_that_comes_late_changes_nothing():
    floor = looked_at((), 2_000)
    machine = floor.machine
    floor.at(BEGAN_MS + 150, lambda now: machine.on_look(now, 0, 9.0, voice=0))
    floor.at(BEGAN_MS + 900, lambda now: machine.on_look(now, 0, -9.0, voice=1))
    floor.run(BEGAN_MS + 1_000)
    assert [cut.reason for cut in floor.cuts] == [CutReason.DURATION]
    assert not floor.of(Restore)


def test_who_was_asked_is_not_sent_away_by_a_look():
    floor = looked_at((-3.0,), 1_500)
    floor.at(BEGAN_MS - 100, lambda now: floor.machine.on_question(now))
    floor.run(BEGAN_MS + 600)
    assert not floor.of(Restore)


def test_a_voice_from_far_away_takes_no_floor_by_its_sound():
    floor = looked_at((9.0,), 2_000)
    floor.at(BEGAN_MS + 140, lambda now: floor.machine.on_level(now, -20.0))
    floor.run(BEGAN_MS + 3_000)
    assert not floor.cuts


def test_looks_can_be_switched_off():
    floor = looked_at((9.0,), 2_000, BargeInTuning(looks=False))
    floor.run(BEGAN_MS + 400)
    assert not floor.cuts


@pytest.mark.parametrize("state", ["listening", "protected"])
def test_a_look_where_nothing_hangs_on_it_is_ignored(state: str):
    machine = BargeIn(CHOSEN)
    if state == "protected":
        machine.on_bot_started(0, "r1", protected=True)
    machine.on_voice_started(1_000, voiced_ms=128)
    before = machine.state
    assert machine.on_look(1_100, 0, 9.0, voice=1) is None
    assert machine.state is before


def test_a_cut_by_sound_says_how_long_the_voice_lasted():
    floor = looked_at((9.0,), 2_000)
    floor.run(BEGAN_MS + 400)
    [cut] = floor.cuts
    assert isinstance(cut, Cut) and cut.voice_ms == LOOK_MS[0]
