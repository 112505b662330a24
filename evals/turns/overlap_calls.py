"""Calls with sounds over the bot's voice: the played signal, the caller's speech, and the microphone signal.

A call begins with a greeting, during which echo control learns the room, and a turn of the caller, from which
the recogniser learns the voice. Then replies follow, each with one sound over it. The caller interrupts with
a sentence, a short command, a stop word, a correction or a question of a few words. Or the caller answers a
question at the start of the reply, hums along, coughs, or is silent. Or another person in the room talks. The
bot's voice comes back as an echo (``evals.echo.rooms``), as loud as it is played at that moment: a ducked bot
has a quieter echo (``Room``). Everything is drawn from the seed and the place of the call.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import ClassVar, TypeVar

import numpy as np

from parley.core.media import ms_to_samples
from parley.evals.echo.rooms import RATE_HZ, EchoPath, Speakerphone, at_level, impulse_response, noise
from parley.evals.echo.speech import BOT, BOT_LINES
from parley.evals.turns import audio, sounds
from parley.evals.turns.texts import sentences

Picked = TypeVar("Picked")
# The bot speaks in slt; any other voice may call, or talk in the background.
CALLERS: tuple[tuple[str, str], ...] = (
    ("flite", "rms"),
    ("flite", "awb"),
    ("flite", "kal16"),
    ("espeak", "en-us"),
    ("espeak", "en-us+f3"),
    ("espeak", "en-us+m3"),
)
COMMAND_TEXTS = (
    "no not that one",
    "what about cards",
    "the other account",
    "go back please",
    "tell me the fee",
    "how much is it",
    "listen to me",
    "i mean savings",
)
CORRECTION_TEXTS = (
    "no",
    "no no",
    "no no no",
    "no wait",
    "not that",
    "that is wrong",
    "i said monday",
    "wrong account",
)
QUESTION_TEXTS = (
    "what",
    "why",
    "how much",
    "how long",
    "which one",
    "what was that",
    "why is that",
    "say that again",
)
ANSWER_TEXTS = (
    "yes",
    "yes please",
    "no",
    "no thanks",
    "not now",
    "on monday",
    "two hundred",
    "the first one",
)
# Stop words and backchannels are a closed class: the same in fits and in other calls.
STOP_TEXTS = (
    "stop",
    "wait",
    "hold on",
    "hang on",
    "stop please",
    "wait a minute",
    "one moment",
    "please stop",
)
BACKCHANNEL_TEXTS = ("yeah", "okay", "right", "uh huh", "i see", "yes", "sure", "got it")
# A listener's phrases of several words are open again.
ACKNOWLEDGEMENT_TEXTS = (
    "right okay sure",
    "i see okay great",
    "sounds good",
    "oh really",
    "yeah that makes sense",
    "oh that's interesting",
    "okay got it thanks",
    "good good",
)
# Lines of the bot, and questions that it asks before it goes on without waiting.
TOLD = tuple(line for line in BOT_LINES if not line.endswith("?"))
ASKED = ("Is that right?", "When would you like to come?", "Shall I do that now?")
GREETING_MS, GAP_MS, REPLY_MS = 3_000, 1_300, 6_000
# From one line of the bot to the next.
BETWEEN_MS = 200
# Range of the beginning of a sound in its reply.
ONSET_MS = (800, 2_400)
# Range of the time from the question to an answer.
ANSWER_MS = (200, 1_500)
ECHO_DBFS, NEAR_OVER_ECHO_DB, NEAR_SPREAD_DB = -36.0, 12.0, 2.0
COUGH_DB, SIDE_TALK_DB, LEVEL_SPREAD_DB = 6.0, -18.0, 5.0
ROOM_DBFS = -65.0
DELAYS_MS = (40, 250)


class Sound(Enum):
    """Kinds of sounds over the bot."""

    SENTENCE = "sentence"
    COMMAND = "command"
    STOP = "stop"
    CORRECTION = "correction"
    QUESTION = "question"
    ANSWER = "answer"
    BACKCHANNEL = "backchannel"
    ACKNOWLEDGEMENT = "acknowledgement"
    HUM = "hum"
    COUGH = "cough"
    SIDE_TALK = "side_talk"
    ECHO = "echo"

    @property
    def is_meant(self) -> bool:
        """True when the caller wants the floor."""
        return self in (
            *(Sound.SENTENCE, Sound.COMMAND, Sound.STOP),
            *(Sound.CORRECTION, Sound.QUESTION, Sound.ANSWER),
        )

    @property
    def is_backchannel(self) -> bool:
        """True for a backchannel of a word or two, or a hum.

        An acknowledgement of several words is reported separately: by its length it may be an interruption.
        """
        return self in (Sound.BACKCHANNEL, Sound.HUM)


# Sounds of a call, one over each reply, in an order of its own. Of those that are meant, 7 of 9 are short.
OF_A_CALL = (
    *(Sound.SENTENCE, Sound.SENTENCE, Sound.COMMAND, Sound.COMMAND, Sound.STOP, Sound.STOP),
    *(Sound.CORRECTION, Sound.QUESTION, Sound.ANSWER),
    *(Sound.BACKCHANNEL, Sound.BACKCHANNEL, Sound.BACKCHANNEL, Sound.HUM, Sound.HUM),
    *(Sound.ACKNOWLEDGEMENT, Sound.ACKNOWLEDGEMENT),
    *(Sound.COUGH, Sound.SIDE_TALK, Sound.ECHO),
)


@dataclass(frozen=True, slots=True)
class Reply:
    """A reply and the sound over it. Positions are samples of the call.

    Attributes:
        sound: kind of the sound.
        text: its words. Empty without any.
        began: first sample of the reply.
        onset: first audible sample of the sound.
        ended: end of the reply.
        says: words of the reply.
        asked: end of the question with which it begins. None when it begins with none.
    """

    sound: Sound
    text: str
    began: int
    onset: int
    ended: int
    says: str
    asked: int | None = None


@dataclass(frozen=True, slots=True)
class Room:
    """Signals of a call.

    Attributes:
        bot: played signal at full volume: float32, (samples,), 16 kHz.
        near: the caller, others and the room: float32, (samples,).
        path: from the played signal to the microphone; it holds the reverberation.
    """

    bot: np.ndarray
    near: np.ndarray
    path: EchoPath

    def hear(self, at: int, played: np.ndarray) -> np.ndarray:
        """Return the microphone signal from sample ``at`` on, while ``played`` is played:
        float32, as long.
        """
        heard = self.path.hear(played) + self.near[at : at + len(played)]
        return np.clip(heard, -1, 1).astype(np.float32)


class SpeakerphoneScript:
    """Builder of a call over a speakerphone: a greeting of the bot, then what a subclass adds.

    Args:
        rng: of all that is drawn.
        speakers: voices.
        greeting_ms: length of the greeting, during which echo control learns the room.
    """

    def __init__(self, rng: np.random.Generator, speakers: audio.Speakers, greeting_ms: int) -> None:
        self._rng, self._speakers = rng, speakers
        self._bot: list[tuple[int, np.ndarray]] = []
        self._near: list[tuple[int, np.ndarray]] = []
        self._phone = Speakerphone(
            seed=int(rng.integers(1 << 30)), delay_ms=float(rng.uniform(*DELAYS_MS)), direct_db=3.0
        )
        self.replies: list[Reply] = []
        self._at = self._say_bot(0, greeting_ms)[0] + ms_to_samples(GAP_MS, RATE_HZ)

    def room(self) -> Room:
        """Return the whole call, from the first sample on."""
        bot, near = np.zeros(self._at, np.float32), np.zeros(self._at, np.float32)
        for track, parts in ((bot, self._bot), (near, self._near)):
            for at, part in parts:
                track[at : at + len(part)] += part[: len(track) - at]
        near += noise(len(near), ROOM_DBFS, self._phone.seed)
        return Room(bot, near, EchoPath(self._phone, bot, ECHO_DBFS))

    def _say(self, at: int, samples: np.ndarray, over_db: float) -> None:
        self._near.append((at, at_level(samples, ECHO_DBFS + NEAR_OVER_ECHO_DB + over_db)))

    def _say_bot(self, at: int, length_ms: int, lines: Sequence[str] = TOLD) -> tuple[int, str]:
        """Add speech of the bot of about this length; return (its end, its words)."""
        end, said = at, []
        while end < at + ms_to_samples(length_ms, RATE_HZ):
            line = self._pick(lines)
            sound, _ = self._speakers.speak("flite", BOT, line)
            self._bot.append((end, sound))
            end += len(sound) + ms_to_samples(BETWEEN_MS, RATE_HZ)
            said.append(line)
        return end, " ".join(said)

    def _far(self, samples: np.ndarray) -> np.ndarray:
        """Return another person's voice as it arrives from the room."""
        room = impulse_response(
            Speakerphone(seed=self._phone.seed + 1, delay_ms=0.0, reverb_ms=400.0, direct_db=-3.0)
        )
        return np.convolve(samples, room)[: len(samples)].astype(np.float32)

    def _pick(self, rows: Sequence[Picked]) -> Picked:
        return rows[int(self._rng.integers(len(rows)))]


