"""Classify a short stretch of the caller's voice: a backchannel, a command to stop, an answer, or talk.

Inputs: the recognised words with their confidences, and the sound: the lengths of its stretches of voice and
its level. Output: one ``UtteranceKind``. Words alone prove nothing, because a recogniser has to write
something: PocketSphinx writes "them" for "mhm". A word that recognisers write for a hum counts for nothing
while the sound is no longer than a hum. Words of low confidence count for nothing at all, and words that do
not fill the voice do not describe it. Where words are no evidence, the sound decides. The sound only
identifies what is certainly short, so that "undecided" (``UNCLEAR``) is a possible result.

The module is pure. The phrases are those of the language (``language.vocabulary``).
"""

from dataclasses import dataclass
from enum import Enum

from pydantic import Field, model_validator

from parley.core.strict_model import StrictModel
from parley.core.tuning import tuned
from parley.language import find_language
from parley.language.vocabulary import UtteranceVocabulary
from parley.language.words import plain


class UtteranceKind(Enum):
    """Kind of an utterance."""

    NOISE = "noise"
    UNCLEAR = "unclear"
    BACKCHANNEL = "backchannel"
    FILLER = "filler"
    HESITATION = "hesitation"
    ANSWER = "answer"
    STOP = "stop"
    SUBSTANTIVE = "substantive"

    @property
    def claims_floor(self) -> bool:
        """True when the speaker wants the floor; "well" and "but" claim it too."""
        return self in (
            UtteranceKind.HESITATION,
            UtteranceKind.ANSWER,
            UtteranceKind.STOP,
            UtteranceKind.SUBSTANTIVE,
        )

    @property
    def leaves_floor(self) -> bool:
        """True when the speaker surely does not want the floor. ``UNCLEAR`` neither claims nor leaves it."""
        return self in (UtteranceKind.NOISE, UtteranceKind.BACKCHANNEL, UtteranceKind.FILLER)


class UtteranceSettings(StrictModel):
    """Phrases and thresholds. Lengths are those of the voice, without the detector's lag.

    The longest hum and backchannel follow Full-Duplex-Bench, whose backchannels last 0.25 to 0.7 s. The
    median confidence of PocketSphinx is 0.90 for right words and 0.26 for wrong ones.
    """

    more_stops: tuple[str, ...] = Field((), description="additional phrases that stop the bot")
    more_backchannels: tuple[str, ...] = Field((), description="additional backchannels")


class UtteranceTuning(UtteranceSettings):
    """Utterance settings including the values that no deployment sets."""

    noise_ms: int = Field(
        100, ge=0, le=1_000, description="length below which a sound without words is no voice"
    )
    hum_ms: int = Field(700, ge=100, le=3_000, description="longest continuous voice of a single hum")
    backchannel_ms: int = Field(
        1_200, ge=200, le=5_000, description="total voice of a backchannel of several words"
    )
    most_stretches: int = Field(
        3, ge=1, le=10, description="stretches of voice in one backchannel without words"
    )
    word_ms: int = Field(
        700,
        ge=200,
        le=3_000,
        description="voice that one word accounts for; a longer voice means more than its words",
    )
    word_confidence: float = Field(
        0.4, ge=0, le=1, description="confidence below which a word is not counted"
    )
    # Hardly any sound is taken for just these words: 0.15 finds 8 of 9 that PocketSphinx recognised in three
    # synthetic voices ("stop", "wait", "hold on"), 0.5 finds 5.
    stop_confidence: float = Field(
        0.15, ge=0, le=1, description="the same for a word that stops the bot, when it is the only utterance"
    )
    lone_word_confidence: float = Field(
        0.6, ge=0, le=1, description="the same for a single word in a sound no longer than a hum"
    )
    quiet_db: float = Field(
        -15.0,
        ge=-60,
        le=0,
        description="level relative to the caller's usual level below which a voice belongs to another "
        "person",
    )
    burst_db: float = Field(
        9.0,
        ge=0,
        le=60,
        description="level above the caller's usual level from which a short sound without words is a cough "
        "or a knock",
    )

    @model_validator(mode="after")
    def _ordered(self) -> "UtteranceTuning":
        if not self.noise_ms <= self.hum_ms <= self.backchannel_ms:
            raise ValueError("expected noise_ms <= hum_ms <= backchannel_ms")
        return self


