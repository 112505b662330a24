"""The embedded recogniser with its real weights on human speech."""

import itertools
import shutil
from pathlib import Path

import numpy as np
import pytest
import soxr

from parley.core.errors import ModelFileError
from parley.core.media import pcm16_to_float
from parley.core.pinned_models import PINNED_MODELS
from parley.models.stt import RecordedPiece
from parley.models.stt.moonshine_tiny import MoonshineTinySettings, MoonshineTinyStt
from parley.models.stt.voice import RATE_HZ
from tests.human_speech import OPENING, moonshine_tiny, opening, two_cities
from tests.listening import Ticking, play, understand

PIECE_BYTES = 1_280


class Passes:
    """Clock that counts the engine's reads for a line: one before and one after each pass."""

    def __init__(self) -> None:
        self._reads = 0

    def __call__(self) -> float:
        self._reads += 1
        return 0.0

    @property
    def count(self) -> int:
        return self._reads // 2


@pytest.fixture(scope="module")
def engine() -> MoonshineTinyStt:
    return moonshine_tiny()


def as_samples(pcm: bytes) -> np.ndarray:
    return np.frombuffer(pcm, np.int16).astype(np.float64)


def as_pcm(samples: np.ndarray) -> bytes:
    return np.clip(samples, -32_768, 32_767).astype(np.int16).tobytes()


def errors(found: str, expected: str) -> int:
    """Return the number of words that were substituted, omitted or inserted."""
    heard, meant = found.split(), expected.split()
    row = list(range(len(meant) + 1))
    for place, word in enumerate(heard, start=1):
        before, row[0] = row[0], place
        for at, other in enumerate(meant, start=1):
            before, row[at] = row[at], min(row[at] + 1, row[at - 1] + 1, before + (word != other))
    return row[-1]


def test_a_sentence_is_understood_while_it_is_spoken(engine: MoonshineTinyStt):
    stream = engine.open_stream()
    stream.start()
    partials = play(stream, opening(), PIECE_BYTES)
    assert partials[0].text.split()[0] == "it"
    assert len(partials) >= 3
    assert not any(partial.final for partial in partials)
    assert stream.finish().text == OPENING


def test_words_have_times_in_order_and_confidences(engine: MoonshineTinyStt):
    final = understand(engine.open_stream(), opening(), PIECE_BYTES)
    assert [word.text for word in final.words] == OPENING.split()
    assert all(word.estimated and 0 < word.confidence <= 1 for word in final.words)
    assert 0.7 < final.confidence <= 1
    ends = [word.end_ms for word in final.words]
    assert ends == sorted(ends) and ends[-1] <= len(opening()) // 32
    # "times" ends before a pause in which the words of the next clause do not begin.
    worst = final.words[6]
    assert final.words[5].end_ms <= worst.start_ms