class CallScript(SpeakerphoneScript):
    """Builder of the signals of one call, sample by sample.

    A subclass may have other texts; here they are those on which nothing was chosen.
    """

    held_out: ClassVar[bool] = True
    texts: ClassVar[Mapping[Sound, Sequence[str]]] = {
        Sound.COMMAND: COMMAND_TEXTS,
        Sound.STOP: STOP_TEXTS,
        Sound.CORRECTION: CORRECTION_TEXTS,
        Sound.QUESTION: QUESTION_TEXTS,
        Sound.ANSWER: ANSWER_TEXTS,
        Sound.BACKCHANNEL: BACKCHANNEL_TEXTS,
        Sound.ACKNOWLEDGEMENT: ACKNOWLEDGEMENT_TEXTS,
    }

    def __init__(self, rng: np.random.Generator, voice: tuple[str, str], speakers: audio.Speakers) -> None:
        self._voice, self._corpus = voice, sentences(held_out=self.held_out)
        super().__init__(rng, speakers, GREETING_MS)
        # From this turn the recogniser learns the caller.
        first = self._speak(voice, self._pick(self._corpus))
        self._say(self._at, first, 0.0)
        self._at += len(first) + ms_to_samples(GAP_MS, RATE_HZ)

    def add(self, sound: Sound) -> None:
        """Add a reply with this sound over it."""
        began, asked, question = self._at, None, ""
        if sound is Sound.ANSWER:
            asked, question = self._say_bot(began, 1, ASKED)
            asked -= ms_to_samples(BETWEEN_MS, RATE_HZ)
        self._at, says = self._say_bot(
            asked + ms_to_samples(BETWEEN_MS, RATE_HZ) if asked else began, REPLY_MS
        )
        if asked is None:
            onset = began + ms_to_samples(int(self._rng.integers(*ONSET_MS)), RATE_HZ)
        else:
            onset = asked + ms_to_samples(int(self._rng.integers(*ANSWER_MS)), RATE_HZ)
            says = f"{question} {says}"
        text, samples, over_db = self._make(sound)
        if samples is not None:
            self._say(onset, samples, over_db)
        self.replies.append(Reply(sound, text, began, onset, self._at, says, asked))
        self._at += ms_to_samples(GAP_MS, RATE_HZ)

    def _make(self, sound: Sound) -> tuple[str, np.ndarray | None, float]:
        """Return words, sound (None for an echo) and its level over the caller's own."""
        rng = self._rng
        spread_db = float(rng.normal(0, NEAR_SPREAD_DB))
        if sound is Sound.ECHO:
            return "", None, 0.0
        if sound is Sound.HUM:
            return "", sounds.hum(rng), spread_db
        if sound is Sound.COUGH:
            return "", sounds.cough(rng), COUGH_DB + float(rng.normal(0, LEVEL_SPREAD_DB))
        if sound is Sound.SIDE_TALK:
            others = [voice for voice in CALLERS if voice != self._voice]
            text = self._pick(self._corpus)
            far = self._speak(others[int(rng.integers(len(others)))], text)
            level_db = SIDE_TALK_DB + float(rng.normal(0, LEVEL_SPREAD_DB))
            return text, self._far(far), level_db
        text = self._pick(self._corpus if sound is Sound.SENTENCE else self.texts[sound])
        return text, self._speak(self._voice, text), spread_db

    def _speak(self, voice: tuple[str, str], text: str) -> np.ndarray:
        return audio.trimmed(self._speakers.speak(*voice, text)[0])