@dataclass(frozen=True, slots=True)
class Utterance:
    """Facts about a stretch of the caller's voice.

    Attributes:
        text: the words so far, or the final ones; empty when there are none.
        confidences: 0..1, one for each word that spaces divide, or one for all of them; empty from a
            recogniser that does not report them, which is believed.
        stretches_ms: lengths of its stretches of voice, in order; the last one may not have ended.
        is_over: True when no more of it will come.
        level_db: its level relative to this caller's usual voice; None when that is not known.
    """

    text: str = ""
    confidences: tuple[float, ...] = ()
    stretches_ms: tuple[int, ...] = ()
    is_over: bool = True
    level_db: float | None = None

    @property
    def voiced_ms(self) -> int:
        """Total length of its voice."""
        return sum(self.stretches_ms)


class _Part(Enum):
    """Classification of a phrase; the order is that of precedence."""

    STOP = "stops"
    NEGATIVE = "negative"
    BACKCHANNEL = "backchannels"
    FILLER = "fillers"
    HESITATION = "hesitations"
    POLITE = "polite"
    OTHER = "other"


@dataclass(frozen=True, slots=True)
class _Phrase:
    """A phrase of an utterance and the confidence of its worst word."""

    text: str
    part: _Part
    confidence: float


@dataclass(frozen=True, slots=True)
class _Lexicon:
    """A vocabulary, prepared for lookups."""

    parts: dict[str, _Part]
    longest: int
    answers: frozenset[str]
    hums: frozenset[str]
    questions: frozenset[str]
    stop_tails: frozenset[str]


