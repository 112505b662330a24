"""A second language of a few words: turn-taking, facts and answers go by its rules, and none of English."""

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest
from pydantic import ValidationError

from parley.configs.deployment import Deployment
from parley.core.errors import ConfigError
from parley.language import Language, find_language, text_rules
from parley.language.answers import AnswerPhrases
from parley.language.cue_words import NoCues, WordCue
from parley.language.facts import ExtractedFacts, NoFacts
from parley.language.intents import CallerIntent, NoIntents
from parley.language.vocabulary import AnsweringPhrases, UtteranceVocabulary, phrases
from parley.language.words import last_word, plain
from parley.models.llm import Message
from parley.models.llm.dialogue_history import read_conversation
from parley.models.llm.documents import DocumentLlm, DocumentLlmSettings
from parley.session_store.memory import fold_state
from parley.turn_taking.answering_machine import judge
from parley.turn_taking.clarification import AskBackTuning, Clarification, Confirmed
from parley.turn_taking.duplex_policy import DuplexPolicy
from parley.turn_taking.endpointing.end_predictor import PauseSigns, other_signals
from parley.turn_taking.endpointing.endpointer import Endpointer, EndpointTuning
from parley.turn_taking.idle import IdleState, IdleWatch
from parley.turn_taking.utterances import Classifier, Utterance, UtteranceKind
from tests.fakes.embedder import WordCountEmbedder
from tests.fakes.timeline import Timeline

TAG = "tests.unit.language.test_second_language:german"


class GermanIntents(NoIntents):
    """A farewell, and nothing else."""

    def caller_intent(self, text: str, /) -> CallerIntent | None:
        return CallerIntent.FAREWELL if self.is_farewell(text) else None

    def is_farewell(self, text: str, /) -> bool:
        return plain(text) in (["tschüss"], ["auf", "wiederhören"])

    def ends_in_farewell(self, text: str, /) -> bool:
        return self.is_farewell(text)


class GermanFacts(NoFacts):
    """A name, and nothing else."""

    def extract_facts(
        self, text: str, facts: Mapping[str, str], recent: Sequence[str] = (), /
    ) -> ExtractedFacts:
        before, said, name = text.partition("Ich heiße ")
        return ExtractedFacts({"name": name.strip(".")}, sure=True, rest=before) if said else ExtractedFacts()


class GermanCues(NoCues):
    """Cues by a single word, on which no sentence ends."""

    def ends_hanging(self, text: str, /) -> bool:
        return last_word(text) == "und"

    def word_cue(self, text: str, *_asked: object) -> WordCue:
        return WordCue.HANGING if self.ends_hanging(text) else super().word_cue(text)


def german() -> Language:
    return Language(
        tag="de",
        name="German",
        vocabulary=UtteranceVocabulary(affirmative=phrases("ja, genau"), stops=phrases("halt, moment mal")),
        answering=AnsweringPhrases(machine=("nach dem signalton",)),
        intents=GermanIntents(),
        facts=GermanFacts(),
        cues=GermanCues(),
        answers=AnswerPhrases(farewell="Auf Wiederhören."),
    )


@pytest.fixture
def language() -> Language:
    return find_language(TAG)


def test_a_tag_finds_a_language_once():
    assert find_language(TAG) is find_language(TAG)
    assert find_language().tag == find_language("en").tag == "en"
    with pytest.raises(ConfigError, match="unknown language 'xx'"):
        find_language("xx")


def test_a_deployment_chooses_the_language_of_its_callers():
    chosen = Deployment.model_validate({"bot": {"language": TAG}})
    assert chosen.language().name == "German"
    assert Deployment().language().name == "English"
    with pytest.raises(ValidationError, match="expected one of en"):
        Deployment.model_validate({"bot": {"language": "xx"}})


