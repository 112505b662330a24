"""Files of a call that is held here: the caller's speech, the recording and the record."""

import json
import tempfile
from pathlib import Path
from typing import Any

from parley.core.errors import ConfigError, MediaError

FILE_RATE_HZ = 16_000


def callers_pcm(source: Path | None, output: Path | None) -> bytes:
    """Return the caller's speech from a file; empty without a file. First check that the call can be written.

    Raises:
        MediaError: the input is not audio.
        ConfigError: a file cannot be read or written, or the output would replace the input.
    """
    from parley.audio.wav import decode_wav

    if output is not None and output.suffix.lower() != ".wav":
        raise ConfigError(f"--output {output}: the recording is a WAV file, so its name must end in .wav")
    targets = () if output is None else (output, output.with_suffix(".json"))
    try:
        data = None if source is None else source.read_bytes()
        # A folder that is missing is created, and not those above it: the path may be misspelt.
        if output is not None and not (above := output.absolute().parent.parent).is_dir():
            raise ConfigError(f"--output {output}: there is no folder {above}")
        for target in targets:
            if source is not None and target.exists() and target.samefile(source):
                raise ConfigError(f"--output {output} would overwrite the caller's recording {source}")
            check_writable(target)
    except OSError as error:
        raise ConfigError(f"{error.filename or output}: {error.strerror}") from error
    if data is None:
        return b""
    try:
        return decode_wav(data, rate_hz=FILE_RATE_HZ)
    except MediaError as error:
        raise MediaError(f"{source}: {error}") from error


def write_document(document: dict[str, Any], output: Path) -> None:
    """Write the call as JSON next to its recording. Raises ConfigError when it cannot be written."""
    written = output.with_suffix(".json")
    try:
        written.write_text(json.dumps(document, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{written}: {error.strerror}") from error
    print(f"{output} and {written}: {len(document['turns'])} turns")


def check_writable(target: Path) -> None:
    """Check that a file can be written, now or once its folder exists, without changing anything.

    Raises:
        OSError: it cannot be written.
    """
    if target.exists():
        # Neither truncates nor creates the file.
        target.open("r+b").close()
        return
    folder = next(parent for parent in target.absolute().parents if parent.exists())
    with tempfile.TemporaryFile(dir=folder):
        pass
