"""Golden questions as spoken by voices and recognised by a recogniser.

There is one row for each voice and condition: the questions of a half and the noise of its side, spoken by
that voice. One more row for each condition has sounds of people that are no question: speech in another
language, coughs, groans and shouts, put to every document set. Voices and people are of the same side of the
split as the questions; the bot's own voice is marked, because no caller has it.

A turn goes through the product's recogniser piece by piece, as in a call, and the product's rule asks back
the turns of which the recogniser is not sure. A question that is asked back is not right.
"""

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from parley.configs.engines import settings_model
from parley.core.errors import ConfigError, EngineError, MediaError
from parley.core.media import float_to_pcm16
from parley.evals.answers.asking import FOLDERS, Examiner, HeardTurn, Tally, load_models, read_golden
from parley.evals.answers.scoring import NOT_UNDERSTOOD, Golden, Kind
from parley.evals.harness.report import markdown
from parley.evals.human.conditions import Condition, Surroundings
from parley.evals.human.conversations import PEAK
from parley.evals.human.generators import VoiceGenerator, installed
from parley.evals.human.recordings import RecordedUtterance
from parley.evals.human.split import ReportSet, SpeechSet, Split, TuningSet, load_report, load_tuning
from parley.evals.stt.measure import PIECE_SAMPLES, RATE_HZ, padded, word_errors
from parley.evals.stt.normalise import normalised
from parley.evals.stt.rows import create
from parley.models.stt import STT, SpeechStream, recogniser_traits
from parley.turn_taking.clarification import AskBackTuning

# Voice of a fresh deployment.
BOTS_OWN = "hibari"
PEOPLE = "people, no question"
# Letters are spelled out: a longer row of them takes a minute.
MOST_CHARS = 120
# Number of recordings of each kind of people's sounds.
PEOPLE_CLIPS = 60
LONGEST_CLIP_S = 12.0
_NOT_CAUGHT = ("catch|understand|again|know",)


@dataclass(frozen=True, slots=True)
class Row:
    """Figures of one voice in one condition.

    Attributes:
        voice: generator and voice.
        condition: name of it.
        tally: verdicts on the questions, or on people's sounds.
        noise: verdicts on the noise that the voice speaks. None for people.
        words: number in all turns of the questions.
        errors: number of word errors in them.
    """

    voice: str
    condition: str
    tally: Tally
    noise: Tally | None = None
    words: int = 0
    errors: int = 0

    def figures(self) -> dict[str, Any]:
        """Return the figures of the JSON."""
        return {
            "voice": self.voice,
            "condition": self.condition,
            "word_errors": round(self.errors / self.words, 4) if self.words else None,
            "questions": self.tally.figures(),
            "noise": self.noise.figures() if self.noise else None,
        }


@dataclass(frozen=True, slots=True, eq=False)
class _Ear:
    """Recognisers of the document sets with a condition before them."""

    streams: Mapping[str, SpeechStream]
    surroundings: Surroundings
    condition: Condition
    seed: int

    def hear(self, one: RecordedUtterance, place: int, documents: str) -> HeardTurn:
        """Return the recognised words of an utterance.

        Args:
            one: the utterance.
            place: its index.
            documents: name of the document set that it is about.
        """
        stream = self.streams[documents]
        voice = one.at_rate(RATE_HZ)
        said, _ = padded(voice * (PEAK / max(float(np.abs(voice).max(initial=0.0)), 1e-6)))
        rng = np.random.default_rng([self.seed, place])
        heard = self.surroundings.heard(said, self.condition, rng, speaker=one.speaker)
        stream.start()
        for start in range(0, len(heard), PIECE_SAMPLES):
            stream.feed(float_to_pcm16(heard[start : start + PIECE_SAMPLES]))
        final = stream.finish()
        # Each confidence goes with a word of the text; one entry may have several words.
        confidences = tuple(word.confidence for word in final.words for _ in word.text.split())
        return HeardTurn(final.text, confidences)

    def hear_all(
        self, said: Mapping[str, RecordedUtterance], about: Mapping[str, str]
    ) -> dict[str, HeardTurn]:
        """Return the recognised words of each utterance; ``about`` names the document set of each."""
        return {key: self.hear(one, place, about[key]) for place, (key, one) in enumerate(said.items())}


def measure(
    split: Split,
    *,
    engine: str,
    conditions: Sequence[Condition],
    voices: Sequence[str] = (),
    questions: int | None = None,
    seed: int = 1,
) -> Iterator[Row]:
    """Yield the rows of every installed voice of a side, then those of people.

    Args:
        split: side of questions, voices and people.
        engine: row of the recognisers.
        conditions: conditions of the audio.
        voices: names of generators. Empty for all, and people.
        questions: number of questions of the half. None for all.
        seed: of noise, losses and the choice of people's recordings.

    Raises:
        AgentError: no such generator on this side, recordings that were not fetched, an engine that failed.
    """
    generators = [one for one in installed(split) if not voices or one.name in voices]
    if not generators:
        raise ConfigError(f"no such voice of the {split.value} side is installed: {', '.join(voices)}")
    # A deployment's recogniser expects the words of its documents.
    streams = {name: create(engine, documents=folder).open_stream() for name, folder in FOLDERS.items()}
    examiner = Examiner(load_models(), _ask_back(engine))
    rows, noise = read_golden(split.value)[:questions], _noise(split)[:questions]
    try:
        for generator in generators:
            for voice in generator.voices:
                asked = {turn: row.documents for row in (*rows, *noise) for turn in row.turns}
                said = say(generator, voice, asked)
                surroundings = Surroundings(_set_of(split, said.values()))
                for condition in conditions:
                    heard = _Ear(streams, surroundings, condition, seed).hear_all(said, asked)
                    yield _voice_row(f"{generator.name} {voice}", condition, rows, noise, heard, examiner)
        if not voices:
            people = _people(split, seed)
            clips = {one.id: one for one in people}
            for condition in conditions:
                ear = _Ear(streams, Surroundings(people), condition, seed)
                by_set = {name: ear.hear_all(clips, dict.fromkeys(clips, name)) for name in FOLDERS}
                yield _people_row(condition, by_set, examiner)
    finally:
        for stream in streams.values():
            stream.close()


