import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from parley.language.english.vocabulary import UTTERANCES
from parley.language.vocabulary import UtteranceVocabulary
from parley.language.words import plain
from parley.turn_taking.utterances import (
    Classifier,
    Utterance,
    UtteranceKind,
    UtteranceTuning,
)

CLASSIFIER = Classifier()


def kind(
    text: str,
    *stretches_ms: int,
    sure: float = 0.9,
    over: bool = True,
    level_db: float | None = None,
    question: bool = False,
) -> UtteranceKind:
    heard = Utterance(text, (sure,), stretches_ms or (400,), over, level_db)
    return CLASSIFIER.kind(heard, question_open=question)


@pytest.mark.parametrize(
    "text",
    [
        "mhm",
        "Mm-hmm.",
        "uh-huh",
        "Yeah.",
        "okay",
        "right",
        "yeah okay",
        "oh I see",
        "got it thanks",
        "make sense",
    ],
)
def test_signs_of_listening_are_backchannels(text: str):
    assert kind(text) is UtteranceKind.BACKCHANNEL
    assert not kind(text).claims_floor


@pytest.mark.parametrize("text", ["yes", "yeah", "no", "no thanks", "well yes", "mhm", "yes please", "sure"])
def test_the_same_words_answer_an_open_question(text: str):
    assert kind(text, question=True) is UtteranceKind.ANSWER


def test_no_is_never_a_backchannel():
    assert kind("no") is UtteranceKind.SUBSTANTIVE


@pytest.mark.parametrize(
    "text",
    [
        "stop",
        "Stop it!",
        "wait",
        "okay wait a second",
        "thats enough",
        "nevermind",
        "hold on please",
        "no stop",
        "um hang on",
        "shut up now",
        "please stop talking",
    ],
)
def test_commands_stop(text: str):
    assert kind(text) is UtteranceKind.STOP


@pytest.mark.parametrize(
    "text",
    [
        "where does the bus stop",
        "don't stop",
        "wait times are long",
        "what is a stop order",
        "the wait is long",
    ],
)
def test_a_stop_word_in_a_sentence_is_not_a_command(text: str):
    assert kind(text, 900) is UtteranceKind.SUBSTANTIVE


def test_a_stop_word_has_to_be_understood():
    assert kind("stop", sure=0.1) is not UtteranceKind.STOP
    assert kind("stop", sure=0.2) is UtteranceKind.STOP
    assert Classifier().kind(Utterance("okay stop", (0.9, 0.1), (500,))) is not UtteranceKind.STOP


def test_further_stop_words_and_backchannels_can_be_configured():
    classifier = Classifier(UtteranceTuning(more_stops=("Basta!",), more_backchannels=("va bene",)))
    assert classifier.kind(Utterance("basta")) is UtteranceKind.STOP
    assert classifier.kind(Utterance("va bene")) is UtteranceKind.BACKCHANNEL


@pytest.mark.parametrize("text", ["um", "uh", "er um"])
def test_sounds_of_searching_are_fillers(text: str):
    assert kind(text) is UtteranceKind.FILLER
    assert kind(text).leaves_floor


@pytest.mark.parametrize("text", ["well", "yeah but", "um so", "actually", "I have a question"])
def test_words_that_take_the_floor_are_hesitations(text: str):
    assert kind(text) is UtteranceKind.HESITATION
    assert kind(text).claims_floor


@pytest.mark.parametrize("text", ["yes the", "okay in", "i see him", "oh yeah that"])
def test_what_the_end_of_a_short_backchannel_is_heard_as_counts_for_nothing(text: str):
    assert kind(text, 580) is UtteranceKind.BACKCHANNEL
    assert kind(text, 1_400) is UtteranceKind.SUBSTANTIVE


