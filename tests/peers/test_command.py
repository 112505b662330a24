"""``python bot.py`` as a user types it, mistakes included."""

import asyncio
import importlib
import inspect
import json
import os
import pty
import re
import select
import socket
import subprocess
import sys
import time
import wave
from pathlib import Path

import numpy as np
import pytest
import soundfile

from parley.command.banner import banner
from parley.command.file_call import call_from_file
from parley.command.listener import address_of
from parley.configs.load import load_deployment
from parley.core.errors import ConfigError
from parley.models.tts.flite import FliteSettings, FliteTts
from parley.serving.gateway.auth.admin_token import AdminToken
from tests.peers.llm_script import Turn
from tests.peers.openai_server import OpenAiServer
from tests.peers.server import ROOT


async def command(
    *arguments: str, stdin: bytes = b"", within_s: float = 60, cwd: Path = ROOT
) -> tuple[int, str, str]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, str(ROOT / "bot.py"), *arguments, cwd=cwd,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        out, error = await asyncio.wait_for(child.communicate(stdin), within_s)
    finally:
        if child.returncode is None:
            child.kill()
    return child.returncode or 0, out.decode(), error.decode()


def complaint(error: str) -> str:
    """Return the only line on stderr."""
    lines = error.splitlines()
    assert len(lines) == 1, error
    return lines[0]


def hold_file_call(source: Path, output: Path) -> None:
    """As ``--transport file`` does when the command line is read."""
    call_from_file(load_deployment("embedded"), source, output)


def speech(text: str) -> bytes:
    pieces: list[bytes] = []

    def take(piece: object) -> bool:
        pieces.append(piece.pcm)  # type: ignore[attr-defined]
        return True

    FliteTts(FliteSettings(voice="rms")).synthesize(text, take)
    return b"".join(pieces)


@pytest.mark.parametrize("program", ["bot", "runner"])
def test_a_program_multiplies_matrices_in_one_thread(program: str) -> None:
    counted = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import {program}, numpy, threadpoolctl;"
            "print(*[pool['num_threads'] for pool in threadpoolctl.threadpool_info()"
            " if pool['user_api'] == 'blas'])",
        ],
        cwd=ROOT,
        env={name: value for name, value in os.environ.items() if name != "OPENBLAS_NUM_THREADS"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert counted.stdout.split() == ["1"]


def test_bot_is_a_pipecat_entry_point():
    import bot

    assert inspect.iscoroutinefunction(bot.bot)
    assert list(inspect.signature(bot.bot).parameters) == ["runner_args"]


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["--config", "nothing"], "no deployment 'nothing'"),
        (["--transport", "file"], "needs --input WAV and --output WAV"),
        (["--transport", "file", "--input", "no.wav", "--output", "out/x.wav"], "no.wav: No such file"),
        (["--transport", "local", "--output", "x.wav"], "--output can only be used with --transport file"),
        (["--input", "x.wav"], "--input can only be used with --transport file"),
        (["--transport", "twilio", "--host", "0.0.0.0"], "leave out --host"),
        (["--transport", "twilio", "--input", "no.wav"], "no.wav: No such file"),
        (["--transport", "twilio", "--output", "x.mp3"], "its name must end in .wav"),
        (["--transport", "twilio", "--session", "x"], "--session can only be used with --mode text"),
        (["--transport", "twilio", "--mode", "text"], "leave out --transport twilio"),
        (["--mode", "text", "--transport", "webrtc"], "leave out --transport webrtc"),
        (["--mode", "text", "--input", "x.wav"], "--input can only be used with --transport file"),
        (["--port", "70000"], "command line: port: Input should be less than or equal to 65535"),
    ],
)
async def test_a_mistake_is_one_line_and_status_2(arguments: list[str], says: str):
    status, _, error = await command(*arguments)
    assert status == 2
    assert says in complaint(error)


async def test_an_unknown_flag_shows_the_usage():
    status, _, error = await command("--mood", "good")
    assert status == 2
    assert "usage: bot.py" in error


async def test_what_is_not_a_wav_is_refused_and_leaves_nothing(tmp_path: Path):
    (tmp_path / "q.wav").write_text("this is a letter")
    output = tmp_path / "new" / "call.wav"
    status, _, error = await command(
        "--transport", "file", "--input", str(tmp_path / "q.wav"), "--output", str(output)
    )
    assert status == 2
    assert "not an audio file" in complaint(error)
    assert list(tmp_path.iterdir()) == [tmp_path / "q.wav"]


