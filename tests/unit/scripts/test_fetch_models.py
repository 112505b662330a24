import threading
from collections.abc import Iterator
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from scripts import fetch_models
from scripts.fetch_models import MODELS, Model, RemoteFile, fetch, main


class Quiet(SimpleHTTPRequestHandler):
    def log_message(self, *_args: object) -> None:
        pass


class BreaksOff(Quiet):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "1000")
        self.end_headers()
        self.wfile.write(b"x" * 10)


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[str]:
    yield from serve(partial(Quiet, directory=str(tmp_path / "served")), tmp_path)


@pytest.fixture
def broken_mirror(tmp_path: Path) -> Iterator[str]:
    yield from serve(BreaksOff, tmp_path)


def serve(handler: object, tmp_path: Path) -> Iterator[str]:
    (tmp_path / "served" / "v1").mkdir(parents=True)
    for name in ("a.bin", "b.bin"):
        (tmp_path / "served" / "v1" / name).write_bytes(name.encode() * 100)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)  # type: ignore[arg-type]
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture(autouse=True)
def tiny_model(monkeypatch: pytest.MonkeyPatch) -> None:
    files = [RemoteFile(f"https://weights.example/v1/{name}", f"tiny/{name}") for name in ("a.bin", "b.bin")]
    monkeypatch.setitem(MODELS, "tiny", Model("dev", "pytest", "https://weights.example", lambda: files))


def test_all_files_of_a_model_arrive(mirror: str, tmp_path: Path):
    fetch("tiny", tmp_path / "models", mirror)
    assert (tmp_path / "models/tiny/a.bin").read_bytes() == b"a.bin" * 100
    assert (tmp_path / "models/tiny/b.bin").exists()
    assert [path.name for path in (tmp_path / "models").iterdir()] == ["tiny"]


def test_a_missing_file_changes_nothing_and_says_so(
    mirror: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "served/v1/b.bin").unlink()
    status = main(["tiny", "--models-dir", str(tmp_path / "models"), "--mirror", mirror])
    assert status == 1
    assert list((tmp_path / "models").iterdir()) == []
    assert "tiny was not fetched, nothing was changed" in capsys.readouterr().err


def test_a_download_that_breaks_off_changes_nothing(
    broken_mirror: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    assert main(["tiny", "--models-dir", str(tmp_path / "models"), "--mirror", broken_mirror]) == 1
    assert list((tmp_path / "models").iterdir()) == []
    assert "nothing was changed" in capsys.readouterr().err


def test_a_closed_network_is_found_before_anything_is_installed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    status = main(["tiny", "--models-dir", str(tmp_path / "models"), "--mirror", "http://127.0.0.1:9"])
    assert status == 1
    assert "cannot be reached" in capsys.readouterr().err
    assert not (tmp_path / "models").exists()


def test_an_unknown_model_lists_the_known_ones(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stopped:
        main(["bogus"])
    assert stopped.value.code == 2
    assert "known: moonshine, kokoro" in capsys.readouterr().err


def test_the_default_is_what_the_local_deployment_uses():
    assert set(fetch_models.DEFAULT.split()) == {"moonshine", "kokoro"}
