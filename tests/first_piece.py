"""Measure the share of a clause's work that a voice does before its first sound."""

import time
from statistics import median

from parley.models.tts import SpeechPiece, TextToSpeech

CLAUSES = 9


def share_before_first_piece(engine: TextToSpeech, text: str) -> float:
    """Return the median share of processor time that passes before the first piece of ``text``.

    Milliseconds depend on the machine: ``evals.voices`` measures them.
    """
    shares = []
    for _ in range(CLAUSES):
        first: list[float] = []
        began = time.thread_time()

        def sink(_piece: SpeechPiece, first: list[float] = first) -> bool:
            first.append(time.thread_time())
            return True

        engine.synthesize(text, sink)
        shares.append((first[0] - began) / (time.thread_time() - began))
    return median(shares)
