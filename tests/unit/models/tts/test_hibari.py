"""The voice with its real weights, which its package contains."""

import shutil
from pathlib import Path

import numpy as np
import pytest
import soxr
from pocketsphinx import Decoder

from parley.core.errors import EngineError
from parley.core.media import WordTime
from parley.models.tts import SpeechPiece
from parley.models.tts.edges import AUDIBLE_LEVEL
from parley.models.tts.hibari import FILES, PACKAGE, HibariSettings, HibariTts, Spectrum, read_files
from tests.first_piece import share_before_first_piece
from tests.speaking import at_once, pcm, speak

CLAUSE = "The monthly fee is five dollars, and you can cancel."
# Without punctuation between them, in words of PocketSphinx's dictionary.
ALIGNED = (
    "the museum is closed on mondays but the garden stays open",
    "please bring your own lunch and a warm coat",
    "they moved to another town when the factory closed",
    "a small boat crossed the river before the storm came",
    "I would like to speak to the manager about my bill",
    "our bus leaves every twenty minutes from the market",
)
LONG = "The transfer takes two business days in this country; it is free of charge for you, as it always was."
ALIGNED_RATE_HZ = 16_000


@pytest.fixture(scope="module")
def engine() -> HibariTts:
    return HibariTts()


@pytest.fixture(scope="module")
def package() -> Path:
    import hibari

    return Path(hibari.__file__).parent / "assets"


def samples(pieces: list[SpeechPiece]) -> np.ndarray:
    return np.frombuffer(pcm(pieces), dtype="<i2").astype(int)


def times(pieces: list[SpeechPiece]) -> list[WordTime]:
    return [word for piece in pieces for word in piece.words]


def forced(audio: np.ndarray, text: str) -> list[tuple[int, int]]:
    """Find each word by forced alignment: begin and end in milliseconds."""
    quiet = ALIGNED_RATE_HZ // 5
    padded = np.concatenate((np.zeros(quiet), audio, np.zeros(quiet)))
    # The aligner needs some noise to match silence.
    heard = padded + np.random.default_rng(1).normal(0, 8, padded.size)
    decoder = Decoder(lm=None, samprate=ALIGNED_RATE_HZ, loglevel="FATAL")
    decoder.set_align_text(text.lower())
    decoder.start_utt()
    decoder.process_raw(heard.clip(-32768, 32767).astype("<i2").tobytes(), full_utt=True)
    decoder.end_utt()
    words = [part for part in decoder.seg() if part.word[0] not in "<["]
    assert len(words) == len(text.split())
    return [(part.start_frame * 10 - 200, part.end_frame * 10 - 190) for part in words]


def test_words_lie_where_a_forced_alignment_finds_them(engine: HibariTts):
    errors: list[int] = []
    for text in ALIGNED:
        pieces = speak(engine, text)
        said = times(pieces)
        assert [word.text for word in said] == text.split()
        assert not any(word.estimated for word in said)
        audio = soxr.resample(samples(pieces).astype(np.float64), engine.rate_hz, ALIGNED_RATE_HZ)
        for word, (start_ms, end_ms) in zip(said, forced(audio, text), strict=True):
            errors += [word.start_ms - start_ms, word.end_ms - end_ms]
    assert abs(np.median(errors)) <= 15
    assert np.median(np.abs(errors)) <= 20
    assert np.percentile(np.abs(errors), 90) <= 50


def test_the_last_word_ends_with_the_sound_and_not_with_the_silence_after_it(engine: HibariTts):
    pieces = speak(engine, CLAUSE)
    last_audible = np.flatnonzero(np.abs(samples(pieces)) > AUDIBLE_LEVEL)[-1]
    assert times(pieces)[-1].end_ms <= last_audible * 1000 // engine.rate_hz + 1


def test_the_same_text_gives_the_same_samples(engine: HibariTts):
    before = pcm(speak(engine, CLAUSE))
    speak(engine, "Something else was said in between.")
    assert pcm(speak(engine, CLAUSE)) == before
    assert pcm(speak(HibariTts(), CLAUSE)) == before


def test_calls_that_speak_at_the_same_time_get_what_each_alone_would_get(engine: HibariTts):
    texts = [CLAUSE, LONG, "One.", "Brzeczyszczykiewicz called.", "It is 3:45 p.m. in Oslo."]
    alone = {text: pcm(speak(engine, text)) for text in texts}
    assert at_once(lambda text: pcm(speak(engine, text)), texts) == alone


def test_speed_changes_the_length_and_the_times_with_it(engine: HibariTts):
    slow, fast = (speak(HibariTts(HibariSettings(speed=speed)), CLAUSE) for speed in (0.7, 1.5))
    usual = speak(engine, CLAUSE)
    assert len(pcm(fast)) < 0.8 * len(pcm(usual)) < 0.8 * 0.9 * len(pcm(slow))
    for pieces in (slow, fast):
        assert times(pieces)[-1].end_ms == pytest.approx(len(samples(pieces)) / 24, rel=0.1)


@pytest.mark.parametrize(
    "text",
    [
        "It costs $1,250.50, i.e. 12.5% more than on 10/12/2024.",
        "Dr. Smith lives on Main St. in the U.S. & works for the BBC.",
        "Thanks 🙂 a lot 🎉!",
        "Grüße aus München, ¿cómo estás?",
        "你好 means hello, Привет too.",
        "See https://www.example.com/help or mail help@bank.co.uk, ref. AB-1234.",
        "Hmm, uh-huh... brzzzk Xyzzyqk!?",
        "[link](/h/) *bold* _it_ `code` {x} <y> | ~",
        "\t Tabs \u00a0 and \u2009 odd \u2028 spaces \u200b here\u0301 ",
        "NO SHOUTING PLEASE, THIS IS A BANK",
        "²½ Ⅳ ① ﬁne ＡＢＣ",
    ],
)
def test_every_written_word_is_reported_once_in_order_and_something_is_heard(engine: HibariTts, text: str):
    pieces = speak(engine, text)
    said = times(pieces)
    assert " ".join(word.text for word in said) == " ".join(text.split())
    assert all(a.end_ms <= b.start_ms for a, b in zip(said, said[1:], strict=False))
    assert np.abs(samples(pieces)).max() > 3_000


