"""Batch jobs whose sources and outputs are in a bucket: the command against a server of S3 on loopback."""

import asyncio
import json
import os
import subprocess
import sys
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path

import httpx
import numpy as np
import pytest
from aiohttp import web

from parley.batch.decoding import RefusedSource
from parley.batch.destination import OutputError
from parley.batch.reading import SourceReader
from parley.batch.s3.address import ObjectAddress
from parley.batch.s3.destination import LEASE, BucketWriter, bucket_destination
from parley.batch.s3.sources import find_objects
from parley.batch.settings import FileLimits, RecogniserChoice
from parley.batch.sources import BatchSource, SourceKind
from parley.batch.transcribe import main
from parley.batch.transcript import Transcription
from parley.core.errors import ConfigError
from parley.evals.bench.batch_kills import BucketOutputs, Speech, kills
from parley.evals.harness.s3_server import BUCKET, S3Server
from parley.recording.objects import RecordingBucket
from parley.runtime.object_store import ObjectStore, ObjectStoreError
from tests.audio_files import write_audio
from tests.human_speech import moonshine_tiny, opening
from tests.peers.http_peer import HttpPeer
from tests.peers.test_recording_bucket import moved
from tests.recorded_call import record_call
from tests.voices import RATE_HZ

MOST_S = 120.0
PASSED_ON = ("ETag", "Last-Modified", "Content-Type", "Content-Range")
CHOSEN = RecogniserChoice(name="moonshine_tiny")


@pytest.fixture(scope="module", autouse=True)
def weights():
    """Skip the module without the weights of the embedded recogniser."""
    moonshine_tiny()


@pytest.fixture(scope="module")
def server() -> Iterator[S3Server]:
    with S3Server() as running:
        running.keep_versions()
        yield running


@pytest.fixture(autouse=True)
def environment(server: S3Server, monkeypatch: pytest.MonkeyPatch):
    for name, value in server.environment.items():
        monkeypatch.setenv(name, value)


@pytest.fixture
def place() -> ObjectAddress:
    """Return an address of its own for each test."""
    return ObjectAddress(BUCKET, f"tests/{uuid.uuid4()}")


@pytest.fixture
def store(place: ObjectAddress) -> ObjectStore:
    return place.open(option="--out", retry_s=1)


