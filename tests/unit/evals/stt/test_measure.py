"""Counts of evals.stt, and a recogniser on a recorded sentence."""

import json
from dataclasses import replace
from pathlib import Path

import pytest

from parley.core.errors import ConfigError
from parley.evals.human.split import TuningSet
from parley.evals.stt.__main__ import main
from parley.evals.stt.figures import summary, table
from parley.evals.stt.measure import Clip, HeardClip, edits, hear, padded, word_errors
from parley.evals.stt.normalise import normalised
from parley.evals.stt.rows import create
from parley.models.stt.pocketsphinx import PocketsphinxSettings, PocketsphinxStt
from tests.recorded_speech import CLIP, TEXT, clip


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("Please press 1, or 12!", "please press one or twelve"),
        ("You've a voice-mail; it's [beep] there.", "you have a voice mail it is there"),
        ("I can't, I cannot, I won't", "i can not i can not i will not"),
        ("Um, OK, that's all right.", "okay that is all right"),
        ("alright Mr. Smith", "all right mister smith"),
        ("At 2:30pm on the 3rd", "at two thirty p m on the third"),
        ("the 21st, 12th and 40th of 110", "the twenty first twelfth and fortieth of one hundred ten"),
        ("", ""),
    ],
)
def test_spelling_is_no_word_error(written: str, words: str):
    assert " ".join(normalised(written)) == words
    assert normalised(" ".join(normalised(written))) == normalised(written)


def test_other_languages_lose_case_and_punctuation_alone():
    assert normalised("Où êtes-vous ? J'attends.", "fr") == ("où", "êtes", "vous", "j'attends")


def test_spanish_loses_the_accents_that_its_references_lack():
    assert normalised("El número.", "es") == normalised("el numero", "es")


def test_errors_are_words_to_substitute_delete_and_insert():
    said = tuple("the quick brown fox".split())
    assert word_errors(said, said) == 0
    assert word_errors(said, ("the", "brown", "dog", "runs")) == 3
    assert word_errors(said, ()) == 4
    assert word_errors((), ("noise",)) == 1


def test_a_compound_is_one_word_or_two():
    assert word_errors(("agent", "login"), ("agent", "log", "in")) == 0
    assert word_errors(("your", "voice", "mail"), ("your", "voicemail")) == 0
    # Neighbours that join to no word of the other side stay apart.
    assert word_errors(("log", "on"), ("log", "in")) == 1


def test_edits_are_words_added_and_taken_back():
    assert edits([("i",), ("i", "want"), ("i", "want", "two")]) == 3
    # "wan" is withdrawn and "want to" added.
    assert edits([("i", "wan"), ("i", "want", "to")]) == 2 + 1 + 2


def heard(errors: int, words: int, **changes: object) -> HeardClip:
    said = tuple("w" for _ in range(words))
    one = HeardClip("a", "clean", said, said[errors:], errors, 200.0, 50.0, 30.0, 2 * words, 2.0, 0.5)
    return replace(one, **changes)  # type: ignore[arg-type]


def test_words_are_pooled_and_intervals_are_over_clips():
    clips = [heard(0, 8), heard(2, 2), heard(0, 10, first_partial_ms=None)]
    figures = summary(clips)
    assert (figures["words"], figures["word_errors"], figures["exact_clips"]) == (20, 0.1, 2)
    assert figures["without_partial"] == 1
    assert figures["cpu_per_second_of_audio"] == 0.25
    low, high = figures["word_errors_interval"]
    assert low == 0.0 < 0.1 < high
    assert summary(clips) == figures
    rows = [{"engine": "e", "speech": "human", "condition": "clean", **figures}]
    assert "| e | human | clean | 3 / 20 | 10.0 %" in table(rows)


def test_a_recogniser_hears_a_recorded_sentence():
    (one,) = TuningSet([clip()])
    samples, onset = padded(one.samples)
    stream = PocketsphinxStt(PocketsphinxSettings(warm_decoders=1)).open_stream()
    try:
        result = hear(stream, Clip(one.id, "clean", samples, onset, TEXT, "en"))
    finally:
        stream.close()
    assert result.reference == tuple(TEXT.split())
    assert result.errors <= 4
    assert result.edits >= len(result.transcript) > 0
    assert result.first_partial_ms is not None
    # No partial comes before its sound.
    assert 0 < result.first_partial_ms < 1_000 * len(samples) / 16_000
    assert result.audio_s == pytest.approx(3.49, abs=0.01)


def test_a_folder_of_recordings_is_measured_by_the_command(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "a.wav").write_bytes(CLIP.read_bytes())
    table_of_clips = f"file\ttext\tspeaker\tset\na.wav\t{TEXT}\tanna\ttuning\n"
    (tmp_path / "utterances.tsv").write_text(table_of_clips)
    out = tmp_path / "out.json"
    arguments = ["--own", str(tmp_path), "--set", "tuning", "--conditions", "clean", "phone"]
    assert main([*arguments, "--engines", "pocketsphinx", "whisper:model=nowhere", "--json", str(out)]) == 0
    written = json.loads(out.read_text())
    assert [row["condition"] for row in written["rows"]] == ["clean", "phone"]
    assert all(row["words"] == 8 for row in written["rows"])
    assert "whisper:model=nowhere" in written["left_out"]
    assert "| pocketsphinx | human | phone |" in capsys.readouterr().out


def test_the_tuning_side_is_not_reported(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    (tmp_path / "a.wav").write_bytes(CLIP.read_bytes())
    (tmp_path / "utterances.tsv").write_text(f"file\ttext\tspeaker\tset\na.wav\t{TEXT}\tanna\treport\n")
    assert main(["--own", str(tmp_path), "--engines", "pocketsphinx"]) == 2
    assert "is a recording of the tuning set" in capsys.readouterr().err


def test_an_unknown_recogniser_lists_the_known_ones():
    with pytest.raises(ConfigError, match="unknown recogniser"):
        create("ears")
    with pytest.raises(ConfigError, match="field=value"):
        create("pocketsphinx:common_words")
