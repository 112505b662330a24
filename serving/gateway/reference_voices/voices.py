"""Reference voices of one deployment: stored, listed, loaded, deleted.

A voice is a WAV file (16 kHz, mono, 16 bit) with a generated name, and an entry of ``registry.json``. The
file is written before the entry, and the entry is removed before the file. A crash may leave a file without
an entry, but never an entry without its file. A registry that cannot be read is renamed and rebuilt from the
files, without the names of the voices. One process writes a folder.
"""

import asyncio
import re
import time
import uuid
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

import numpy as np
from loguru import logger
from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, ValidationError

from parley.audio.wav import decode_wav, encode_wav
from parley.core.errors import MediaError
from parley.core.media import PCM_BYTES_PER_SAMPLE, pcm16_to_float, samples_to_ms
from parley.runtime.atomic_file import replace_file, sweep
from parley.serving.gateway.reference_voices.decoder import RATE_HZ, VoiceDecoder, VoiceError
from parley.serving.gateway.reference_voices.settings import VoiceTuning

# Folder of the voices in ``operations.data_dir``.
VOICES_FOLDER = "ref_audio"
REGISTRY = "registry.json"
VOICE_ID = re.compile(r"[0-9a-f]{8}(?:-[0-9a-f]{4}){3}-[0-9a-f]{12}")
NAME = r"^[^\x00-\x1f\x7f]{1,100}$"
WAV_HEADER_BYTES = 44
# Younger files may belong to an upload that has no entry yet.
ORPHAN_S = 3_600


class Voice(BaseModel):
    """Voice, as clients of the MiniCPM-o server receive it.

    Attributes:
        id: generated here.
        name: for people.
        filename: in the folder.
        source_type: origin of the voice.
        duration_ms: of the recording.
        sample_rate: of the recording, in Hz.
        created_at: time of the upload.
    """

    model_config = ConfigDict(frozen=True)

    id: str = Field(pattern=rf"^{VOICE_ID.pattern}$")
    name: str = Field(pattern=NAME)
    filename: str
    source_type: str = "upload"
    duration_ms: int
    sample_rate: int = RATE_HZ
    created_at: datetime


_REGISTRY = TypeAdapter(list[Voice])


