"""Questions of the callers, with their voices and pauses.

The questions are answered by the example documents (``knowledge/``). A plan is a list of utterances drawn
from them with a seed, so two systems under test get the same words, voices and pauses. At least 30 % of every
plan has one pause of 300-700 ms inside the sentence, after a filler or a conjunction. An endpointer that
saves time by cutting people off there shows false cut-ins. The module makes neither sound (``speech.py``) nor
calls (``client.py``).
"""

import random
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TypeVar

T = TypeVar("T")

PAUSED_PERCENT = 40
MIN_PAUSE_MS = 300
MAX_PAUSE_MS = 700

# The bot speaks with slt: callers use the other voices. espeak-ng is rare because the embedded recogniser
# recognises it badly, and an unrecognised turn must still be answered in time.
VOICES: tuple[tuple[str, str], ...] = (
    ("flite", "rms"),
    ("flite", "awb"),
    ("flite", "kal16"),
    ("flite", "rms"),
    ("flite", "awb"),
    ("flite", "kal16"),
    ("flite", "rms"),
    ("espeak", "en-us"),
)

WHOLE: tuple[str, ...] = (
    "what are your opening hours on saturday",
    "how do i report a lost card",
    "how much does an international wire cost",
    "what is the interest rate on the savings account",
    "how do i change my address",
    "how long does a transfer take",
    "what is the daily limit for cash withdrawals",
    "how do i open an account",
    "what does a replacement card cost",
    "i forgot my pin",
    "how do i close my account",
    "are you open on public holidays",
    "how much is the monthly account fee",
    "what is the rate for a mortgage",
    "can i use my card abroad",
    "how do i deposit a check",
    "how do i dispute a card payment",
    "what is the overdraft limit",
    "how can i reach customer service",
    "how do i freeze my card",
    "what does a safe deposit box cost",
    "how do i stop a direct debit",
    "what is a standing order",
    "how do i log in with my fingerprint",
)

PAUSED: tuple[tuple[str, str], ...] = (
    ("i lost my card and,", "i want to report it"),
    ("what are your opening hours, um,", "on saturday"),
    ("i would like to know, uh,", "what a wire transfer costs"),
    ("i am moving to a new house, so,", "how do i change my address"),
    ("can you tell me the interest rate for, um,", "a personal loan"),
    ("i want to open an account, but,", "i do not have much money"),
    ("i am going to travel and,", "i need to use my card abroad"),
    ("how long does it take, um,", "until a transfer arrives"),
    ("i sent money to the wrong account and,", "i want it back"),
    ("what do i need for, uh,", "a student account"),
    ("i forgot my password because,", "i have a new phone"),
    ("is there a fee when, um,", "i withdraw cash at another bank"),
)

# Questions with long answers, for events that must happen while the bot speaks.
LONG_ANSWERS: tuple[str, ...] = (
    "what is the interest rate on the savings account",
    "how do i change my address",
    "how long does a transfer take",
    "how do i open an account",
    "what does a replacement card cost",
    "how can i reach customer service",
)
# About 12 s of the bot's speech.
LONG_SPEECH = (
    "The branch is open from nine until five on weekdays, and from ten until two on Saturdays. A replacement "
    "card costs five dollars and is with you within a week. Transfers that are sent before four in the "
    "afternoon arrive on the next working day. "
)
# A question takes two seconds and its answer eight; with this before it a caller speaks for about as long as
# the bot. It has no pause, because no turn should be cut off here.
COURTESY = "thank you that helped me a lot and now there is one more thing that i would like to ask you"


@dataclass(frozen=True, slots=True)
class Utterance:
    """An utterance of a caller.

    Attributes:
        parts: one text, or two with the pause between them.
        pause_ms: silence between the parts, 0 for one part.
        engine: speech engine of the caller's voice.
        voice: its voice.
        gap_ms: wait after the bot's last word before the utterance.
    """

    parts: tuple[str, ...]
    pause_ms: int
    engine: str
    voice: str
    gap_ms: int

    @property
    def text(self) -> str:
        """All parts in one line."""
        return " ".join(self.parts)


def plan(turns: int, seed: int) -> list[Utterance]:
    """Draw ``turns`` utterances; the same arguments give the same plan.

    Every question is used once before any is repeated, and the pauses are spread over the whole plan.
    """
    dice = random.Random(seed)
    paused_turns = set(dice.sample(range(turns), k=-(-turns * PAUSED_PERCENT // 100)))
    whole = _rounds(WHOLE, dice)
    paused = _rounds(PAUSED, dice)
    utterances = []
    for turn in range(turns):
        is_paused = turn in paused_turns
        engine, voice = VOICES[turn % len(VOICES)]
        utterances.append(
            Utterance(
                parts=next(paused) if is_paused else (next(whole),),
                pause_ms=dice.randint(MIN_PAUSE_MS, MAX_PAUSE_MS) if is_paused else 0,
                engine=engine,
                voice=voice,
                gap_ms=dice.randint(200, 900),
            )
        )
    return utterances


def conversation(turns: int, engine: str, voice: str) -> list[Utterance]:
    """Return a natural conversation in which each question comes with a courtesy, always the same."""
    return [
        Utterance((f"{COURTESY} {WHOLE[turn % len(WHOLE)]}",), 0, engine, voice, 400) for turn in range(turns)
    ]


def _rounds(rows: Sequence[T], dice: random.Random) -> Iterator[T]:
    """Yield endless shuffled rounds over ``rows``."""
    while True:
        yield from dice.sample(rows, k=len(rows))
