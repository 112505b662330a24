"""Documents are searched while the caller speaks, so that the passage is there when the turn ends."""

import asyncio
from pathlib import Path

import numpy as np

from parley.core.passage_notes import is_passages
from parley.models.retrieval import Passage
from parley.models.retrieval.finder import FinderTuning, PassageFinder
from parley.models.retrieval.index import PassageIndex
from parley.session_store.events import Kind
from tests.fakes.embedder import WordCountEmbedder
from tests.sim.call import OFF, SimulatedCall, silence, simulate, voice
from tests.virtual_time import START_S

WORDS = ("when", "do", "branches", "open", "today", "please")
ENDED_MS = 500 + 1_200
HOURS = Passage("Branches open today at nine.", "Opening hours", "the guide")


class TimedEmbedder(WordCountEmbedder):
    """Embedder that knows which question it was given, and when, in milliseconds of the call."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: list[tuple[str, int]] = []

    def embed(self, texts: list[str]) -> np.ndarray:
        try:
            at_s = asyncio.get_running_loop().time() - START_S
        except RuntimeError:
            # The passages, before the call.
            return super().embed(texts)
        self.asked += [(text, round(1_000 * at_s)) for text in texts]
        return super().embed(texts)


def call(tmp_path: Path, embedder: TimedEmbedder, **more: object) -> SimulatedCall:
    finder = PassageFinder(PassageIndex([HOURS], embedder), FinderTuning(threshold=-1.0))
    caller = [silence(500), voice(1_200), silence(3_000)]
    return simulate(caller, tmp_path, words=WORDS, finder=finder, **more)  # type: ignore[arg-type]


def test_the_words_of_a_turn_are_searched_before_it_ends_and_not_again(tmp_path: Path):
    embedder = TimedEmbedder()
    held = call(tmp_path, embedder, scripts=[("At nine. ",)], speculation=OFF)
    said = held.turns[0].user_text
    searches = [at_ms for words, at_ms in embedder.asked if words == said]
    assert len(searches) == 1
    # No guess was made, and the turn ended after a silence.
    answered_ms = held.bot_spans_ms()[0][0]
    assert searches[0] < answered_ms - 50
    [request] = held.model.asked
    assert is_passages(request[-2].text) and "at nine" in request[-2].text and request[-1].text == said
    # One word in each 200 ms, and one search in 250 ms and in the pause.
    assert len(embedder.asked) <= len(WORDS)
    [reply] = [event.payload for event in held.events if event.kind is Kind.BOT_TURN]
    assert reply["passages"] == [HOURS.cited.as_json()]


def test_a_deployment_that_reads_nothing_ahead_searches_once_at_the_end(tmp_path: Path):
    embedder = TimedEmbedder()
    held = call(tmp_path, embedder, scripts=[("At nine. ",)], speculation={**OFF, "reads_ahead": False})
    assert [words for words, _ in embedder.asked] == [held.turns[0].user_text]
    assert embedder.asked[0][1] >= ENDED_MS