class Voices:
    """Reference voices. Reading the registry and loading a voice block; the other methods do not.

    Args:
        folder: of the voices; created with the first one.
        settings: bounds.
    """

    def __init__(self, folder: Path, settings: VoiceTuning | None = None) -> None:
        self.settings = settings or VoiceTuning()
        self._folder = folder
        self._decoder = VoiceDecoder(self.settings)
        self._writing = asyncio.Lock()
        self._voices = {voice.id: voice for voice in self._read()}

    def all(self) -> list[Voice]:
        """Return all voices, the oldest first."""
        return list(self._voices.values())

    async def add(self, name: str, data: bytes) -> Voice:
        """Store a voice; it is stored when this returns.

        Args:
            name: for people.
            data: a whole audio file.

        Raises:
            VoiceError: 400, no audio or no name; 413, too much; 409, too many are stored.
            CapacityError: the maximum number of files is being decoded.
            OSError: it could not be written, and is not stored.
        """
        name = name.strip()
        if not re.fullmatch(NAME, name):
            raise VoiceError("name: expected 1 to 100 characters", status=400)
        if len(data) > self.settings.max_upload_bytes:
            raise VoiceError(f"the file is over {self.settings.max_upload_bytes} bytes", status=413)
        self._check_room(0)
        pcm = await self._decoder.decode(data)
        async with self._writing:
            self._check_room(WAV_HEADER_BYTES + len(pcm))
            voice_id = str(uuid.uuid4())
            voice = Voice(
                id=voice_id,
                name=name,
                filename=f"{voice_id}.wav",
                duration_ms=samples_to_ms(len(pcm) // PCM_BYTES_PER_SAMPLE, RATE_HZ),
                created_at=datetime.now(UTC),
            )
            path = self._path(voice_id)
            await asyncio.to_thread(replace_file, path, encode_wav(pcm, RATE_HZ))
            try:
                await self._write({**self._voices, voice_id: voice})
            except OSError:
                path.unlink(missing_ok=True)
                raise
        return voice

    async def remove(self, voice_id: str) -> None:
        """Delete a voice.

        Raises:
            VoiceError: 404, there is none with that id.
            OSError: the registry could not be written, and the voice is not deleted.
        """
        async with self._writing:
            path = self.path(voice_id)
            await self._write({key: voice for key, voice in self._voices.items() if key != voice_id})
            path.unlink(missing_ok=True)

    def path(self, voice_id: str) -> Path:
        """Return the file of a stored voice.

        Raises:
            VoiceError: 404, there is none with that id.
        """
        if voice_id not in self._voices:
            raise _unknown()
        return self._path(voice_id)

    def load(self, voice_id: str) -> np.ndarray:
        """Return a voice: float32, (samples,), 16 kHz, in [-1, 1]. Blocks while its file is read.

        Raises:
            VoiceError: 404, there is none with that id, or its file is missing.
        """
        try:
            return pcm16_to_float(decode_wav(self.path(voice_id).read_bytes(), rate_hz=RATE_HZ))
        except (OSError, MediaError) as error:
            raise VoiceError("the file of this voice is missing", status=404) from error

    def _path(self, voice_id: str) -> Path:
        """Return the path for a generated id; it lies in the folder, and no link leads out of it."""
        path = self._folder / f"{voice_id}.wav"
        if not VOICE_ID.fullmatch(voice_id) or path.resolve().parent != self._folder.resolve():
            raise _unknown()
        return path

    def _check_room(self, more_bytes: int) -> None:
        chosen = self.settings
        if len(self._voices) >= chosen.max_voices:
            raise VoiceError(f"{chosen.max_voices} voices are kept already: delete one first", status=409)
        kept_bytes = sum(_wav_bytes(voice) for voice in self._voices.values())
        if kept_bytes + more_bytes > chosen.max_total_bytes:
            raise VoiceError(
                f"voices of {chosen.max_total_bytes} bytes in total are kept already: delete one first",
                status=409,
            )

    async def _write(self, voices: dict[str, Voice]) -> None:
        content = _REGISTRY.dump_json(list(voices.values()), indent=2) + b"\n"
        await asyncio.to_thread(replace_file, self._folder / REGISTRY, content)
        self._voices = voices

    def _read(self) -> list[Voice]:
        registry = self._folder / REGISTRY
        try:
            listed = _REGISTRY.validate_json(registry.read_bytes())
        except FileNotFoundError:
            return self._found()
        except (OSError, ValidationError) as error:
            aside = registry.with_suffix(".broken")
            logger.error(f"{registry} cannot be read: it is {aside.name} now, and made again: {error}")
            with suppress(OSError):
                registry.replace(aside)
            return self._found()
        sweep(registry)
        voices = [voice for voice in listed if (self._folder / f"{voice.id}.wav").is_file()]
        for voice in set(listed) - set(voices):
            logger.error(f"{registry}: the file of the voice {voice.id} is missing, ignoring the voice")
        self._sweep({voice.id for voice in listed})
        return voices

    def _found(self) -> list[Voice]:
        """Return voices described by the files alone, the oldest first."""
        found = []
        for path in self._folder.glob("*.wav"):
            if not VOICE_ID.fullmatch(path.stem) or path.is_symlink():
                continue
            try:
                pcm = decode_wav(path.read_bytes(), rate_hz=RATE_HZ)
            except (OSError, MediaError) as error:
                logger.error(f"{path} is left out: {error}")
                continue
            found.append(
                Voice(
                    id=path.stem,
                    name=f"voice {path.stem[:8]}",
                    filename=path.name,
                    source_type="found",
                    duration_ms=samples_to_ms(len(pcm) // PCM_BYTES_PER_SAMPLE, RATE_HZ),
                    created_at=datetime.fromtimestamp(path.stat().st_mtime, UTC),
                )
            )
        return sorted(found, key=lambda voice: voice.created_at)

    def _sweep(self, listed: set[str]) -> None:
        """Delete files without an entry that a crash has left."""
        for path in (*self._folder.glob("*.wav"), *self._folder.glob(".*.wav.*")):
            with suppress(OSError):
                is_old = time.time() - path.stat().st_mtime > ORPHAN_S
                is_ours = path.name.startswith(".") or VOICE_ID.fullmatch(path.stem) is not None
                if is_old and is_ours and path.stem not in listed:
                    path.unlink()


class StoredVoices:
    """Reader of the reference voices of a deployment, which ``Voices`` writes. Blocks; thread-safe.

    Reads the files at each use, so a voice is found as soon as it was uploaded, and never after its deletion.

    Args:
        folder: of the voices; it may not exist.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def find(self, wanted: str) -> str:
        """Return the id of a voice by its id or its name.

        Raises:
            VoiceError: there is none, or there are several of that name.
        """
        try:
            listed = _REGISTRY.validate_json((self._folder / REGISTRY).read_bytes())
        except FileNotFoundError:
            listed = []
        except (OSError, ValidationError) as error:
            raise VoiceError(f"the list of reference voices cannot be read: {error}", status=404) from error
        found = [voice.id for voice in listed if wanted in (voice.id, voice.name)]
        if len(found) > 1:
            raise VoiceError(f"{len(found)} reference voices are named {wanted!r}: use an id", status=409)
        if not found:
            raise VoiceError(f"there is no reference voice {wanted!r}: upload it first", status=404)
        return found[0]

    def read(self, voice_id: str) -> bytes:
        """Return the WAV file of a voice that was found.

        Raises:
            VoiceError: it is missing.
        """
        try:
            return (self._folder / f"{voice_id}.wav").read_bytes()
        except OSError as error:
            raise VoiceError("the file of this voice is missing", status=404) from error


def _unknown() -> VoiceError:
    return VoiceError("there is no such voice", status=404)


def _wav_bytes(voice: Voice) -> int:
    return WAV_HEADER_BYTES + voice.duration_ms * RATE_HZ // 1000 * PCM_BYTES_PER_SAMPLE
