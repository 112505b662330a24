"""The command, with the embedded recogniser and real processes."""

import json
import random
import signal
import sqlite3
import subprocess
import sys
import uuid
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from parley.batch.manifest import MANIFEST, hold_folder
from parley.batch.transcribe import main
from parley.batch.transcriber import check_specialist
from parley.batch.transcript import Transcription, read_transcription
from parley.command.main import SUBCOMMANDS
from parley.core.errors import ConfigError
from parley.evals.bench.batch_kills import FolderOutputs, Speech, kills
from parley.recording.folder import BOT_AUDIO, CALLER_AUDIO
from tests.audio_files import write_audio
from tests.human_speech import moonshine_tiny, opening, two_cities
from tests.tiny_whisper import install_whisper
from tests.voices import RATE_HZ, say, silence

LATER = 6_000
TALK = (
    ("what are your opening hours on the weekend please", "rms"),
    ("we are open from nine in the morning until noon", "slt"),
    ("thank you very much and have a good day", "rms"),
    ("goodbye and thank you for calling us today", "slt"),
)


@pytest.fixture(scope="module", autouse=True)
def weights():
    """Skip the module without the weights of the embedded recogniser."""
    moonshine_tiny()


def transcribed(out: Path, name: str) -> Transcription:
    return read_transcription(out / f"{name}.json")


def text(found: Transcription, speaker: str | None = None) -> str:
    return " ".join(
        word.text for segment in found.segments if segment.speaker == speaker for word in segment.words
    )


def parked(out: Path) -> dict[str, str]:
    return {each["source"]: each["reason"] for each in json.loads((out / "parked.json").read_text())}