# This and the next in this process: the tests before show that what is wrong is one line and status 2.
@pytest.mark.parametrize("how", ["same", "other spelling", "symbolic link", "hard link", "beside it"])
def test_the_callers_recording_is_never_written_to(tmp_path: Path, how: str):
    recording = tmp_path / ("call.json" if how == "beside it" else "q.wav")
    soundfile.write(recording, np.zeros(1_600), 16_000, format="WAV")
    before = recording.read_bytes()
    output = tmp_path / "call.wav"
    if how == "same":
        output = recording
    elif how == "other spelling":
        (tmp_path / "folder").mkdir()
        output = tmp_path / "folder" / ".." / "q.wav"
    elif how == "symbolic link":
        output.symlink_to(recording)
    elif how == "hard link":
        output.hardlink_to(recording)
    with pytest.raises(ConfigError, match=re.escape(f"would overwrite the caller's recording {recording}")):
        hold_file_call(recording, output)
    assert recording.read_bytes() == before


@pytest.mark.parametrize(
    ("output", "says"),
    [
        ("call.json", "its name must end in .wav"),
        ("q.wav/call.wav", "Not a directory"),
        ("folder.wav", "Is a directory"),
    ],
)
def test_an_output_that_cannot_be_written_is_refused_and_leaves_nothing(
    tmp_path: Path, output: str, says: str
):
    soundfile.write(tmp_path / "q.wav", np.zeros(1_600), 16_000)
    (tmp_path / "folder.wav").mkdir()
    with pytest.raises(ConfigError, match=says):
        hold_file_call(tmp_path / "q.wav", tmp_path / output)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["folder.wav", "q.wav"]


async def test_a_port_in_use_is_said_before_anything_is_loaded():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        status, _, error = await command("--port", str(taken.getsockname()[1]), within_s=10)
    assert status == 2
    assert "Address already in use; choose another with --port" in complaint(error)


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ("phone: {public_url: 'https://talk.example.org'}", "phone.public_url"),
        ("server: {host: 0.0.0.0}", "server.host 0.0.0.0"),
        ("server: {allowed_hosts: [talk.example.org]}", "server.allowed_hosts"),
    ],
)
async def test_a_server_that_strangers_reach_does_not_start_without_keys_unless_it_is_open(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str, named: str
):
    monkeypatch.setenv("TWILIO_AUTH_TOKEN", "t" * 32)
    monkeypatch.delenv("PARLEY_CALL_KEYS", raising=False)
    (tmp_path / "public.yaml").write_text(f"{settings}\n")
    status, _, error = await command("--config", str(tmp_path / "public.yaml"), within_s=20)
    assert status == 2
    said = complaint(error)
    assert named in said and "PARLEY_CALL_KEYS" in said and "server.open: true" in said


async def test_a_token_file_that_others_can_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.delenv("PARLEY_ADMIN_TOKEN", raising=False)
    (tmp_path / "own.yaml").write_text("operations: {data_dir: data}\n")
    (tmp_path / "data").mkdir()
    (tmp_path / "data" / "operator_token").write_text("t" * 40)
    (tmp_path / "data" / "operator_token").chmod(0o644)
    status, _, error = await command("--config", str(tmp_path / "own.yaml"), within_s=20)
    assert status == 2
    assert "can be read by other users (mode 0644): delete it" in complaint(error)


def test_the_operators_address_is_shown_where_the_token_was_made():
    names = {"stt": "moonshine", "turn": "-", "llm": "-", "tts": "-", "deployment": "test"}
    made = AdminToken("t" * 43, generated=True, path=Path("/data/operator_token"))
    shown = banner(dict(names), "http://localhost:7860", made)
    assert f"operator: http://localhost:7860/admin#token={'t' * 43} (kept in /data/operator_token)" in shown
    assert "t" * 32 not in banner(dict(names), "http://localhost:7860", AdminToken("t" * 32))


@pytest.mark.parametrize(
    ("host", "address"),
    [
        ("127.0.0.1", "http://localhost:7860"),
        ("0.0.0.0", "http://localhost:7860"),
        ("::", "http://localhost:7860"),
        ("::1", "http://[::1]:7860"),
        ("192.168.1.7", "http://192.168.1.7:7860"),
    ],
)
def test_the_address_that_is_shown_can_be_opened(host: str, address: str):
    assert address_of(host, 7860) == address


async def test_a_typed_conversation_whatever_the_working_directory(tmp_path: Path):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "papers").mkdir()
    (tmp_path / "mine" / "papers" / "tea.md").write_text(
        "# Tea house\n\n## Opening hours\n\nThe tea house is open from seven until nine.\n"
    )
    (tmp_path / "mine" / "tea.yaml").write_text("bot: {knowledge: papers}\n")
    question = b"What are your opening hours?\n"
    more = b"What are your opening hours on Saturday?\nand sunday\n"
    status, out, error = await command(
        "--mode", "text", "--config", "mine/tea.yaml", stdin=question, cwd=tmp_path
    )
    assert status == 0, error
    assert "from seven until nine" in out
    status, out, error = await command("--mode", "text", stdin=question + more, cwd=tmp_path)
    assert status == 0, error
    _, first, saturday, sunday = out.splitlines()
    assert "Northwind" in first
    assert "ten until two" in saturday
    assert "closed" in sunday