@pytest.fixture(scope="module")
def reading(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("audio") / "reading.flac"
    write_audio(path, opening())
    return path.read_bytes()


def below(place: ObjectAddress, name: str) -> ObjectAddress:
    return ObjectAddress(place.bucket, place.key(name))


def parked(server: S3Server, out: ObjectAddress) -> dict[str, str]:
    found = json.loads(server.content(out.key("parked.json")))
    return {each["source"]: each["reason"] for each in found}


def transcription(key: str, text: str = "a.wav") -> Transcription:
    return Transcription(
        key=key,
        source=text,
        duration_ms=0,
        speech_ms=0,
        channels="mixed",
        recogniser=CHOSEN,
        segments=(),
    )


def source(name: str) -> BatchSource:
    return BatchSource(name, f"s3://elsewhere/{name}", SourceKind.OBJECT, "1")


def until_raised(check: Callable[[], None]) -> None:
    until_s = time.monotonic() + MOST_S
    while time.monotonic() < until_s:
        check()
        time.sleep(0.02)


ITEMS = [(source("a.wav"), "key a"), (source("b.wav"), "key b")]


def names(sources: list[BatchSource]) -> list[str]:
    return [each.name for each in sources]


def test_objects_become_transcripts_in_a_bucket_once(
    server: S3Server, place: ObjectAddress, reading: bytes, capsys: pytest.CaptureFixture[str]
):
    inside, out = below(place, "in"), below(place, "out")
    for name in ("a.flac", "deep/ä 100 %.flac"):
        server.put(inside.key(name), reading)
    server.put(inside.key("noise.mp3"), os.urandom(40_000))
    server.put(inside.key("empty.wav"), b"")
    server.put(inside.key("notes.txt"), b"no audio")
    command = [str(inside), "--out", str(out)]
    assert main(command) == 3
    assert "2 transcribed, 2 parked" in capsys.readouterr().out
    for name in ("a.flac", "deep/ä 100 %.flac"):
        found = Transcription.model_validate_json(server.content(out.key(f"{name}.json")))
        assert found.segments[0].text.lower().startswith("it was the best of times")
        assert server.content(out.key(f"{name}.vtt")).startswith(b"WEBVTT")
        assert b"best of times" in server.content(out.key(f"{name}.txt"))
    assert set(parked(server, out)) == {"noise.mp3", "empty.wav"}
    # The second run writes no transcript, and a source that changed is done again.
    before = server.versions(out.key(""))
    server.put(inside.key("a.flac"), reading + b"\0")
    assert main(command) == 3
    after = server.versions(out.key(""))
    again = {name for name in after if after[name] != before[name] and not name.startswith(".parley/")}
    assert again == {"a.flac.json", "a.flac.vtt", "a.flac.txt", "parked.json"}
    assert main([str(place), "--out", str(out)]) == 2
    assert f"holds the transcripts of {inside}" in capsys.readouterr().err


def test_one_object_is_a_source(server: S3Server, place: ObjectAddress, store: ObjectStore):
    server.put(place.key("deep/one.flac"), b"x")
    root, (found,) = find_objects(below(place, "deep/one.flac"), store)
    assert (root, found.name) == (str(below(place, "deep")), "one.flac")


async def test_recorded_calls_in_a_bucket_are_found_when_they_are_complete_and_are_read(
    server: S3Server, place: ObjectAddress, store: ObjectStore, tmp_path: Path
):
    session, unfinished = str(uuid.UUID(int=21)), f"sessions/{uuid.UUID(int=22)}/{uuid.uuid4().hex}"
    path = await record_call(tmp_path / "data", session)
    moved(path, RecordingBucket(server.settings.model_copy(update={"prefix": place.prefix})))
    server.put(place.key(f"{unfinished}/user_audio/000000.flac"), b"uploaded first")
    server.put(place.key("talk.wav"), b"x")
    root, (call, file) = find_objects(place, store)
    assert (root, call.name, file.name) == (str(place), f"sessions/{session}/{path.name}", "talk.wav")
    # The call itself, as the whole source.
    assert [each.name for each in find_objects(below(place, call.name), store)[1]] == [path.name]
    with closing(SourceReader(FileLimits(), lambda: None)) as reader:
        assert reader.sides(call.kind) == ("caller", "agent")
        (block,) = reader.blocks(call.kind, call.location, call.version)
    caller, agent = np.abs(block.astype(float)).max(axis=1)
    assert 300 < caller < 700 and agent > 7_000


@pytest.mark.slow
def test_a_job_that_is_killed_does_every_file_once(tmp_path: Path):
    speech = np.frombuffer(opening(), "<i2").astype(np.float32) / 32_768
    clips = [Speech(str(number), speech[: RATE_HZ * (1 + number % 5)], "") for number in range(20)]
    with S3Server() as own:
        seen = kills(clips, tmp_path, BucketOutputs(own), 4, seed=3)
    assert seen["kills"] >= 1
    assert (seen["done_once"], seen["written_again"], seen["parked"]) == (20, 0, 1)


def test_of_two_writers_the_first_succeeds_and_the_same_transcript_is_no_conflict(
    server: S3Server, place: ObjectAddress, store: ObjectStore
):
    with bucket_destination(place, store) as held:
        assert names(held.plan(ITEMS)) == ["a.wav", "b.wav"]
        writer, replaced = BucketWriter(place, store), held.replaced("a.wav")
        writer.write(transcription("key a"), replaced)
        # Of a run that was suspended, or whose answer was lost.
        writer.write(transcription("key a"), replaced)
        with pytest.raises(OutputError, match="another run"):
            writer.write(transcription("another key"), replaced)
        assert server.versions(place.key(""))["a.wav.json"] == 1
        assert names(held.plan(ITEMS)) == ["b.wav"]
        # With the tags of what is there, another key replaces it.
        BucketWriter(place, store).write(transcription("another key"), held.replaced("a.wav"))
        assert names(held.plan(ITEMS)) == ["a.wav", "b.wav"]


def test_a_source_is_parked_after_its_last_try_in_any_run(place: ObjectAddress, store: ObjectStore):
    with bucket_destination(place, store) as held:
        held.plan(ITEMS)
        assert not held.fail("a.wav", "it crashed", most_tries=2)
    with bucket_destination(place, store) as held:
        assert names(held.plan(ITEMS)) == ["a.wav", "b.wav"]
        assert held.fail("a.wav", "it crashed again", most_tries=2)
    with bucket_destination(place, store) as held:
        assert names(held.plan(ITEMS)) == ["b.wav"]
        assert [(each.name, each.reason, each.tries) for each in held.parked()] == [
            ("a.wav", "it crashed again", 2)
        ]
    with bucket_destination(place, store) as held:
        assert names(held.plan(ITEMS, retry_parked=True)) == ["a.wav", "b.wav"]
        assert held.parked() == []


def test_one_run_holds_a_place_and_another_is_refused(
    server: S3Server, place: ObjectAddress, store: ObjectStore, capsys: pytest.CaptureFixture[str]
):
    lease = {"lease_s": 4.0, "renew_s": 0.1}
    with bucket_destination(place, store, **lease):
        with pytest.raises(ConfigError, match="another run is writing there"):
            with bucket_destination(place, store, **lease):
                pass
    # It was released, so that the next one need not wait for its end.
    with bucket_destination(place, store):
        pass


def test_the_lease_of_a_process_that_is_gone_is_taken_over_at_once(place: ObjectAddress, store: ObjectStore):
    script = (
        "import os, sys\n"
        "from parley.batch.s3.address import ObjectAddress\n"
        "from parley.batch.s3.lease import BucketLease\n"
        "place = ObjectAddress.parse(sys.argv[1], option='')\n"
        "BucketLease(place.open(option='', retry_s=1), place.key(sys.argv[2]), '').__enter__()\n"
        "os.kill(os.getpid(), 9)\n"
    )
    subprocess.run((sys.executable, "-c", script, str(place), LEASE), timeout=60, check=False)
    assert "renewals" in store.read(place.key(LEASE), 0, 1_000).decode()
    with bucket_destination(place, store) as held:
        held.check_held()


def test_a_lease_that_another_machine_does_not_renew_is_taken_over_and_noticed(
    server: S3Server, place: ObjectAddress, store: ObjectStore
):
    name = place.key(LEASE)
    server.put(name, b'{"run": "other", "boot": "of another machine", "pid": 1}')
    with bucket_destination(place, store, lease_s=0.4, renew_s=0.1) as held:
        # A run that could not renew it for so long finds it taken.
        server.put(name, b'{"run": "a third one", "boot": "of another machine", "pid": 1}')
        with pytest.raises(OutputError, match="another run"):
            until_raised(held.check_held)
    assert b"a third one" in server.content(name)


class FrontDoor(HttpPeer):
    """Server that passes requests on to S3, and answers some of them itself."""

    def __init__(self, server: S3Server, answer: Callable[[web.Request], web.Response | None]) -> None:
        self._server, self._answer = server, answer

    def routes(self) -> list[web.RouteDef]:
        return [web.route("*", "/{path:.*}", self._pass_on)]

    async def _pass_on(self, request: web.Request) -> web.Response:
        content = await request.read()
        if (own := self._answer(request)) is not None:
            return own
        kept = {name: value for name, value in request.headers.items() if name.lower() != "host"}
        async with httpx.AsyncClient() as client:
            url = f"{self._server.url}{request.raw_path}"
            given = await client.request(request.method, url, headers=kept, content=content, timeout=30)
        headers = {name: given.headers[name] for name in PASSED_ON if name in given.headers}
        return web.Response(status=given.status_code, body=given.content, headers=headers)


def refusal(status: int, code: str) -> web.Response:
    body = f"<Error><Code>{code}</Code><Message>refused</Message></Error>"
    return web.Response(status=status, text=body, content_type="application/xml")


def blocks_of(object_address: ObjectAddress, tag: str) -> list[np.ndarray]:
    """Read an object as a worker does."""
    with closing(SourceReader(FileLimits(s3_retry_s=1), lambda: None)) as reader:
        return list(reader.blocks(SourceKind.OBJECT, str(object_address), tag))


async def test_an_object_that_s3_denies_is_refused_alone(
    server: S3Server,
    place: ObjectAddress,
    store: ObjectStore,
    reading: bytes,
    monkeypatch: pytest.MonkeyPatch,
):
    tag = store.put(place.key("a.flac"), reading)

    def denied(request: web.Request) -> web.Response | None:
        return refusal(403, "AccessDenied") if request.path.endswith("a.flac") else None

    async with FrontDoor(server, denied) as door:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{door.port}")
        with pytest.raises(RefusedSource, match="denies access to this object .403 AccessDenied"):
            await asyncio.to_thread(blocks_of, below(place, "a.flac"), tag)


@pytest.mark.parametrize(
    ("status", "code", "message"),
    [
        (403, "AccessDenied", "access to the bucket 'recordings' is denied .403 AccessDenied"),
        (403, "ExpiredToken", "access to the bucket 'recordings' is denied .403 ExpiredToken"),
        (404, "NoSuchBucket", "there is no bucket 'recordings'"),
        (500, "InternalError", "S3 does not read"),
    ],
)
async def test_a_bucket_that_refuses_everything_is_no_failure_of_one_source(
    server: S3Server,
    place: ObjectAddress,
    monkeypatch: pytest.MonkeyPatch,
    status: int,
    code: str,
    message: str,
):
    async with FrontDoor(server, lambda _request: refusal(status, code)) as door:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{door.port}")
        with pytest.raises(ObjectStoreError, match=message):
            await asyncio.to_thread(blocks_of, below(place, "a.flac"), "tag")


async def test_an_object_that_changed_since_the_plan_is_refused(
    place: ObjectAddress, store: ObjectStore, reading: bytes
):
    tag = store.put(place.key("a.flac"), reading)
    assert sum(block.shape[1] for block in blocks_of(below(place, "a.flac"), tag)) > 6 * RATE_HZ
    store.put(place.key("a.flac"), reading + b"x")
    with pytest.raises(RefusedSource, match="run it again"):
        blocks_of(below(place, "a.flac"), tag)
    store.remove([place.key("a.flac")])
    with pytest.raises(RefusedSource, match="run it again"):
        blocks_of(below(place, "a.flac"), tag)


async def test_a_bucket_that_vanishes_in_a_job_ends_it_and_parks_nothing(
    server: S3Server, place: ObjectAddress, reading: bytes
):
    inside, out = below(place, "in"), below(place, "out")
    for name in ("a.flac", "b.flac"):
        server.put(inside.key(name), reading)
    is_gone = False

    def vanish(request: web.Request) -> web.Response | None:
        nonlocal is_gone
        is_gone = is_gone or (request.method == "GET" and request.path.endswith("b.flac"))
        return refusal(404, "NoSuchBucket") if is_gone else None

    command = [str(inside), "--out", str(out)]
    async with FrontDoor(server, vanish) as door:
        environment = {**os.environ, "AWS_ENDPOINT_URL": f"http://127.0.0.1:{door.port}"}
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "parley.batch.transcribe", *command),
            env=environment,
            stderr=subprocess.PIPE,
        )
        _, errors = await asyncio.wait_for(process.communicate(), MOST_S)
    assert process.returncode == 1
    assert b"there is no bucket 'recordings' (NoSuchBucket)" in errors
    # All that was done is there, and the same command goes on.
    before = server.versions(out.key(""))
    assert before["a.flac.json"] == 1 and not [name for name in before if "failed" in name]
    assert main(command) == 0
    after = server.versions(out.key(""))
    assert (after["a.flac.json"], after["b.flac.json"]) == (1, 1)


