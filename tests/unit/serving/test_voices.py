"""Reference voices: accepted files, leftovers of a crash, and malicious files."""

import asyncio
import base64
import io
import json
import os
import subprocess
import sys
import time
import wave
from collections.abc import AsyncIterator, Iterator
from pathlib import Path
from typing import Any

import av
import httpx
import numpy as np
import psutil
import pytest

from parley.core.errors import CapacityError
from parley.serving.gateway.admin.operations import Operations, OperationsSettings
from parley.serving.gateway.reference_voices.decoder import CHILD, RATE_HZ, VoiceDecoder, VoiceError
from parley.serving.gateway.reference_voices.decoder_child import EXIT_NOT_AUDIO, EXIT_TOO_LARGE
from parley.serving.gateway.reference_voices.settings import VoiceTuning
from parley.serving.gateway.reference_voices.voices import ORPHAN_S, REGISTRY, StoredVoices, Voices
from tests.peers.operations_gateway import BEARER, TOKEN, TOKEN_ENV, asking, gateway
from tests.sounds import FORMATS, encoded, sound

PATH = "/api/assets/ref_audio"
UNKNOWN = "00000000-0000-4000-8000-000000000000"


def as_json(name: str, data: bytes) -> dict[str, str]:
    return {"name": name, "audio_base64": base64.b64encode(data).decode()}


def decoder(**bounds: Any) -> VoiceDecoder:
    return VoiceDecoder(VoiceTuning(**bounds))


def voices(folder: Path, **bounds: Any) -> Voices:
    return Voices(folder, VoiceTuning(**bounds))


@pytest.fixture(autouse=True)
def _others() -> Iterator[None]:
    """Leave the children that other tests of this process keep, such as recognisers."""
    OTHERS.clear()
    OTHERS.update(psutil.Process().children())
    yield


OTHERS: set[psutil.Process] = set()


def children() -> list[psutil.Process]:
    return [child for child in psutil.Process().children() if child not in OTHERS]


# Decoding.


@pytest.mark.parametrize("format_", FORMATS)
async def test_a_file_of_any_format_is_decoded_to_the_sound_that_it_holds(format_: str):
    pcm = await decoder().decode(sound(format_, 2.0))
    samples = np.frombuffer(pcm, "<i2") / 32_768
    # Encoders add the length of their windows.
    assert len(samples) / RATE_HZ == pytest.approx(2, abs=0.1)
    middle = samples[RATE_HZ // 2 : RATE_HZ // 2 + RATE_HZ]
    loudest_hz = int(np.abs(np.fft.rfft(middle)).argmax())
    assert loudest_hz == 440
    assert np.sqrt(np.mean(middle**2)) == pytest.approx(0.3 / np.sqrt(2), rel=0.05)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\0" * 10_000,
        os.urandom(50_000),
        b"RIFF\xff\xff\xff\xffWAVE",
        b"<svg xmlns='http://www.w3.org/2000/svg'/>",
        sound("m4a")[:2_000],
        sound("flac")[:40],
    ],
    ids=["empty", "zeros", "noise", "header", "picture", "half an m4a", "half a header"],
)
async def test_what_is_no_audio_is_refused(data: bytes):
    with pytest.raises(VoiceError, match="not audio") as refused:
        await decoder().decode(data)
    assert refused.value.status == 400


async def test_a_picture_in_motion_without_sound_is_refused():
    written = io.BytesIO()
    with av.open(written, "w", format="webm") as file:
        stream = file.add_stream("libvpx", rate=10)
        stream.width = stream.height = 64
        stream.pix_fmt = "yuv420p"
        frame = av.VideoFrame.from_ndarray(np.zeros((64, 64, 3), np.uint8), format="rgb24")
        for packet in (*stream.encode(frame), *stream.encode(None)):
            file.mux(packet)
    with pytest.raises(VoiceError, match="not audio"):
        await decoder().decode(written.getvalue())


async def test_an_hour_in_a_small_file_is_refused_before_it_is_unpacked():
    bomb = encoded("flac", "flac", 8_000, 3_600, level=0.0)
    assert len(bomb) < 1_000_000
    with pytest.raises(VoiceError, match="longer than 60 s") as refused:
        await decoder().decode(bomb)
    assert refused.value.status == 413
    assert not children()


@pytest.mark.parametrize(("max_s", "is_taken"), [(2.1, True), (1.9, False)])
async def test_the_longest_that_is_taken(max_s: float, is_taken: bool):
    if is_taken:
        assert len(await decoder(max_s=max_s).decode(sound("wav", 2.0))) == 2 * 2 * RATE_HZ
    else:
        with pytest.raises(VoiceError, match="longer than 1.9 s"):
            await decoder(max_s=max_s).decode(sound("wav", 2.0))


