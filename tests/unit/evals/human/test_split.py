"""Tuning and report material cannot be mixed up."""

import ast
from pathlib import Path

import pytest

from parley.core.errors import ConfigError
from parley.evals.human.own_folder import load_own
from parley.evals.human.split import (
    GENERATORS,
    SPEAKERS,
    ManifestRow,
    ReportSet,
    Split,
    SplitError,
    TuningSet,
    check_disjoint,
    clauses,
    load_report,
    manifest,
    reported_clauses,
)
from parley.models.stt.language_model import CALLER_PHRASES
from tests.recorded_speech import CLIP, TEXT, clip

ROOT = Path(__file__).parents[4]
PRODUCT = (
    "core",
    "language",
    "audio",
    "turn_taking",
    "models",
    "processors",
    "pipelines",
    "configs",
    "serving",
    "transports",
)


def test_the_committed_manifest_has_nothing_on_both_sides():
    rows = manifest()
    check_disjoint(rows)
    assert {row.split for row in rows} == set(Split)
    assert {row.speaker for row in rows} == set(SPEAKERS)
    assert all(SPEAKERS[row.speaker] is row.split for row in rows)


@pytest.mark.parametrize("key", ["speaker", "audio_sha256", "text_sha256"])
def test_what_stands_on_both_sides_is_named(key: str):
    def row(split: Split, **same: str) -> ManifestRow:
        own = {"speaker": split.value, "audio_sha256": f"a{split.value}", "text_sha256": f"t{split.value}"}
        return ManifestRow(
            split=split, id=split.value, language="en", seconds=1.0, words=3, clauses=(), **(own | same)
        )

    check_disjoint([row(Split.TUNING), row(Split.REPORT)])
    with pytest.raises(SplitError, match="both sets: tuning, report"):
        check_disjoint([row(Split.TUNING, **{key: "same"}), row(Split.REPORT, **{key: "same"})])


def test_each_set_takes_its_own_side():
    assert len(TuningSet([clip()])) == 1
    with pytest.raises(SplitError, match="belongs to the tuning set"):
        ReportSet([clip()])


def test_a_part_of_a_set_stays_on_its_side():
    part = TuningSet([clip()]).where(language="en", with_text=True)
    assert isinstance(part, TuningSet)
    assert len(part) == 1
    assert len(part.where(language="fr")) == 0


def test_another_name_does_not_bring_a_recording_to_the_other_side():
    with pytest.raises(SplitError, match="is a recording of the tuning set"):
        ReportSet([clip(speaker="allison", source="prompts-en", text="")])


def test_a_text_of_the_other_side_is_refused_in_another_voice():
    one = clip(speaker="hibari/heart", source="hibari")
    changed = type(one)(
        one.id, one.samples * 0.5, one.rate_hz, one.text, one.speaker, one.source, one.language, one.pauses
    )
    with pytest.raises(SplitError, match="contains a text of the tuning set"):
        ReportSet([changed])


def test_speech_without_a_side_is_refused():
    with pytest.raises(SplitError, match="belongs to neither set"):
        TuningSet([clip(speaker="a stranger")])


def test_generators_of_both_sides_are_of_different_authors():
    assert {GENERATORS[name] for name in ("flite", "espeak")} == {Split.TUNING}
    assert sum(split is Split.REPORT for split in GENERATORS.values()) >= 4


def test_an_unknown_source_lists_the_known_ones():
    with pytest.raises(ConfigError, match="unknown source"):
        load_report(("radio",))


def own(folder: Path, *lines: str) -> Path:
    (folder / "a.wav").write_bytes(CLIP.read_bytes())
    (folder / "utterances.tsv").write_text("\n".join(("file\ttext\tspeaker\tset\tpauses", *lines)) + "\n")
    return folder


def test_a_folder_of_recordings_is_loaded_by_its_table(tmp_path: Path):
    tuning, report = load_own(own(tmp_path, f"a.wav\t{TEXT}\tanna\ttuning\t400-650 900-1200"))
    (one,) = tuning
    assert (len(report), one.text, one.speaker) == (0, TEXT, "anna")
    assert [pause.length_ms(one.rate_hz) for pause in one.pauses] == [250, 300]
    assert len(tuning.where(language="en")) == 1


def test_a_speaker_of_a_folder_is_on_one_side(tmp_path: Path):
    lines = ("a.wav\tone\tanna\ttuning\t", "a.wav\ttwo\tanna\treport\t")
    with pytest.raises(ConfigError, match="in both sets"):
        load_own(own(tmp_path, *lines))


def test_a_folder_cannot_report_a_recording_that_was_tuned_on(tmp_path: Path):
    with pytest.raises(SplitError, match="is a recording of the tuning set"):
        load_own(own(tmp_path, f"a.wav\t{TEXT}\tanna\treport\t"))


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("../a.wav\tx\tanna\ttuning\t", "outside"),
        ("b.wav\tx\tanna\ttuning\t", "does not exist"),
        ("a.wav\tx\tanna\tboth\t", "unknown set"),
        ("a.wav\tx\t\ttuning\t", "no 'speaker'"),
        ("a.wav\tx\tanna\ttuning\t100", "pairs of milliseconds"),
        ("a.wav\tx\tanna\ttuning\t900-800", "out of order"),
        ("a.wav\tx\tanna\ttuning\t800-99000", "after the end"),
    ],
)
def test_a_wrong_line_of_a_table_says_what_is_wrong(tmp_path: Path, line: str, message: str):
    with pytest.raises(Exception, match=message):
        load_own(own(tmp_path, line))


def test_clauses_of_a_few_words_belong_to_no_set():
    assert list(clauses("Thank you. Please enter your agent number, then wait.")) == [
        "please enter your agent number"
    ]
    assert reported_clauses("please enter your password followed by the pound key")
    assert not reported_clauses("what are your opening hours on saturday")


def strings(path: Path) -> list[str]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
    ]


def test_the_recogniser_and_the_settings_know_no_sentence_of_the_report_set():
    assert [clause for phrase in CALLER_PHRASES for clause in reported_clauses(phrase)] == []
    texts = {path: path.read_text(encoding="utf-8") for path in (ROOT / "knowledge").rglob("*.md")}
    for folder in PRODUCT:
        texts |= {path: "\n".join(strings(path)) for path in (ROOT / folder).rglob("*.py")}
        texts |= {path: path.read_text(encoding="utf-8") for path in (ROOT / folder).rglob("*.yaml")}
    assert len(texts) > 300
    known = {str(path): found for path, text in texts.items() if (found := reported_clauses(text))}
    assert known == {}


def test_no_module_of_the_product_reads_recordings_of_people():
    for folder in PRODUCT:
        for path in (ROOT / folder).rglob("*.py"):
            for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
                names = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
                names += [node.module or ""] if isinstance(node, ast.ImportFrom) else []
                assert not any(name.split(".")[0] == "evals" for name in names), path
            assert "parley/human" not in path.read_text(encoding="utf-8"), path