def test_a_folder_becomes_transcripts_of_three_kinds(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    inside, out = tmp_path / "in", tmp_path / "out"
    for name in ("reading.flac", "deep/er/reading.mp3", "reading.ogg"):
        write_audio(inside / name, opening())
    assert main([str(inside), "--out", str(out)]) == 0
    for name in ("reading.flac", "deep/er/reading.mp3", "reading.ogg"):
        found = transcribed(out, name)
        assert text(found).startswith("it was the best of times it was the worst of times")
        assert found.duration_ms == pytest.approx(6_300, abs=120)
        words = [word for segment in found.segments for word in segment.words]
        assert all(0 <= word.start_ms < word.end_ms <= found.duration_ms for word in words)
        assert "best of times" in (out / f"{name}.txt").read_text()
        assert (out / f"{name}.vtt").read_text().startswith("WEBVTT\n\n00:00:0")
    printed = capsys.readouterr()
    assert "3 transcribed, 0 parked" in printed.out
    assert "RTFx" in printed.out
    assert "transcribed: 3 of 3" in printed.err


def test_bad_files_are_parked_with_reasons_and_stop_no_other(tmp_path: Path):
    inside, out = tmp_path / "in", tmp_path / "out"
    write_audio(inside / "good.wav", opening())
    (inside / "empty.wav").touch()
    (inside / "noise.mp3").write_bytes(random.Random(1).randbytes(40_000))
    (inside / "text.ogg").write_text("this is not audio")
    (inside / "link.wav").symlink_to("good.wav")
    (inside / f"{'n' * 240}.wav").write_bytes((inside / "good.wav").read_bytes())
    write_audio(inside / "long.flac", silence(80_000))
    arguments = [str(inside), "--out", str(out), "--limit", "most_hours=0.02"]
    assert main(arguments) == 3
    assert text(transcribed(out, "good.wav"))
    reasons = parked(out)
    assert len(reasons) == 6
    for name, reason in {
        "empty.wav": "empty",
        "noise.mp3": "not audio",
        "text.ogg": "not audio",
        "link.wav": "a link",
        "long.flac": "longer than 0.02 h",
        f"{'n' * 240}.wav": "too long",
    }.items():
        assert reason in reasons[name]
    # A second run does nothing; with the other option it tries the parked ones.
    written = (out / "good.wav.json").stat().st_mtime_ns
    assert main(arguments) == 3
    assert main([*arguments[:3], "--retry-parked"]) == 3
    assert "long.flac" not in parked(out)
    assert (out / "good.wav.json").stat().st_mtime_ns == written
    assert transcribed(out, "long.flac").segments == ()


@pytest.mark.parametrize(("hangs", "reason"), [("false", "SIGSEGV"), ("true", "no progress for 2 s")])
def test_a_source_that_takes_its_worker_down_is_parked_after_two_tries(
    tmp_path: Path, hangs: str, reason: str
):
    inside, out = tmp_path / "in", tmp_path / "out"
    write_audio(inside / "a.wav", opening())
    for name in ("b.wav", "c.wav"):
        write_audio(inside / name, silence(500) + say("yes"))
    engine = ["--engine", "tests.recognisers_that_fail:FailingStt", "--set", f"hangs={hangs}"]
    assert main([str(inside), "--out", str(out), *engine, "--limit", "stall_s=2"]) == 3
    assert reason in parked(out)["a.wav"]
    assert json.loads((out / "parked.json").read_text())[0]["tries"] == 2
    for name in ("b.wav", "c.wav"):
        assert text(transcribed(out, name)) == "hello"


def test_two_sides_in_two_channels_are_two_speakers(tmp_path: Path):
    inside, out = tmp_path / "in", tmp_path / "out"
    caller, agent = say("what are your opening hours"), opening()
    left = caller + silence(LATER + 4_000)
    right = silence(LATER) + agent
    length = max(len(left), len(right))
    sides = [side.ljust(length, b"\0") for side in (left, right)]
    write_audio(inside / "call.wav", *sides)
    write_audio(inside / "same.wav", right, right)
    assert main([str(inside), "--out", str(out)]) == 0
    found = transcribed(out, "call.wav")
    assert found.channels == "split"
    assert "opening hours" in text(found, "channel 1")
    assert "best of times" in text(found, "channel 2")
    assert "<v channel 2>" in (out / "call.wav.vtt").read_text()
    # Both channels of a room's recording hold all voices.
    assert transcribed(out, "same.wav").channels == "mixed"
    assert "best of times" in text(transcribed(out, "same.wav"))


async def test_a_recorded_call_has_its_sides_as_speakers(tmp_path: Path):
    path = tmp_path / "data" / "sessions" / str(uuid.uuid4()) / uuid.uuid4().hex
    facts = {"version": 1, "session_id": path.parent.name, "call_id": path.name, "segment_ms": 5_000}
    path.mkdir(parents=True)
    (path / "meta.json").write_text(json.dumps(facts))
    (path / "recording.json").write_text(json.dumps({"is_over": True}))
    segment = 5 * RATE_HZ * 2
    caller, agent = say("what are your opening hours"), silence(5_000) + opening()
    for side, pcm in ((CALLER_AUDIO, caller), (BOT_AUDIO, agent)):
        for number, at in enumerate(range(0, len(pcm), segment)):
            if any(pcm[at : at + segment]):
                write_audio(path / side / f"{number:06}.flac", pcm[at : at + segment])
    out = tmp_path / "out"
    assert main([str(tmp_path / "data"), "--out", str(out)]) == 0
    found = transcribed(out, f"sessions/{path.parent.name}/{path.name}")
    assert "opening hours" in text(found, "caller")
    assert "best of times" in text(found, "agent")
    assert min(each.start_ms for each in found.segments if each.speaker == "agent") >= 5_000
    # A segment that cannot be read parks the call.
    (path / BOT_AUDIO / "000001.flac").write_bytes(b"broken")
    assert main([str(tmp_path / "data"), "--out", str(out)]) == 3
    assert "cannot be read" in next(iter(parked(out).values()))


def test_manner_of_speaking_is_reported_on_request(tmp_path: Path):
    write_audio(tmp_path / "a.wav", two_cities())
    out = tmp_path / "out"
    # The source may follow the option.
    assert main(["--specialists", "prosody", str(tmp_path / "a.wav"), "--out", str(out), "--sessions"]) == 0
    assert len((out / "a.wav.session.jsonl").read_text().splitlines()) >= 3
    last = transcribed(out, "a.wav").segments[-1]
    assert last.prosody is not None
    assert 60 < (last.prosody.pitch_hz or 0) < 300
    assert last.prosody.tempo_offset is not None


def test_another_recogniser_of_the_registry_is_used_by_its_row(tmp_path: Path):
    install_whisper(tmp_path / "models")
    write_audio(tmp_path / "a.wav", silence(300) + say("what is your pin"))
    out = tmp_path / "out"
    engine = ["--engine", "whisper", "--set", f"models_dir={tmp_path / 'models'}"]
    assert main([str(tmp_path / "a.wav"), "--out", str(out), *engine]) == 0
    found = transcribed(out, "a.wav")
    assert text(found) == "what is your pin"
    assert found.recogniser.name == "whisper"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--engine", "nothing"], "unknown recogniser 'nothing'"),
        (["--set", "max_line=3"], "max_line"),
        (["--set", "words"], "expected NAME=VALUE"),
        (["--limit", "tries=0"], "tries"),
        (["--workers", "0"], "at least 1"),
        (["--specialists", "vision"], "takes pictures"),
        (["--specialists", "moods"], "unknown specialist 'moods'"),
        (["--engine", "whisper", "--set", "models_dir=/nowhere"], "does not exist"),
        (["--config", "embedded", "--engine", "whisper"], "leave out --engine"),
        (["--config", "nothing"], "no deployment 'nothing'"),
    ],
)
def test_a_wrong_command_is_refused_before_any_work(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], options: list[str], message: str
):
    write_audio(tmp_path / "a.wav", silence(500))
    assert main([str(tmp_path / "a.wav"), "--out", str(tmp_path / "out"), *options]) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_the_recogniser_of_a_deployment_is_used(tmp_path: Path):
    write_audio(tmp_path / "a.wav", opening())
    out = tmp_path / "out"
    assert main([str(tmp_path / "a.wav"), "--out", str(out), "--config", "embedded"]) == 0
    assert "best of times" in text(transcribed(out, "a.wav"))


