"""Detection of small talk, with answers.

Input: the words of the caller. Output: a ``SmallTalkIntent`` with answers to choose from. Exact phrases are
matched here. A phrase that was misheard or worded differently is found by the document engine, which compares
the question with ``phrases()`` as it does with the passages. Pure.
"""

import re
from collections.abc import Sequence

from parley.language.english.spelling import SPELLINGS
from parley.language.small_talk import SmallTalkIntent

# Hesitations such as "umm", "hmmm", "aaah", of any length.
_SOUND = re.compile(r"u+[hm]+|e+r+m*|h+m+|m+h*m+|a+h+|o+h+|e+h+")
_WORD = re.compile(r"[a-z0-9]+(?:'[a-z]+)?")

# Openings before the question itself. Longest first where one begins another.
_OPENINGS = (
    "can you please tell me",
    "can you tell me about",
    "please tell me about",
    "tell me about",
    "could you please tell me",
    "can you tell me",
    "could you tell me",
    "i would like to know",
    "i'd like to know",
    "i want to know",
    "i wanted to know",
    "i wanted to ask",
    "i have a question",
    "do you know",
    "thank you very much",
    "thank you",
    "thanks a lot",
    "thanks",
    "good morning",
    "good afternoon",
    "good evening",
    "hello there",
    "hello",
    "hi there",
    "hi",
    "hey",
    "no i meant",
    "no i mean",
    "i meant",
    "i mean",
    "i said",
    "all right",
    "alright",
    "okay",
    "ok",
    "um",
    "uh",
    "uhm",
    "er",
    "well",
    "so",
    "oh",
    "yes",
    "please",
)
_HESITATION = frozenset(("um", "uh", "uhm", "er", "erm", "hm", "hmm"))
_CLOSINGS = ("thank you", "thanks", "please", "then")
_NOISE = frozenset("um uh uhm er erm hm hmm mm mhm huh ah oh eh the a an and but or of to in is it i".split())


INTENTS = (
    SmallTalkIntent(
        "greeting",
        (
            "hello",
            "hi",
            "hey",
            "hello there",
            "hi there",
            "good morning",
            "good afternoon",
            "good evening",
            "good day",
            "nice to meet you",
            "hello how can you help me",
        ),
        ("Hello! What would you like to know?", "Hello! How can I help you?"),
    ),
    SmallTalkIntent(
        "how are you",
        ("how are you", "how are you doing", "how are you today", "how is it going", "how do you do"),
        ("I am fine, thank you. What would you like to know?",),
    ),
    SmallTalkIntent(
        "thanks",
        (
            "thanks",
            "thank you",
            "thank you very much",
            "thank you so much",
            "thanks so much",
            "thanks a lot",
            "many thanks",
            "okay thank you",
            "great thank you",
            "that was helpful thank you",
            "that helps",
        ),
        ("You are welcome.", "You are welcome. Anything else?"),
    ),
    # ``intents`` recognises the exact phrases; these are compared with misheard ones.
    SmallTalkIntent(
        "goodbye",
        (
            "bye",
            "goodbye",
            "bye bye",
            "good bye",
            "see you",
            "see you later",
            "have a nice day",
            "good night",
            "that is all",
            "that's all",
            "that was all",
            "no that is all",
            "no that's all",
            "nothing else",
        ),
        ("Goodbye, and thank you for calling.",),
    ),
    SmallTalkIntent(
        "who are you",
        (
            "who are you",
            "what is your name",
            "what's your name",
            "who am i talking to",
            "who is speaking",
            "what are you",
        ),
        ("I am {name}, a computer program. I answer questions about things like {topics}.",),
    ),
    SmallTalkIntent(
        "what can you do",
        (
            "what can you do",
            "what can i ask you",
            "what can i ask",
            "what do you know",
            "how can you help me",
            "help",
            "help me",
            "can you help me",
            "i need help",
            "what can you tell me",
            "what topics do you know",
            "what questions can you answer",
            "what can you help me with",
        ),
        (
            "I answer questions from documents, for example about {topics}.",
            "Ask me, for example, about {topics}.",
        ),
    ),
    SmallTalkIntent(
        "machine",
        (
            "are you a robot",
            "are you human",
            "are you a human",
            "are you a machine",
            "are you a computer",
            "are you a real person",
            "am i talking to a machine",
            "am i talking to a robot",
            "are you real",
            "are you an artificial intelligence",
        ),
        ("I am a computer program and not a human being.", "I am a machine. I read answers from documents."),
    ),
    SmallTalkIntent(
        "can you hear me",
        (
            "can you hear me",
            "do you hear me",
            "are you there",
            "is anybody there",
            "anybody there",
            "testing",
            "test",
            "testing one two three",
            "hello can you hear me",
        ),
        ("Yes, I can hear you.",),
    ),
    SmallTalkIntent(
        "praise",
        (
            "great",
            "very good",
            "good job",
            "well done",
            "perfect",
            "wonderful",
            "excellent",
            "you are great",
            "that is great",
            "that's great",
            "nice",
            "cool",
        ),
        ("Thank you! What else would you like to know?",),
    ),
    SmallTalkIntent(
        "acknowledged",
        (
            "okay",
            "ok",
            "all right",
            "alright",
            "i see",
            "i understand",
            "understood",
            "got it",
            "good",
            "fine",
            "yes",
            "yeah",
            "yep",
            "sure",
            "yes please",
            "right",
        ),
        ("What would you like to know?", "What else would you like to know?"),
        similar=False,
    ),
    SmallTalkIntent(
        "declined",
        ("no", "no thanks", "no thank you", "nope", "nothing", "never mind", "forget it"),
        ("All right. I am here when you need me.",),
        similar=False,
    ),
    SmallTalkIntent(
        "start over",
        ("start over", "start again", "begin again", "restart", "from the beginning", "go back"),
        ("All right, once more from the beginning. What would you like to know?",),
        similar=False,
    ),
    SmallTalkIntent(
        "way of speaking",
        (
            "speak louder",
            "speak up",
            "louder",
            "louder please",
            "speak slower",
            "speak more slowly",
            "slower",
            "slow down",
            "speak faster",
            "faster",
            "quieter",
        ),
        ("I cannot change how I speak. I can say it again, though.",),
        similar=False,
    ),
    SmallTalkIntent(
        "displeased",
        (
            "you are stupid",
            "you are useless",
            "you are wrong",
            "that is wrong",
            "that's wrong",
            "that is not right",
            "you do not understand me",
            "you don't understand me",
            "that is not what i asked",
            "that's not what i asked",
            "that is not what i meant",
        ),
        ("I am sorry. Could you ask again in other words?",),
    ),
)