def in_terminal(*arguments: str, typed: bytes, answer: bytes) -> tuple[int, float, str]:
    """Run in a terminal, type, and press Ctrl-C at the prompt after the answer.

    Returns the exit status, the seconds until the end, and all output.
    """
    ours, theirs = pty.openpty()
    child = subprocess.Popen(
        [sys.executable, str(ROOT / "bot.py"), *arguments],
        stdin=theirs, stdout=theirs, stderr=theirs, cwd=ROOT, start_new_session=True,
        preexec_fn=lambda: _own_terminal(theirs),
    )  # fmt: skip
    os.close(theirs)
    shown = b""

    def read_until_prompt_after(text: bytes) -> None:
        nonlocal shown
        # The prompt is drawn again while a line is typed.
        while b"> " not in shown.partition(text)[2]:
            assert select.select([ours], [], [], 30)[0], shown
            shown += os.read(ours, 4096)

    try:
        read_until_prompt_after(b"/help")
        os.write(ours, typed)
        read_until_prompt_after(answer)
        pressed_s = time.monotonic()
        os.write(ours, b"\x03")
        status = child.wait(10)
        return status, time.monotonic() - pressed_s, shown.decode()
    finally:
        child.kill()
        child.wait()
        os.close(ours)


def _own_terminal(descriptor: int) -> None:
    import fcntl
    import signal
    import termios

    # As from a shell at a terminal. Tests that run in the background (``make test &``) ignore Ctrl-C, and
    # their children inherit that.
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    fcntl.ioctl(descriptor, termios.TIOCSCTTY, 0)


async def test_ctrl_c_ends_a_typed_conversation():
    status, took_s, shown = await asyncio.to_thread(
        in_terminal,
        "--mode",
        "text",
        typed=b"What are your opening hours on Saturday?\n",
        answer=b"ten until two",
    )
    assert status == 130
    assert took_s < 5
    assert "Traceback" not in shown


async def test_a_file_of_questions(tmp_path: Path):
    (tmp_path / "questions.txt").write_text("What are your opening hours on Saturday?\n\nand sunday")
    with (tmp_path / "questions.txt").open("rb") as questions:
        child = await asyncio.create_subprocess_exec(
            sys.executable, str(ROOT / "bot.py"), "--mode", "text", cwd=ROOT,
            stdin=questions, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
        )  # fmt: skip
        out, error = await asyncio.wait_for(child.communicate(), 60)
    assert (child.returncode, error) == (0, b"")
    assert b"ten until two" in out
    assert b"closed" in out


async def test_a_farewell_ends_the_conversation_in_the_terminal(tmp_path: Path):
    from parley.pipelines.text.terminal import talk_in_terminal

    (tmp_path / "own.yaml").write_text("name: own\n")
    (tmp_path / "questions.txt").write_text(
        "Are you open on Saturday?\nI want to speak to a person\nquit\nand sunday\n"
    )
    with (tmp_path / "questions.txt").open() as questions, (tmp_path / "out.txt").open("w") as out:
        assert await talk_in_terminal(load_deployment(tmp_path / "own.yaml"), questions, out) == 0
    _, *shown = [line.strip() for line in (tmp_path / "out.txt").read_text().splitlines()]
    assert "ten until two" in shown[0]
    assert "cannot put you through to a person" in shown[1]
    assert "Goodbye" in shown[2]
    assert len(shown) == 3


