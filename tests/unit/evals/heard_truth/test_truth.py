"""Words read from recordings, against recordings whose truth is known."""

import fractions
import json
from pathlib import Path

import av
import numpy as np
import pytest
import soundfile
import soxr

from parley.audio import g711
from parley.audio.audible import audible_spans
from parley.core.media import WordTime
from parley.evals.heard_truth.calls import Interruption, LeftOut
from parley.evals.heard_truth.figures import summary, table
from parley.evals.heard_truth.truth import RATE_HZ, Reference, locate, reference, to_ms
from parley.models.tts.flite import FliteTts
from parley.transports.speech_encoder import SpeechEncoder

# Made by scripts/make_heard_truth_golden.py.
GOLDEN = Path(__file__).parents[3] / "golden" / "heard_truth"
WORDS = json.loads((GOLDEN / "words.json").read_text())


def recorded(name: str) -> Reference:
    audio, rate_hz = soundfile.read(GOLDEN / f"{name}.flac", dtype="float32")
    assert rate_hz == RATE_HZ
    return Reference(audio, tuple(WordTime(*word) for word in WORDS[name]["words"]))


@pytest.fixture(scope="module")
def said() -> Reference:
    return recorded("said")


def through_opus(audio: np.ndarray) -> np.ndarray:
    """Return the audio as a peer receives it: encoded as the product does, decoded, back at 16 kHz."""
    encoder = SpeechEncoder(RATE_HZ)
    pcm = (audio * 32767).astype("<i2").tobytes()
    decoder = av.CodecContext.create("libopus", "r")
    decoder.sample_rate = 48_000
    decoder.layout = "mono"
    pieces = []
    silence = [bytes(encoder.packet_bytes)] * 5
    packets = [pcm[n : n + encoder.packet_bytes] for n in range(0, len(pcm), encoder.packet_bytes)]
    for packet in [*packets, *silence]:
        data = av.Packet(encoder.encode(packet.ljust(encoder.packet_bytes, b"\0")))
        data.time_base = fractions.Fraction(1, 48_000)
        for frame in decoder.decode(data):
            samples = frame.to_ndarray().ravel()
            pieces.append(samples.astype(np.float32) / (32768 if samples.dtype == np.int16 else 1))
    return soxr.resample(np.concatenate(pieces), 48_000, RATE_HZ)


def heard_part(sound: np.ndarray) -> np.ndarray:
    spans = audible_spans(sound, RATE_HZ)
    return sound[spans[0].first : spans[-1].last + 1]


def test_a_reply_is_its_clauses_one_after_the_other():
    said = reference(FliteTts(), WORDS["said"]["clauses"])
    assert " ".join(word.text for word in said.words) == " ".join(WORDS["said"]["clauses"])
    starts = [word.start_ms for word in said.words]
    assert starts == sorted(starts)
    assert said.words[-1].end_ms <= to_ms(said.audio.size)


