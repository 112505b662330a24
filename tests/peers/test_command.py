"""``python bot.py`` as a user types it, mistakes included."""

import asyncio
import inspect
import json
import socket
import sys
import wave
from pathlib import Path

import numpy as np
import pytest
import soundfile

from models.tts.flite import FliteSettings, FliteTts
from tests.peers.server import ROOT


async def command(*arguments: str, stdin: bytes = b"", within_s: float = 60) -> tuple[int, str, str]:
    child = await asyncio.create_subprocess_exec(
        sys.executable, str(ROOT / "bot.py"), *arguments, cwd=ROOT,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.PIPE, stderr=asyncio.subprocess.PIPE,
    )  # fmt: skip
    try:
        out, error = await asyncio.wait_for(child.communicate(stdin), within_s)
    finally:
        if child.returncode is None:
            child.kill()
    return child.returncode or 0, out.decode(), error.decode()


def complaint(error: str) -> str:
    """The one line that the command says; anything else on stderr is Pipecat's banner."""
    lines = [line for line in error.splitlines() if "ᓚᘏᗢ" not in line]
    assert len(lines) == 1, error
    return lines[0]


def speech(text: str) -> bytes:
    pieces: list[bytes] = []

    def take(piece: object) -> bool:
        pieces.append(piece.pcm)  # type: ignore[attr-defined]
        return True

    FliteTts(FliteSettings(voice="rms")).synthesize(text, take)
    return b"".join(pieces)


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
        (["--transport", "local"], "needs PortAudio and the extra 'local'"),
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


async def test_what_is_not_a_wav_is_refused(tmp_path: Path):
    (tmp_path / "q.wav").write_text("this is a letter")
    status, _, error = await command(
        "--transport", "file", "--input", str(tmp_path / "q.wav"), "--output", str(tmp_path / "call.wav")
    )
    assert status == 2
    assert "not an audio file" in complaint(error)


async def test_a_port_in_use_is_said_before_anything_is_loaded():
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        status, _, error = await command("--port", str(taken.getsockname()[1]), within_s=10)
    assert status == 2
    assert "Address already in use; choose another with --port" in complaint(error)


async def test_a_typed_conversation():
    status, out, _ = await command(
        "--mode", "text", stdin=b"What are your opening hours on Saturday?\nand sunday\n"
    )
    assert status == 0
    assert "ten until two" in out
    assert "closed" in out


async def test_a_wav_plays_the_caller_and_the_call_is_recorded(tmp_path: Path):
    # 8-bit stereo at another rate: converted on the way in.
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
