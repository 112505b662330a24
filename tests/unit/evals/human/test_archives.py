"""Archives of recordings: read only when they have the pinned digests."""

import hashlib
import io
import tarfile
import zipfile
from pathlib import Path

import pytest

from parley.core.errors import ConfigError
from parley.evals.human.archives import ARCHIVES, Archive, RegistryClient, fetch, members


def archive(client: RegistryClient, file: str, data: bytes) -> Archive:
    return Archive("test", client, "test=1", file, hashlib.sha256(data).hexdigest())


def tar(mode: str) -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode=mode) as writer:
        member = tarfile.TarInfo("./usr/share/sounds/a.txt")
        member.size = 5
        writer.addfile(member, io.BytesIO(b"hello"))
    return out.getvalue()


def deb() -> bytes:
    # A member of odd size before the data: the next one begins at an even offset.
    parts = [("debian-binary", b"2.0"), ("data.tar.xz", tar("w:xz"))]
    out = b"!<arch>\n"
    for name, data in parts:
        out += f"{name:<16}{0:<12}{0:<6}{0:<6}{'100644':<8}{len(data):<10}`\n".encode() + data
        out += b"\n" * (len(data) % 2)
    return out


def wheel() -> bytes:
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w") as writer:
        writer.writestr("usr/share/sounds/a.txt", "hello")
    return out.getvalue()


@pytest.mark.parametrize(
    ("client", "file", "data"),
    [
        (RegistryClient.APT, "a.deb", deb()),
        (RegistryClient.PIP, "a.whl", wheel()),
        (RegistryClient.PIP_SOURCE, "a.tar.gz", tar("w:gz")),
    ],
)
def test_members_of_every_kind_of_archive_are_read(
    tmp_path: Path, client: RegistryClient, file: str, data: bytes
):
    (tmp_path / file).write_bytes(data)
    assert list(members(archive(client, file, data), tmp_path)) == [("usr/share/sounds/a.txt", b"hello")]


def test_an_altered_archive_is_refused(tmp_path: Path):
    pinned = archive(RegistryClient.PIP, "a.whl", wheel())
    (tmp_path / "a.whl").write_bytes(wheel() + b"more")
    with pytest.raises(ConfigError, match="SHA-256"):
        list(members(pinned, tmp_path))
    # Fetching refuses it too.
    with pytest.raises(ConfigError, match="SHA-256"):
        fetch(pinned, tmp_path)


def test_a_missing_archive_names_the_command_that_fetches_it(tmp_path: Path):
    with pytest.raises(ConfigError, match=r"python -m evals\.human fetch"):
        list(members(archive(RegistryClient.PIP, "a.whl", b""), tmp_path))


def test_a_file_that_is_no_package_is_refused(tmp_path: Path):
    (tmp_path / "a.deb").write_bytes(b"nonsense")
    with pytest.raises(ConfigError, match="not a Debian package"):
        list(members(archive(RegistryClient.APT, "a.deb", b"nonsense"), tmp_path))


def test_every_archive_is_pinned():
    assert all(len(bytes.fromhex(one.sha256)) == 32 for one in ARCHIVES.values())
