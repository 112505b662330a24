"""A card that a caller says and types in a real call: it is in no row, no file, no log line and no audio."""

import json
import re
import sqlite3
from pathlib import Path

import httpx
import numpy as np
import pytest
import soundfile
import yaml

from tests.peers.operations_gateway import BEARER
from tests.peers.server import briefly_greeting, running_server
from tests.peers.test_command import speech
from tests.peers.test_recording import only_recording
from tests.peers.webrtc_caller import greeted

# A well-known number for tests; a number with repetitions is not what the embedded recogniser writes.
SPOKEN = "four five three nine, one four eight eight, zero three four three, six four six seven"
TYPED = "4012 8888 8888 1881"
LEAKS = ("4539", "0343", "6467", "4012", "1881", "four five three", "zero three four three", "six four six")
WITHIN_S = 90
# Numbers of JSON documents and rows: times and lengths, of which any may have such digits.
NUMBERS = re.compile(r"(?<=[\[(:,])\s*-?(?:0|[1-9]\d*)(?:\.\d+)?(?=\s*[\]),}])")


def private_deployment(folder: Path) -> Path:
    """Return a deployment that redacts and records into ``folder``."""
    path = briefly_greeting(folder)
    settings = yaml.safe_load(path.read_text())
    settings["recording"] = {"enabled": True, "folder": str(folder / "data"), "min_free_gb": 0}
    settings["privacy"] = {"redact": ["payment_card"], "pause": {"longest_s": 60}}
    path.write_text(yaml.safe_dump(settings))
    (folder / "data").mkdir()
    return path


def texts_of(folder: Path) -> dict[str, str]:
    """Return everything that is at rest as text, by its place: rows and files."""
    texts = {}
    for path in folder.rglob("*"):
        if path.is_file():
            texts[str(path)] = path.read_bytes().decode("latin-1")
    with sqlite3.connect(next(folder.rglob("sessions.db"))) as database:
        for number, row in enumerate(database.execute("SELECT * FROM event")):
            texts[f"event {number}"] = repr(row)
    return texts


def leaks_in(text: str) -> list[str]:
    """Return the parts of both numbers in a text; times and ids may have such digits too."""
    words = re.sub(r"[-,]", " ", NUMBERS.sub("", text))
    return [leak for leak in LEAKS if re.search(rf"(?<![\w.]){leak}(?![\w.])", words)]


@pytest.mark.alone
async def test_card_of_a_real_call_is_nowhere_at_rest(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv("PARLEY_STORE_URL", f"sqlite:///{tmp_path / 'data' / 'sessions.db'}")
    log = tmp_path / "server.log"
    config = private_deployment(tmp_path)
    async with (
        running_server("--config", str(config), "-vvv", log=log) as server,
        httpx.AsyncClient(base_url=server.url, timeout=60) as client,
    ):
        async with greeted(client) as caller:
            caller.microphone.say(speech(f"My card number is {SPOKEN}.") + bytes(32_000 * 3))
            await caller.until(lambda: len(caller.of_type("bot-stopped-speaking")) >= 2, within_s=WITHIN_S)
            typed = {"content": f"my card number is {TYPED}"}
            caller.send({"label": "rtvi-ai", "type": "send-text", "id": "1", "data": typed})
            await caller.until(lambda: len(caller.of_type("bot-stopped-speaking")) >= 3, within_s=WITHIN_S)
            shown = json.dumps(caller.of_type("user-transcription"))
            sessions = (await client.get("/api/sessions", headers=BEARER)).json()["sessions"]
            route = f"/api/sessions/{sessions[0]['id']}/private-pause"
            assert (await client.put(route)).status_code in (401, 403)
            assert (await client.put(route, headers=BEARER)).status_code == 204
            assert (await client.delete(route, headers=BEARER)).status_code == 204
        recording = await only_recording(tmp_path, within_s=WITHIN_S)
        assert (await client.put(route, headers=BEARER)).status_code == 404
    texts = texts_of(tmp_path / "data")
    timeline = json.loads((recording.path / "recording.json").read_text())
    said = [event["text"] for event in timeline["events"] if event["event"] == "TurnEnded"]
    assert any("[card]" in text for text in said), said
    assert sum("[card]" in text for place, text in texts.items() if place.startswith("event")) >= 2
    kept = {place: leaks_in(text) for place, text in (texts | {"client": shown}).items()}
    assert {place: leaks for place, leaks in kept.items() if leaks and not place.endswith(".flac")} == {}
    assert leaks_in(log.read_text()) == []
    assert_silent(recording.path, timeline)


def assert_silent(path: Path, timeline: dict) -> None:
    """Check that the utterance with the card has no sound in the segments and in the stereo file."""
    stretches = timeline["user_audio"]["redacted"]
    longest = max(stretches, key=lambda each: each["length_ms"])
    assert longest["length_ms"] > 4_000, "sixteen digits take longer"
    stereo, rate_hz = soundfile.read(path / "merged_replay.wav")
    first = longest["start_ms"] * rate_hz // 1_000
    last = first + longest["length_ms"] * rate_hz // 1_000
    assert not np.abs(stereo[first + 400 : last - 400, 0]).max() > 0.002
    # No other second of the caller has a voice: they said nothing else.
    rest = np.concatenate([stereo[:first, 0], stereo[last:, 0]])
    assert np.sqrt(np.mean(rest**2)) < 0.01
