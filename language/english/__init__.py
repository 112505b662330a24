"""The rules of English."""

from parley.language import Language
from parley.language.english import (
    conversation,
    cue_words,
    facts,
    identification,
    intents,
    perceived,
    personal_data,
    small_talk,
    sounds,
    spoken_numbers,
    syntax,
    terms,
    text_normalization,
)
from parley.language.english.answers import ANSWERS, QUESTIONS
from parley.language.english.vocabulary import ANSWERING, CLAUSES, UTTERANCES


def english() -> Language:
    """Return the rules of English: each part is a module of this folder."""
    return Language(
        tag="en",
        name="English",
        vocabulary=UTTERANCES,
        answering=ANSWERING,
        intents=intents,
        facts=facts,
        cues=cue_words,
        syntax=syntax,
        numbers=spoken_numbers,
        text=text_normalization,
        clauses=CLAUSES,
        content=terms,
        sounds=sounds,
        identification=identification,
        small_talk=small_talk,
        conversation=conversation,
        perceived=perceived,
        personal=personal_data,
        questions=QUESTIONS,
        answers=ANSWERS,
    )
