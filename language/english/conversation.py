"""Questions about the conversation itself, and the answers: stated facts, earlier questions, topics. Pure."""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from parley.language.conversation import KnownConversation, Recalled
from parley.language.english.facts import find_fact, is_own
from parley.language.english.small_talk import question_words
from parley.language.facts import AGE, BORN, CALL_BACK, HOME, NAME, ORIGIN, WORK, is_note
from parley.language.words import spoken_list

_TOPICS = 3
# Greatest number of facts in one answer, for the listener's sake; each can be asked for.
_TOLD_FACTS = 6
_QUOTED_WORDS = 40

_X = r"(?P<x>[a-z][a-z0-9' -]*?)"
_AGAIN = r"(?: again| please| now| then| once more)*"
_FACT_QUESTIONS = tuple(
    re.compile(f"(?:{pattern}){_AGAIN}")
    for pattern in (
        rf"(?:and )?(?:what|who|which|when|where)(?:'s| is| was| are| were)(?: again)? my {_X}",
        rf"(?:do you (?:still )?(?:know|remember|have|recall)|(?:can|could) you (?:tell me|remember|"
        rf"repeat|say)|"
        rf"tell me|remind me of|say|repeat|remember|recall|what about|"
        rf"you know) (?:what )?my {_X}(?: is| was)?",
        rf"(?:what|which) {_X} did i (?:give|tell|say|mention|state)(?: to)?(?: you)?",
        rf"what my {_X} (?:is|was)",
    )
)
_TOLD_QUESTIONS = tuple(
    re.compile(f"(?:{pattern}){_AGAIN}")
    for pattern in (
        rf"what did i (?:say|tell you|give you|state|mention)(?: that| as| for)? my {_X}(?: (?:was|is|"
        rf"as|were|are))?",
        rf"what (?:was|is|were|are) the {_X} (?:that )?i (?:gave|told|said|mentioned)(?: to)?(?: you)?",
        rf"(?:did i|have i) (?:tell|told|give|given|mention|mentioned)(?: you)? my {_X}",
        rf"what have i (?:told you|said) (?:about |is )?my {_X}(?: is| was)?",
    )
)
_PLAIN_QUESTIONS: tuple[tuple[str, re.Pattern[str]], ...] = tuple(
    (name, re.compile(f"(?:{pattern}){_AGAIN}"))
    for name, pattern in (
        (
            NAME,
            r"(?:do you (?:still )?(?:know|remember) )?who (?:am i|i am)|what am i called|"
            r"what do you call me",
        ),
        (NAME, r"(?:do you (?:still )?(?:know|remember) )?what i am called"),
        (HOME, r"(?:do you (?:still )?(?:know|remember) )?where (?:do i|i) live|what city do i live in"),
        (ORIGIN, r"(?:do you (?:still )?(?:know|remember) )?where (?:am i|i am|do i come|i come) from"),
        (WORK, r"(?:where|who|what) do i (?:work|do)(?: for| as| for a living)?|what is my (?:job|work)"),
        (AGE, r"(?:do you (?:still )?(?:know|remember) )?how old (?:am i|i am)"),
        (BORN, r"(?:when|where) was i born"),
        (
            CALL_BACK,
            r"when (?:should|will|can|do|would|must|are|"
            r"were) you (?:going to )?(?:supposed to )?(?:call|ring|phone) "
            r"me(?: back)?|when (?:do|did) i (?:want|ask|say)(?: for)?(?: you)?(?: to)?(?: be)?(?: a)?"
            r"(?: called?| ring)?(?: me)?(?: back)?",
        ),
    )
)
_INTENT_QUESTION = re.compile(
    r"(?:(?:do you (?:still )?(?:know|remember) )?why (?:am i|i am|i'm|did i|i)(?: calling| call|"
    r" called| here| "
    r"phone| ring)(?: you)?|what (?:am i|was i|i am|did i)(?: calling| call| here| want| come)(?: you)?"
    r"(?: for| about| from you)?|what (?:is|was) (?:the reason for )?my (?:call|request|problem|"
    r"question|concern)"
    r"(?: about)?|what do i want)" + _AGAIN
)
_LAST_SAID = re.compile(
    r"(?:(?:can you repeat )?what (?:did i|have i|i)(?: just)? (?:say|said|ask|asked|tell you|"
    r"told you)(?: to you| you)?"
    r"(?: just now| just| before| before that| last| a moment ago| earlier| now)?|"
    r"what (?:was|is) (?:my|the) (?:last|previous) (?:question|message|sentence)|"
    r"what was the last thing (?:that )?i (?:said|asked)(?: you)?|what was my question|"
    r"repeat what i said)" + _AGAIN
)
_FIRST_SAID = re.compile(
    r"(?:what (?:was|is) (?:my|the) first (?:question|message|thing i (?:said|asked))(?: you)?|"
    r"what did i (?:say|ask)(?: you)? (?:first|at the beginning|at first|in the beginning))" + _AGAIN
)
_TOPIC = re.compile(
    r"(?:(?:do you (?:still )?(?:know|remember) )?what (?:were|are|was) we (?:just )?(?:talking|"
    r"speaking|discussing|"
    r"saying|on)(?: about)?|(?:do you (?:still )?(?:know|remember) )?what we (?:were |have |had |are )?"
    r"(?:just )?(?:talking|speaking|talked|spoke|discussed|discussing)(?: about)?|"
    r"what did we (?:just )?(?:talk|speak|"
    r"discuss|say)(?: about)?|where were we|where did we (?:stop|leave off)|what have we (?:talked|"
    r"spoken|discussed)"
    r"(?: about)?|what (?:is|was) (?:this|our|the) (?:conversation|call|talk|chat) about|"
    r"(?:can you |could you |please )*(?:summarise|summarize|sum up|recap) (?:our|this|"
    r"the) (?:conversation|call|"
    r"talk|chat)|remind me what we (?:were |have )?talk(?:ing|ed) about|"
    r"what was (?:this|that|it) about)(?: so far| just now| before| earlier| last time| again| today|"
    r" until now| "
    r"a moment ago| please)*"
)
_SUMMARY_WORDS = re.compile(r"summari|sum up|recap")
_KNOWN = re.compile(
    r"(?:what (?:do you (?:know|remember)|have you (?:noted|remembered|written down)|can you remember)"
    r" (?:about|of) me|what do you (?:still )?remember|what (?:did i|have i) (?:tell you|"
    r"told you)(?: so far)?"
    r"(?: about (?:me|myself))?|do you remember (?:me|what i (?:told you|said))|"
    r"what have you (?:noted|written down))" + _AGAIN
)
_NOTED = re.compile(
    r"(?:what (?:did i|have i) (?:ask|asked|tell|told|want) you to (?:remember|note|keep in mind|"
    r"write down|not forget)|"
    r"what (?:should|must|were|are) you (?:supposed )?(?:to )?remember(?: for me)?|"
    r"do you remember what i asked you "
    r"to (?:remember|note))" + _AGAIN
)