def test_a_draft_changes_nothing_but_the_price(engine: MoonshineTinyStt):
    samples = pcm16_to_float(opening())
    fresh = engine.network.decode(samples)
    shorter = engine.network.decode(samples[: len(samples) // 2])
    assert engine.network.decode(samples, shorter.tokens).tokens == fresh.tokens
    assert engine.network.decode(samples, [300] * 200).tokens == fresh.tokens
    assert len(fresh.probabilities()) == len(fresh.tokens)


def test_a_pause_has_the_words_ready_before_the_utterance_ends():
    passes = Passes()
    stream = MoonshineTinyStt(moonshine_tiny().settings, clock=passes).open_stream()
    stream.start()
    play(stream, opening(), PIECE_BYTES)
    made = passes.count
    assert stream.finish().text == OPENING
    assert passes.count == made


def test_an_utterance_that_ends_without_a_pause_is_read_to_its_end():
    passes = Passes()
    stream = MoonshineTinyStt(moonshine_tiny().settings, clock=passes).open_stream()
    stream.start()
    play(stream, opening()[:-6_400], PIECE_BYTES)
    made = passes.count
    assert stream.finish().text == OPENING
    assert passes.count == made + 1


def test_nothing_is_read_while_the_caller_says_nothing_new():
    passes = Passes()
    stream = MoonshineTinyStt(moonshine_tiny().settings, clock=passes).open_stream()
    stream.start()
    play(stream, opening(), PIECE_BYTES)
    made = passes.count
    play(stream, bytes(5 * RATE_HZ * 2), PIECE_BYTES)
    assert passes.count == made


def test_partials_are_rarer_where_passes_are_dear():
    def partials(pass_s: float) -> int:
        chosen = moonshine_tiny().settings
        stream = MoonshineTinyStt(chosen, clock=Ticking(pass_s)).open_stream()
        stream.start()
        made = len(play(stream, opening(), PIECE_BYTES))
        assert stream.finish().text == OPENING
        return made

    # 0.2 of the engine's time: 0.2 s for a pass is a pass in 1 s, or in 0.5 s before a pause.
    assert partials(0.001) > 12
    assert 2 <= partials(0.2) <= 9


def test_callers_share_the_time_for_partials():
    settings = moonshine_tiny().settings

    def partials(callers: int) -> int:
        shared = MoonshineTinyStt(settings, clock=Ticking(0.05))
        streams = [shared.open_stream() for _ in range(callers)]
        for stream in streams:
            stream.start()
        made = len(play(streams[0], opening(), PIECE_BYTES))
        for stream in streams:
            stream.close()
        return made

    assert partials(4) < partials(1)


def test_callers_of_one_engine_hear_nothing_of_each_other():
    # With equal intervals, however many callers speak.
    engine = MoonshineTinyStt(moonshine_tiny().settings, clock=Passes())
    speech = two_cities()
    clips = [opening(), speech[10 * 32_000 : 14 * 32_000], speech[30 * 32_000 : 35 * 32_000]]
    alone = [understand(engine.open_stream(), clip, PIECE_BYTES).text for clip in clips]
    streams = [engine.open_stream() for _ in clips]
    for stream in streams:
        stream.start()
    for at in range(0, max(map(len, clips)), PIECE_BYTES):
        for stream, clip in zip(streams, clips, strict=True):
            if at < len(clip):
                stream.feed(clip[at : at + PIECE_BYTES])
    assert [stream.finish().text for stream in streams] == alone


def test_a_monologue_is_read_in_lines_that_lose_no_words(engine: MoonshineTinyStt):
    monologue = two_cities()[: 30 * 32_000]
    stream = engine.open_stream()
    stream.start()
    partials = [partial.text for partial in play(stream, monologue, PIECE_BYTES)]
    final = stream.finish()
    # Words of a line that has ended stay as they were.
    long = [text.split() for text in partials if len(text.split()) > 60]
    assert all(text[:20] == final.text.split()[:20] for text in long)
    assert final.words[-1].end_ms <= 30_000
    known = (
        f"{OPENING} it was the age of foolishness it was the epoch of belief it was the epoch of incredulity "
        "it was the season of light it was the season of darkness it was the spring of hope it was the "
        "winter of despair we had everything before us we had nothing before us we were all going direct to "
        "heaven we were all going direct the other way in short the"
    )
    assert errors(final.text, known) <= 10


def music() -> bytes:
    times = np.arange(8 * RATE_HZ) / RATE_HZ
    chord = sum(np.sin(2 * np.pi * tone * times) for tone in (262, 330, 392, 523))
    return as_pcm(3_000 * chord * (np.sin(4 * np.pi * times) > 0))


def hum() -> bytes:
    """Return the noise of a fan: noise below 1 kHz and the hum of its motor."""
    generator = np.random.default_rng(3)
    noise = np.convolve(generator.standard_normal(8 * RATE_HZ), np.ones(16) / 16, "same")
    return as_pcm(2_000 * noise + 500 * np.sin(2 * np.pi * 100 * np.arange(8 * RATE_HZ) / RATE_HZ))


def noise() -> bytes:
    return as_pcm(3_000 * np.random.default_rng(3).standard_normal(8 * RATE_HZ))


@pytest.mark.parametrize("sound", [music, hum, noise, lambda: bytes(5 * RATE_HZ * 2)])
def test_what_is_no_voice_has_no_words(engine: MoonshineTinyStt, sound):
    final = understand(engine.open_stream(), sound(), PIECE_BYTES)
    assert (final.text, final.words, final.confidence) == ("", (), 0.0)


def clipped(pcm: bytes) -> bytes:
    return as_pcm(12 * as_samples(pcm))


def narrow(pcm: bytes) -> bytes:
    return as_pcm(soxr.resample(soxr.resample(as_samples(pcm), RATE_HZ, 8_000), 8_000, RATE_HZ))


def stuttered(pcm: bytes) -> bytes:
    samples = as_samples(pcm)
    return as_pcm(np.concatenate([*[samples[4_000:9_000]] * 6, samples]))


@pytest.mark.parametrize("spoilt", [clipped, narrow, stuttered])
def test_clipped_narrow_and_stuttered_speech_is_understood(engine: MoonshineTinyStt, spoilt):
    final = understand(engine.open_stream(), spoilt(opening()), PIECE_BYTES)
    assert final.text.endswith(OPENING) and len(final.words) <= len(OPENING.split()) + 4


def test_two_people_at_one_microphone_end_in_bounded_text(engine: MoonshineTinyStt):
    both = as_samples(two_cities()[: 6 * 32_000]) + as_samples(two_cities()[20 * 32_000 : 26 * 32_000])
    final = understand(engine.open_stream(), as_pcm(both / 2), PIECE_BYTES)
    assert 0 < len(final.words) <= 6 * 6


def copied_weights(folder: Path) -> Path:
    model = PINNED_MODELS["moonshine_tiny"]
    shutil.copytree(moonshine_tiny().settings.folder, folder / model.folder)
    return folder / model.folder


def test_an_altered_file_is_refused_before_it_is_loaded(tmp_path: Path):
    file = copied_weights(tmp_path) / "encoder_model.ort"
    content = bytearray(file.read_bytes())
    content[1_000] ^= 1
    file.write_bytes(content)
    with pytest.raises(ModelFileError, match=r"encoder_model\.ort .* changed .*ARGS=moonshine_tiny"):
        MoonshineTinyStt(MoonshineTinySettings(models_dir=tmp_path))


def test_a_missing_file_is_named(tmp_path: Path):
    with pytest.raises(
        ModelFileError, match=r"encoder_model\.ort, which does not exist.*ARGS=moonshine_tiny"
    ):
        MoonshineTinyStt(MoonshineTinySettings(models_dir=tmp_path))


def recorded_pieces(*spans_ms: tuple[int, int]) -> list[RecordedPiece]:
    """Return parts of a reading, wholly voiced."""
    samples = pcm16_to_float(two_cities())
    parts = [samples[begin * RATE_HZ // 1_000 : end * RATE_HZ // 1_000] for begin, end in spans_ms]
    return [RecordedPiece(part, bytes([1]) * -(-len(part) // 512)) for part in parts]


def test_pieces_of_a_recording_are_understood_together_in_their_order(engine: MoonshineTinyStt):
    found = engine.transcribe(recorded_pieces((28_500, 34_000), (900, 6_100), (17_000, 21_000)))
    assert found[1].written.startswith("It was the best of times")
    assert errors(" ".join(word.text for word in found[1].words), OPENING) <= 1
    assert "despair" in found[2].written
    for each, length_ms in zip(found, (5_500, 5_200, 4_000), strict=True):
        assert all(before.end_ms <= after.start_ms for before, after in itertools.pairwise(each.words))
        assert each.words[-1].end_ms <= length_ms
        assert all(0 < word.confidence <= 1 and word.estimated for word in each.words)


def test_a_line_alone_in_a_batch_is_read_as_alone(engine: MoonshineTinyStt):
    samples = pcm16_to_float(opening())
    alone, (batched,) = engine.network.decode(samples), engine.network.decode_batch([samples])
    assert batched.tokens == alone.tokens
    assert batched.probabilities == pytest.approx(alone.probabilities(), abs=1e-4)


def test_short_and_silent_lines_end_before_the_long_ones_of_their_batch(engine: MoonshineTinyStt):
    samples = pcm16_to_float(opening())
    lines = engine.network.decode_batch([samples, samples[:400], np.zeros(RATE_HZ, np.float32)])
    assert errors(engine.network.text(lines[0].tokens).lower().replace(".", ""), OPENING) <= 3
    assert max(len(line.tokens) for line in lines[1:]) < len(lines[0].tokens)
    assert engine.network.decode_batch([]) == []