async def test_too_short_to_be_a_voice():
    with pytest.raises(VoiceError, match="shorter than 200 ms"):
        await decoder().decode(sound("wav", 0.1))


async def test_a_file_that_takes_too_long_is_given_up_and_its_process_is_gone():
    with pytest.raises(VoiceError, match="takes longer than 0.02 s") as refused:
        await decoder(decode_s=0.02).decode(sound())
    assert refused.value.status == 413
    assert not children()


async def test_who_stops_waiting_leaves_no_process():
    decoding = asyncio.create_task(decoder().decode(encoded("flac", "flac", 48_000, 50)))
    async with asyncio.timeout(5):
        while not children():
            await asyncio.sleep(0.001)
    decoding.cancel()
    await asyncio.gather(decoding, return_exceptions=True)
    assert decoding.cancelled() and not children()


async def test_so_many_are_decoded_at_a_time_and_a_failure_gives_its_place_back():
    one = decoder(decodes=1)
    for _ in range(2):
        with pytest.raises(VoiceError):
            await one.decode(b"no audio")
    first, second = await asyncio.gather(one.decode(sound()), one.decode(sound()), return_exceptions=True)
    assert isinstance(first, bytes) and isinstance(second, CapacityError)
    assert await one.decode(sound())


def child(data: bytes, *, memory_bytes: int = 512 * 1024**2, cpu_s: int = 10, cwd: Path | None = None) -> int:
    command = [sys.executable, "-I", str(CHILD), str(RATE_HZ), "160000", str(memory_bytes), str(cpu_s)]
    return subprocess.run(command, input=data, stdout=subprocess.DEVNULL, cwd=cwd, timeout=30).returncode


def test_a_file_that_takes_more_memory_than_it_may_ends_its_process_alone():
    assert child(bytes(400_000_000)) == EXIT_NOT_AUDIO
    assert child(bytes(400_000_000), memory_bytes=300 * 1024**2) == EXIT_TOO_LARGE


def test_a_file_that_names_others_does_not_have_them_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    (tmp_path / "secret.wav").write_bytes(sound())
    playlist = b"ffconcat version 1.0\nfile secret.wav\n"
    monkeypatch.chdir(tmp_path)
    with av.open(io.BytesIO(playlist)) as container:
        # A decoder without the option does that.
        assert container.streams.audio
    assert child(playlist, cwd=tmp_path) == EXIT_NOT_AUDIO


def test_a_format_that_no_one_needs_is_not_read():
    """Formats that are not needed are not read.

    Each demuxer is code that processes untrusted bytes.
    """
    assert child(encoded("au", "pcm_s16be", 16_000, 1.0)) == EXIT_NOT_AUDIO
    assert child(encoded("wav", "pcm_s16le", 16_000, 1.0)) == 0


# Storage.


async def test_a_voice_is_kept_loaded_and_forgotten(tmp_path: Path):
    kept = voices(tmp_path / "ref_audio")
    voice = await kept.add("  Anna Müller ", sound("mp3", 1.0))
    assert (voice.name, voice.sample_rate, voice.source_type) == ("Anna Müller", 16_000, "upload")
    assert voice.duration_ms == pytest.approx(1_000, abs=60)
    samples = kept.load(voice.id)
    assert samples.dtype == np.float32 and samples.ndim == 1
    assert len(samples) == pytest.approx(RATE_HZ, abs=RATE_HZ * 0.06)
    assert 0.25 < np.abs(samples).max() < 0.35
    with wave.open(str(tmp_path / "ref_audio" / voice.filename)) as file:
        assert (file.getnchannels(), file.getsampwidth(), file.getframerate()) == (1, 2, 16_000)

    again = voices(tmp_path / "ref_audio")
    assert again.all() == [voice]
    np.testing.assert_array_equal(again.load(voice.id), samples)
    await again.remove(voice.id)
    assert os.listdir(tmp_path / "ref_audio") == [REGISTRY]
    assert voices(tmp_path / "ref_audio").all() == []
    for forgotten in (again.load, again.path):
        with pytest.raises(VoiceError, match="no such voice"):
            forgotten(voice.id)


async def test_voices_that_come_at_once_are_all_kept(tmp_path: Path):
    kept = voices(tmp_path, decodes=8)
    added = await asyncio.gather(*(kept.add(f"voice {number}", sound()) for number in range(8)))
    assert {voice.id for voice in voices(tmp_path).all()} == {voice.id for voice in added}
    await asyncio.gather(*(kept.remove(voice.id) for voice in added[:4]))
    assert {voice.name for voice in voices(tmp_path).all()} == {f"voice {number}" for number in range(4, 8)}


