"""Distinguish the speakers of a call as they come."""

from pathlib import Path

import numpy as np
import pytest

from parley.core.errors import AgentError
from parley.core.timeline import DiarPayload, KnownVoice, Source
from parley.evals.perception.speakers import both, heard_together, judged
from parley.models.specialists import Finding, VoiceStretch
from parley.models.specialists.speakers import (
    LEAST_S,
    RATE_HZ,
    SpeakerClusters,
    SpeakerSettings,
    SpeakerSpecialist,
    SpeakerStream,
)
from parley.models.specialists.voice_encoder import VoiceEncoder
from tests.unit.models.specialists.test_prosody import voice
from tests.unit.models.specialists.test_voice_encoder import weights


def direction(*values: float) -> np.ndarray:
    """Return an embedding of length 1."""
    made = np.zeros(256, np.float32)
    made[: len(values)] = values
    return made / np.float32(np.linalg.norm(made))


ADA, BEN, ALIKE = direction(1, 0.1), direction(0.1, 1), direction(1, 0.3)


def test_two_voices_are_two_speakers_whatever_their_order():
    clusters = SpeakerClusters(SpeakerSettings())
    found = [clusters.assign(each, 1.5) for each in (ADA, BEN, ALIKE, BEN, ADA)]
    assert [place for place, _ in found] == [0, 1, 0, 1, 0]
    assert all(0 <= confidence <= 1 for _, confidence in found)


def test_two_people_with_one_voice_are_one_speaker():
    clusters = SpeakerClusters(SpeakerSettings())
    assert {clusters.assign(each, 1.5)[0] for each in (ADA, ALIKE, ADA, ALIKE)} == {0}


def test_a_voice_between_two_is_less_certain_than_a_clear_one():
    clusters = SpeakerClusters(SpeakerSettings())
    clusters.assign(ADA, 1.5), clusters.assign(BEN, 1.5)
    _, between = clusters.assign(direction(1, 0.95), 0.1)
    _, clear = clusters.assign(ADA, 0.1)
    assert between < clear


def two_known(seconds: float = 4.0) -> SpeakerClusters:
    clusters = SpeakerClusters(SpeakerSettings())
    clusters.assign(ADA, seconds), clusters.assign(BEN, seconds)
    return clusters


def test_two_known_voices_at_once_are_both_named_the_clearer_one_first():
    clusters = two_known()
    assert clusters.together(direction(1, 0.8)) == (0, 1)
    assert clusters.together(direction(0.7, 1)) == (1, 0)
    # Of three, the two that explain it.
    clusters.assign(direction(0, 0, 1), 4.0)
    assert clusters.together(direction(0.7, 0, 1)) == (2, 0)


@pytest.mark.parametrize(
    "embedding",
    [ADA, ALIKE, direction(0, 0, 1), direction(1, 1, 2), direction(1, -0.8)],
    ids=[
        "one of them",
        "one of them on another day",
        "a third",
        "mostly a third",
        "less than nothing of one",
    ],
)
def test_one_voice_is_not_taken_for_two(embedding: np.ndarray):
    assert two_known().together(embedding) is None


def test_two_at_once_are_not_recognised_before_both_are_known():
    assert two_known(2.0).together(direction(1, 0.8)) is None


class Saying(VoiceEncoder):
    """Encoder that finds scripted embeddings."""

    def __init__(self, *embeddings: np.ndarray) -> None:
        self._embeddings = iter(embeddings)

    def embed(self, audio: np.ndarray) -> np.ndarray:
        return next(self._embeddings)


def test_no_speaker_learns_from_a_stretch_of_two():
    stream = SpeakerStream(Saying(ADA, BEN, direction(1, 0.8), ADA), SpeakerSettings(voiceprints=True))
    found = [stream.judge(VoiceStretch(voice(seconds=4.0), 7, 9)) for _ in range(4)]
    [both] = found[2]
    assert both.speaker == DiarPayload(7, 9, "speaker 1", also="speaker 2") and both.voice is None
    [before], [after] = found[0], found[3]
    assert before.voice is not None and after.voice is not None
    assert after.voice.embedding == before.voice.embedding
    assert after.voice.seconds == pytest.approx(2 * before.voice.seconds)


def known(name: str, embedding: np.ndarray, seconds: float = 20.0) -> KnownVoice:
    return KnownVoice(name, tuple(map(float, embedding)), seconds)


def test_people_of_an_earlier_call_have_their_names_again():
    clusters = SpeakerClusters(SpeakerSettings())
    clusters.recall([known("speaker 1", ADA), known("other", BEN[:128]), known("speaker 2", BEN)])
    assert len(clusters.speakers) == 2
    assert [clusters.assign(each, 1.5)[0] for each in (BEN, direction(0, 0, 1), ALIKE)] == [1, 2, 0]


def test_names_are_those_of_the_session():
    clusters = SpeakerClusters(SpeakerSettings())
    clusters.recall([known("speaker 2", ADA), known("speaker 1", BEN[:128])])
    clusters.assign(BEN, 1.5)
    assert [speaker.name for speaker in clusters.speakers] == ["speaker 2", "speaker 1"]


