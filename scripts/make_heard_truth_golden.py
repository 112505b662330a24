"""Make the replies of ``tests/unit/evals/heard_truth/test_truth.py``, spoken by flite, with their words.

    python -m scripts.make_heard_truth_golden

The files are committed, because a voice is a package of the system: another release of it may place a sound
elsewhere, and the tests compare the places of sounds to the millisecond.
"""

import json
from pathlib import Path

import soundfile

from parley.evals.heard_truth.truth import RATE_HZ, reference
from parley.models.tts.flite import FliteTts

FOLDER = Path(__file__).resolve().parents[1] / "tests" / "golden" / "heard_truth"
REPLIES = {
    "said": (
        "I don't know.",
        "Here is what I can answer: opening an account,",
        "or branch opening hours on Monday.",
    ),
    "other": ("Please call us on Tuesday evening, because we like to talk.",),
}


def main() -> None:
    """Write a FLAC file for each reply, and one file with their clauses and words."""
    FOLDER.mkdir(parents=True, exist_ok=True)
    words = {}
    for name, clauses in REPLIES.items():
        reply = reference(FliteTts(), clauses)
        soundfile.write(FOLDER / f"{name}.flac", reply.audio, RATE_HZ, subtype="PCM_16")
        times = [[word.text, word.start_ms, word.end_ms] for word in reply.words]
        words[name] = {"clauses": clauses, "words": times}
    (FOLDER / "words.json").write_text(json.dumps(words, indent=1) + "\n")


if __name__ == "__main__":
    main()