_NOT_TOLD = {
    NAME: "You have not told me your name.",
    HOME: "You have not told me where you live.",
    ORIGIN: "You have not told me where you are from.",
    WORK: "You have not told me about your work.",
    AGE: "You have not told me how old you are.",
    BORN: "You have not told me that.",
    CALL_BACK: "You have not asked me for a call back.",
}
_SECOND_PERSON = {
    "i": "you", "me": "you", "my": "your", "mine": "yours", "myself": "yourself", "am": "are",
    "i'm": "you are", "i've": "you have", "i'd": "you would", "i'll": "you will",
}  # fmt: skip


def recall(known: KnownConversation, words: Sequence[str], topics: Sequence[str]) -> Recalled | None:
    """Return the answer when ``words`` ask about the conversation, else None.

    Args:
        known: what is known of it.
        words: the question.
        topics: topics so far, oldest first.
    """
    bare = [word for word in words if word not in ("um", "uh", "er")]
    for text in dict.fromkeys((" ".join(bare), " ".join(question_words(bare)))):
        found = _Memory(known).recall(text, topics)
        if found is not None:
            return found
    return None


def acknowledge(known: KnownConversation) -> Recalled | None:
    """Return the answer to the statements of the last message; None when it states nothing."""
    if known.new.facts:
        return Recalled(_thanks(known.new.facts), known.new.sure)
    if known.new.intent:
        return Recalled(f"All right, {_purpose(known.new.intent)}. What would you like to know?", sure=False)
    return None


