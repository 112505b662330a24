"""Expected terms with the real weights: what is written, what stays, what it costs."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
import soxr

from parley.core.media import pcm16_to_float
from parley.language import find_language
from parley.models.stt.expected_terms import MOST_RUNS, MOST_TERMS, ExpectedTerms
from parley.models.stt.moonshine_network import DecodedLine, GoesOn, MoonshineNetwork
from parley.models.stt.moonshine_tiny import MoonshineTinySettings
from parley.models.stt.voice import RATE_HZ
from parley.models.tts.flite import FliteSettings, FliteTts
from tests.human_speech import OPENING, moonshine_tiny, opening
from tests.listening import play, understand

ENGLISH = find_language()
PIECE_BYTES = 1_280
# The voice's "cash machine" is written as one odd word, and its "cancelled" as another.
LIMIT = "What is the limit at the cash machine each day?"
TRANSFER = "Which transfers cannot be cancelled?"
TERMS = ("cash machine", "cancelled", "Northwind", "statement", "travel notice", "fee", "custody account")


class CountedNetwork(MoonshineNetwork):
    """Counter of the decoder's runs for terms."""

    runs = 0

    def search_again(
        self, line: DecodedLine, start: int, draft: Sequence[int], *, kept: int, goes_on: GoesOn
    ) -> DecodedLine | None:
        steps = 0

        def counted(rows: np.ndarray, tokens: Sequence[int]) -> bool:
            nonlocal steps
            steps += 1
            return goes_on(rows, tokens)

        found = super().search_again(line, start, draft, kept=kept, goes_on=counted)
        # Asked once after the first run, and then before each step.
        self.runs += steps
        return found

    def row_after(self, line: DecodedLine, start: int, tokens: Sequence[int]) -> np.ndarray:
        self.runs += 1
        return super().row_after(line, start, tokens)


@pytest.fixture(scope="module")
def network() -> CountedNetwork:
    moonshine_tiny()
    return CountedNetwork(MoonshineTinySettings().folder)


