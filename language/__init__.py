"""Rules about natural languages: one ``Language`` for each, found by its tag.

Everything that depends on the words of a language is here: what a caller intends, which facts they state,
how numbers are spoken, by which words a turn goes on. The parts of a ``Language`` are the protocols of the
modules of this folder. ``english`` holds the only implementation; the classes ``No...`` implement a language
that has no rules of the kind yet.

Other modules take a ``Language``, or one part of it, and import no language by name. Pure.
"""

import re
from dataclasses import dataclass, field
from functools import cache

from parley.core.errors import ConfigError
from parley.core.registry import Registry, Row
from parley.language.answers import AnswerPhrases, QuestionWords
from parley.language.clauses import ClauseWords
from parley.language.content_words import ContentRules, EveryWord
from parley.language.conversation import ConversationRules, NoConversation
from parley.language.cue_words import CueRules, NoCues, SyntaxRules
from parley.language.facts import FactRules, NoFacts
from parley.language.identification import IdentificationRules, NoIdentification
from parley.language.intents import IntentRules, NoIntents
from parley.language.numbers import NoNumbers, NumberRules
from parley.language.perceived import NoPerceived, PerceivedRules
from parley.language.personal_data import PersonalDataRules, WrittenPersonalData
from parley.language.small_talk import NoSmallTalk, SmallTalkRules
from parley.language.sounds import NoSounds, SoundRules
from parley.language.text_normalization import NoNormalization, TextNormalization
from parley.language.vocabulary import AnsweringPhrases, UtteranceVocabulary

DEFAULT = "en"


@dataclass(frozen=True, slots=True)
class Language:
    """Rules of one language.

    Attributes:
        tag: of BCP 47: "en", "de".
        name: in English.
        vocabulary: phrases of a caller: agreement, listening, hesitation, stop.
        answering: phrases of answering machines and of people who answer a call.
        intents: turns that are a request to the bot: a farewell, a person, "stop".
        facts: statements of a person about themselves, and questions.
        cues: signs in the last words that more is coming.
        syntax: such signs in the grammar of a turn.
        numbers: numbers in words.
        text: spoken form of written text, for the voices.
        clauses: words around the ends of sentences and clauses.
        content: content words of questions and documents.
        sounds: sounds of words, for what was misheard.
        identification: other languages, and words that are none.
        small_talk: greetings and thanks, with answers, and the words around a question.
        conversation: questions about the conversation itself, with answers.
        perceived: words that mean more with what was perceived while they were said.
        personal: personal data in words, written and spoken.
        questions: words of questions to documents.
        answers: phrases around an answer from documents.
    """

    tag: str
    name: str
    vocabulary: UtteranceVocabulary = field(default_factory=UtteranceVocabulary)
    answering: AnsweringPhrases = field(default_factory=AnsweringPhrases)
    intents: IntentRules = field(default_factory=NoIntents)
    facts: FactRules = field(default_factory=NoFacts)
    cues: CueRules = field(default_factory=NoCues)
    syntax: SyntaxRules = field(default_factory=NoCues)
    numbers: NumberRules = field(default_factory=NoNumbers)
    text: TextNormalization = field(default_factory=NoNormalization)
    clauses: ClauseWords = field(default_factory=ClauseWords)
    content: ContentRules = field(default_factory=EveryWord)
    sounds: SoundRules = field(default_factory=NoSounds)
    identification: IdentificationRules = field(default_factory=NoIdentification)
    small_talk: SmallTalkRules = field(default_factory=NoSmallTalk)
    conversation: ConversationRules = field(default_factory=NoConversation)
    perceived: PerceivedRules = field(default_factory=NoPerceived)
    personal: PersonalDataRules = field(default_factory=WrittenPersonalData)
    questions: QuestionWords = field(default_factory=QuestionWords)
    answers: AnswerPhrases = field(default_factory=AnswerPhrases)

    def fixes_meaning(self, word: str) -> bool:
        """Return whether a word, in lower case, is a denial, a number or a question word.

        The subject of a misheard question may be guessed, but none of these.
        """
        return (
            self.content.is_negated((word,))
            or word in self.questions.asking
            or self.numbers.with_digits([word]) != [word]
        )


LANGUAGES: Registry[Language] = Registry(
    "language", {"en": Row("parley.language.english:english", "English")}
)


@cache
def find_language(tag: str = DEFAULT) -> Language:
    """Return the language of a tag.

    Raises:
        ConfigError: there is no such language, with the known ones, or its place holds something else.
    """
    factory = LANGUAGES.factory(tag)
    try:
        language = factory()
    except TypeError as error:
        raise ConfigError(f"language {tag!r} is no function without arguments: {error}") from error
    if not isinstance(language, Language):
        raise ConfigError(f"language {tag!r} gives {type(language).__name__}, expected a Language")
    return language


@cache
def text_rules(tag: str) -> TextNormalization:
    """Return the text normalisation for a voice of this language ("en-us"); for an unknown one, none."""
    primary = re.split("[-_]", tag.lower())[0]
    return find_language(primary).text if primary in LANGUAGES else NoNormalization()