@pytest.mark.parametrize("name", ["", "   ", "x" * 101, "two\nlines", "nul\0"])
async def test_a_name_is_one_short_line(tmp_path: Path, name: str):
    with pytest.raises(VoiceError, match="1 to 100 characters") as refused:
        await voices(tmp_path).add(name, sound())
    assert refused.value.status == 400 and os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("bounds", "status", "why"),
    [
        ({"max_voices": 1}, 409, "1 voices are kept"),
        # A second of 16 kHz and 16 bit is 32 kB.
        ({"max_total_bytes": 50_000}, 409, "50000 bytes in total"),
        ({"max_upload_bytes": 200_000}, 413, "over 200000 bytes"),
    ],
)
async def test_what_is_too_much_is_refused_and_changes_nothing(
    tmp_path: Path, bounds: dict[str, int], status: int, why: str
):
    kept = voices(tmp_path, **bounds)
    first = await kept.add("first", sound("wav", 1.0))
    before = sorted(os.listdir(tmp_path))
    with pytest.raises(VoiceError, match=why) as refused:
        await kept.add("second", sound("wav", 1.2 if status == 413 else 1.0))
    assert refused.value.status == status
    assert kept.all() == [first] and sorted(os.listdir(tmp_path)) == before
    if status == 409:
        await kept.remove(first.id)
        await kept.add("third", sound("wav", 1.0))


async def test_a_voice_that_cannot_be_written_is_not_kept(tmp_path: Path):
    folder = tmp_path / "ref_audio"
    folder.write_text("a file where the folder should be")
    kept = voices(folder)
    with pytest.raises(OSError, match="ref_audio"):
        await kept.add("first", sound())
    assert kept.all() == []


async def test_a_voice_whose_line_cannot_be_written_leaves_no_file(tmp_path: Path):
    (tmp_path / REGISTRY / "in the way").mkdir(parents=True)
    kept = voices(tmp_path)
    # A folder of that name was set aside; now there is another.
    (tmp_path / REGISTRY / "in the way").mkdir(parents=True)
    with pytest.raises(OSError, match="directory"):
        await kept.add("first", sound())
    assert kept.all() == [] and not list(tmp_path.glob("*.wav"))


# Recovery after a crash.


async def test_half_written_files_of_a_crash_are_not_read_and_go_away(tmp_path: Path):
    kept = voices(tmp_path)
    voice = await kept.add("first", sound())
    half = tmp_path / f".{REGISTRY}.a1b2c3"
    half.write_bytes((tmp_path / REGISTRY).read_bytes()[:40])
    old_half = tmp_path / f".{UNKNOWN}.wav.a1b2c3"
    old_half.write_bytes(b"RIFF")
    os.utime(old_half, (0, 0))
    assert voices(tmp_path).all() == [voice]
    assert sorted(os.listdir(tmp_path)) == sorted([REGISTRY, voice.filename])


@pytest.mark.parametrize("left", [0, 40, -3])
async def test_a_half_written_registry_costs_the_names_and_no_voice(tmp_path: Path, left: int):
    kept = voices(tmp_path)
    added = [await kept.add(f"voice {number}", sound("wav", 1.0 + number)) for number in range(2)]
    whole = (tmp_path / REGISTRY).read_bytes()
    (tmp_path / REGISTRY).write_bytes(whole[:left])
    again = voices(tmp_path)
    assert {voice.id: voice.duration_ms for voice in again.all()} == {
        voice.id: voice.duration_ms for voice in added
    }
    assert (tmp_path / "registry.broken").read_bytes() == whole[:left]
    await again.add("one more", sound())
    assert len(voices(tmp_path).all()) == 3


async def test_a_voice_whose_file_is_gone_is_left_out(tmp_path: Path):
    kept = voices(tmp_path)
    gone, stays = [await kept.add(name, sound()) for name in ("gone", "stays")]
    (tmp_path / gone.filename).unlink()
    with pytest.raises(VoiceError, match="the file of this voice is missing"):
        kept.load(gone.id)
    assert voices(tmp_path).all() == [stays]


@pytest.mark.parametrize(("age_s", "stays"), [(0, True), (ORPHAN_S + 60, False)])
async def test_a_file_that_no_one_lists_goes_once_it_belongs_to_no_upload(
    tmp_path: Path, age_s: int, stays: bool
):
    await voices(tmp_path).add("first", sound())
    orphan = tmp_path / f"{UNKNOWN}.wav"
    orphan.write_bytes(b"RIFF")
    foreign = tmp_path / "notes.wav"
    foreign.write_bytes(b"somebody's own")
    for path in (orphan, foreign):
        os.utime(path, (time.time() - age_s,) * 2)
    voices(tmp_path)
    assert orphan.exists() is stays and foreign.exists()


