"""Composed calls as files: a WAV of the caller's side, and a JSON file with the true times of its events."""

import json
import wave
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np

from parley.core.errors import ConfigError
from parley.core.media import float_to_pcm16
from parley.evals.human.conditions import Condition
from parley.evals.human.conversations import ComposedCall, Composer
from parley.evals.human.split import SpeechSet

# Longer recordings are announcements.
LONGEST_S = 12.0


def calls(
    material: SpeechSet, condition: Condition, *, count: int, turns: int, seed: int
) -> Iterator[ComposedCall]:
    """Compose calls, the speakers of the set in turn.

    Raises:
        ConfigError: no speaker has a recording with text, or the condition needs voices that the set lacks.
        MediaError: a recording is silent.
    """
    by_speaker: dict[str, list[int]] = {}
    utterances = list(material)
    for place, one in enumerate(utterances):
        if one.text and one.duration_s <= LONGEST_S:
            by_speaker.setdefault(one.speaker, []).append(place)
    if not by_speaker:
        raise ConfigError(f"the {material.split.value} set has no recording with text")
    composer, speakers = Composer(material), sorted(by_speaker)
    for number in range(count):
        rng = np.random.default_rng([seed, number])
        own = by_speaker[speakers[number % len(speakers)]]
        chosen = rng.choice(own, min(turns, len(own)), replace=False)
        yield composer.conversation([utterances[int(place)] for place in chosen], rng, condition=condition)


def write(call: ComposedCall, path: Path) -> None:
    """Write ``path`` with the suffixes .wav and .json."""
    with wave.open(str(path.with_suffix(".wav")), "wb") as file:
        file.setnchannels(1)
        file.setsampwidth(2)
        file.setframerate(call.rate_hz)
        file.writeframes(float_to_pcm16(call.samples))
    path.with_suffix(".json").write_text(json.dumps(events(call), indent=2, ensure_ascii=False) + "\n")


def events(call: ComposedCall) -> dict[str, Any]:
    """Return the events of a call; times are samples."""
    return {
        "rate_hz": call.rate_hz,
        "speaker": call.speaker,
        "condition": call.condition,
        "turns": [
            {
                "text": turn.text,
                "recording": turn.utterance_id,
                "first": turn.first,
                "end": turn.end,
                "pauses": [
                    {
                        "first": pause.first,
                        "end": pause.end,
                        "place": pause.place.value if pause.place else "of the recording",
                        "words_before": pause.words,
                    }
                    for pause in turn.pauses
                ],
            }
            for turn in call.turns
        ],
    }
