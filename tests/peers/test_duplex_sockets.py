"""Clients of the MiniCPM-o server at Parley's sockets: ``/ws/duplex/{id}`` and ``/v1/realtime?mode=``."""

import asyncio
import base64
import io
import os
import signal
import time
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pytest
from PIL import Image
from websockets.asyncio.client import connect
from websockets.exceptions import InvalidStatus

from parley.configs.deployment import DEFAULT_PROMPT
from parley.core.client_rules import prompt_of
from parley.models.omni import Preparation
from parley.models.omni.minicpm_worker.engine import MiniCpmWorkerHost, MiniCpmWorkerSettings
from tests.client_recordings import content_of
from tests.minicpm_player import silences_ms
from tests.peers.minicpm_duplex_client import SECOND, Client, RealtimeClient, in_base64, samples_in
from tests.peers.minicpm_page import PREPARE, page
from tests.peers.minicpm_save_share import SaveShare, check_viewer, when_made
from tests.peers.minicpm_server import MiniCpmServer, minicpm_server
from tests.peers.test_browser import Served, lines_are_free, serving
from tests.peers.test_queue import pooled, worker_of
from tests.voices import say, silence

KIND = prompt_of(DEFAULT_PROMPT, "Be kind.")
MOST_PAUSE_MS = 2_000


def one_worker(url: str, sessions: int = 1) -> str:
    engine = f"{{name: minicpm_worker, settings: {{url: '{url}', sessions: {sessions}}}}}"
    return f"duplex: {{engine: {engine}, ticks: {{pause_ms: {MOST_PAUSE_MS}}}}}\n"


@asynccontextmanager
async def client(served: Served, path: str = "/ws/duplex/adx_test") -> AsyncIterator[Client]:
    async with connect(served.address.replace("http", "ws") + path, max_size=None) as socket:
        yield Client(socket)


@dataclass(frozen=True)
class Site:
    """A server, and the model's server that its full-duplex engine connects to."""

    served: Served
    model: MiniCpmServer

    async def is_free(self) -> None:
        """Wait until the calls of the test before have ended."""
        await lines_are_free(self.served.address)


@contextmanager
def site(folder: Path, deployment: Callable[[str], str], **options: Any) -> Iterator[Site]:
    with minicpm_server() as model:
        with serving(folder, "llm: {name: documents}", more=deployment(model.url), **options) as served:
            yield Site(served, model)


