"""Tell the speakers of one call apart, as they come: diarization on the caller's side of the line.

Input: stretches of voice. Output: a ``DiarPayload`` with "speaker 1", "speaker 2" and so on, in the order in
which they were first heard. Each stretch of at least ``LEAST_S`` is embedded
(``models.specialists.voice_encoder``) and compared with the mean of each known speaker. It belongs to the
most similar one, or to a new one when none is similar enough. A shorter stretch says too little by itself;
its words take the speaker of their neighbours.

When two known speakers speak at once, the embedding lies between theirs: both together explain it better
than the more similar one does alone. Such a stretch names both. No speaker learns from it, and it opens no
new one.

The confidence is the margin over the next speaker. Two people with one voice are one speaker. A voiceprint is
personal data: without ``voiceprints`` nothing is compared across calls, and no embedding leaves the process.
With it each finding has the voiceprint of its speaker, and a stream may begin with those of earlier calls.

``same_from`` is the limit with the least error in ``python -m evals.perception.speakers --set tuning``;
without ``--set`` the command reports the error on other people. ``TOGETHER_GAIN`` and ``TOGETHER_FROM`` found
most mixed stretches of the tuning side among the limits that took at most 2 % of the stretches of one known
speaker, and 5 % of those of a third, for two at once.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import count
from pathlib import Path

import numpy as np
from pydantic import Field

from parley.core.files import require_hashes
from parley.core.pinned_models import PINNED_MODELS
from parley.core.strict_model import StrictModel
from parley.core.timeline import DiarPayload, KnownVoice, Source
from parley.models.specialists import Finding, VoiceStretch
from parley.models.specialists.voice_encoder import ENCODER_RATE_HZ, UNITS, VoiceEncoder

ENGINE = "speakers"
RATE_HZ = ENCODER_RATE_HZ
FILE = "pretrained.pt"
# A shorter stretch has fewer sounds than a voice is known by.
LEAST_S = 0.8
# Voice of each speaker before two of them are recognised at once: a mean of less is that of its words.
KNOWN_FROM_S = 3.0
# Part of an embedding that two speakers explain together, and by how much that exceeds the part of one.
TOGETHER_FROM, TOGETHER_GAIN = 0.68, 0.04
# Confidence of such a finding: a cautious share of those that are right where one stretch in ten has two
# speakers (77 % of plain voices, 62 % with actors).
BOTH_CONFIDENCE = 0.6
# A voice of earlier calls has at most this weight: a line or a cold changes how a person sounds.
MOST_RECALLED_S = 60.0


class SpeakerSettings(StrictModel):
    """Limits of the clustering."""

    models_dir: Path = Field(
        Path("models-cache"), description="folder of the weights (``make models ARGS=speakers``)"
    )
    same_from: float = Field(
        0.64, ge=0, le=1, description="cosine with a known speaker from which a stretch is theirs"
    )
    most_speakers: int = Field(
        6, ge=1, le=32, description="speakers of a call; a further one is taken for the most similar"
    )

    voiceprints: bool = Field(
        False,
        description="keep a voiceprint of each speaker in the session, so that its later calls name the same "
        "person again. A voiceprint is personal data: tell your callers",
    )

    @property
    def folder(self) -> Path:
        """Folder of the weights."""
        return self.models_dir / PINNED_MODELS[ENGINE].folder

    def check(self) -> None:
        """Check the file, as ``core.files.Checked`` requires.

        Raises:
            ModelFileError: it is missing, or differs from the one that was tested.
        """
        require_hashes(ENGINE, self.folder, PINNED_MODELS[ENGINE].sha256)


@dataclass
class Speaker:
    """Known speaker of a call.

    Attributes:
        name: "speaker 1" and so on, stable within the session.
        total: sum of the embeddings, each weighted by its seconds.
        seconds: voice that it rests on.
    """

    name: str
    total: np.ndarray
    seconds: float

    def mean(self) -> tuple[float, ...]:
        """Return the mean embedding, of length 1, to four digits."""
        return tuple(round(float(value), 4) for value in self.direction())

    def likeness(self, embedding: np.ndarray) -> float:
        """Return the cosine of the mean with an embedding."""
        return float(self.direction() @ embedding)

    def direction(self) -> np.ndarray:
        """Return the mean embedding, of length 1: float32, (units,)."""
        return np.asarray(self.total / max(float(np.linalg.norm(self.total)), 1e-9))


class SpeakerClusters:
    """Speakers of one call.

    Args:
        settings: limits.
    """

    def __init__(self, settings: SpeakerSettings) -> None:
        self._settings = settings
        self.speakers: list[Speaker] = []

    def recall(self, known: Sequence[KnownVoice]) -> None:
        """Begin with the speakers of earlier calls; those that do not fit in are left out."""
        fitting = [voice for voice in known if len(voice.embedding) == UNITS]
        for voice in fitting[: self._settings.most_speakers]:
            seconds = min(voice.seconds, MOST_RECALLED_S)
            total = seconds * np.asarray(voice.embedding, np.float32)
            self.speakers.append(Speaker(voice.speaker_id, total, seconds))

    def together(self, embedding: np.ndarray) -> tuple[int, int] | None:
        """Return the places of two speakers whose voices an embedding mixes, the more similar one first."""
        known = [place for place, speaker in enumerate(self.speakers) if speaker.seconds >= KNOWN_FROM_S]
        if len(known) < 2:
            return None
        best = max(known, key=lambda place: self.speakers[place].likeness(embedding))
        found, explained = None, self.speakers[best].likeness(embedding) + TOGETHER_GAIN
        for other in known:
            pair = np.stack([self.speakers[best].direction(), self.speakers[other].direction()], axis=1)
            shares, _, rank, _ = np.linalg.lstsq(pair, embedding, rcond=None)
            part = float(np.linalg.norm(pair @ shares))
            if rank == 2 and min(shares) > 0 and part >= max(explained, TOGETHER_FROM):
                found, explained = (best, other), part
        return found

    def assign(self, embedding: np.ndarray, seconds: float) -> tuple[int, float]:
        """Return the place of the speaker and the confidence, 0..1, and learn the stretch."""
        likenesses = [speaker.likeness(embedding) for speaker in self.speakers]
        best = int(np.argmax(likenesses)) if likenesses else -1
        is_known = best >= 0 and likenesses[best] >= self._settings.same_from
        others = sorted(likenesses, reverse=True)
        if not is_known and len(self.speakers) < self._settings.most_speakers:
            self.speakers.append(Speaker(self._new_name(), seconds * embedding, seconds))
            margin = self._settings.same_from - max(others, default=0.0)
            return len(self.speakers) - 1, _confidence(margin)
        chosen = self.speakers[best]
        chosen.total = chosen.total + seconds * embedding
        chosen.seconds += seconds
        # A single known speaker competes with one who is not known yet.
        return best, _confidence(others[0] - (others[1] if len(others) > 1 else self._settings.same_from))

    def _new_name(self) -> str:
        """Return the first name that no speaker has."""
        names = {speaker.name for speaker in self.speakers}
        return next(name for number in count(1) if (name := f"speaker {number}") not in names)


def _confidence(margin: float) -> float:
    """Return 0.5 for a tie of two speakers, 1 from a difference of 0.2 in cosine on."""
    return min(1.0, 0.5 + 2.5 * max(0.0, margin))


class SpeakerSpecialist:
    """Specialist of the row ``speakers``. Thread-safe.

    Raises:
        EngineError: the weights are missing or altered.
    """

    rate_hz = RATE_HZ
    source = Source.DIAR

    def __init__(self, settings: SpeakerSettings | None = None) -> None:
        self._settings = settings or SpeakerSettings()
        self._settings.check()
        self._encoder = VoiceEncoder.load(self._settings.folder / FILE)

    def open_stream(self) -> "SpeakerStream":
        """Return a stream for a call in which no one has spoken."""
        return SpeakerStream(self._encoder, self._settings)


class SpeakerStream:
    """Speakers of one call."""

    def __init__(self, encoder: VoiceEncoder, settings: SpeakerSettings) -> None:
        self._encoder, self._settings = encoder, settings
        self._clusters = SpeakerClusters(settings)

    def judge(self, stretch: VoiceStretch) -> tuple[Finding, ...]:
        """Return the speaker of a stretch; nothing when it is too short, silent or not a number."""
        if stretch.known and not self._clusters.speakers:
            self._clusters.recall(stretch.known)
        seconds = len(stretch.audio) / RATE_HZ
        if seconds < LEAST_S or not np.isfinite(stretch.audio).all() or not stretch.audio.any():
            return ()
        embedding = self._encoder.embed(stretch.audio)
        if (pair := self._clusters.together(embedding)) is not None:
            first, second = (self._clusters.speakers[place].name for place in pair)
            both = DiarPayload(stretch.start_us, stretch.end_us, first, also=second)
            return (Finding(BOTH_CONFIDENCE, speaker=both),)
        place, confidence = self._clusters.assign(embedding, seconds)
        speaker = self._clusters.speakers[place]
        payload = DiarPayload(stretch.start_us, stretch.end_us, speaker.name)
        voice = None
        if self._settings.voiceprints:
            voice = KnownVoice(speaker.name, speaker.mean(), speaker.seconds)
        return (Finding(confidence, speaker=payload, voice=voice),)

    def close(self) -> None:
        """Forget the voices of the call."""
        self._clusters = SpeakerClusters(self._settings)
