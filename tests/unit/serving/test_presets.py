"""Presets: ready-made beginnings of a conversation."""

import base64
import os
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml
from loguru import logger

from parley.serving.gateway.admin.operations import Operations, OperationsSettings
from parley.serving.gateway.admin.presets import MODES, PresetError, Presets
from parley.serving.gateway.admin.presets_api import FrontendDefaults
from tests.peers.operations_gateway import asking, gateway
from tests.sounds import sound

SHIPPED = Path(__file__).parents[3] / "presets"
GOOD = {"id": "good", "name": "Good", "system_prompt": "Be good."}


@pytest.fixture
def complaints() -> Iterator[list[str]]:
    """Collect the log's warnings about files."""
    said: list[str] = []
    sink = logger.add(lambda line: said.append(str(line)), level="ERROR", format="{message}")
    yield said
    logger.remove(sink)


def write(folder: Path, mode: str, name: str, content: object) -> Path:
    path = folder / mode / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content if isinstance(content, str) else yaml.safe_dump(content))
    return path


def ids(presets: Presets, mode: str = "omni") -> list[str]:
    return [preset.file.id for known, of in presets.all().items() if known == mode for preset in of]


@pytest.mark.parametrize("mode", MODES)
def test_two_presets_ship_for_each_mode(mode: str, complaints: list[str]):
    assert ids(Presets(SHIPPED), mode) == ["bank_helper", "talk_partner"]
    assert complaints == []


def test_a_shipped_prompt_is_one_paragraph():
    for of_mode in Presets(SHIPPED).all().values():
        for preset in of_mode:
            text = preset.file.system_prompt or preset.view.system_content[0].text  # type: ignore
            assert 50 < len(text) < 1_000 and "\n" not in text


def test_presets_come_in_their_order(tmp_path: Path):
    for number, name in ((3, "a"), (1, "b"), (2, "c")):
        write(tmp_path, "omni", f"{name}.yaml", {**GOOD, "id": name, "order": number})
    write(tmp_path, "omni", "unsaid.yaml", {**GOOD, "id": "unsaid"})
    assert ids(Presets(tmp_path)) == ["b", "c", "a", "unsaid"]


def test_words_of_a_preset_are_no_booleans(tmp_path: Path):
    write(tmp_path, "omni", "a.yaml", "id: x\nname: on\nsystem_prompt: off\n")
    [preset] = Presets(tmp_path).all()["omni"]
    assert (preset.file.name, preset.file.system_prompt) == ("on", "off")


@pytest.mark.parametrize(
    ("content", "why"),
    [
        ("{", "not YAML"),
        ("- a\n- b", "valid dictionary"),
        ("", "valid dictionary"),
        ({**GOOD, "id": "../up"}, "id: String should match"),
        ({**GOOD, "colour": "red"}, "colour: Extra inputs"),
        ({"id": "x", "name": "X"}, "either system_prompt or system_content"),
        ({**GOOD, "system_content": [{"type": "text", "text": "two"}]}, "either system_prompt or"),
        ({**GOOD, "system_prompt": ""}, "system_prompt: String should have at least 1"),
        ({"id": "x", "name": "X", "system_content": [{"type": "smell"}]}, "system_content.0"),
        ({**GOOD, "ref_audio_path": "none.wav"}, "none.wav: the file does not exist"),
        ({**GOOD, "ref_audio_path": "../secret.wav"}, "secret.wav: not a path inside"),
        ({**GOOD, "ref_audio_path": "voices/link.wav"}, "link.wav: not a path inside"),
        ({**GOOD, "ref_audio_path": "voices/text.wav"}, "text.wav: not an audio file"),
        ({**GOOD, "ref_audio_path": "voices"}, "voices: the file does not exist"),
        ("x" * 70_000, "over 64000 bytes"),
    ],
)
def test_a_file_that_is_wrong_is_named_and_the_others_are_served(
    tmp_path: Path, complaints: list[str], content: object, why: str
):
    folder = tmp_path / "presets"
    (folder / "voices").mkdir(parents=True)
    (tmp_path / "secret.wav").write_bytes(sound())
    (folder / "voices" / "link.wav").symlink_to(tmp_path / "secret.wav")
    (folder / "voices" / "text.wav").write_text("words")
    write(folder, "omni", "good.yaml", GOOD)
    path = write(folder, "omni", "wrong.yaml", content)
    presets = Presets(folder)
    for _ in range(2):
        assert ids(presets) == ["good"]
    # Once, and not at each reading.
    [complaint] = complaints
    assert str(path) in complaint and why in complaint