def test_text_in_letters_that_the_voice_cannot_read_is_silence(engine: HibariTts):
    assert not samples(speak(engine, "你好，世界。")).any()


def test_characters_that_stand_for_others_are_read_as_those(engine: HibariTts):
    assert pcm(speak(engine, "Room ② please.")) == pcm(speak(engine, "Room 2 please."))


def test_a_letter_is_not_read_as_the_article(engine: HibariTts):
    def middle(text: str) -> np.ndarray:
        pieces = speak(engine, text)
        word = times(pieces)[2]
        return samples(pieces)[word.start_ms * 24 : word.end_ms * 24]

    assert len(middle("Choose letter A now.")) > 1.5 * len(middle("Choose from a list."))


def test_eight_thousand_characters_come_piece_by_piece_and_no_word_is_lost(engine: HibariTts):
    text = " ".join([CLAUSE, LONG, "Your code is 4172 and the IBAN is DE89 3704."] * 60)[:8_000]
    said: list[str] = []
    heard = 0

    def sink(piece: SpeechPiece) -> bool:
        nonlocal heard
        said.extend(word.text for word in piece.words)
        heard += 1
        return heard < 200

    assert engine.synthesize(text, sink) is False
    assert heard == 200
    # 200 pieces are 8 s; the words of a window leave with its first piece.
    assert said == text.split()[: len(said)]
    assert 10 < len(said) < 60


@pytest.mark.parametrize("longest_window", [40, 150])
def test_no_seam_is_heard_and_a_clause_begins_and_ends_in_silence(longest_window: int):
    voice = HibariTts(HibariSettings(longest_window=longest_window))
    pieces = speak(voice, LONG)
    sound = samples(pieces)
    assert max(abs(sound[0]), abs(sound[-1])) <= AUDIBLE_LEVEL
    jumps = np.abs(np.diff(sound))
    near = 10 * voice.rate_hz // 1000
    for seam in np.cumsum([len(piece.pcm) // 2 for piece in pieces])[:-1] - 1:
        others = np.delete(jumps[max(0, seam - near) : seam + near], min(seam, near))
        assert jumps[seam] <= others.max() + 2 * AUDIBLE_LEVEL


def test_what_is_heard_is_what_the_package_itself_makes(engine: HibariTts):
    from hibari import Hibari

    whole = Hibari()("the monthly fee is five dollars, and you can cancel.", seed=1) * 32_768
    sound = samples(speak(engine, CLAUSE)).astype(np.float64)
    fits = np.correlate(whole.astype(np.float64), sound, "valid")
    at = int(fits.argmax())
    # They are the same but for their noise, in the seam of the two chunks as well.
    for part in np.array_split(np.arange(sound.size), 10):
        assert np.corrcoef(sound[part], whole[at + part])[0, 1] > 0.97


def test_two_chunks_are_the_samples_that_one_would_be():
    from hibari import dsp

    rng = np.random.default_rng(3)
    sizes = [rng.normal(-3, 1, (601, 60)).astype(np.float32) for _ in range(5)]
    pitch_hz = np.where(np.arange(60) % 20 < 14, rng.uniform(120, 240, 60), 0).astype(np.float32)
    [whole] = Spectrum(dsp, *sizes, pitch_hz).chunks(60)
    first, rest = Spectrum(dsp, *sizes, pitch_hz).chunks(25)
    assert first.size == 25 * 300 and whole.size == 60 * 300
    np.testing.assert_allclose(np.concatenate([first, rest]), whole, atol=1e-4 * np.abs(whole).max())


def test_the_first_piece_does_not_wait_for_the_sound_of_the_whole_clause(engine: HibariTts):
    # Measured 0.63: the run of the network, and a twelfth of the sound. In a single piece it would be 0.98.
    assert share_before_first_piece(engine, CLAUSE) < 0.8


def test_the_package_that_is_installed_is_the_one_that_the_engine_knows():
    requirements = Path(__file__).parents[4] / "requirements"
    lines = (requirements / "weights.lock").read_text().splitlines()
    [pinned] = [line for line in lines if line.startswith("hibari")]
    package, _, sha256 = pinned.partition(" --hash=sha256:")
    assert package == PACKAGE and len(sha256) == 64
    for lock in ("run.lock", "dev.lock"):
        assert PACKAGE in (requirements / lock).read_text().splitlines()


@pytest.mark.parametrize("name", FILES)
def test_a_missing_or_altered_file_is_named(package: Path, tmp_path: Path, name: str):
    folder = tmp_path / "assets"
    shutil.copytree(package, folder)
    assert read_files(folder).keys() == FILES.keys()
    content = bytearray((folder / name).read_bytes())
    content[len(content) // 2] ^= 1
    (folder / name).write_bytes(content)
    with pytest.raises(EngineError, match=f"{name} is not the file of hibari-tts==0.2.1") as altered:
        read_files(folder)
    (folder / name).unlink()
    with pytest.raises(EngineError, match=f"{name} cannot be read: No such file") as missing:
        read_files(folder)
    assert not altered.value.retryable and not missing.value.retryable