def test_a_but_takes_the_floor_when_it_is_well_understood():
    def said(sure: float) -> UtteranceKind:
        return CLASSIFIER.kind(Utterance("yes but", (0.9, sure), (580,)))

    assert said(0.8) is UtteranceKind.HESITATION
    assert said(0.5) is UtteranceKind.BACKCHANNEL


@pytest.mark.parametrize(
    ("text", "may"),
    [
        ("okay", True),
        ("okay i", True),
        ("i see for", True),
        ("yes please", True),
        ("okay i want", False),
        ("oh", False),
        ("ah i", False),
        ("what about", False),
        ("please", False),
        ("", False),
    ],
)
def test_words_that_are_not_sure_yet_may_be_those_of_a_listener(text: str, may: bool):
    assert CLASSIFIER.may_be_backchannel(text) is may


@pytest.mark.parametrize("text", ["them", "and", "the", "home", "an um"])
def test_a_hum_that_a_recogniser_writes_as_a_word_is_a_backchannel(text: str):
    assert kind(text, 450) is UtteranceKind.BACKCHANNEL
    assert kind(text, 200, 250) is UtteranceKind.BACKCHANNEL


def test_the_same_word_in_a_longer_voice_says_nothing():
    assert kind("them", 1_500) is UtteranceKind.UNCLEAR


def test_a_lone_word_counts_when_it_was_understood_well_or_lasts():
    assert kind("balance", 450, sure=0.9) is UtteranceKind.SUBSTANTIVE
    assert kind("balance", 450, sure=0.5) is UtteranceKind.BACKCHANNEL
    assert kind("balance", 900, sure=0.5) is UtteranceKind.UNCLEAR


def test_words_that_were_hardly_understood_leave_the_sound_to_decide():
    assert kind("what about the fees", 450, sure=0.2) is UtteranceKind.BACKCHANNEL
    assert kind("what about the fees", 1_500, sure=0.2) is UtteranceKind.UNCLEAR
    mixed = Utterance("yeah ten and fees", (0.9, 0.1, 0.2, 0.1), (450,))
    assert CLASSIFIER.kind(mixed) is UtteranceKind.BACKCHANNEL


def test_one_yeah_does_not_describe_three_seconds_of_voice():
    assert kind("yeah", 3_000) is UtteranceKind.UNCLEAR
    assert kind("yeah okay right", 1_100) is UtteranceKind.BACKCHANNEL


@pytest.mark.parametrize(
    ("stretches_ms", "level_db", "expected"),
    [
        ((80,), None, UtteranceKind.NOISE),
        ((400,), 12.0, UtteranceKind.NOISE),
        ((400,), -20.0, UtteranceKind.NOISE),
        ((3_000,), -20.0, UtteranceKind.NOISE),
        ((400,), 0.0, UtteranceKind.BACKCHANNEL),
        ((200, 250), None, UtteranceKind.BACKCHANNEL),
        ((900,), None, UtteranceKind.UNCLEAR),
        ((150, 150, 150, 150), None, UtteranceKind.UNCLEAR),
        ((600, 650), None, UtteranceKind.UNCLEAR),
    ],
)
def test_without_words_the_sound_decides(
    stretches_ms: tuple, level_db: float | None, expected: UtteranceKind
):
    assert CLASSIFIER.kind(Utterance("", (), stretches_ms, True, level_db)) is expected


def test_a_voice_far_away_is_noise_whatever_it_says_but_stop():
    assert kind("what about the fees", 1_000, level_db=-20.0) is UtteranceKind.NOISE
    assert kind("stop", level_db=-20.0) is UtteranceKind.STOP
    assert kind("what about the fees", 1_000, level_db=-10.0) is UtteranceKind.SUBSTANTIVE


@pytest.mark.parametrize("text", ["i", "i see", "see", "you", "he"])
def test_words_that_alone_say_nothing_are_no_talk(text: str):
    assert not kind(text, 400).claims_floor


def test_a_voice_that_goes_on_may_become_anything():
    assert kind("", 300, over=False) is UtteranceKind.UNCLEAR
    assert kind("them", 300, over=False) is UtteranceKind.UNCLEAR