def _ask_back(engine: str) -> AskBackTuning | None:
    """Return the rule by which a deployment with this recogniser asks back; None for never."""
    settings = settings_model(STT.factory(engine.partition(":")[0]))
    traits = recogniser_traits(settings.model_construct())
    if traits.doubtful_below is None:
        return None
    return AskBackTuning(below=traits.doubtful_below, lost_below=traits.lost_below)


def _noise(split: Split) -> list[Golden]:
    return [row for row in read_golden(f"noise_{split.value}") if row.kind is Kind.NOISE]


def say(generator: VoiceGenerator, voice: str, turns: Iterable[str]) -> dict[str, RecordedUtterance]:
    """Return the sound of each turn that a voice can speak; other scripts and mere marks are left out."""
    said: dict[str, RecordedUtterance] = {}
    for turn in dict.fromkeys(turns):
        if not turn.isascii() or len(turn) > MOST_CHARS:
            continue
        try:
            said[turn] = generator.say(voice, turn)
        except (EngineError, MediaError):
            # Some programs fail when nothing is audible. A question must be spoken.
            if any(word.isalpha() and len(word) > 1 for word in turn.split()):
                raise
    return said


def _set_of(split: Split, utterances: Iterable[RecordedUtterance]) -> SpeechSet:
    return ReportSet(utterances) if split is Split.REPORT else TuningSet(utterances)


def _voice_row(
    voice: str,
    condition: Condition,
    rows: Sequence[Golden],
    noise: Sequence[Golden],
    heard: Mapping[str, HeardTurn],
    examiner: Examiner,
) -> Row:
    def hear(turn: str) -> HeardTurn:
        return heard.get(turn, HeardTurn(turn))

    # An English voice cannot speak another language: people do.
    tally = asyncio.run(examiner.run(rows, hear, written={Kind.LANGUAGE}))
    of_noise = asyncio.run(examiner.run(noise, hear, written=()))
    turns = dict.fromkeys(turn for row in rows if row.kind not in NOT_UNDERSTOOD for turn in row.turns)
    pairs = [(normalised(turn), normalised(heard[turn].text)) for turn in turns if turn in heard]
    return Row(
        voice,
        condition.name,
        tally,
        of_noise,
        words=sum(len(reference) for reference, _ in pairs),
        errors=sum(word_errors(reference, understood) for reference, understood in pairs),
    )


def _people(split: Split, seed: int) -> SpeechSet:
    """Choose recordings of people without an English question: speech in other languages, and sounds."""
    material = load_report() if split is Split.REPORT else load_tuning()
    rng = np.random.default_rng(seed)
    foreign = [one for one in material if one.language != "en" and one.text]
    sounds = [one for one in material if one.source == "exclamations"]
    chosen: list[RecordedUtterance] = []
    for kind in (foreign, sounds):
        fitting = [one for one in kind if one.duration_s <= LONGEST_CLIP_S]
        places = rng.permutation(len(fitting))[:PEOPLE_CLIPS]
        chosen.extend(fitting[place] for place in sorted(places))
    return _set_of(split, chosen)


def _people_row(
    condition: Condition, by_set: Mapping[str, Mapping[str, HeardTurn]], examiner: Examiner
) -> Row:
    # A turn may be heard differently with each document set. Without recognised words there is none.
    heard = {f"{name} {clip}": turn for name, turns in by_set.items() for clip, turn in turns.items()}
    rows = [
        Golden(key.partition(" ")[0], Kind.NOISE, (key,), _NOT_CAUGHT)
        for key, turn in heard.items()
        if turn.text
    ]
    tally = asyncio.run(examiner.run(rows, heard.__getitem__, written=()))
    return Row(PEOPLE, condition.name, tally)


def table(rows: Sequence[Row]) -> str:
    """Return a Markdown table, a row for each voice and condition; the bot's own voice is marked."""
    shown = []
    for row in rows:
        tally, noise = row.tally, row.noise
        mark = " (the bot's own)" if row.voice.split()[0] == BOTS_OWN else ""
        errors = f"{100 * row.errors / row.words:.1f} %" if row.words else None
        right = f"{tally.right.total()} of {tally.asked.total()}" if noise else None
        facts = tally.facts_for_noise + (noise.facts_for_noise if noise else 0)
        turns = sum(each.asked[kind] for each in (tally, noise) if each for kind in NOT_UNDERSTOOD)
        counts = (tally.reversed, tally.asked_back, f"{facts} of {turns}")
        shown.append((f"{row.voice}{mark}", row.condition, errors, right, *counts))
    head = ("voice", "condition", "word errors", "right", "reversed", "asked back", "facts for noise")
    return markdown(head, shown) + "\n"