def test_an_absolute_path_is_refused_even_inside(tmp_path: Path, complaints: list[str]):
    (tmp_path / "voice.wav").write_bytes(sound())
    write(tmp_path, "omni", "a.yaml", {**GOOD, "ref_audio_path": str(tmp_path / "voice.wav")})
    assert ids(Presets(tmp_path)) == [] and "not a path inside" in complaints[0]


def test_the_second_of_the_same_id_is_left_out(tmp_path: Path, complaints: list[str]):
    write(tmp_path, "omni", "a.yaml", {**GOOD, "name": "First"})
    write(tmp_path, "omni", "b.yaml", {**GOOD, "name": "Second"})
    write(tmp_path, "audio_duplex", "c.yaml", GOOD)
    presets = Presets(tmp_path)
    assert presets.get("omni", "good").file.name == "First" and ids(presets, "audio_duplex") == ["good"]
    [complaint] = complaints
    assert "b.yaml" in complaint and "'good' already" in complaint


def test_files_are_read_again_when_they_change(tmp_path: Path):
    presets = Presets(tmp_path / "presets")
    assert presets.all() == {}
    path = write(tmp_path / "presets", "omni", "a.yaml", GOOD)
    assert presets.get("omni", "good").file.name == "Good"
    write(tmp_path / "presets", "omni", "a.yaml", {**GOOD, "name": "Best"})
    # Of the same size, and perhaps within one tick of the file system's clock.
    os.utime(path, ns=(1, 1))
    assert presets.get("omni", "good").file.name == "Best"
    path.unlink()
    with pytest.raises(PresetError, match="no such preset"):
        presets.get("omni", "good")


def test_a_sound_that_comes_later_mends_its_preset(tmp_path: Path):
    write(tmp_path, "omni", "a.yaml", {**GOOD, "ref_audio_path": "voice.wav"})
    presets = Presets(tmp_path)
    assert ids(presets) == []
    (tmp_path / "voice.wav").write_bytes(sound())
    assert ids(presets) == ["good"]


async def test_clients_are_given_lengths_first_and_samples_when_they_ask(tmp_path: Path):
    (tmp_path / "anna.wav").write_bytes(sound("wav", 2.0))
    (tmp_path / "example.flac").write_bytes(sound("flac", 1.0))
    content = [
        {"type": "text", "text": "Speak like this:"},
        {"type": "audio", "path": "example.flac"},
        {"type": "text", "text": "Be brief."},
    ]
    preset = {"id": "p", "order": 1, "name": "P", "system_content": content, "ref_audio_path": "anna.wav"}
    write(tmp_path, "turnbased", "p.yaml", preset)
    write(tmp_path, "omni", "good.yaml", {**GOOD, "description": "One."})
    operations = Operations.open(OperationsSettings(presets_dir=tmp_path, data_dir=tmp_path), pool=None)
    async with asking(gateway(operations)) as client:
        presets = (await client.get("/api/presets")).json()
        assert presets["omni"] == [{**GOOD, "order": 999, "description": "One."}]
        [received] = presets["turnbased"]
        assert received["ref_audio"] == {"name": "anna.wav", "duration": 2.0, "path": "anna.wav"}
        assert [item["type"] for item in received["system_content"]] == ["text", "audio", "text"]
        assert received["system_content"][1]["duration"] == 1.0

        sounds = (await client.get("/api/presets/turnbased/p/audio")).json()
        [example] = sounds["system_content_audio"]
        for each, name, count in (
            (example, "example.flac", 16_000),
            (sounds["ref_audio"], "anna.wav", 32_000),
        ):
            samples = np.frombuffer(base64.b64decode(each["data"]), "<f4")
            assert (each["name"], len(samples)) == (name, count) and np.abs(samples).max() > 0.25

        assert (await client.get("/api/presets/omni/good/audio")).json() == {}
        for path in ("omni/p", "telepathy/p", "omni/..%2f..%2fsecret"):
            assert (await client.get(f"/api/presets/{path}/audio")).status_code == 404


async def test_a_page_is_told_what_to_begin_with():
    async with asking(gateway()) as client:
        assert (await client.get("/api/frontend_defaults")).json() == {"playback_delay_ms": 200}
        assert (await client.get("/api/presets")).json() == {}
    chosen = Operations(frontend=FrontendDefaults(playback_delay_ms=120, default_lang="en"))
    async with asking(gateway(chosen)) as client:
        received = (await client.get("/api/frontend_defaults")).json()
        assert received == {"playback_delay_ms": 120, "default_lang": "en"}
