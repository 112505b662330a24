"""Clips of recorded people, read back like the shipped ones."""

from pathlib import Path

import numpy as np
import pytest

from parley.evals.duplex_bench import recorded
from parley.evals.duplex_bench.clips import Kind, Part, load
from parley.evals.human.callers import SetCallers, SpeechKind
from parley.evals.human.generators import VOICE_GENERATORS
from parley.evals.human.hesitations import HesitationLaw
from parley.evals.human.recordings import utterance
from parley.evals.human.split import OWN, ReportSet, Split


@pytest.fixture
def callers() -> SetCallers:
    texts = ("my son has lost the key of the house", "we would like to come a little later on sunday")
    said = [VOICE_GENERATORS["flite"].say("rms", text) for text in texts]
    own = [
        utterance(
            f"own/{place}", one.samples, one.rate_hz, text=one.text, speaker="anna", source=OWN, language="en"
        )
        for place, one in enumerate(said)
    ]
    material = ReportSet(own, {"anna": Split.REPORT})
    return SetCallers(material, SpeechKind.HUMAN, HesitationLaw(per_turn=2.0, longest_ms=1_200))


def test_clips_are_read_with_their_events_where_they_are_heard(tmp_path: Path, callers: SetCallers):
    recorded.write(tmp_path, callers, each=3, seed=1)
    clips = load(tmp_path)
    assert {part: sum(clip.part is part for clip in clips) for part in recorded.PARTS} == {
        Part.PAUSE: 3,
        Part.TURN: 3,
        Part.INTERRUPTION: 3,
    }
    for clip in clips:
        audio = np.abs(clip.audio(16_000))
        for event in clip.events:
            heard = audio[event.began_ms * 16 : event.ended_ms * 16]
            if event.kind is Kind.PAUSE:
                assert 200 <= event.ended_ms - event.began_ms
                assert heard.max() < 0.05
            else:
                assert heard.max() == pytest.approx(0.5, abs=0.02)
                # No part of it is outside.
                assert audio[event.ended_ms * 16 + 16 :][:8_000].max(initial=0.0) < 0.01
    assert all(clip.event is not None for clip in clips)
