"""Texts of callers for fits: none is part of a report (``evals.turns.overlap_calls``)."""

TUNING_COMMAND_TEXTS = (
    "not the first one",
    "how about loans",
    "the second branch",
    "start again please",
    "give me the rate",
    "when is that due",
    "let me explain",
    "i meant monday",
)
TUNING_CORRECTION_TEXTS = (
    "nope",
    "no no",
    "no stop",
    "no not quite",
    "not him",
    "that is not right",
    "i said friday",
    "wrong number",
)
TUNING_QUESTION_TEXTS = (
    "where",
    "when",
    "how many",
    "how far",
    "why not",
    "sorry what",
    "what do you mean",
    "can you repeat that",
)
TUNING_ANSWER_TEXTS = (
    "yes",
    "sure",
    "nope",
    "no thank you",
    "later",
    "on friday",
    "five hundred",
    "the last one",
)
TUNING_ACKNOWLEDGEMENT_TEXTS = (
    "okay right yeah",
    "oh i see okay",
    "fair enough",
    "sounds great",
    "yeah i understand",
    "oh that's great",
    "okay thank you",
    "all right good",
)