async def test_a_link_that_leads_out_of_the_folder_is_followed_by_nobody(tmp_path: Path):
    secret = tmp_path / "secret.wav"
    secret.write_bytes(sound())
    kept = voices(tmp_path / "ref_audio")
    voice = await kept.add("first", sound())
    path = tmp_path / "ref_audio" / voice.filename
    path.unlink()
    path.symlink_to(secret)
    with pytest.raises(VoiceError, match="no such voice"):
        kept.load(voice.id)
    with pytest.raises(VoiceError, match="no such voice"):
        await kept.remove(voice.id)
    assert secret.exists()


# Over HTTP.


def operations(folder: Path, *, default: Path | None = None, **bounds: Any) -> Operations:
    return Operations.open(
        OperationsSettings(data_dir=folder),
        pool=None,
        voice=default,
        voice_bounds=VoiceTuning(**bounds),
    )


@pytest.fixture
async def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[httpx.AsyncClient]:
    monkeypatch.delenv(TOKEN_ENV, raising=False)
    async with asking(gateway(operations(tmp_path, max_upload_bytes=400_000)), headers=BEARER) as client:
        yield client


async def test_a_voice_is_uploaded_listed_heard_and_deleted(client: httpx.AsyncClient):
    # Larger than other bodies may be.
    data = sound("wav", 2.0)
    assert len(data) > 200_000
    answer = (await client.post(PATH, json=as_json("Anna", data))).json()
    assert answer["success"] is True and answer["name"] == "Anna" and "2.0 s" in answer["message"]
    listed = (await client.get(PATH)).json()
    assert listed["total"] == 1
    [voice] = listed["ref_audios"]
    assert voice["id"] == answer["id"] and voice["duration_ms"] == 2_000
    assert set(voice) == {
        *("id", "name", "filename", "source_type", "duration_ms", "sample_rate", "created_at"),
    }
    heard = await client.get(f"{PATH}/{answer['id']}")
    assert heard.headers["content-type"] == "audio/wav"
    with wave.open(io.BytesIO(heard.content)) as file:
        assert file.getnframes() == 2 * RATE_HZ
    part = await client.get(f"{PATH}/{answer['id']}", headers={"range": "bytes=0-3"})
    assert (part.status_code, part.content) == (206, b"RIFF")

    gone = (await client.delete(f"{PATH}/{answer['id']}")).json()
    assert gone["success"] is True
    for answer_ in (
        await client.delete(f"{PATH}/{answer['id']}"),
        await client.get(f"{PATH}/{answer['id']}"),
    ):
        assert answer_.status_code == 404 and "no such voice" in answer_.json()["error"]
    assert (await client.get(PATH)).json() == {"total": 0, "ref_audios": []}


async def test_an_upload_may_be_a_data_url(client: httpx.AsyncClient):
    body = as_json("Anna", sound("webm"))
    body["audio_base64"] = f"data:audio/webm;codecs=opus;base64,{body['audio_base64']}"
    assert (await client.post(PATH, json=body)).status_code == 200


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (json.dumps({"name": "x", "audio_base64": "not base64!"}), 400),
        (json.dumps({"name": "x", "audio_base64": "é"}), 400),
        (json.dumps(as_json("x", b"no audio")), 400),
        (json.dumps(as_json("", sound())), 400),
        (json.dumps({"name": "x"}), 422),
        ("{", 422),
        (json.dumps(as_json("x", sound("wav", 2.5))), 413),
        (json.dumps(as_json("x", bytes(2_000_000))), 413),
    ],
)
async def test_an_upload_that_is_not_one_says_why_and_changes_nothing(
    client: httpx.AsyncClient, body: str, status: int
):
    answer = await client.post(PATH, content=body)
    assert answer.status_code == status, answer.text
    assert len(answer.text) < 300
    assert (await client.get(PATH)).json()["total"] == 0


@pytest.mark.parametrize("voice_id", ["x", UNKNOWN, "..%2F..%2Fapps.json", "%2e%2e", UNKNOWN.upper()])
@pytest.mark.parametrize("method", ["GET", "DELETE"])
async def test_no_other_file_is_reached_by_an_id(
    client: httpx.AsyncClient, tmp_path: Path, method: str, voice_id: str
):
    (tmp_path / "apps.json").write_text("{}")
    answer = await client.request(method, f"{PATH}/{voice_id}")
    assert answer.status_code in (404, 405)
    assert (tmp_path / "apps.json").exists()