def test_content_words_are_those_that_mean_something():
    def count(text: str) -> int:
        return CLASSIFIER.content_words(Utterance(text))

    assert count("yeah okay um well") == 0
    assert count("them and the") == 0
    assert count("what about the fees") == 3
    assert count("yeah no") == 1


def test_each_word_has_its_own_confidence_or_all_have_one():
    assert CLASSIFIER.kind(Utterance("mm-hmm okay", (0.9, 0.9), (500,))) is UtteranceKind.BACKCHANNEL
    with pytest.raises(ValueError, match="3 confidences for 2 words"):
        CLASSIFIER.kind(Utterance("mhm okay", (0.9, 0.9, 0.9)))


def test_the_worst_part_of_a_divided_word_counts():
    assert CLASSIFIER.kind(Utterance("under stood", (0.9, 0.9), (600,))) is UtteranceKind.BACKCHANNEL
    # The sound decides, as for a word that was hardly understood.
    assert CLASSIFIER.kind(Utterance("al right", (0.9, 0.1), (1_500,))) is UtteranceKind.UNCLEAR


def test_another_language_brings_its_words():
    none = frozenset[str]()
    german = UtteranceVocabulary(
        affirmative=frozenset({"ja", "genau"}), negative=frozenset({"nein"}), backchannels=frozenset({"aha"}),
        fillers=frozenset({"äh"}), hesitations=frozenset({"also"}), stops=frozenset({"halt", "moment mal"}),
        polite=frozenset({"bitte"}), stop_tails=none, hums=none,
    )  # fmt: skip
    classifier = Classifier(vocabulary=german)
    assert classifier.kind(Utterance("ja genau")) is UtteranceKind.BACKCHANNEL
    assert classifier.kind(Utterance("ja moment mal bitte")) is UtteranceKind.STOP
    assert classifier.kind(Utterance("yeah")) is UtteranceKind.SUBSTANTIVE


def test_settings_out_of_order_are_refused():
    with pytest.raises(ValidationError, match="hum_ms"):
        UtteranceTuning(hum_ms=1_500, backchannel_ms=1_000)


@given(
    st.text(max_size=40),
    st.floats(0, 1),
    st.lists(st.integers(0, 5_000), max_size=6),
    st.booleans(),
    st.booleans(),
)
def test_every_text_is_something_and_claims_the_floor_or_leaves_it_or_neither(
    text: str, sure: float, stretches_ms: list[int], over: bool, question: bool
):
    heard = Utterance(text, (sure,), tuple(stretches_ms), over)
    found = CLASSIFIER.kind(heard, question_open=question)
    assert not (found.claims_floor and found.leaves_floor)
    assert found.claims_floor or found.leaves_floor or found is UtteranceKind.UNCLEAR
    assert CLASSIFIER.content_words(heard) <= len(plain(text))


@given(
    st.sampled_from(sorted(UTTERANCES.backchannels | UTTERANCES.affirmative)),
    st.integers(0, 700),
    st.floats(0, 1),
)
def test_no_backchannel_claims_the_floor_however_well_it_was_understood(
    text: str, length_ms: int, sure: float
):
    assert not CLASSIFIER.kind(Utterance(text, (sure,), (length_ms,))).claims_floor


@pytest.mark.parametrize(
    ("text", "command", "expected"),
    [
        ("what", "what", True),
        ("Why?", "what", True),
        ("no", "no", True),
        ("say that again", "say that again", True),
        ("but", "what", False),
        ("", "what", False),
        ("oh", "oh", False),
        ("yeah", "yeah", False),
        ("what", "no", False),
        ("why not", "what", False),
    ],
)
def test_two_engines_hear_the_same_when_the_words_or_the_kind_of_question_are(
    text: str, command: str, expected: bool
):
    assert CLASSIFIER.says_the_same(text, command) is expected