def test_a_voice_of_long_ago_still_learns():
    clusters = SpeakerClusters(SpeakerSettings())
    clusters.recall([known("speaker 1", ADA, seconds=1e6)])
    for _ in range(200):
        clusters.assign(ALIKE, 2.0)
    assert clusters.speakers[0].likeness(ALIKE) > 0.99


@pytest.mark.parametrize("voiceprints", [True, False])
def test_a_voiceprint_leaves_the_process_only_where_it_is_asked_for(voiceprints: bool):
    stream = SpeakerStream(VoiceEncoder(weights()), SpeakerSettings(voiceprints=voiceprints))
    (found,) = stream.judge(VoiceStretch(voice(), 0, 1))
    assert found.speaker is not None and found.speaker.embedding == ()
    assert (found.voice is not None) == voiceprints
    if found.voice is not None:
        later = SpeakerStream(VoiceEncoder(weights()), SpeakerSettings(voiceprints=True))
        # The first stretch of a call is often too short to tell who speaks.
        assert later.judge(VoiceStretch(voice(seconds=0.4), 1, 2, (found.voice,))) == ()
        (again,) = later.judge(VoiceStretch(voice(), 2, 3))
        assert again.voice is not None and again.voice.seconds > found.voice.seconds
        assert np.linalg.norm(found.voice.embedding) == pytest.approx(1, abs=0.01)


def test_the_number_of_speakers_is_bounded():
    clusters = SpeakerClusters(SpeakerSettings(most_speakers=3))
    places = {clusters.assign(direction(*([0] * at), 1), 1.5)[0] for at in range(10)}
    assert places == {0, 1, 2}


@pytest.mark.parametrize(
    "audio",
    [
        voice(seconds=LEAST_S / 2),
        np.zeros(2 * RATE_HZ, np.float32),
        np.full(2 * RATE_HZ, np.nan, np.float32),
    ],
    ids=["short", "silent", "not a number"],
)
def test_sound_that_says_nothing_of_a_speaker_names_none(audio: np.ndarray):
    stream = SpeakerStream(VoiceEncoder(weights()), SpeakerSettings())
    assert stream.judge(VoiceStretch(audio, 0, 1)) == ()
    (found,) = stream.judge(VoiceStretch(voice(), 3, 4))
    assert found.source is Source.DIAR and found.speaker is not None
    # The embedding stays in the process.
    assert (found.speaker.speaker_id, found.speaker.start_us, found.speaker.embedding) == ("speaker 1", 3, ())


def test_without_its_weights_the_specialist_does_not_load(tmp_path: Path):
    with pytest.raises(AgentError, match="pretrained"):
        SpeakerSpecialist(SpeakerSettings(models_dir=tmp_path))


class Naming:
    """Specialist that gives scripted names."""

    def __init__(self, *names: str) -> None:
        self._names = iter(names)

    def open_stream(self) -> "Naming":
        return self

    def judge(self, stretch: VoiceStretch) -> tuple[object, ...]:
        name = next(self._names)
        return (Finding(1.0, speaker=DiarPayload(0, 1, name)),) if name else ()


@pytest.mark.parametrize(
    ("names", "wrong_s", "count"),
    [
        (("a", "b", "a", "b"), 0, 2),
        (("b", "a", "b", "a"), 0, 2),
        (("a", "a", "a", "a"), 2, 1),
        (("a", "b", "a", "c"), 1, 3),
        (("", "", "", ""), 4, 0),
    ],
)
def test_the_error_of_a_mix_is_that_of_the_best_mapping(names: tuple[str, ...], wrong_s: float, count: int):
    second = np.ones(RATE_HZ, np.float32)
    stretches = [(place % 2, second) for place in range(4)]
    assert judged(Naming(*names), stretches) == (wrong_s, 4.0, count)  # type: ignore[arg-type]


class NamingBoth(Naming):
    """Specialist that names two speakers in loud stretches."""

    def __init__(self) -> None:
        super().__init__()

    def judge(self, stretch: VoiceStretch) -> tuple[object, ...]:
        is_loud = float(np.abs(stretch.audio).max()) > 1.2
        return (Finding(1.0, speaker=DiarPayload(0, 1, "a", also="b" if is_loud else None)),)


def test_stretches_of_two_voices_are_counted_apart_from_those_of_one():
    pair = [np.ones(5 * RATE_HZ, np.float32)] * 2
    counts = heard_together(NamingBoth(), pair, 6, np.random.default_rng(1))  # type: ignore[arg-type]
    assert (counts["both"], counts["both_found"], counts["one_taken_for_both"]) == (2, 2, 0)
    assert counts["one"] >= 6


def test_a_stretch_of_two_voices_has_the_second_in_a_part_of_it():
    mixed = both([np.ones(5 * RATE_HZ, np.float32)] * 2, np.random.default_rng(2))
    levels = set(np.unique(mixed))
    assert levels - {1.0} and 0.5 <= float(np.mean(mixed > 1.0)) <= 1.0