@dataclass(frozen=True, slots=True)
class _Memory:
    """Answers from what is known of a conversation."""

    known: KnownConversation

    def recall(self, text: str, topics: Sequence[str]) -> Recalled | None:
        for name, pattern in _PLAIN_QUESTIONS:
            if pattern.fullmatch(text):
                return self._fact(name, name)
        if _INTENT_QUESTION.fullmatch(text):
            recalled = f"You told me that {_purpose(self.known.intent)}." if self.known.intent else ""
            return Recalled(recalled or "You have not told me why you are calling.", sure=True)
        for pattern, answer in (
            (_NOTED, self._noted),
            (_KNOWN, self._known),
            (_FIRST_SAID, self._first_said),
            (_LAST_SAID, self._last_said),
        ):
            if pattern.fullmatch(text):
                return Recalled(answer(), sure=True)
        if _TOPIC.fullmatch(text):
            whole = _SUMMARY_WORDS.search(text) is not None
            return Recalled(self._topic(topics, whole=whole), sure=True)
        for patterns, sure in ((_TOLD_QUESTIONS, True), (_FACT_QUESTIONS, False)):
            for pattern in patterns:
                match = pattern.fullmatch(text)
                if match is not None:
                    return self._asked_fact(match["x"], sure=sure)
        if (
            text.startswith("my ")
            and not self.known.new.facts
            and find_fact(self.known.facts, text[3:]) is not None
        ):
            return self._asked_fact(text[3:], sure=True)
        return None

    def _asked_fact(self, asked: str, *, sure: bool) -> Recalled:
        found = find_fact(self.known.facts, asked)
        if found is None and asked in ("address", "home", "city", "town") and HOME in self.known.facts:
            found = HOME
        if found is not None:
            return Recalled(_sentence(_clause(found, self.known.facts[found])), sure=True)
        # "What is my daily limit" is a question for the documents, "what is my name" is not.
        return Recalled(f"You have not told me your {_second(asked)}.", sure=sure or _only_theirs(asked))

    def _fact(self, name: str, asked: str) -> Recalled:
        found = name if name in self.known.facts else None
        if found is None and name == HOME:
            found = find_fact(self.known.facts, "address")
        if found is None and name == WORK:
            found = next(
                (key for key in self.known.facts if key in ("job", "occupation", "profession")), None
            )
        if found is None and name == AGE:
            found = next((key for key in self.known.facts if key in ("birthday", BORN)), None)
        if found is None:
            return Recalled(_NOT_TOLD[asked], sure=True)
        return Recalled(_sentence(_clause(found, self.known.facts[found])), sure=True)

    def _noted(self) -> str:
        notes = [_second(value) for name, value in self.known.facts.items() if is_note(name)]
        if notes:
            return f"You asked me to remember {spoken_list([_that(note) for note in notes], last='and')}."
        return self._known() if self.known.facts else "You have not asked me to remember anything."

    def _known(self) -> str:
        clauses = [_clause(name, value) for name, value in self.known.facts.items()][-_TOLD_FACTS:]
        if self.known.intent:
            clauses.append(_purpose(self.known.intent))
        if not clauses and self.known.said:
            return self._last_said()
        if not clauses:
            return "You have not told me anything about yourself."
        return f"You told me that {spoken_list(clauses, last='and')}."

    def _first_said(self) -> str:
        said = self.known.said
        if self.known.summary:
            return f"That is a while ago. {self._earlier()}"
        return f'You said: "{_quoted(said[0])}"' if said else "You have not said anything before that."

    def _last_said(self) -> str:
        said = self.known.said
        if said:
            return f'You said: "{_quoted(said[-1])}"'
        return self._earlier() or "You have not said anything before that."

    def _topic(self, topics: Sequence[str], *, whole: bool) -> str:
        parts: list[str] = []
        if whole and self.known.facts:
            parts.append(self._known())
        elif self.known.intent:
            parts.append(f"You told me that {_purpose(self.known.intent)}.")
        if topics:
            parts.append(f"We talked about {spoken_list(list(topics)[-_TOPICS:], last='and')}.")
        if not parts and self.known.facts:
            parts.append(self._known())
        if not topics and (earlier := self._earlier()):
            parts.append(earlier)
        if not parts and (said := self.known.said):
            parts.append(f'You said: "{_quoted(said[-1])}"')
        return " ".join(parts) or "We have only just begun to talk."

    def _earlier(self) -> str:
        lines = self.known.summary.splitlines()[-2:]
        return (
            " ".join(["Earlier in our conversation:", *(_second_speaker(line) for line in lines)])
            if lines
            else ""
        )