async def test_a_server_that_ignores_conditions_is_refused_as_a_destination(
    server: S3Server, place: ObjectAddress, monkeypatch: pytest.MonkeyPatch
):
    def careless(request: web.Request) -> web.Response | None:
        return web.Response(headers={"ETag": '"0"'}) if request.method == "PUT" else None

    async with FrontDoor(server, careless) as door:
        monkeypatch.setenv("AWS_ENDPOINT_URL", f"http://127.0.0.1:{door.port}")
        store = place.open(option="--out", retry_s=1)
        with pytest.raises(ConfigError, match="If-None-Match"):
            await asyncio.to_thread(belong, place, store)


def belong(place: ObjectAddress, store: ObjectStore) -> None:
    with bucket_destination(place, store) as held:
        held.belong_to("/in")


@pytest.mark.parametrize(
    ("given", "status", "message"),
    [
        (["s3://recordings/nothing/here", "--out", "x"], 2, "there is no such object"),
        (["s3://Upper_Case/x", "--out", "x"], 2, "no address like s3://BUCKET/PREFIX"),
        (["s3://recordings/a//b", "--out", "x"], 2, "a part of a name that is empty"),
        (["s3://missing-bucket/x", "--out", "x"], 1, "there is no bucket 'missing-bucket'"),
        (["{file}", "--out", "s3://missing-bucket/x"], 1, "there is no bucket 'missing-bucket'"),
    ],
)
def test_a_wrong_address_is_one_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], given: list[str], status: int, message: str
):
    write_audio(tmp_path / "a.wav", opening())
    assert main([each.format(file=tmp_path / "a.wav") for each in given]) == status
    assert message in capsys.readouterr().err