def test_a_folder_in_use_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_audio(tmp_path / "a.wav", silence(500))
    with hold_folder(tmp_path / "out"):
        assert main([str(tmp_path / "a.wav"), "--out", str(tmp_path / "out")]) == 2
    assert "another run" in capsys.readouterr().err


def test_the_commands_run_from_the_command_line(tmp_path: Path):
    assert SUBCOMMANDS["transcribe"].target == "parley.batch.transcribe:main"
    write_audio(tmp_path / "a.wav", opening())
    of_deployment = ["parley", "transcribe", "--config", "embedded"]
    for number, command in enumerate((["batch.transcribe"], of_deployment)):
        line = [sys.executable, "-m", *command, str(tmp_path / "a.wav"), "--out", str(tmp_path / str(number))]
        ended = subprocess.run(line, capture_output=True, text=True, timeout=120, check=False)
        assert ended.returncode == 0, ended.stderr
        assert "1 transcribed" in ended.stdout
        # Libraries of a deployment announce themselves in the log.
        assert "INFO" not in ended.stderr


def test_a_job_that_is_killed_does_every_file_once(tmp_path: Path):
    speech = np.frombuffer(opening(), "<i2").astype(np.float32) / 32_768
    clips = [Speech(str(place), speech[: RATE_HZ * (1 + place % 5)], "") for place in range(20)]
    seen = kills(clips, tmp_path, FolderOutputs(tmp_path / "killed"), 5, seed=3)
    assert seen["kills"] >= 1
    assert (seen["done_once"], seen["written_again"], seen["parked"]) == (20, 0, 1)
    with sqlite3.connect(tmp_path / "killed" / MANIFEST) as database:
        states = dict(database.execute("SELECT state, count(*) FROM items GROUP BY state"))
    assert states == {"done": 20, "parked": 1}