def _only_theirs(asked: str) -> bool:
    words = asked.split()
    if words[-1] in (
        "pin",
        "password",
        "code",
        "iban",
        "card",
        "id",
        "reference",
        "deadline",
        "budget",
        "book",
        "size",
    ):
        # The documents describe how these are found or changed.
        return False
    return is_own(asked) and len(words) <= 3


def _clause(name: str, value: str) -> str:
    """Return a fact as a part of a sentence to the caller."""
    if is_note(name):
        return f"you asked me to remember {_that(_second(value))}"
    fixed = {
        HOME: f"you live {'at' if value[:1].isdigit() else 'in'} {value}",
        ORIGIN: f"you are from {value}",
        WORK: f"you work {value}",
        BORN: f"you were born {value}",
        AGE: f"you are {value} years old",
        CALL_BACK: f"you want to be called back {value}",
    }
    if name in fixed:
        return fixed[name]
    plural = name.endswith("s") and not name.endswith(("ss", "us"))
    return f"your {_second(name)} {'are' if plural else 'is'} {_second(value)}"


def _purpose(intent: str) -> str:
    """Return the intent as a part of a sentence to the caller."""
    if intent.startswith("to "):
        return f"you want {_second(intent)}"
    if intent.startswith("because "):
        return f"you are calling {_second(intent)}"
    return f"you are calling about {_second(intent)}"


def _thanks(facts: Mapping[str, str]) -> str:
    """Return the acknowledgement of new facts."""
    if list(facts) == [NAME]:
        return f"Nice to meet you, {facts[NAME]}. What can I do for you?"
    notes = [value for name, value in facts.items() if is_note(name)]
    if notes and len(notes) == len(facts):
        return (
            f"All right, I will remember {spoken_list([_that(_second(note)) for note in notes], last='and')}."
        )
    clauses = [_clause(name, value) for name, value in facts.items()]
    return f"Thank you. I have noted that {spoken_list(clauses, last='and')}."


def _that(note: str) -> str:
    return note if note.startswith("to ") else f"that {note}"


def _second(text: str) -> str:
    """Return the caller's words addressed to the caller: "my card" becomes "your card"."""
    words = [_SECOND_PERSON.get(word.lower(), word) for word in text.split()]
    return re.sub(r"\byou was\b", "you were", " ".join(words))


def _second_speaker(line: str) -> str:
    return line.replace("The person", "You").replace("The assistant", "I")


def _sentence(clause: str) -> str:
    return f"{clause[:1].upper()}{clause[1:]}{'' if clause[-1:] in '.!?' else '.'}"


def _quoted(text: str) -> str:
    words = text.split()
    return " ".join(words[:_QUOTED_WORDS]) + (" ..." if len(words) > _QUOTED_WORDS else "")