def spoken(text: str) -> bytes:
    """Return the text in another voice than the bot's: 16-bit mono PCM at 16 kHz, with pauses around it."""
    pcm: list[bytes] = []
    voice = FliteTts(FliteSettings(voice="slt"))
    voice.synthesize(text, lambda piece: pcm.append(piece.pcm) is None)
    samples = soxr.resample(np.frombuffer(b"".join(pcm), np.int16), voice.rate_hz, RATE_HZ)
    return bytes(RATE_HZ // 5 * 2) + samples.astype(np.int16).tobytes() + bytes(RATE_HZ // 5 * 2)


def line_of(network: MoonshineNetwork, pcm: bytes) -> DecodedLine:
    return network.decode(pcm16_to_float(pcm))


@pytest.mark.parametrize(
    ("said", "term"), [(LIMIT, "cash machine"), (TRANSFER, "cancelled")], ids=["phrase", "word"]
)
def test_a_term_is_written_where_the_recogniser_doubted(said: str, term: str):
    pcm = spoken(said)
    assert term not in understand(moonshine_tiny().open_stream(), pcm, PIECE_BYTES).text
    final = understand(moonshine_tiny(keyterms=TERMS).open_stream(), pcm, PIECE_BYTES)
    assert final.text == said.lower().rstrip("?")
    assert [word.text for word in final.words] == final.text.split()
    ends = [word.end_ms for word in final.words]
    assert ends == sorted(ends)
    # The better of two lines: as probable as not, and no more sure than a word that was understood.
    assert all(0.5 <= word.confidence <= 1 for word in final.words if word.text in term)


def test_the_partial_text_of_a_pause_is_the_final_one():
    stream = moonshine_tiny(keyterms=TERMS).open_stream()
    stream.start()
    partials = play(stream, spoken(LIMIT), PIECE_BYTES)
    assert partials[-1].text == stream.finish().text


def test_sure_words_stay(network: CountedNetwork):
    terms = ExpectedTerms(network, (*TERMS, "tines", "worse", "wizard", "nage"), language=ENGLISH)
    line = line_of(network, opening())
    assert terms.revise(line).tokens == line.tokens
    final = understand(moonshine_tiny(keyterms=TERMS).open_stream(), opening(), PIECE_BYTES)
    assert final.text == OPENING


def test_a_line_that_was_not_understood_stays(network: CountedNetwork):
    backwards = np.frombuffer(spoken(LIMIT), np.int16)[::-1].tobytes()
    line = line_of(network, backwards)
    revised = ExpectedTerms(network, TERMS, language=ENGLISH).revise(line)
    assert revised.tokens == line.tokens
    assert revised.probabilities == pytest.approx(line.probabilities())


def test_a_word_that_fixes_the_meaning_stays(network: CountedNetwork):
    line = line_of(network, spoken(LIMIT))
    assert "cash machine" in network.text(ExpectedTerms(network, TERMS, language=ENGLISH).revise(line).tokens)
    # As if every word that was written asked for something.
    asking = frozenset(network.text(line.tokens).lower().split())
    language = replace(ENGLISH, questions=replace(ENGLISH.questions, asking=asking))
    assert ExpectedTerms(network, TERMS, language=language).revise(line).tokens == line.tokens


def test_without_terms_a_line_stays(network: CountedNetwork):
    line = line_of(network, spoken(LIMIT))
    before = network.runs
    assert ExpectedTerms(network, (), language=ENGLISH).revise(line).tokens == line.tokens
    assert network.runs == before


def test_the_runs_for_a_line_are_bounded(network: CountedNetwork):
    words = [network.text([token]) for token in range(400, 8_000) if network.begins_word(token)]
    terms = ExpectedTerms(
        network, [f"{word} {other}" for word in words for other in ("card", "fee")], language=ENGLISH
    )
    line = line_of(network, spoken("What is the custody fee for funds? How thick must the supply cable be?"))

    def runs(most: int) -> int:
        before = network.runs
        terms.revise(line, most_runs=most)
        return network.runs - before

    assert 10 < runs(MOST_RUNS) <= MOST_RUNS
    assert runs(6) <= 6


def test_more_terms_than_allowed_are_left_out(network: CountedNetwork):
    many = [f"term {number}" for number in range(MOST_TERMS)]
    line = line_of(network, spoken(LIMIT))
    text = network.text(ExpectedTerms(network, ["cash machine", *many], language=ENGLISH).revise(line).tokens)
    assert "cash machine" in text
    text = network.text(ExpectedTerms(network, [*many, "cash machine"], language=ENGLISH).revise(line).tokens)
    assert "cash machine" not in text


def test_a_line_searched_again_is_the_same_line(network: CountedNetwork):
    line = line_of(network, opening())
    for start in (0, 4, len(line.tokens) - 1):
        again = network.search_again(line, start, line.tokens[start:], kept=0, goes_on=lambda *_: True)
        assert again is not None
        assert again.tokens == line.tokens
        # The activations of the 8-bit network are quantised anew in each run.
        assert again.log_likelihood(0) == pytest.approx(line.log_likelihood(0), abs=1.5)
        row = network.row_after(line, start, line.tokens[start : start + 1])
        assert int(row.argmax()) == int(line.row(start + 1).argmax())


@pytest.mark.parametrize("words", ["cash machine", "Northwind", "IBAN", "naïve", "don't"])
def test_text_becomes_tokens_and_text_again(network: CountedNetwork, words: str):
    tokens = network.tokens(words)
    assert network.text(tokens) == words
    assert network.begins_word(tokens[0])


def test_a_common_word_is_one_token_as_the_recogniser_writes_it(network: CountedNetwork):
    line = line_of(network, opening())
    assert network.tokens("times")[0] in line.tokens
    assert len(network.tokens("times")) == 1