async def test_no_input_is_one_line():
    done = await asyncio.to_thread(
        subprocess.run,
        ["sh", "-c", f"exec {sys.executable} bot.py --mode text <&-"],
        cwd=ROOT, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 2
    assert "needs standard input" in complaint(done.stderr)


PATIENT = "{first_token_ms: 9000}"


@pytest.mark.parametrize("guarded", [False, True])
async def test_a_question_without_an_answer_is_said_and_the_next_one_is_answered(
    tmp_path: Path, guarded: bool
):
    from parley.pipelines.text.terminal import talk_in_terminal

    # The imports of a process's first turn would use up the deadline, which is meant for the model here.
    importlib.import_module("parley.processors.dialogue.openai_service")
    stalls = Turn(pieces=["This is ", "late."], stall_after=1)
    async with OpenAiServer([stalls, Turn(pieces=["At ten."])]) as server:
        (tmp_path / "own.yaml").write_text(
            "thinking:\n"
            f"  llm: {{name: openai_compatible, settings: {{base_url: '{server.url}/v1', model: m}}}}\n"
            + (f"  fallback: {{name: documents}}\n  guard: {PATIENT}\n" if guarded else "")
        )
        (tmp_path / "questions.txt").write_text("One?\nTwo?\n")
        with (tmp_path / "questions.txt").open() as questions, (tmp_path / "out.txt").open("w") as out:
            status = await talk_in_terminal(
                load_deployment(tmp_path / "own.yaml"), questions, out, answer_timeout_s=1.5
            )
        assert status == 0
        assert server.abandoned == 1
    shown = [line.strip() for line in (tmp_path / "out.txt").read_text().splitlines()]
    assert shown[1:] == ["This is", "No answer arrived within 1.5 s.", "At ten."]


async def test_an_engine_that_does_not_load_is_one_line_and_status_1(tmp_path: Path):
    pytest.importorskip("kokoro_onnx")
    (tmp_path / "models" / "kokoro").mkdir(parents=True)
    for name in ("kokoro-v1.0.onnx", "voices-v1.0.bin"):
        (tmp_path / "models" / "kokoro" / name).write_text("a download gone wrong")
    (tmp_path / "broken.yaml").write_text("models_dir: models\nspeaking: {tts: {name: kokoro}}\n")
    status, _, error = await command("--config", str(tmp_path / "broken.yaml"), "--port", "0")
    assert status == 1
    assert "Traceback" not in error
    # A recogniser that starts for the first time warns of words that it cannot recognise.
    assert error.splitlines()[-1] == f"bot.py: cannot load {tmp_path}/models/kokoro/kokoro-v1.0.onnx"


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ("speaking: {tts: {name: espeak, settings: {voice: martian}}}", "no voice 'martian'"),
        (
            "hearing: {stt: {name: pocketsphinx, settings: {cache_dir: /dev/null/cache}}}",
            "cannot write the speech recognition cache /dev/null/cache",
        ),
    ],
    ids=["in this process", "in a child"],
)
async def test_a_setting_that_only_the_engine_can_judge_is_status_2(tmp_path: Path, part: str, says: str):
    (tmp_path / "wrong.yaml").write_text(part)
    status, _, error = await command("--config", str(tmp_path / "wrong.yaml"), "--port", "0")
    assert status == 2
    assert "Traceback" not in error
    assert error.splitlines()[-1].startswith("bot.py: ")
    assert says in error.splitlines()[-1]


@pytest.mark.paired
async def test_a_wav_plays_the_caller_and_the_call_is_recorded(tmp_path: Path):
    # 8-bit stereo at another rate: converted on input.
    question = np.frombuffer(speech("What are your opening hours on Saturday?"), dtype="<i2")
    slow = np.interp(np.arange(0, len(question), 16_000 / 22_050), np.arange(len(question)), question)
    soundfile.write(
        tmp_path / "q.wav", np.stack([slow, slow], axis=1) / 32_768, 22_050, subtype="PCM_U8", format="WAV"
    )
    status, _, error = await command(
        "--transport", "file", "--input", str(tmp_path / "q.wav"), "--output", str(tmp_path / "call.wav")
    )
    assert status == 0, error
    with wave.open(str(tmp_path / "call.wav")) as call:
        assert (call.getnchannels(), call.getframerate()) == (2, 16_000)
    document = json.loads((tmp_path / "call.json").read_text())
    greeting, turn = document["turns"]
    assert greeting["turn"] == 0
    assert "opening hours" in turn["user_text"]
    assert "ten until two" in turn["bot_text"]
    assert {"stt_final", "endpoint_wait", "llm_first_token", "tts_first_audio"} <= set(turn["spans"])
    stereo, _ = soundfile.read(tmp_path / "call.wav")
    loud = np.abs(stereo) > 0.02
    caller_end = np.flatnonzero(loud[:, 0])[-1]
    answer = np.flatnonzero(loud[caller_end:, 1])[0] / 16_000
    assert 0.1 < answer < 1.5


async def test_a_telephone_call_needs_no_telephone_and_no_credentials(tmp_path: Path):
    output = tmp_path / "calls" / "call.wav"
    status, out, error = await command("--transport", "twilio", "--output", str(output))
    assert (status, error) == (0, "")
    assert "bot: On Saturdays they are open from ten until two." in out
    document = json.loads(output.with_suffix(".json").read_text())
    assert document["violations"] == [] and document["ended"] == "caller"
    assert [bool(turn["user_text"]) for turn in document["turns"]] == [False, True]
    sound, rate_hz = soundfile.read(output)
    assert rate_hz == 8_000 and sound.shape[1] == 2
    assert abs(len(sound) / 8 - document["duration_ms"]) <= 20
    # The caller waits for the end of the greeting, and is answered.
    loud = np.abs(sound) > 0.05
    first = [np.flatnonzero(loud[:, side])[0] for side in (0, 1)]
    last = [np.flatnonzero(loud[:, side])[-1] for side in (0, 1)]
    assert first[1] < first[0] < last[0] < last[1]