class Classifier:
    """Classifier of utterances. Holds no state of a call.

    Args:
        settings: thresholds and further phrases; None for the defaults.
        vocabulary: words of the language that is spoken; None for the default language.
    """

    def __init__(
        self, settings: UtteranceSettings | None = None, *, vocabulary: UtteranceVocabulary | None = None
    ) -> None:
        self.settings = tuned(UtteranceTuning, settings)
        self._vocabulary = vocabulary or find_language().vocabulary
        self._lexicon = _lexicon(self.settings, self._vocabulary)

    def kind(self, utterance: Utterance, *, question_open: bool = False) -> UtteranceKind:
        """Return the kind of the utterance, as far as it is known.

        Args:
            utterance: the sound and its words.
            question_open: True when the bot has just asked something: "yeah" is an answer then.
        """
        words = self._believed(utterance)
        if self._stops(words):
            return UtteranceKind.STOP
        if utterance.level_db is not None and utterance.level_db <= self.settings.quiet_db:
            # Another person in the room, or a television: its words may well be recognised.
            return UtteranceKind.NOISE
        understood = self._understood(words)
        if not understood or 2 * len(understood) < len(words):
            return self._kind_by_sound(utterance)
        phrases = self._phrases(self._without_backchannels(utterance, understood))
        kind = self._kind_by_words(phrases, question_open)
        if kind is not None:
            return kind if kind.claims_floor or self._filled(utterance, understood) else UtteranceKind.UNCLEAR
        return self._kind_of_talk(utterance, understood)

    def may_be_backchannel(self, text: str) -> bool:
        """Return whether words, however unsure, begin as a listener's and contain at most one more.

        A recogniser that is not sure yet writes "okay i" for the "okay" of its final result: too little to
        judge by, enough to wait for a moment. A word that recognisers write for any vowel ("oh") does not
        count.
        """
        phrases = self._phrases([(word, 1.0) for word in self._vocabulary.words(text)])
        listening = 0
        while listening < len(phrases) and self._is_listener(phrases[listening]):
            listening += 1
        first = phrases[:listening]
        is_sign = any(phrase.part is _Part.BACKCHANNEL for phrase in first)
        return is_sign and sum(len(phrase.text.split()) for phrase in phrases[listening:]) <= 1

    def _is_listener(self, phrase: _Phrase) -> bool:
        if phrase.part is _Part.POLITE:
            return True
        return phrase.part is _Part.BACKCHANNEL and phrase.text not in self._lexicon.hums

    def is_claim(self, utterance: Utterance, *, least_words: int) -> bool:
        """Return whether the speaker refuses ("no"), or asks or says something in at least so many words."""
        phrases = self._phrases(self._understood(self._believed(utterance)))
        if any(phrase.part is _Part.NEGATIVE for phrase in phrases):
            return True
        return self.content_words(utterance) >= least_words

    def says_the_same(self, text: str, command: str) -> bool:
        """Return whether two engines recognised the same in a short voice.

        This holds for the same words, if they have weight, or when each is a question of one word.
        """
        words, others = self._vocabulary.words(text), self._vocabulary.words(command)
        if len(words) == len(others) == 1 and words[0] in self._lexicon.questions:
            return others[0] in self._lexicon.questions
        return words == others and self.content_words(Utterance(command)) > 0

    def content_words(self, utterance: Utterance) -> int:
        """Return the number of recognised words that are more than a sign of listening or of life."""
        phrases = self._phrases(self._understood(self._believed(utterance)))
        return sum(
            len(phrase.text.split())
            for phrase in phrases
            if phrase.part in (_Part.OTHER, _Part.NEGATIVE, _Part.STOP)
            and phrase.text not in self._lexicon.hums
        )

    def _believed(self, utterance: Utterance) -> list[tuple[str, float]]:
        """Return each word, in the spelling of the phrases, with its confidence."""
        heard = _words(utterance)
        words: list[tuple[str, float]] = []
        at = 0
        for spelled, length in self._vocabulary.spellings.spelled([word for word, _ in heard]):
            confidence = min(confidence for _, confidence in heard[at : at + length])
            words += [(word, confidence) for word in spelled]
            at += length
        return words

    def _understood(self, words: list[tuple[str, float]]) -> list[tuple[str, float]]:
        return [word for word in words if word[1] >= self.settings.word_confidence]

    def _without_backchannels(
        self, utterance: Utterance, understood: list[tuple[str, float]]
    ) -> list[tuple[str, float]]:
        """Remove the words that recognisers write for the end of a short sound, where others are left.

        A word that takes the floor ("but") is removed too when its confidence is low.
        """
        if not 0 < utterance.voiced_ms <= self.settings.hum_ms:
            return understood
        phrases = self._phrases(understood)
        kept = [
            phrase
            for phrase in phrases
            if phrase.text not in self._lexicon.hums
            or (phrase.part is _Part.HESITATION and phrase.confidence >= self.settings.lone_word_confidence)
        ]
        if not any(phrase.part is _Part.BACKCHANNEL for phrase in kept):
            return understood
        return [(word, phrase.confidence) for phrase in kept for word in phrase.text.split()]

    def _stops(self, words: list[tuple[str, float]]) -> bool:
        """Return whether the words are a stop, with nothing of weight around it.

        "okay, wait a second" is one, "the wait is long" is not.
        """
        phrases = self._phrases(words)
        before = (_Part.BACKCHANNEL, _Part.FILLER, _Part.NEGATIVE, _Part.HESITATION, _Part.POLITE)
        start = 0
        while start < len(phrases) and phrases[start].part in before:
            start += 1
        if start == len(phrases) or phrases[start].part is not _Part.STOP:
            return False
        tail = " ".join(phrase.text for phrase in phrases[start + 1 :] if phrase.part is _Part.OTHER)
        if tail and tail not in self._lexicon.stop_tails:
            return False
        return phrases[start].confidence >= self.settings.stop_confidence

    def _kind_by_words(self, phrases: list[_Phrase], question_open: bool) -> UtteranceKind | None:
        """Return the kind by the words alone; None when they are talk."""
        parts = {phrase.part for phrase in phrases}
        light = {_Part.BACKCHANNEL, _Part.FILLER, _Part.POLITE}
        if question_open and parts <= light | {_Part.NEGATIVE, _Part.HESITATION}:
            if any(phrase.text in self._lexicon.answers for phrase in phrases):
                return UtteranceKind.ANSWER
        if _Part.HESITATION in parts and parts <= light | {_Part.HESITATION}:
            # PocketSphinx writes "and" for a hum.
            if not all(phrase.text in self._lexicon.hums for phrase in phrases):
                return UtteranceKind.HESITATION
        if _Part.BACKCHANNEL in parts and parts <= light:
            return UtteranceKind.BACKCHANNEL
        return UtteranceKind.FILLER if parts == {_Part.FILLER} else None

    def _kind_of_talk(self, utterance: Utterance, understood: list[tuple[str, float]]) -> UtteranceKind:
        is_backchannel = len(understood) <= 2 and all(word in self._lexicon.hums for word, _ in understood)
        is_weak = len(understood) == 1 and understood[0][1] < self.settings.lone_word_confidence
        if is_backchannel or is_weak:
            is_short = utterance.voiced_ms <= self.settings.hum_ms
            return self._kind_by_sound(utterance) if is_short else UtteranceKind.UNCLEAR
        return UtteranceKind.SUBSTANTIVE

    def _filled(self, utterance: Utterance, understood: list[tuple[str, float]]) -> bool:
        """Return whether the words account for the voice: one "yeah" in 3 s is only a part of it."""
        return utterance.voiced_ms <= self.settings.word_ms * max(1, len(understood))

    def _kind_by_sound(self, utterance: Utterance) -> UtteranceKind:
        chosen = self.settings
        if not utterance.is_over:
            # A sound that begins like a hum may continue as anything.
            return UtteranceKind.UNCLEAR
        stretches_ms = utterance.stretches_ms
        longest_ms = max(stretches_ms, default=0)
        if utterance.voiced_ms <= chosen.noise_ms:
            return UtteranceKind.NOISE
        if longest_ms > chosen.hum_ms or utterance.voiced_ms > chosen.backchannel_ms:
            return UtteranceKind.UNCLEAR
        if utterance.level_db is not None and utterance.level_db >= chosen.burst_db:
            return UtteranceKind.NOISE
        return (
            UtteranceKind.BACKCHANNEL if len(stretches_ms) <= chosen.most_stretches else UtteranceKind.UNCLEAR
        )

    def _phrases(self, words: list[tuple[str, float]]) -> list[_Phrase]:
        """Return the words as the longest phrases of the vocabulary."""
        found = []
        at = 0
        while at < len(words):
            for length in range(min(self._lexicon.longest, len(words) - at), 0, -1):
                stretch = words[at : at + length]
                text = " ".join(word for word, _ in stretch)
                part = self._lexicon.parts.get(text)
                if part is not None or length == 1:
                    confidence = min(confidence for _, confidence in stretch)
                    found.append(_Phrase(text, part or _Part.OTHER, confidence))
                    at += length
                    break
        return found