@pytest.mark.parametrize(("text", "state"), [("Tschüss!", IdleState.LEAVING), ("goodbye", IdleState.WAITING)])
def test_a_farewell_is_one_of_the_language(language: Language, text: str, state: IdleState):
    watch = IdleWatch(language=language)
    watch.on_turn_ended(1_000, text)
    watch.on_bot_started(2_000)
    watch.on_bot_stopped(3_000, "Gut.")
    assert watch.state is state


def test_the_phrases_of_the_language_are_classified(language: Language):
    classifier = Classifier(vocabulary=language.vocabulary)
    assert classifier.kind(Utterance("moment mal")) is UtteranceKind.STOP
    assert classifier.kind(Utterance("stop")) is not UtteranceKind.STOP


@pytest.mark.parametrize(("answer", "confirms"), [("ja genau", True), ("yes", False)])
def test_a_yes_of_the_language_confirms_a_turn(language: Language, answer: str, confirms: bool):
    asking = Clarification(AskBackTuning(below=0.5), language=language)
    asking.on_words("wie hoch ist mein limit", [0.1] * 5)
    assert asking.on_turn("wie hoch ist mein limit") is not None
    assert (asking.on_turn(answer) == Confirmed()) is confirms


@pytest.mark.parametrize(("text", "hangs"), [("ich habe eine Karte und", True), ("i have a card and", False)])
def test_a_turn_waits_after_a_hanging_word_of_the_language(language: Language, text: str, hangs: bool):
    settings = EndpointTuning(kind="adaptive")
    policy = Endpointer(settings, language=language)
    policy.on_transcript(0, text)
    assert (policy.wait_ms() == settings.hanging_silence_ms) is hangs
    signals = other_signals(PauseSigns(text), language)
    assert ("cue_hanging" in signals) is hangs
    assert not any(name.startswith("syntax_") for name in signals)


def test_a_machine_is_recognised_by_the_phrases_of_the_language(language: Language):
    assert judge("Sprechen Sie nach dem Signalton", language.answering).is_machine
    assert not judge("leave a message after the beep", language.answering).is_machine


def test_facts_are_extracted_by_the_rules_of_the_language(language: Language):
    line = Timeline()
    line.said("Ich heiße Ada.")
    line.said("My account number is 4172.")
    assert fold_state(line.events, language.facts).values == {"name": "Ada"}
    messages = [Message("user", "Ich heiße Ada."), Message("user", "My account number is 4172.")]
    assert read_conversation(messages, language).facts == {"name": "Ada"}


def test_documents_answer_in_the_language(language: Language, tmp_path: Path):
    (tmp_path / "gebühren.md").write_text("# Gebühren\n\nEine Überweisung kostet zwei Euro.\n", "utf-8")
    settings = DocumentLlmSettings(folder=tmp_path, cache_folder=None, threshold=-1)
    model = DocumentLlm(settings, embedder=WordCountEmbedder(), language=language)
    assert model._answer.answer([Message("user", "Tschüss")]) == "Auf Wiederhören."
    asked = [Message("user", "was kostet eine Überweisung")]
    assert model._answer.answer(asked) == "Eine Überweisung kostet zwei Euro."


def test_a_language_without_rules_has_turns_and_voices_all_the_same():
    bare = Language("xx", "None")
    policy = DuplexPolicy(language=bare)
    policy.on_voice_started(0, voiced_ms=200)
    assert bare.cues.word_cue("what are your") is WordCue.PLAIN
    assert [word.spoken for word in text_rules("xx").spoken_words("$5 at 3 p.m.")] == [
        ("$5",), ("at",), ("3",), ("p.m.",)
    ]  # fmt: skip
    assert text_rules("en-us") is find_language().text


@pytest.mark.parametrize(
    ("target", "says"),
    [("json:dumps", "no function without arguments"), ("builtins:dict", "gives dict, expected a Language")],
)
def test_a_place_that_holds_no_language_is_refused_in_one_line(target: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says):
        find_language(target)


def test_a_tag_of_three_letters_is_a_language_of_its_own() -> None:
    assert text_rules("eng") is not find_language().text
    assert text_rules("en_GB") is find_language().text
