"""Phrases of English by which turn-taking classifies what it hears, and words around clauses. Tables only."""

import re

from parley.language.clauses import ClauseWords
from parley.language.english.spelling import SPELLINGS
from parley.language.vocabulary import AnsweringPhrases, UtteranceVocabulary, phrases

UTTERANCES = UtteranceVocabulary(
    affirmative=phrases(
        "yes, yeah, yep, yup, yes please, sure, of course, correct, exactly, absolutely, definitely, right, "
        "that's right, that is right, that's it, okay, ok, alright, all right, fine, good, please do, i do, "
        "i am, go ahead, mhm, mm hmm, uh huh"
    ),
    negative=phrases("no, nope, nah, no thanks, no thank you, not really, not now, i don't, i'm not"),
    backchannels=phrases(
        "mhm, mm hmm, mm, mmm, hmm, hm, uh huh, huh, oh, ah, aha, i see, got it, gotcha, i know, understood, "
        "i understand, oh really, really, wow, nice, cool, great, perfect, makes sense, that makes sense, "
        "make sense, true, interesting, thanks, thank you"
    ),
    fillers=phrases("um, uhm, uh, er, erm, eh"),
    hesitations=phrases(
        "well, so, but, and, like, you know, i mean, let me see, let's see, let me think, actually, also, "
        "sorry, excuse me, listen, one thing, a question, i have a question, quick question"
    ),
    stops=phrases(
        "stop, wait, hold on, hang on, be quiet, quiet, shut up, silence, enough, that's enough, "
        "that is enough, one moment, just a moment, one second, just a second, just a minute, never mind, "
        "forget it, pause, cancel"
    ),
    polite=phrases("please, hey, hello, hi, now, just, there, thanks, thank you, sorry, excuse me"),
    stop_tails=phrases(
        "it, that, this, there, talking, speaking, reading, right there, right now, already, for me, "
        "a moment, a minute, a second, a bit, for a moment, for a second, for a minute"
    ),
    hums=phrases(
        "them, the, a, an, am, and, him, hum, ham, in, i'm, em, hem, home, uh, um, but, that, at, if, they, "
        "though, us, had, head, huh, men, man, may, move, ooh, op, half, i, see, you, he, oh, ah"
    ),
    questions=phrases("what, why, how, when, where, who, which"),
    withdrawals=phrases(
        "never mind, nevermind, forget it, forget about it, don't bother, i don't want to wait, "
        "i do not want to wait, go on with you, continue with you, carry on with you"
    ),
    lone_withdrawals=phrases("cancel, cancel that, no need"),
    acceptances=phrases(
        "yes, yeah, yep, yup, yes please, sure, of course, absolutely, definitely, please do, okay, ok, "
        "alright, all right, go ahead, why not, that would be, i would like that, i'd like that, "
        "if you don't mind, if you do not mind, i don't mind, i wouldn't mind"
    ),
    negations=phrases(
        "no, nope, nah, not, never, nothing, don't, doesn't, didn't, can't, cannot, won't, wouldn't, isn't, "
        "without"
    ),
    spellings=SPELLINGS,
)

_MACHINE = (
    "leave a message", "leave your message", "leave me a message", "leave us a message",
    "leave a brief message", "leave a short message", "leave your name", "record your message",
    "record a message", "after the tone", "after the beep", "at the tone", "at the beep", "hear the beep",
    "hear the tone", "sound of the beep", "sound of the tone", "voice mail", "voicemail", "voice messaging",
    "mailbox", "mail box", "answering machine", "answering service", "automated", "automatic voice",
    "please hang up", "simply hang up", "you may hang up", "when you have finished", "when you are finished",
    "finished recording", "your call has been forwarded", "forwarded to", "has been disconnected",
    "not in service", "no longer in service", "number you have dialed", "number you have dialled",
    "number you dialed", "person you are calling", "person you are trying", "party you are",
    "subscriber you", "customer you", "cannot be completed", "can not be completed", "circuits are busy",
    "is not available", "can not take your call", "cannot take your call", "can't take your call",
    "unable to take your call", "unable to answer", "can't come to the phone", "cannot come to the phone",
    "can not come to the phone", "unable to come to the phone", "away from my phone", "away from the phone",
    "away from my desk", "missed your call", "office hours", "currently closed", "outside of our",
    "press one", "press two", "press 1", "press 2", "press pound", "press the pound", "more options",
    "other options", "get back to you", "return your call", "call you back as soon",
    "call back as soon", "give you a call back", "try your call", "check the number", "mail boxes",
)  # fmt: skip
_HINTS = (
    "message", "beep", "tone", "leave", "leave a", "leave your", "reached", "unavailable", "available",
    "name and number", "recording", "record", "press", "as soon as", "take your call", "to the phone",
    "mail", "pound", "options", "hang up",
)  # fmt: skip
_PERSON = (
    "who is this", "who's this", "who is that", "who's calling", "who is calling", "who am i", "may i help",
    "can i help", "how can i", "how may i", "what do you want", "what is it", "what's up",
    "who are you", "can you hear me", "are you there", "speaking", "hang on", "hold on", "one moment",
    "just a moment", "say that again", "what can i do",
)  # fmt: skip

ANSWERING = AnsweringPhrases(machine=_MACHINE, hints=_HINTS, person=_PERSON)

CLAUSES = ClauseWords(
    abbreviations=frozenset(
        (
            "mr mrs ms dr prof st sr jr vs etc e.g i.e approx inc ltd co dept est fig ave u.s u.k a.m p.m "
            "jan feb mar apr jun jul aug sept sep oct nov dec"
        ).split()
    ),
    maybe_last=frozenset({"a.m", "p.m", "etc", "inc", "ltd", "co", "u.s", "u.k"}),
    before_number=frozenset({"no"}),
    conjunctions=re.compile(
        r"\s(?=(?:and|or|but|because|which|while|although|so that|unless)\s)", re.IGNORECASE
    ),
)
