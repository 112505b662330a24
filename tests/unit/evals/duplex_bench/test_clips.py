"""Folders of the benchmark's layout."""

import json
from pathlib import Path

import numpy as np
import pytest
import soundfile

from parley.core.errors import ConfigError, MediaError
from parley.evals.duplex_bench.clips import SHIPPED, Kind, Part, load, part_of, read_audio


def put(folder: Path, clip: str, seconds: float = 4.0, rate_hz: int = 48_000, **files: object) -> Path:
    place = folder / clip
    place.mkdir(parents=True)
    tone = 0.1 * np.sin(np.arange(round(seconds * rate_hz)) * 0.05)
    soundfile.write(place / "input.wav", tone, rate_hz)
    for name, value in files.items():
        (place / f"{name}.json").write_text(json.dumps(value))
    return place


def test_the_folders_of_v1_and_of_v1_5_are_known_by_their_names() -> None:
    assert [
        part_of(name)
        for name in (
            *("candor_pause_handling", "synthetic_pause_handling", "candor_turn_taking"),
            *("icc_backchannel", "synthetic_user_interruption"),
            *("user_interruption", "user_backchannel", "talking_to_other", "background_speech"),
            "results",
        )
    ] == [
        *(Part.PAUSE, Part.PAUSE, Part.TURN, Part.BACKCHANNEL, Part.INTERRUPTION),
        *(Part.INTERRUPTION, Part.USER_BACKCHANNEL, Part.TALKING_TO_OTHERS, Part.BACKGROUND, None),
    ]


def test_a_clip_of_v1_is_read(tmp_path: Path) -> None:
    put(tmp_path, "candor_turn_taking/10", turn_taking=[{"timestamp": [2.5, 3.5]}])
    put(tmp_path, "candor_turn_taking/9", turn_taking=[{"timestamp": [1.5, 3.5]}])
    put(tmp_path, "candor_pause_handling/1", pause=[{"text": "[PAUSE]", "timestamp": [1.0, 1.6]}])
    pause, first, second = load(tmp_path)
    assert [each.name for each in (first, second)] == ["candor_turn_taking/9", "candor_turn_taking/10"]
    assert second.event is not None and second.event.ended_ms == 2_500
    assert pause.part is Part.PAUSE and [each.kind for each in pause.events] == [Kind.PAUSE]
    assert len(first.audio(16_000)) == 64_000


@pytest.mark.parametrize(
    "annotation",
    [
        {"metadata": {"timestamps": [1.0, 1.5]}},
        {"overlap": [{"text": "yeah", "timestamp": [1.0, 1.5]}]},
        {"metadata": {"clip": {"timestamps": [[1.0, 1.5]]}}},
    ],
)
def test_an_annotation_of_v1_5_is_found_wherever_it_is(tmp_path: Path, annotation: dict[str, object]) -> None:
    put(tmp_path, "user_backchannel/1", transcription={"chunks": [{"timestamp": [0, 3]}]}, **annotation)
    (clip,) = load(tmp_path)
    assert clip.event is not None and (clip.event.began_ms, clip.event.ended_ms) == (1_000, 1_500)


def test_the_clean_twin_is_the_recorded_one_or_has_silence_in_place_of_the_event(tmp_path: Path) -> None:
    place = put(tmp_path, "background_speech/1", metadata={"timestamp": [1.0, 2.0]})
    (clip,) = load(tmp_path)
    clean = clip.clean_audio(16_000)
    assert not clean[16_000:32_000].any() and clean[:16_000].any() and clean[32_000:].any()
    soundfile.write(place / "clean_input.wav", np.zeros(16_000), 16_000)
    (clip,) = load(tmp_path)
    assert not clip.clean_audio(16_000).any()


def test_a_distribution_of_listeners_belongs_to_its_clip(tmp_path: Path) -> None:
    put(tmp_path, "icc_backchannel/7")
    (tmp_path / "icc_gt_distribution.json").write_text(json.dumps({"7": [0.25, 0.75]}))
    (clip,) = load(tmp_path)
    assert clip.shares == (0.25, 0.75)


@pytest.mark.parametrize(
    ("files", "says"),
    [
        ({}, "turn_taking.json"),
        ({"turn_taking": [{"timestamp": [9.0, 9.5]}]}, "does not lie"),
        ({"turn_taking": [{"timestamp": [2.0, 1.0]}]}, "does not lie"),
        ({"turn_taking": [{"timestamp": "soon"}]}, "not [start, end]"),
        ({"turn_taking": [{"timestamp": [1.0, float("nan")]}]}, "not [start, end]"),
    ],
)
def test_what_cannot_be_scored_is_refused_by_name(
    tmp_path: Path, files: dict[str, object], says: str
) -> None:
    put(tmp_path, "candor_turn_taking/1", **files)
    with pytest.raises(ConfigError) as refused:
        load(tmp_path)
    assert "candor_turn_taking/1" in str(refused.value) and says in str(refused.value)


def test_what_is_no_json_and_no_audio_is_refused(tmp_path: Path) -> None:
    place = put(tmp_path, "candor_turn_taking/1")
    (place / "turn_taking.json").write_text("[{")
    with pytest.raises(ConfigError, match="not readable JSON"):
        load(tmp_path)
    (place / "input.wav").write_bytes(b"RIFF")
    with pytest.raises(ConfigError, match="not a readable audio file"):
        load(tmp_path)
    with pytest.raises(MediaError):
        read_audio(place / "input.wav", 16_000)


def test_an_empty_folder_and_none_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="no clip"):
        load(tmp_path)
    with pytest.raises(ConfigError, match="there is no folder"):
        load(tmp_path / "none")


def test_the_shipped_clips_have_what_each_part_needs() -> None:
    clips = load(SHIPPED)
    of = {part: [clip for clip in clips if clip.part is part] for part in Part}
    assert all(len(of[part]) >= 14 for part in Part if part is not Part.BACKCHANNEL)
    assert all(clip.shares for clip in of[Part.BACKCHANNEL])
    for clip in clips:
        length_ms = len(clip.audio(16_000)) / 16
        assert 3_000 <= length_ms <= 40_000
        if clip.part in (Part.USER_BACKCHANNEL, Part.TALKING_TO_OTHERS, Part.BACKGROUND, Part.TICS):
            assert clip.event is not None
            asked = next(each for each in clip.events if each.kind is Kind.TURN)
            # In the middle of an answer, with time after it to see the reaction.
            assert clip.event.began_ms - asked.ended_ms >= 3_400
            assert length_ms - clip.event.ended_ms >= 3_900


def test_the_shipped_clips_are_small() -> None:
    assert sum(path.stat().st_size for path in SHIPPED.rglob("*") if path.is_file()) < 6_000_000