async def test_voices_are_changed_and_heard_by_the_operator_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(TOKEN_ENV, TOKEN)
    sent = 0

    async def in_pieces() -> AsyncIterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield b"x" * 1_000

    async with asking(gateway(operations(tmp_path))) as client:
        answer = await client.post(PATH, content=in_pieces())
        # Refused before it is read; the bytes after it would be taken for the next request.
        assert (answer.status_code, sent, answer.headers["connection"]) == (403, 0, "close")
        voice = (await client.post(PATH, json=as_json("Anna", sound()), headers=BEARER)).json()
        path = f"{PATH}/{voice['id']}"
        assert (await client.get(path)).status_code == (await client.delete(path)).status_code == 403
        evil = {**BEARER, "origin": "https://evil.example"}
        assert (await client.delete(path, headers=evil)).status_code == 403
        assert (await client.post(PATH, json=as_json("Eve", sound()), headers=evil)).status_code == 403
        # The list of choices is not secret.
        assert [each["name"] for each in (await client.get(PATH)).json()["ref_audios"]] == ["Anna"]


async def test_the_default_voice_is_given_as_samples(tmp_path: Path):
    path = tmp_path / "signature.wav"
    path.write_bytes(sound("wav", 2.0))
    chosen = operations(tmp_path, default=path)
    async with asking(gateway(chosen), headers=BEARER) as client:
        received = (await client.get("/api/default_ref_audio")).json()
        samples = np.frombuffer(base64.b64decode(received.pop("base64")), "<f4")
        assert received == {
            "name": "signature.wav",
            "duration": 2.0,
            "sample_rate": 16_000,
            "samples": 32_000,
        }
        assert len(samples) == 32_000 and 0.25 < np.abs(samples).max() < 0.35
        assert (await client.get(PATH)).json()["default"] == "signature.wav"
        path.write_bytes(b"no audio any more")
        assert (await client.get("/api/default_ref_audio")).status_code == 500
        path.unlink()
        answer = await client.get("/api/default_ref_audio")
        assert answer.status_code == 500 and str(tmp_path) not in answer.text


async def test_samples_are_counted_with_what_a_client_reads(tmp_path: Path):
    path = tmp_path / "signature.wav"
    path.write_bytes(sound("wav", 2.0))
    chosen = operations(tmp_path, default=path)
    async with asking(gateway(chosen, max_client_reads=1, read_bytes_per_s=10_000)) as client:
        # Over its share by 130 kB: it waits.
        reads = [asyncio.create_task(client.get("/api/default_ref_audio")) for _ in range(2)]
        done, waiting = await asyncio.wait(reads, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        assert [read.result().status_code for read in done] == [429]
        for read in waiting:
            read.cancel()


async def test_a_server_without_a_default_voice_says_so(client: httpx.AsyncClient):
    answer = await client.get("/api/default_ref_audio")
    assert answer.status_code == 404 and "duplex.tts_voice" in answer.json()["error"]


# Voices for engines that imitate one.


async def test_a_stored_voice_is_found_by_its_id_and_its_name_until_it_is_deleted(tmp_path: Path):
    written, read = voices(tmp_path / "kept"), StoredVoices(tmp_path / "kept")
    with pytest.raises(VoiceError, match="there is no reference voice 'ada'"):
        read.find("ada")
    voice = await written.add("ada", sound("wav"))
    assert read.find("ada") == read.find(voice.id) == voice.id
    assert read.read(voice.id) == written.path(voice.id).read_bytes()
    await written.remove(voice.id)
    with pytest.raises(VoiceError, match="there is no reference voice 'ada'"):
        read.find("ada")
    with pytest.raises(VoiceError, match="the file of this voice is missing"):
        read.read(voice.id)


async def test_two_voices_of_one_name_are_found_by_their_ids_only(tmp_path: Path):
    written, read = voices(tmp_path), StoredVoices(tmp_path)
    first, second = await written.add("ada", sound("wav")), await written.add("ada", sound("wav"))
    with pytest.raises(VoiceError, match="2 reference voices are named 'ada': use an id"):
        read.find("ada")
    assert (read.find(first.id), read.find(second.id)) == (first.id, second.id)


def test_a_list_of_voices_that_cannot_be_read_is_reported(tmp_path: Path):
    (tmp_path / REGISTRY).write_text("[{")
    with pytest.raises(VoiceError, match="cannot be read"):
        StoredVoices(tmp_path).find("ada")
