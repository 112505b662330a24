"""Words of English questions to documents, and the phrases around an answer. Tables only."""

import re

from parley.language.answers import AnswerPhrases, QuestionWords
from parley.language.english.terms import stem


def _words(text: str) -> frozenset[str]:
    return frozenset(text.split())


def _stems(text: str) -> frozenset[str]:
    return frozenset(stem(word) for word in text.split())


_SOURCES = frozenset(
    (
        "where does that come from", "where did you get that", "how do you know", "how do you know that",
        "where is that from", "says who", "who says that", "what is your source", "where does it say that",
    )
)  # fmt: skip
# Compares "up to 25 metres" in a statement with "30 metres" in the question.
_RANGE = re.compile(
    r"\b(up to|at most|below|under|less than|above|over|more than|at least|from) (\d+(?:\.\d+)?) (\w+)"
)
_CHOICE = re.compile(
    r"\b(?:which (?:one|of|is|are|would|should|do)|should i (?:take|choose|buy|get|use|pick)|better|compare|"
    r"difference between|recommend|what is the difference)\b"
)
# Documents say "bus 12 stops at the door" and "Mill Lane 14", and neither "you" nor "here".
_DIRECTIONS = "address how to get here by bus or car where we are"
_PLACE = r"(?:office|shop|store|branch|building|place|company|business|location)"
_REWORDINGS = (
    (
        re.compile(
            rf"where (?:exactly )?(?:are you|is (?:your|the) {_PLACE}|(?:can|do) (?:i|we) find you)"
            r"(?: (?:located|based|situated|exactly|please))*"
            r"|what(?:'s| is) (?:your|the) (?:exact |street )?(?:address|location)"
            r"|how (?:do|can|would|should) (?:i|we) (?:get|come|drive|travel|go) (?:there|here|to you)"
            rf"|how (?:do|can|would|should) (?:i|we) (?:get|come|drive|travel|go) to (?:your|the) {_PLACE}"
        ),
        _DIRECTIONS,
    ),
    (re.compile(r"what (?:should|can|must|do|shall) (?:i|we) do (?:if|when|now that) (.+)"), r"\1"),
    (re.compile(r"what happens (?:if|when) (.+)"), r"\1"),
    (re.compile(r"(.+) what (?:(?:should|can|must|do|shall) (?:i|we) do(?: now| then)?|now)"), r"\1"),
)
# Adjectives with the columns that they refer to; true when a small number is meant.
_ADJECTIVES = {
    word: (is_small, _stems(columns))
    for words, is_small, columns in (
        ("cheaper cheapest", True, "price"),
        ("expensive dearer dearest", False, "price"),
        ("lighter lightest", True, "weight mass"),
        ("heavier heaviest", False, "weight mass"),
        ("quieter quietest", True, "noise sound volume decibel"),
        ("louder loudest", False, "noise sound volume decibel"),
        ("faster fastest quicker quickest", True, "time duration latency delay p50"),
        ("slower slowest", False, "time duration latency delay p50"),
        ("longer longest", False, "length duration time runtime period"),
        ("shorter shortest", True, "length duration time period"),
        ("stronger strongest powerful", False, "power pressure"),
        ("bigger biggest larger largest", False, "size capacity flow"),
        ("smaller smallest", True, "size capacity flow"),
    )
    for word in words.split()
}

QUESTIONS = QuestionWords(
    asking=_words("what which who whom whose where when why how"),
    open_questions=_words("what which who where when"),
    lists=_words("which what"),
    yes_no=frozenset(
        "is are was were do does did can could will would should may must has have isn't aren't don't "
        "doesn't can't "
        "couldn't won't shouldn't hasn't haven't".split()
    ),
    how_to=("how do i ", "how can i ", "how to ", "how should i ", "how do you ", "how must i "),
    sources=_SOURCES,
    follow_ups=("and", "but", "or", "what about", "how about", "what if"),
    pointing=_words("it its that they them their those these this there one ones him her"),
    joining=_words("and but so also because"),
    amounts=_words("cost costs price much many long often when"),
    leaning=frozenset(
        "it they this that these those then he she both otherwise anything also its their none but "
        "however".split()
    ),
    objects=_words("it them"),
    also=_words("also"),
    exceptions=_words("but except unless however only"),
    denying=("un", "in", "im", "il", "ir", "dis", "non", "mis"),
    range=_RANGE,
    upper=frozenset(("up to", "at most", "below", "under", "less than")),
    choice=_CHOICE,
    open_choice=re.compile(r"\b(?:should i|would you|better|recommend|best)\b"),
    yes=frozenset(("yes", "y", "true", "\u2713", "\u2714", "supported", "included")),
    no=frozenset(("no", "n", "false", "\u2717", "\u2718", "none", "never", "not supported", "not included")),
    largest=_words("largest biggest highest greatest"),
    smallest=_words("smallest lowest fewest"),
    with_more=_words("expensive powerful"),
    more=_words("more most"),
    fitting=_stems("suited suitable fit works good supported safe ok okay approved permitted"),
    bounds=_stems("maximum minimum max min"),
    adjectives=_ADJECTIVES,
    articles=_words("the a an our your my"),
    rewordings=_REWORDINGS,
)

ANSWERS = AnswerPhrases(
    greeting="Hello, I am {name}. Ask me about {topics}.",
    ask_again=(
        "Sorry, I did not catch that. Could you say it again?",
        "I did not understand you. Could you repeat that, please?",
    ),
    other_language="Sorry, I only understand {language}.",
    no_human="I am a computer program, and I cannot put you through to a person from here.",
    no_pictures="I cannot see pictures.",
    sounds_unhappy="You do not sound happy with that. What is wrong?",
    disagree='I heard two people who want different things: "{first}" and "{second}". Which is it?',
    farewell="Goodbye, and thank you for calling.",
    moment="Take your time.",
    stopped="All right.",
    nothing_said="I have not said anything yet. What would you like to know?",
    no_advice="I cannot choose for you. ",
    unknown=(
        "I don't know. Here is what I can answer: {topics}.",
        "I don't know that one. I can tell you about {topics}.",
        "Sorry, I don't know. You can ask me about {topics}.",
    ),
    source="That is from {source}.",
    the="the ",
    all_said="That is all I have about {topic}.",
    related=" You can also ask me about {topics}.",
    either="or",
)