def spoken_words(text: str) -> list[str]:
    """Return the lower-case words of a text, with digits and apostrophes inside words, without
    punctuation.
    """
    return _WORD.findall(text.lower().replace("\u2019", "'"))


def exact_intent(words: Sequence[str]) -> SmallTalkIntent | None:
    """Return the intent that has exactly these words as a phrase, also after "okay" or before "please"."""
    spelled = SPELLINGS.respelled(words)
    for candidate in (words, question_words(words), spelled, question_words(spelled)):
        if (phrase := " ".join(candidate)) in _INTENT_OF:
            return _INTENT_OF[phrase]
    return None


def phrases() -> tuple[str, ...]:
    """Return the phrases with which similar wordings may be compared."""
    return PHRASES


def phrase_intent(number: int) -> SmallTalkIntent:
    """Return the intent that ``PHRASES[number]`` belongs to."""
    return _INTENT_OF[PHRASES[number]]


def question_words(words: Sequence[str]) -> list[str]:
    """Return the words without greetings, thanks and hesitation around the question.

    Never empty unless ``words`` is.
    """
    text = " ".join(word for word in words if word not in _HESITATION) or " ".join(words)
    changed = True
    while changed:
        changed = False
        for opening in _OPENINGS:
            if text.startswith(f"{opening} "):
                text, changed = text[len(opening) + 1 :], True
        for closing in _CLOSINGS:
            if text.endswith(f" {closing}"):
                text, changed = text[: -len(closing) - 1], True
    return text.split()


def is_noise(words: Sequence[str]) -> bool:
    """Return whether the words cannot be a question: hesitation, or single letters."""
    return all(word in _NOISE or len(word) == 1 or _SOUND.fullmatch(word) for word in words)


ALL_PHRASES: tuple[str, ...] = tuple(dict.fromkeys(phrase for intent in INTENTS for phrase in intent.phrases))
PHRASES: tuple[str, ...] = tuple(
    dict.fromkeys(phrase for intent in INTENTS if intent.similar for phrase in intent.phrases)
)
_INTENT_OF = {phrase: intent for intent in reversed(INTENTS) for phrase in intent.phrases}
