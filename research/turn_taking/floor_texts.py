"""Texts on which the head of ``models.keyword_spotting.floor`` is fitted: backchannels and claims of the
floor.

The claims contain none of the phrases that ``overlap_calls`` reports on, except the closed classes of
English: refusals, stop words, "what" and "why". Backchannels are such a class as well, and all of them there
are included here. Few of them have more than two words, and a line that is fitted on them takes longer ones
for claims.
"""

from parley.evals.turns import overlap_calls
from parley.language.english.vocabulary import UTTERANCES
from research.turn_taking import tuning_texts

_REPORTED = {
    *overlap_calls.COMMAND_TEXTS,
    *overlap_calls.CORRECTION_TEXTS,
    *overlap_calls.QUESTION_TEXTS,
    *overlap_calls.ANSWER_TEXTS,
}
_CLOSED = UTTERANCES.negative | UTTERANCES.stops | {"what", "why", "no"}
# Answers that a listener does not give as a backchannel, and hums that ``sounds.hum`` makes better than a
# synthesiser.
_NO_LISTENER = {"please do", "i do", "i am", "go ahead", "mhm", "mm hmm", "mm", "mmm", "hm", "hmm"}

LISTENING: tuple[str, ...] = (
    *sorted((UTTERANCES.affirmative | UTTERANCES.backchannels) - _NO_LISTENER),
    *("oh okay", "yeah yeah", "okay okay", "oh i see", "right right", "yeah okay", "okay sure", "yes yes"),
    *("oh yeah", "okay great", "ah okay", "oh nice", "sure sure", "all right okay", "yeah right", "oh wow"),
    *("okay thanks", "of course yes"),
)

_CLAIMS = """
what, who, how, when, where, which, how come, what for, who is that, what do you mean, what time, what else,
how so, says who, excuse me, sorry, pardon, repeat that, once more, slower please, louder please, not so fast,
too fast, i know that, skip this, skip it, next one, go on to the next, another one, something else,
change that, go back, start over, let me talk, let me finish, my turn, listen, but wait, but why, well no,
well actually, actually no, not really, never, that's not it, that's wrong, not true, i disagree,
you are wrong, it is not, i don't want that, i don't think so, i didn't ask that, not what i asked, help,
help me, operator, an agent please, a human please, talk to someone, tuesday, wednesday morning, tomorrow,
at five, ten dollars, three hundred, the green one, the second one, my savings, my card, the pin, a mortgage,
a loan, the address, in cash, by phone, online, can i ask, i have a question, one question, one more thing,
tell me more, tell me about loans, give me the number, what is the fee, what is that, where is it, is it free,
is it open, are you sure, are you there, can you hear me, do i need it, do you have it, when does it end,
how old, how big, how often, how soon, what's next, who are you, and the fee, and then what, and on monday,
or cards, or tomorrow, maybe later, maybe not, i mean the other, i want to cancel, i want to pay, i lost it,
i need help, i am lost, call me back, send it to me, write it down, show me, open it, close it, block my card,
freeze it, transfer it, pay the bill, move on, that's enough now, no more, no stop that, no i mean,
no not yet, not yet, not today, not this one, not there, nothing, none, neither, i can't, i won't, i didn't,
we don't, you can't, don't do that, don't, do not, leave it, drop it, turn it off, mute, hush, hey, hello,
hello there, hey you, bob, anna, question, problem, wrong, wrong one, incorrect, error, cancel that,
undo that, go away, why
"""

CLAIMING: tuple[str, ...] = tuple(
    dict.fromkeys(
        text
        for text in (
            *sorted(_CLOSED),
            "please do",
            *tuning_texts.TUNING_COMMAND_TEXTS,
            *tuning_texts.TUNING_CORRECTION_TEXTS,
            *tuning_texts.TUNING_QUESTION_TEXTS,
            *(" ".join(phrase.split()) for phrase in _CLAIMS.split(",")),
        )
        if text not in _REPORTED or text in _CLOSED
    )
)
