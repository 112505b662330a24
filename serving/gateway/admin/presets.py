"""Presets: ready-made beginnings of a conversation, with a prompt and a reference voice.

They are files ``presets/{mode}/*.yaml``, in the schema of the MiniCPM-o server: ``id``, ``order``, ``name``,
``description``, either ``system_prompt`` or ``system_content`` (texts and sounds in order), and optionally
``ref_audio_path``. Paths are relative to the folder of all presets and must stay in it. An invalid file is
logged, once for each time that it changes, and left out; the others are served. Files are read again when one
has changed.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Literal, get_args

from loguru import logger
from pydantic import BaseModel, Field, ValidationError, model_validator

from parley.core.errors import AgentError, ConfigError, MediaError
from parley.core.strict_model import StrictModel
from parley.core.yaml_text import parse_yaml_value
from parley.serving.gateway.reference_voices.pcm import Pcm, read_pcm

Mode = Literal["turnbased", "half_duplex_audio", "omni", "audio_duplex"]
MODES: tuple[Mode, ...] = get_args(Mode)
# Size of a preset; a longer prompt is a document.
MOST_BYTES = 64_000
# Size of a sound of a preset, checked before it is read: five minutes of 16 bit stereo at 48 kHz.
MOST_SOUND_BYTES = 60_000_000

_Text = Annotated[str, Field(min_length=1, max_length=20_000)]


class PresetError(AgentError):
    """A file is not a valid preset, or there is no preset of that name."""


class PresetText(StrictModel):
    """Text of a preset."""

    type: Literal["text"]
    text: _Text


class PresetAudio(StrictModel):
    """Sound of a preset: a reference voice, an example."""

    type: Literal["audio"]
    path: str = Field(min_length=1, max_length=500)


class PresetFile(StrictModel):
    """Contents of one file."""

    id: str = Field(pattern=r"^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$")
    order: int = Field(999, ge=-1_000_000, le=1_000_000)
    name: str = Field(min_length=1, max_length=100)
    description: str = Field("", max_length=500)
    system_prompt: _Text | None = None
    system_content: tuple[Annotated[PresetText | PresetAudio, Field(discriminator="type")], ...] | None = (
        Field(None, min_length=1, max_length=20)
    )
    ref_audio_path: str | None = Field(None, min_length=1, max_length=500)

    @model_validator(mode="after")
    def _says_one_thing(self) -> "PresetFile":
        if (self.system_prompt is None) == (self.system_content is None):
            raise ValueError("expected either system_prompt or system_content")
        return self


class PresetSound(BaseModel):
    """Sound of a preset; ``data`` is float32 PCM of 16 kHz in base64, null where it was not requested."""

    name: str
    duration: float
    data: str | None = None
    path: str | None = None


class SoundItem(PresetSound):
    """Sound among the texts of a preset."""

    type: Literal["audio"] = "audio"


class PresetView(BaseModel):
    """Preset as clients receive it; the samples of its sounds are requested separately (``PresetSounds``)."""

    id: str
    order: int
    name: str
    description: str
    system_prompt: str | None = None
    system_content: list[PresetText | SoundItem] | None = None
    ref_audio: PresetSound | None = None


class PresetSounds(BaseModel):
    """Sounds of one preset, with their samples."""

    system_content_audio: list[PresetSound] | None = None
    ref_audio: PresetSound | None = None


@dataclass(frozen=True, slots=True)
class Preset:
    """Preset that was read, with the files of its sounds by the paths that it names."""

    file: PresetFile
    view: PresetView
    sounds: dict[str, Path] = field(default_factory=dict)


# Path, modification time and size of every relevant file.
_Stamp = tuple[tuple[str, int, int], ...]


class Presets:
    """Presets of one deployment. All methods block while they access files.

    Args:
        folder: of all modes.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._stamp: _Stamp | None = None
        self._presets: dict[Mode, list[Preset]] = {}

    def all(self) -> dict[Mode, list[Preset]]:
        """Return the presets of each mode that has any, in their order."""
        stamp = self._look()
        if stamp != self._stamp:
            self._presets = self._read()
            self._stamp = stamp
        return self._presets

    def get(self, mode: str, preset_id: str) -> Preset:
        """Return a preset.

        Raises:
            PresetError: there is none of that name.
        """
        of_mode = next((presets for known, presets in self.all().items() if known == mode), [])
        found = next((preset for preset in of_mode if preset.file.id == preset_id), None)
        if found is None:
            raise PresetError("there is no such preset")
        return found

    def sounds(self, mode: str, preset_id: str) -> PresetSounds:
        """Return the sounds of a preset, with their samples.

        Raises:
            PresetError: there is none of that name, or a sound of it cannot be read any more.
        """
        preset = self.get(mode, preset_id)
        try:
            read = {named: read_pcm(path) for named, path in preset.sounds.items()}
        except (OSError, MediaError) as error:
            raise PresetError("a sound of this preset cannot be read") from error
        file = preset.file
        content = None
        if file.system_content is not None:
            content = [
                _sound(read[item.path]) for item in file.system_content if isinstance(item, PresetAudio)
            ]
        named = file.ref_audio_path
        return PresetSounds(
            system_content_audio=content, ref_audio=None if named is None else _sound(read[named])
        )

    def _look(self) -> _Stamp:
        seen = []
        for path in sorted(self._folder.rglob("*")):
            try:
                status = path.stat()
            except OSError:
                continue
            if path.is_file():
                seen.append((str(path), status.st_mtime_ns, status.st_size))
        return tuple(seen)

    def _read(self) -> dict[Mode, list[Preset]]:
        presets: dict[Mode, list[Preset]] = {}
        for mode in MODES:
            found: dict[str, Preset] = {}
            for path in sorted((self._folder / mode).glob("*.yaml")):
                try:
                    preset = self._preset(path)
                    if preset.file.id in found:
                        raise PresetError(f"id: another file has the id {preset.file.id!r} already")
                except (PresetError, OSError) as error:
                    logger.error(f"ignoring the preset {path}: {error}")
                    continue
                found[preset.file.id] = preset
            if found:
                presets[mode] = sorted(found.values(), key=lambda each: (each.file.order, each.file.id))
        return presets

    def _preset(self, path: Path) -> Preset:
        file = _parsed(path)
        items = file.system_content or ()
        named = [item.path for item in items if isinstance(item, PresetAudio)]
        if file.ref_audio_path is not None:
            named.append(file.ref_audio_path)
        sounds = {each: self._inside(each) for each in named}
        lengths = {each: _described(each, sound) for each, sound in sounds.items()}
        content: list[PresetText | SoundItem] | None = None
        if file.system_content is not None:
            content = [
                item if isinstance(item, PresetText) else SoundItem(**lengths[item.path].model_dump())
                for item in items
            ]
        view = PresetView(
            **file.model_dump(include={"id", "order", "name", "description", "system_prompt"}),
            system_content=content,
            ref_audio=None if file.ref_audio_path is None else lengths[file.ref_audio_path],
        )
        return Preset(file, view, sounds)

    def _inside(self, named: str) -> Path:
        path = (self._folder / named).resolve()
        if Path(named).is_absolute() or not path.is_relative_to(self._folder.resolve()):
            raise PresetError(f"{named}: not a path inside {self._folder.name}")
        if not path.is_file():
            raise PresetError(f"{named}: the file does not exist")
        if path.stat().st_size > MOST_SOUND_BYTES:
            raise PresetError(f"{named}: over {MOST_SOUND_BYTES} bytes")
        return path


def _parsed(path: Path) -> PresetFile:
    if path.stat().st_size > MOST_BYTES:
        raise PresetError(f"over {MOST_BYTES} bytes")
    try:
        data = parse_yaml_value(path.read_text(encoding="utf-8"), where="the file")
    except (ConfigError, UnicodeDecodeError) as error:
        raise PresetError(str(error)) from error
    try:
        return PresetFile.model_validate(data)
    except ValidationError as error:
        faults = [f"{'.'.join(map(str, each['loc']))}: {each['msg']}" for each in error.errors()[:5]]
        raise PresetError("; ".join(faults).lstrip(": ")) from error


def _described(named: str, path: Path) -> PresetSound:
    try:
        pcm = read_pcm(path)
    except MediaError as error:
        raise PresetError(f"{named}: {error}") from error
    return PresetSound(name=pcm.name, duration=pcm.duration, path=named)


def _sound(pcm: Pcm) -> PresetSound:
    return PresetSound(name=pcm.name, duration=pcm.duration, data=pcm.base64)