def test_speakers_of_one_channel_are_named_by_their_voices(tmp_path: Path):
    try:
        check_specialist("speakers")
    except ConfigError as error:
        pytest.skip(str(error))
    turns = [(voice, say(line, voice)) for line, voice in TALK]
    write_audio(tmp_path / "talk.wav", b"".join(pcm + silence(500) for _, pcm in turns))
    out = tmp_path / "out"
    assert main([str(tmp_path / "talk.wav"), "--out", str(out), "--specialists", "speakers"]) == 0
    found = transcribed(out, "talk.wav").segments
    assert [each.speaker for each in found] == ["speaker 1", "speaker 2", "speaker 1", "speaker 2"]
    assert (out / "talk.wav.txt").read_text().count("speaker 2: ") == 2


def test_an_interrupted_job_says_so_and_goes_on_with_the_same_command(tmp_path: Path):
    for number in range(3):
        write_audio(tmp_path / "in" / f"{number}.flac", two_cities())
    out = tmp_path / "out"
    line = [sys.executable, "-m", "batch.transcribe", str(tmp_path / "in"), "--out", str(out)]
    with subprocess.Popen(line, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as job:
        assert job.stderr is not None
        assert "1 of 3" in job.stderr.readline()
        job.send_signal(signal.SIGTERM)
        _, rest = job.communicate(timeout=60)
    assert job.returncode == 130
    assert "the same command goes on" in rest
    first = (out / "0.flac.json").stat().st_mtime_ns
    assert main(line[3:]) == 0
    assert len(list(out.glob("*.json"))) == 4
    assert (out / "0.flac.json").stat().st_mtime_ns == first


def test_a_manifest_that_another_program_holds_is_reported(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    write_audio(tmp_path / "a.wav", opening())
    arguments = [str(tmp_path / "a.wav"), "--out", str(tmp_path / "out")]
    assert main(arguments) == 0
    with closing(sqlite3.connect(tmp_path / "out" / MANIFEST)) as held:
        held.execute("BEGIN EXCLUSIVE")
        assert main(arguments) == 1
    assert "manifest.db: database is locked; the same command goes on" in capsys.readouterr().err
    assert main(arguments) == 0


def test_outputs_that_cannot_be_written_end_the_job(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    write_audio(tmp_path / "a.wav", opening())
    out = tmp_path / "out"
    (out / "a.wav.vtt").mkdir(parents=True)
    assert main([str(tmp_path / "a.wav"), "--out", str(out)]) == 1
    assert "cannot be written" in capsys.readouterr().err
    assert not (out / "a.wav.json").exists()
    (out / "a.wav.vtt").rmdir()
    assert main([str(tmp_path / "a.wav"), "--out", str(out)]) == 0


def test_a_folder_of_outputs_belongs_to_one_folder_of_sources(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
):
    for name in ("a", "b"):
        write_audio(tmp_path / name / "talk.wav", opening())
    out = tmp_path / "out"
    assert main([str(tmp_path / "a" / "talk.wav"), "--out", str(out)]) == 0
    before = (out / "talk.wav.json").read_bytes()
    assert main([str(tmp_path / "b"), "--out", str(out)]) == 2
    assert f"holds the transcripts of {tmp_path / 'a'}" in capsys.readouterr().err
    assert (out / "talk.wav.json").read_bytes() == before
    assert main([str(tmp_path / "a"), "--out", str(out)]) == 0


def test_a_source_whose_outputs_have_no_place_is_parked_and_the_others_are_done(tmp_path: Path):
    for name in ("x.wav", "x.wav.json/y.wav", "z.wav"):
        write_audio(tmp_path / "in" / name, opening())
    out = tmp_path / "out"
    assert main([str(tmp_path / "in"), "--out", str(out)]) == 3
    [parked] = json.loads((out / "parked.json").read_text())
    assert "the outputs of another source" in parked["reason"]
    assert (out / "z.wav.txt").exists()
