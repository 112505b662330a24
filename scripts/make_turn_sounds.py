"""Write the WAVs of ``tests/golden/sounds``, sounds over a bot: ``python -m scripts.make_turn_sounds``.

The words are spoken by flite, the hums and coughs come from a seed (``evals.turns.sounds``): 16 kHz, 16 bit,
mono, 200 ms of faint noise on both sides. Run by hand when a sound must change: another release of flite
makes other sounds.
"""

import sys
import wave
from pathlib import Path

import numpy as np

from parley.core.media import float_to_pcm16
from parley.evals.turns import audio, sounds

SEED = 1
OUT = Path(__file__).parents[1] / "tests" / "golden" / "sounds"
WORDS = {
    "stop": ("rms", "stop"),
    "wait": ("awb", "wait"),
    "stop-please": ("slt", "stop please"),
    "okay": ("slt", "okay"),
    "uh-huh": ("rms", "uh huh"),
}


def main() -> int:
    """Write all files; return the exit status."""
    rng, speakers = np.random.default_rng(SEED), audio.Speakers()
    made = {
        name: audio.trimmed(speakers.speak("flite", voice, text)[0]) for name, (voice, text) in WORDS.items()
    }
    made |= {f"hum-{place}": sounds.hum(rng) for place in (1, 2)}
    made |= {f"cough-{place}": sounds.cough(rng) for place in (1, 2)}
    OUT.mkdir(parents=True, exist_ok=True)
    for name, sound in made.items():
        around = [audio.noise(200, rng) for _ in range(2)]
        with wave.open(str(OUT / f"{name}.wav"), "wb") as file:
            file.setnchannels(1)
            file.setsampwidth(2)
            file.setframerate(audio.RATE_HZ)
            file.writeframes(float_to_pcm16(np.concatenate((around[0], sound, around[1]))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