def _words(utterance: Utterance) -> list[tuple[str, float]]:
    """Return each word with its confidence.

    Raises:
        ValueError: the number of confidences is neither that of the words, nor one, nor none.
    """
    raw = utterance.text.split()
    given = utterance.confidences or (1.0,)
    if len(given) not in (1, len(raw)) and raw:
        raise ValueError(f"{len(given)} confidences for {len(raw)} words")
    each = given if len(given) == len(raw) else given * len(raw)
    return [(word, confidence) for text, confidence in zip(raw, each, strict=False) for word in plain(text)]


def _lexicon(settings: UtteranceSettings, vocabulary: UtteranceVocabulary) -> _Lexicon:
    stops = vocabulary.stops | {" ".join(vocabulary.words(phrase)) for phrase in settings.more_stops}
    more = {" ".join(vocabulary.words(phrase)) for phrase in settings.more_backchannels}
    by_part = {
        _Part.POLITE: vocabulary.polite,
        _Part.HESITATION: vocabulary.hesitations,
        _Part.FILLER: vocabulary.fillers,
        _Part.BACKCHANNEL: vocabulary.backchannels | vocabulary.affirmative | more,
        _Part.NEGATIVE: vocabulary.negative,
        _Part.STOP: stops,
    }
    parts = {phrase: part for part, phrases in by_part.items() for phrase in phrases}
    return _Lexicon(
        parts=parts,
        longest=max((len(phrase.split()) for phrase in parts), default=1),
        answers=vocabulary.affirmative | vocabulary.negative,
        hums=vocabulary.hums,
        questions=vocabulary.questions,
        stop_tails=vocabulary.stop_tails,
    )
