"""Pauses that start a speculation, and the guessed words."""

from parley.turn_taking.speculation import Guesser, SpeculationSettings, SpeculationTuning


def opened(settings: SpeculationSettings | None = None) -> Guesser:
    """Return a guesser in an open turn."""
    guesser = Guesser(settings)
    assert guesser.on_turn() is None
    return guesser


def test_what_was_said_so_far_is_told_while_the_voice_goes_on():
    guesser = Guesser()
    guesser.on_partial("what")
    assert guesser.so_far is None
    guesser.on_turn()
    assert guesser.so_far == "what"
    guesser.on_final("what is")
    assert guesser.so_far == "what is"
    guesser.on_partial("it")
    assert guesser.so_far == "what is it"
    # A guess is made for a pause, which also reads the words.
    guesser.on_pause()
    assert guesser.so_far is None
    guesser.on_resume()
    assert guesser.so_far is None
    guesser.on_partial("it over")
    assert guesser.so_far == "what is it over"
    guesser.reset()
    assert guesser.so_far is None
    # After the last guess the words of a pause are still read.
    thrifty = opened(SpeculationTuning(guesses=1))
    thrifty.on_partial("what")
    thrifty.on_pause()
    assert (thrifty.so_far, thrifty.on_partial("what is"), thrifty.so_far) == (None, None, "what is")
    silent = opened(SpeculationSettings(reads_ahead=False))
    silent.on_partial("what")
    assert silent.so_far is None


def test_words_are_guessed_when_the_voice_pauses_and_not_before():
    guesser = opened()
    assert guesser.on_partial("what is") is None
    assert guesser.on_partial("what is it") is None
    assert guesser.on_pause() == "what is it"


def test_a_pause_without_words_is_worth_nothing_until_they_come():
    guesser = opened()
    assert guesser.on_pause() is None
    assert guesser.on_partial("yes") == "yes"


def test_the_same_words_are_guessed_once():
    guesser = opened()
    guesser.on_partial("what is it")
    assert guesser.on_pause() == "what is it"
    assert guesser.on_pause() is None
    assert guesser.on_partial("what is it") is None
    assert guesser.on_final("what is it") is None


def test_other_words_are_another_guess():
    guesser = opened()
    guesser.on_partial("what is the")
    assert guesser.on_pause() == "what is the"
    assert guesser.on_final("what is it") == "what is it"


def test_earlier_words_of_the_turn_belong_to_the_guess():
    guesser = opened()
    guesser.on_pause()
    guesser.on_final("i would like")
    assert guesser.on_voice()
    assert guesser.on_partial("to ask") is None
    assert guesser.on_pause() == "i would like to ask"


def test_a_voice_makes_a_guess_void_once():
    guesser = opened()
    guesser.on_partial("what")
    assert not guesser.on_voice()
    guesser.on_pause()
    assert guesser.on_voice()
    assert not guesser.on_voice()
    # The same words may be complete after all.
    assert guesser.on_pause() == "what"


def test_a_voice_that_goes_on_is_listened_to():
    guesser = opened()
    guesser.on_partial("what is")
    guesser.on_pause()
    guesser.on_resume()
    assert guesser.on_partial("what is it") is None
    assert guesser.on_pause() == "what is it"


def test_a_turn_costs_so_many_guesses_and_the_next_one_as_many():
    guesser = opened(SpeculationTuning(guesses=2))
    for _ in range(2):
        guesser.reset()
        guesser.on_turn()
        guesser.on_pause()
        assert [guesser.on_partial(word) for word in ("a", "b", "c")] == ["a", "b", None]


def test_partials_leave_a_guess_for_the_final_words():
    guesser = opened(SpeculationTuning(guesses=2))
    guesser.on_pause()
    assert [guesser.on_partial(word) for word in ("what", "what is", "what is it")] == [
        "what",
        "what is",
        None,
    ]
    assert guesser.on_final("what is it") == "what is it"
    guesser.on_voice()
    guesser.on_pause()
    assert guesser.on_final("for") == "what is it for"
    guesser.on_voice()
    guesser.on_pause()
    assert guesser.on_final("now") is None


def test_words_of_the_turn_before_are_forgotten():
    guesser = opened()
    guesser.on_pause()
    guesser.on_final("the first")
    guesser.reset()
    guesser.on_turn()
    guesser.on_pause()
    assert guesser.on_final("the second") == "the second"


def test_finals_alone_are_guessed_where_questions_cost_money():
    guesser = opened(SpeculationSettings(on="finals"))
    guesser.on_partial("what is")
    assert guesser.on_pause() is None
    assert guesser.on_final("what is it") == "what is it"
    assert guesser.on_partial("what is it when") is None


def test_nothing_is_guessed_when_it_is_switched_off():
    guesser = opened(SpeculationSettings(on="off"))
    guesser.on_pause()
    assert guesser.on_final("what is it") is None
    assert not guesser.on_voice()


def test_what_was_said_before_the_turn_was_open_belongs_to_it():
    guesser = Guesser()
    assert guesser.on_final("stop") is None
    assert guesser.on_partial("please") is None
    assert guesser.on_pause() is None
    assert guesser.on_turn() == "stop please"


def test_a_turn_that_was_none_voids_the_guess_and_its_words():
    guesser = opened()
    assert not guesser.on_abandoned()
    guesser.on_turn()
    guesser.on_pause()
    guesser.on_final("mhm")
    assert guesser.on_abandoned()
    guesser.on_turn()
    guesser.on_pause()
    assert guesser.on_final("what is it") == "what is it"
