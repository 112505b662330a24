"""Phrases built into the embedded recogniser, compared with the questions of the evaluations."""

import json
from collections.abc import Iterator
from pathlib import Path

from parley.evals.answers.__main__ import SETS, read_golden
from parley.evals.bench.kv_cache.trace import OPENERS
from parley.evals.bench.worker_overhead import SENTENCES
from parley.evals.harness import socket_caller
from parley.evals.harness.questions import LONG_ANSWERS, PAUSED, WHOLE
from parley.evals.turns import overlap_calls
from parley.evals.turns.texts import sentences
from parley.models.stt.language_model import CALLER_PHRASES, spoken_sentences

ROOT = Path(__file__).parents[3]
GOLDEN = ROOT / "tests" / "golden" / "questions.json"
CLIPS = ROOT / "evals" / "duplex_bench" / "data"
# Phrases that any caller of any deployment may say in any call. All other questions of the evaluations are
# about the documents.
ANYWHERE = {
    "can you repeat that",
    "hello",
    # The beginning of a sentence that is cut off.
    "how many",
    "no",
    "no thank you",
    "okay",
    "one moment",
    "say that again",
    "stop",
    "thanks",
    "wait",
    "yes",
    "yes please",
}
# Words that questions of the evaluations are about.
SUBJECTS = set("account address card forgot lost money password pin saturday transfer wire".split())


def asked() -> Iterator[str]:
    """Yield every text that a caller of an evaluation says."""
    yield from (*WHOLE, *LONG_ANSWERS, *socket_caller.QUESTIONS, *SENTENCES, *OPENERS)
    for before, behind in PAUSED:
        yield from (before, behind, f"{before} {behind}")
    for name, texts in vars(overlap_calls).items():
        if name.endswith("_TEXTS"):
            yield from texts
    for questions in json.loads(GOLDEN.read_text()).values():
        yield from (each if isinstance(each, str) else each[-1] for each in questions)
    for half in SETS:
        yield from (turn for row in read_golden(half) for turn in row.turns)
    yield from sentences(held_out=True)
    for clip in sorted(CLIPS.glob("*/*/transcription.json")):
        yield json.loads(clip.read_text())["text"]


def test_the_recogniser_knows_no_question_of_an_evaluation_by_itself():
    questions = {clause for text in asked() for clause in spoken_sentences(text)}
    assert len(questions) > 200
    assert (set(CALLER_PHRASES) & questions) - ANYWHERE == set()
    # Nor the beginning of a question that names its subject: such words belong to the documents.
    assert {phrase for phrase in CALLER_PHRASES if SUBJECTS & set(phrase.split())} == set()