@pytest.fixture(scope="module")
def one_line(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    with site(tmp_path_factory.mktemp("one"), one_worker, takes_instructions=True) as at:
        yield at


@pytest.fixture(scope="module")
def two_lines(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    recorded = "recording: {enabled: true, folder: data, min_free_gb: 0}\n"
    with site(tmp_path_factory.mktemp("two"), lambda url: one_worker(url, 2) + recorded, calls=2) as at:
        yield at


@pytest.fixture(scope="module")
def in_pool(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Site]:
    """Run a server of four lines, whose pool has one worker."""
    with site(tmp_path_factory.mktemp("pool"), pooled, calls=4) as at:
        yield at


@pytest.mark.paired
async def test_each_chunk_is_answered_by_one_result_as_soon_as_the_engine_has_it(one_line: Site):
    await one_line.is_free()
    at, model = one_line.served, one_line.model
    before = len(model.heard)
    async with client(at) as one:
        prepared = await one.prepared(config={"length_penalty": 1.2, "chunk_ms": 1_000})
        assert prepared["prompt_length"] == len(KIND) and prepared["session_id"]
        assert one.types == ["queue_done", "prepared"]
        loud, said = np.full(16_000, 0.5, np.float32), []
        for number in range(1, 7):
            began_s = time.monotonic()
            await one.chunk(loud)
            # It waits for no later chunk.
            result = await one.next("result")
            assert result["current_time"] == number
            said.append(len(samples_in(result["audio_data"])))
            assert result["is_listen"] is (number < 4) is not bool(said[-1])
            await asyncio.sleep(max(0.0, began_s + 1 - time.monotonic()))
        # 0.6, 1.04 and 0.3 s: each with its unit, except for the part that is longer than the unit. The first
        # is preceded by silence, so that it lasts until the next.
        assert sum(said) == 46_560 + 9_600 and said[3] == 24_000
        for _ in range(2):
            await one.chunk(loud)
            assert not (await one.next("result"))["interrupted"]
            await asyncio.sleep(0.9)
        # The model speaks again, and has to listen: this result notifies the client to drop the rest.
        assert not one.got[-1]["is_listen"] and not one.got[-1]["end_of_turn"]
        await one.chunk(loud, force_listen=True)
        silenced = await one.next("result")
        assert silenced["is_listen"] and silenced["interrupted"]
        await one.chunk(loud)
        assert not (await one.next("result"))["interrupted"]
        await one.send("stop")
        assert await one.ended() == (1000, "stopped")
        assert one.types[-1] == "stopped"
    assert model.prepared[-1]["system_prompt"] == KIND
    assert model.prepared[-1]["config"]["length_penalty"] == 1.2
    # The model received the audio that was sent here.
    of_this_call = model.heard[before:]
    assert len(of_this_call) == 10
    assert all(abs(float(heard[100:].mean()) - 0.5) < 0.01 for heard in of_this_call[1:])


async def test_what_cannot_be_read_is_answered_and_the_conversation_goes_on(two_lines: Site):
    await two_lines.is_free()
    served = two_lines.served
    async with client(served) as one, client(served, "/ws/duplex/adx_test") as other:
        await one.chunk()
        assert (await one.next("error"))["code"] == "not_ready"
        await one.send("prepare", ref_audio_path="/etc/passwd")
        assert "path" in (await one.next("error"))["error"]
        await one.send("prepare", config={"temperature": "hot"})
        assert (await one.next("error"))["param"] == "config.temperature"
        await one.prepared()
        await one.socket.send("{no json")
        assert (await one.next("error"))["code"] == "invalid_json"
        await one.socket.send(b"\x00\x01")
        assert "text message" in (await one.next("error"))["error"]
        await one.send("video_frame", frame="")
        assert "Unknown message type" in (await one.next("error"))["error"]
        await one.send("audio_chunk", audio_base64="%%%")
        assert (await one.next("error"))["param"] == "audio_base64"
        await one.send("audio_chunk", audio_base64=base64.b64encode(bytes(401)).decode())
        assert "whole number of" in (await one.next("error"))["error"]
        await one.chunk(np.full(16_000, np.nan, np.float32))
        assert "finite" in (await one.next("error"))["error"]
        await one.chunk(np.zeros(16_000 * 6, np.float32))
        assert (await one.next("error"))["code"] == "too_large"
        await one.send("prepare", system_prompt="again")
        assert (await one.next("error"))["code"] == "invalid_state"
        await one.chunk()
        assert (await one.next("result"))["current_time"] == 1
        # The other conversation, of the same name, was not disturbed.
        assert (await other.prepared())["session_id"] != one.got[-1].get("session_id")
        await other.chunk()
        assert (await other.next("result", "error"))["type"] == "result"


async def test_a_picture_that_is_none_costs_its_chunk_nothing(two_lines: Site):
    await two_lines.is_free()
    at, model = two_lines.served, two_lines.model
    before = len(model.chunks)
    async with client(at) as one:
        await one.prepared()
        good = io.BytesIO()
        Image.new("RGB", (64, 48), "red").save(good, "PNG")
        png = good.getvalue()
        # The head is valid, and a chunk between the pictures' has an invalid name.
        place = png.index(b"IDAT") + 8
        broken = png[:place] + b"\0\0\0\4" + b"\xff\0\xff\0" + png[place:]
        for picture in (b"no picture", broken, png, png):
            await one.chunk(frame_base64_list=[base64.b64encode(picture).decode()])
            await one.next("result")
            await asyncio.sleep(0.9)
        assert [message["code"] for message in one.got if message["type"] == "error"] == [
            "invalid_payload"
        ] * 2
        # A picture that is read belongs to the unit that it came with.
        assert [len(chunk["frames"]) for chunk in model.chunks[before:]] == [0, 0, 1, 1]


@pytest.mark.paired
async def test_a_pause_holds_the_conversation_and_ends(one_line: Site):
    await one_line.is_free()
    at = one_line.served
    async with client(at) as one:
        await one.prepared()
        await one.chunk()
        await one.next("result")
        await one.send("pause", timeout=86_000)
        # Not longer than the deployment allows.
        assert (await one.next("paused"))["timeout"] == MOST_PAUSE_MS / 1_000
        await one.chunk()
        assert "paused" in (await one.next("error"))["error"]
        await one.send("resume")
        await one.next("resumed")
        await one.chunk()
        await one.next("result")
        await one.send("pause", timeout=1)
        await one.next("timeout")
        assert (await one.ended())[0] == 1000


@pytest.mark.paired
async def test_a_client_that_never_prepares_holds_no_engine(tmp_path: Path):
    with minicpm_server() as model:
        more = pooled(model.url) + "sockets: {open_s: 1}\n"
        with serving(tmp_path, "llm: {name: documents}", more=more, calls=2) as at:
            async with client(at) as one:
                await one.next("queue_done")
                assert (await one.next("timeout"))["reason"] == "nothing was prepared within 1 s"
                assert (await one.ended())[0] == 1000
            async with client(at) as other:
                await other.prepared()


@pytest.mark.paired
async def test_a_second_client_waits_and_gets_the_place_of_the_first(in_pool: Site):
    await in_pool.is_free()
    served = in_pool.served
    async with client(served) as one:
        await one.prepared()
        async with client(served) as two:
            # That server's client prepares at once, also while it waits.
            await two.send("prepare", system_prompt="Second.")
            queued = await two.next("queued")
            assert queued["position"] == 1 and queued["ticket_id"]
            async with client(served) as three:
                assert (await three.next("queued"))["position"] == 2
                await two.socket.close()
                # A waiter that has left frees its place.
                while (await three.next("queue_update"))["position"] != 1:
                    pass
                await one.send("stop")
                await three.next("queue_done")
                await three.prepared()
                await three.chunk()
                await three.next("result")


@pytest.mark.paired
async def test_a_client_whose_worker_is_killed_reads_it_and_goes_on(in_pool: Site):
    await in_pool.is_free()
    at, model = in_pool.served, in_pool.model
    before = len(model.prepared)
    async with client(at) as one:
        await one.prepared()
        await one.chunk()
        await one.next("result")
        os.kill(worker_of(at).pid, signal.SIGKILL)
        # No unit is due that could miss its deadline: the end of the process is noticed.
        error = await one.next("error")
        assert error["code"] == "inference_error"
        # There is no other worker: the conversation waits at the head until this one is started again.
        assert (await one.next("queued"))["position"] == 1
        await one.next("queue_done")
        await one.goes_on()
        assert len(model.prepared) == before + 2


@asynccontextmanager
async def realtime_client(served: Served, query: str) -> AsyncIterator[RealtimeClient]:
    url = served.address.replace("http", "ws") + "/v1/realtime" + query
    async with connect(url, max_size=None) as socket:
        yield RealtimeClient(socket)


async def test_the_realtime_dialect_keeps_its_states(tmp_path: Path):
    with (
        minicpm_server() as model,
        serving(tmp_path, "llm: {name: documents}", more=one_worker(model.url, 2), calls=2) as at,
    ):
        async with realtime_client(at, "?mode=audio") as one:
            assert (await one.next("session.queue_done"))["type"] == one.types[0]
            await one.say("input_audio_buffer.append", audio=in_base64(SECOND))
            assert (await one.next("error"))["error"]["code"] == "not_ready"
            await one.send("session.update", session={})
            assert (await one.next("error"))["error"]["code"] == "missing_field"
            await one.update()
            created = await one.next("session.created")
            # The client's values have no effect here.
            assert created["prompt_length"] == len(DEFAULT_PROMPT) and created["session_id"]
            await one.send("input_audio_buffer.append", audio=in_base64(SECOND[:100]))
            assert (await one.next("error"))["error"]["code"] == "invalid_payload"
            await one.send("response.cancel")
            assert (await one.next("error"))["error"]["code"] == "unknown_event"
            await one.socket.send("{no json")
            assert (await one.next("error"))["error"]["code"] == "invalid_payload"
            types = []
            for _ in range(6):
                types.append(await one.append())
                await asyncio.sleep(0.9)
            assert set(types) == {"response.listen", "response.output_audio.delta"}
            await one.say("session.close", reason="user_stop")
            assert (await one.ended())[0] == 1000
            assert one.got[-1] == {"type": "session.closed", "reason": "stopped"}
        async with realtime_client(at, "?mode=audio") as one:
            await one.next("session.queue_done")
            await one.update()
            await one.next("session.created")
            at.process.terminate()
            # The conversation itself is notified, and closed.
            assert await one.ended() == (1012, "the server is stopping")
            assert one.got[-1] == {"type": "session.closed", "reason": "server_shutdown"}


@pytest.mark.parametrize("waits", [True, False], ids=["waits for queue_done", "sends after 100 ms"])
async def test_a_page_that_names_no_mode_is_known_by_its_first_message(two_lines: Site, waits: bool):
    await two_lines.is_free()
    before = len(two_lines.model.heard)
    async with realtime_client(two_lines.served, "") as one:
        if waits:
            await one.next("session.queue_done")
        else:
            await asyncio.sleep(0.1)
        await one.update()
        if not waits:
            # Some clients send it once more when they are placed.
            await one.next("session.queue_done")
            await one.update()
        await one.next("session.created")
        assert await one.append() == "response.listen"
        assert "error" not in one.types
    # The model received float32, and not numbers of 16 bits.
    [heard] = two_lines.model.heard[before:]
    assert abs(float(heard[100:].mean()) - 0.5) < 0.01


async def test_a_client_in_the_queue_may_send_its_update_early(in_pool: Site):
    await in_pool.is_free()
    async with realtime_client(in_pool.served, "?mode=audio") as first:
        await first.update()
        await first.next("session.created")
        async with realtime_client(in_pool.served, "?mode=audio") as second:
            assert (await second.next("session.queued"))["position"] == 1
            await second.update()
            await second.update()
            await first.say("session.close", reason="user_stop")
            await first.ended()
            await second.next("session.queue_done")
            await second.update()
            await second.next("session.created")
            await second.append()
            assert "error" not in second.types


@pytest.mark.parametrize("is_silent", [True, False])
async def test_an_openai_client_that_names_no_model_is_known_by_its_first_message(
    two_lines: Site, is_silent: bool
):
    await two_lines.is_free()
    async with client(two_lines.served, "/v1/realtime") as one:
        if not is_silent:
            await one.send("session.update", session={"type": "realtime", "instructions": "Be kind."})
        await one.next("session.created")
        if is_silent:
            await one.send("session.update", session={"type": "realtime"})
        assert (await one.next("session.updated"))["session"]["type"] == "realtime"


async def test_the_two_tier_engine_answers_a_spoken_question_in_results(tmp_path: Path):
    with serving(tmp_path, "llm: {name: documents}") as served:
        async with client(served) as one:
            await one.prepared()
            pcm = np.frombuffer(silence(500) + say("What are your opening hours on saturday?"), "<i2")
            heard = pcm.astype(np.float32) / 32_768
            said, text = 0, ""
            due_s = time.monotonic()
            for number in range(60):
                piece = heard[number * 4_000 : (number + 1) * 4_000]
                await one.chunk(np.pad(piece, (0, 4_000 - len(piece))))
                result = await one.next("result")
                said += len(samples_in(result["audio_data"]))
                text += result["text"]
                if result["end_of_turn"]:
                    break
                due_s += 0.25
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            assert "ten until two" in text and said > 24_000
            session_id = one.got[1]["session_id"]
            await one.send("stop")
            await one.ended()
        async with httpx.AsyncClient() as http:
            page = (await http.get(f"{served.address}/api/sessions/{session_id}/timeline")).text
        assert "ten until two" in page


async def test_a_typed_question_is_answered_in_results(one_line: Site):
    await one_line.is_free()
    async with client(one_line.served) as one:
        await one.send("text", text="What are your opening hours on saturday?")
        assert (await one.next("error"))["code"] == "not_ready"
        assert (await one.prepared())["takes"] == ["text", "pictures"]
        await one.send("text", text=" ")
        assert (await one.next("error"))["param"] == "text"
        await one.send("text", text="What are your opening hours on saturday?")
        said, text = 0, ""
        async with asyncio.timeout(60):
            while "ten until two" not in text:
                await one.chunk()
                result = await one.next("result")
                said += len(samples_in(result["audio_data"]))
                text += result["text"]
                await asyncio.sleep(1)
        assert said > 24_000


async def test_a_client_that_lost_its_socket_goes_on_with_its_call(one_line: Site):
    await one_line.is_free()
    served = one_line.served
    async with client(served) as first:
        session_id = (await first.prepared())["session_id"]
        await first.goes_on()
        # The only line is that of the socket whose loss the server has not noticed.
        path = f"/ws/duplex/adx_test?session={session_id}&reconnect=true"
        async with client(served, path) as again:
            assert (await again.prepared())["session_id"] == session_id
            await again.goes_on()
            await first.ended()
            await again.send("stop")
            await again.ended()
    async with httpx.AsyncClient(base_url=served.address) as http:
        page = (await http.get(f"/api/sessions/{session_id}/timeline", params={"kind": "joined"})).json()
    assert len(page["events"]) == 2
    with pytest.raises(InvalidStatus) as refused:
        async with client(served, "/ws/duplex/adx_test?reconnect=true"):
            pass
    assert refused.value.response.status_code == 400


@pytest.mark.paired
async def test_a_page_plays_a_reply_without_silence_in_it(tmp_path: Path):
    """The page sends a second at a time, and begins to play 200 ms after the first sound of a reply."""
    with serving(tmp_path, "llm: {name: documents}") as served:
        async with client(served) as one:
            await one.prepared()
            pcm = np.frombuffer(silence(300) + say("What are your opening hours on saturday?"), "<i2")
            heard = pcm.astype(np.float32) / 32_768
            results: list[tuple[float, dict[str, Any]]] = []
            due_s = time.monotonic()
            for number in range(15):
                piece = heard[number * 16_000 : (number + 1) * 16_000]
                await one.chunk(np.pad(piece, (0, 16_000 - len(piece))))
                result = await one.next("result")
                results.append((time.monotonic() * 1_000, result))
                if result["end_of_turn"]:
                    break
                due_s += 1
                await asyncio.sleep(max(0.0, due_s - time.monotonic()))
            spoken = [each for _, each in results if each["audio_data"]]
            assert len(spoken) >= 3 and spoken[-1]["end_of_turn"]
            assert max(silences_ms(results, delay_ms=200), default=0.0) <= 40


async def test_our_own_client_of_that_server_takes_parley_for_one(two_lines: Site):
    await two_lines.is_free()
    at = two_lines.served
    url = at.address.replace("http", "ws") + "/ws/duplex/adx_1"
    host = MiniCpmWorkerHost(MiniCpmWorkerSettings(url=url))

    def talk() -> int:
        engine = host.open_engine()
        engine.prepare(Preparation("Be kind."))
        spoken = 0
        for _ in range(6):
            engine.prefill(SECOND + 0.5)
            result = engine.generate()
            engine.finalize()
            spoken += len(result.audio)
        engine.cleanup()
        return spoken

    assert await asyncio.to_thread(talk) > 0
    host.close()


@pytest.mark.paired
async def test_a_handshake_is_refused_with_the_reason(one_line: Site):
    await one_line.is_free()
    served = one_line.served
    url = served.address.replace("http", "ws")
    async with connect(url + "/ws/duplex/a") as first:
        with pytest.raises(InvalidStatus) as full:
            await connect(url + "/ws/duplex/b").__aenter__()
        assert full.value.response.status_code == 503
        assert b"lines are in use" in full.value.response.body
        await first.close()
    async with httpx.AsyncClient() as http, asyncio.timeout(60):
        while (await http.get(f"{served.address}/health")).json()["calls"]:
            await asyncio.sleep(0.01)
    for path, headers, status in (
        ("/v1/realtime?mode=smell", {}, 400),
        ("/ws/duplex/a?session=none", {}, 404),
        ("/ws/duplex/a", {"Origin": "https://elsewhere.example"}, 403),
    ):
        with pytest.raises(InvalidStatus) as refused:
            await connect(url + path, additional_headers=headers).__aenter__()
        assert refused.value.response.status_code == status, path


async def test_a_conversation_is_typed_spoken_shared_viewed_and_downloaded(two_lines: Site):
    await two_lines.is_free()
    url = two_lines.served.address
    async with httpx.AsyncClient(base_url=url, timeout=60) as http:
        typed = (
            await http.post(
                "/api/chat",
                json={"messages": [{"role": "user", "content": "When are you open on Saturday?"}]},
            )
        ).json()
        session = typed["recording_session_id"]
        assert session == typed["session_id"] and typed["text"]
        sharing = SaveShare(http, session)
        as_typed = await sharing.recording()
        assert (as_typed["mode"], len(as_typed["turns"])) == ("chat", 1)
        assert as_typed["turns"][0]["output"]["text"] == typed["text"]
        address = f"{url.replace('http', 'ws')}/ws/duplex/adx_share?session={session}"
        async with connect(address, max_size=None) as socket:
            one = Client(socket)
            assert (await one.prepared())["recording_session_id"] == session
            for _ in range(7):
                await one.chunk(SECOND + 0.5)
                await one.next("result")
            await one.send("stop")
            await one.ended()
        spoken = await when_made(sharing)
        await check_viewer(sharing, spoken, seconds=7, level=0.5)
        # The browser's own recording, and the comment.
        assert await sharing.front_end_replay() is None
        webm = content_of("video/webm", 700_000)
        assert await sharing.upload(webm) == {
            "status": "ok",
            "path": "frontend_replay.webm",
            "size_bytes": len(webm),
        }
        assert await sharing.front_end_replay() == ("frontend_replay.webm", len(webm))
        assert await sharing.asset("frontend_replay.webm") == webm
        await sharing.save_comment("  It interrupted me.  ")
        assert await sharing.fetch_comment() == "It interrupted me."
        viewer = await http.get(sharing.address)
        assert viewer.status_code == 200 and viewer.headers["content-type"].startswith("text/html")
        with await sharing.download() as archive:
            (name,) = (each for each in archive.namelist() if each.endswith("frontend_replay.webm"))
            assert archive.read(name) == webm
            assert {each.split("/")[1] for each in archive.namelist()} >= {
                "meta.json",
                "merged_replay.wav",
            }
        # The other dialect names the recording too.
        async with page(url, "/ws/half_duplex/hdx_share") as caller:
            await caller.send(**PREPARE)
            prepared = await caller.until("prepared")
            assert prepared["recording_session_id"] == prepared["session_id"] != session
        # Its address opens a session; only the browser that owns it, and the operator, delete it.
        assert (await http.delete(f"/api/sessions/{session}")).status_code == 403
