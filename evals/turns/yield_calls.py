"""Calls with sounds of people over the bot's voice, for ``yielding``.

A call is one simulated speakerphone (``evals.echo.rooms``). It has a greeting of the bot, a turn of the
caller from which their level is learnt, then replies with one sound over each. The sounds come from one side
of the split (``evals.human.split``). Interruptions are recordings of people, cut to ``LONGEST_S``, and short
claims that people shout ("cut it out"). Backchannels are short comments and hums of people. Coughs are
coughs, groans and laughs. Other people are recordings of another speaker, softer and through a room. Mixed
material adds utterances of the voice generators of the same side. The bot's own echo is a reply with nothing
over it.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from parley.core.media import ms_to_samples
from parley.evals.echo.rooms import RATE_HZ
from parley.evals.human.generators import installed
from parley.evals.human.recordings import RecordedUtterance, edges_of
from parley.evals.human.split import SpeechSet, Split, load_report
from parley.evals.turns import audio, overlap_calls
from parley.evals.turns.overlap_calls import (
    COUGH_DB,
    LEVEL_SPREAD_DB,
    NEAR_SPREAD_DB,
    SIDE_TALK_DB,
    Reply,
    Sound,
    SpeakerphoneScript,
)
from parley.evals.turns.texts import sentences

# Longest interruption, and longest sound of one or two words.
LONGEST_S, SHORT_S = 3.0, 2.0
FADE_S = 0.03
GREETING_MS, GAP_MS, REPLY_MS = 2_500, 1_300, 4_500
ONSET_MS = (700, 1_500)
# Number of recordings of one source, evenly taken; without it the large sources would drown the others.
OF_A_SOURCE = 40
EXCLAMATIONS = "exclamations"
_CLAIMS = (
    "Comeonthen Cutitout Gonnagetyou Hello Hurry Illgetyou Justyouwait Leavemealone Sameteam Stupid "
    "Takecover Thisoneismine Watchit Watchthis Whatthe Youllregretthat Runaway Coward Nutter"
).split()
_LISTENS = "Hmm Yessir Amazing Brilliant Excellent Ohdear Oops Uh-oh".split()
_COUGHS = "PoisonCough Ooff1 Ooff2 Ooff3 Ow1 Ow2 Ow3 Ow4 Ouch Jump1 Jump2 Jump3 Laugh".split()
_BY_WORD = {
    **dict.fromkeys(_CLAIMS, Sound.COMMAND),
    **dict.fromkeys(_LISTENS, Sound.BACKCHANNEL),
    **dict.fromkeys(_COUGHS, Sound.COUGH),
}


@dataclass(frozen=True, slots=True, eq=False)
class SpokenSound:
    """A sound for use over the bot.

    Attributes:
        sound: its kind.
        speaker: person or synthetic voice. The generator's name for a sound without one.
        samples: float32, (samples,), 16 kHz, audible from the first sample.
        is_human: true for a recorded person.
        text: spoken words, as far as they are known.
    """

    sound: Sound
    speaker: str
    samples: np.ndarray
    is_human: bool
    text: str = ""


class SoundMaterial:
    """Sounds over the bot, of one side of the split.

    Args:
        people: recordings.
        generated: utterances of the voice generators of that side, with their kinds.
        of_a_source: largest number of recordings of one source.

    Raises:
        SplitError: something belongs to the other side.
    """

    def __init__(
        self,
        people: SpeechSet,
        generated: Sequence[tuple[Sound, RecordedUtterance]] = (),
        *,
        of_a_source: int = OF_A_SOURCE,
    ) -> None:
        # The constructor checks the side of each.
        type(people)(one for _, one in generated)
        self.sounds = tuple(
            (
                *_of_people(people, of_a_source),
                *(_spoken(kind, one, is_human=False) for kind, one in generated),
            )
        )
        self.talk = tuple(each for each in self.sounds if each.sound is Sound.SENTENCE)

    def of(self, sound: Sound) -> tuple[SpokenSound, ...]:
        """Return all sounds of one kind."""
        return tuple(each for each in self.sounds if each.sound is sound)


def _of_people(people: SpeechSet, most: int) -> Iterator[SpokenSound]:
    talk: dict[str, list[RecordedUtterance]] = {}
    for one in people:
        if one.source != EXCLAMATIONS:
            talk.setdefault(one.source, []).append(one)
        elif (kind := _BY_WORD.get(one.id.rpartition("/")[2])) is not None:
            yield _spoken(kind, one, is_human=True)
    for rows in talk.values():
        for one in rows[:: -(-len(rows) // most)]:
            yield _spoken(Sound.SENTENCE, one, is_human=True)


def _spoken(kind: Sound, one: RecordedUtterance, *, is_human: bool) -> SpokenSound:
    samples = one.at_rate(RATE_HZ)
    first, end = edges_of(samples, RATE_HZ)
    longest = int((LONGEST_S if kind is Sound.SENTENCE else SHORT_S) * RATE_HZ)
    cut = samples[first : min(end, first + longest)].astype(np.float32)
    if end - first > longest:
        fade = int(FADE_S * RATE_HZ)
        cut[-fade:] *= np.linspace(1, 0, fade, dtype=np.float32)
    return SpokenSound(kind, one.speaker, cut, is_human, one.text)


def report_material(*, mixed: bool) -> SoundMaterial:
    """Return people of the report side, and with ``mixed`` its generators.

    Raises:
        ConfigError: recordings were not fetched.
    """
    claims = (
        *overlap_calls.COMMAND_TEXTS,
        *overlap_calls.CORRECTION_TEXTS,
        *overlap_calls.QUESTION_TEXTS,
        *overlap_calls.STOP_TEXTS,
    )
    generated = generated_sounds(Split.REPORT, claims, overlap_calls.BACKCHANNEL_TEXTS) if mixed else ()
    return SoundMaterial(load_report(), tuple(generated))


def generated_sounds(
    side: Split, claims: Sequence[str], listening: Sequence[str]
) -> Iterator[tuple[Sound, RecordedUtterance]]:
    """Yield sentences, claims and backchannels in the installed voice generators of a side."""
    held_out = side is Split.REPORT
    talk = sentences(held_out=held_out)[:40]
    for generator in installed(side):
        for place, voice in enumerate(generator.voices):
            voices = len(generator.voices)
            for text in talk[place::voices]:
                yield Sound.SENTENCE, generator.say(voice, text)
            for text in claims[place::voices]:
                yield Sound.COMMAND, generator.say(voice, text)
            for text in listening:
                yield Sound.BACKCHANNEL, generator.say(voice, text)


class YieldScript(SpeakerphoneScript):
    """Builder of the played signal and the caller's speech of one call.

    Args:
        rng: of all that is drawn.
        speakers: for the bot's voice.
        material: sounds over the bot.
    """

    def __init__(self, rng: np.random.Generator, speakers: audio.Speakers, material: SoundMaterial) -> None:
        self._material = material
        super().__init__(rng, speakers, GREETING_MS)
        first = self._pick(material.talk)
        self._say(self._at, first.samples, 0.0)
        self._at += len(first.samples) + ms_to_samples(GAP_MS, RATE_HZ)

    def add(self, heard: SpokenSound | None) -> None:
        """Add a reply with this sound over it; None for nothing but its echo."""
        began = self._at
        self._at, says = self._say_bot(began, REPLY_MS)
        onset = began + ms_to_samples(int(self._rng.integers(*ONSET_MS)), RATE_HZ)
        kind, text = (Sound.ECHO, "") if heard is None else (heard.sound, heard.text)
        if heard is not None:
            self._say(onset, self._placed(heard), self._over_db(kind))
        self.replies.append(Reply(kind, text, began, onset, self._at, says))
        self._at += ms_to_samples(GAP_MS, RATE_HZ)

    def drawn(self, kind: Sound) -> SpokenSound | None:
        """Draw a sound that is not a recording of its own: talk to others, or None for the echo alone."""
        if kind is Sound.ECHO:
            return None
        other = self._pick(self._material.talk)
        return SpokenSound(Sound.SIDE_TALK, other.speaker, other.samples, other.is_human, other.text)

    def _placed(self, heard: SpokenSound) -> np.ndarray:
        if heard.sound is not Sound.SIDE_TALK:
            return heard.samples
        return self._far(heard.samples)

    def _over_db(self, kind: Sound) -> float:
        """Draw the level over the caller's own."""
        normal = self._rng.normal
        if kind is Sound.SIDE_TALK:
            return SIDE_TALK_DB + float(normal(0, LEVEL_SPREAD_DB))
        if kind is Sound.COUGH:
            return COUGH_DB + float(normal(0, LEVEL_SPREAD_DB))
        return float(normal(0, NEAR_SPREAD_DB))