@pytest.mark.parametrize("cut_ms", range(300, 4_900, 460))
def test_the_end_of_what_was_heard_is_found_through_the_codec(said, cut_ms):
    cut = cut_ms * RATE_HZ // 1000
    heard = locate(said, heard_part(through_opus(said.audio[:cut])))
    assert heard is not None
    # Only audible sound counts, and the codec rings on for some milliseconds. A sound that begins less than
    # the 20 ms of the rule before the cut is heard or not, depending on the codec.
    ends = {said.audible_until(cut), min(cut, said.audible_until(cut + RATE_HZ // 50))}
    is_found = any(to_ms(heard.samples) == pytest.approx(to_ms(end), abs=25) for end in ends)
    # A fragment after a silence cannot be distinguished from its neighbours either: the voice's breath is
    # random, and sometimes it is all of the fragment. It lies after the heard part.
    spans = audible_spans(said.audio[:cut], RATE_HZ)
    if len(spans) > 1 and to_ms(spans[-1].last - spans[-1].first) < 40:
        is_found |= to_ms(spans[-2].last) - 25 <= to_ms(heard.samples) <= cut_ms + 25
    assert is_found


@pytest.mark.parametrize("gap_ms", [1_200, 2_400, 2_880])
def test_a_gap_does_not_move_the_end(said, gap_ms):
    cut, gap = 3_000 * RATE_HZ // 1000, gap_ms * RATE_HZ // 1000
    sound = through_opus(said.audio[:cut])
    broken = np.concatenate((sound[:gap], np.zeros(RATE_HZ * 15 // 100, np.float32), sound[gap:]))
    heard = locate(said, heard_part(broken))
    assert heard is not None
    assert to_ms(heard.samples) == pytest.approx(to_ms(said.audible_until(cut)), abs=25)


def over_the_telephone(audio: np.ndarray) -> np.ndarray:
    """Return the audio at the level of a line, in mu-law, with noise during silence, and amplified again."""
    narrow = soxr.resample(audio * np.float32(0.32), RATE_HZ, 8_000)
    noise = 5e-4 * np.random.default_rng(0).standard_normal(narrow.size).astype(np.float32)
    coded = g711.encode(((narrow + noise) * 32_767).astype(np.int16), g711.Law.MU)
    return soxr.resample(g711.decode(coded, g711.Law.MU).astype(np.float32) / 32_768, 8_000, RATE_HZ)


@pytest.mark.parametrize("cut_ms", range(300, 4_900, 460))
def test_the_end_of_what_was_heard_is_found_through_a_telephone(said, cut_ms):
    cut = cut_ms * RATE_HZ // 1000
    line = over_the_telephone(said.audio[:cut])
    heard = locate(said, heard_part(line), as_loud=False)
    assert heard is not None
    # The line is softer than the voice: the beginning or the end of a sound may be inaudible on it.
    ends = {said.audible_until(cut), min(cut, audible_spans(line, RATE_HZ)[-1].last + 1)}
    assert any(to_ms(heard.samples) == pytest.approx(to_ms(end), abs=25) for end in ends)


@pytest.mark.parametrize("cut_ms", [900, 1_700, 2_600, 3_700])
def test_the_sound_of_another_reply_is_not_found_through_a_telephone(said, cut_ms):
    other = recorded("other")
    heard = heard_part(over_the_telephone(other.audio[: cut_ms * RATE_HZ // 1000]))
    assert locate(said, heard, as_loud=False) is None


@pytest.mark.parametrize("cut_ms", [900, 1_700, 2_600, 3_700])
def test_the_sound_of_another_reply_is_not_found(said, cut_ms):
    other = recorded("other")
    assert locate(said, heard_part(through_opus(other.audio[: cut_ms * RATE_HZ // 1000]))) is None


def test_a_word_counts_from_its_share_on(said):
    word = said.words[4]
    middle = (word.start_ms + word.end_ms) // 2 * RATE_HZ // 1000
    assert said.words_until(middle - 32, 50) == 4
    assert said.words_until(middle + 32, 50) == 5
    assert said.words_until(middle + 32, 100) == 4


def interruption(record: int | None, heard: int | None, **other: object) -> Interruption:
    values: dict[str, object] = {
        "at_ms": 1_000,
        "stop_ms": 300,
        "heard_ms": None if heard is None else heard * 100,
        "heard_words": heard,
        "fit": 0.9,
        "record_ms": None if record is None else record * 100,
        "record_words": record,
        "released_words": None,
        "remembered": True,
        "text": "",
        "truth": "",
        "clauses": (),
        "recording": "",
        "begun_ms": 0,
    }
    return Interruption(**{**values, **other})


def test_what_could_not_be_judged_counts_as_a_miss():
    figures = summary([interruption(3, 3), interruption(4, 3), interruption(None, 3), interruption(6, 3)])
    assert (figures["within_one_word_percent"], figures["exact_percent"]) == (50.0, 25.0)
    assert figures["without_record"] == 1
    assert figures["word_errors"] == {"0": 1, "+1": 1, "+3": 1}
    assert summary([interruption(3, None)])["within_one_word_percent"] == 0.0


def test_what_interrupted_nothing_is_told():
    figures = summary([interruption(3, 3)], left_out={LeftOut.OVER: 2, LeftOut.NO_ANSWER: 1}, surplus=4)
    assert (figures["interruptions"], figures["attempts"], figures["surplus"]) == (1, 8, 4)
    assert figures["left_out"] == {"the answer was over": 2, LeftOut.NO_ANSWER.value: 1}
    assert "the answer was over: 2; the question before it was not answered in time: 1" in table(figures)


def test_the_context_agrees_only_where_there_is_something_to_agree_with():
    figures = summary([interruption(3, 3), interruption(None, 3, remembered=None)])
    assert figures["context_agrees_percent"] == 50.0
    assert summary([interruption(3, 3, remembered=None)])["context_agrees_percent"] is None


def test_the_table_shows_both_rules():
    figures = summary(
        [interruption(3, 3, released_words=5), interruption(2, 3, released_words=3, stop_ms=500)]
    )
    assert figures["pipecat_rule"]["word_errors"] == {"0": 1, "+2": 1}
    assert figures["stop_ms"] == {"p50": 300, "p95": 500, "max": 500}
    text = table(figures)
    assert "| last word within one, % (goal 95) | 100.0 | 50.0 |" in text
    assert "-1: 1, 0: 1" in text
