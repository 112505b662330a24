"""Metrics, costs and traces of a running server, after a call of a real peer."""

import asyncio
import contextlib
import json
import shutil
import socket
import time
from collections.abc import AsyncIterator
from itertools import dropwhile
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import psutil
import pytest
import pytest_asyncio
import yaml
from loguru import logger

from parley.configs.load import read_yaml
from parley.telemetry.settings import TraceSettings
from parley.telemetry.trace_export import QUEUE_SPANS, REQUEST_S, TraceExport
from tests.fakes.collector import attributes_of, collecting, hanging_collector
from tests.fakes.scrape import Scrape
from tests.peers.llm_script import Turn
from tests.peers.openai_server import OpenAiServer
from tests.peers.operations_gateway import TOKEN
from tests.peers.server import ROOT, RunningServer, briefly_greeting, free_port, running_server
from tests.peers.test_command import speech
from tests.peers.test_openai_realtime import serving
from tests.peers.test_webrtc_call import call, turns_of
from tests.unpacked import program

OPERATOR = {"authorization": f"Bearer {TOKEN}"}
QUESTION = "What are your opening hours on Saturday?"


async def scrape(url: str) -> Scrape:
    async with httpx.AsyncClient(base_url=url, headers=OPERATOR) as client:
        answer = await client.get("/metrics")
    assert answer.status_code == 200, answer.text
    assert answer.headers["content-type"].startswith("text/plain; version=0.0.4")
    return Scrape(answer.text)


async def scrape_until(url: str, name: str, value: float, *, within_s: float = 60) -> Scrape:
    """Return the first scrape in which a metric without labels has this value."""
    async with asyncio.timeout(within_s):
        while (found := await scrape(url)).value(name) != value:
            await asyncio.sleep(0.2)
    return found


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    config = briefly_greeting(tmp_path_factory.mktemp("metrics"))
    async with running_server("--config", str(config)) as running:
        yield running


@pytest.mark.asyncio(loop_scope="module")
async def test_a_call_is_in_the_metrics_while_it_lasts_and_after_it(server: RunningServer):
    async with call(server.url) as caller:
        during = await scrape(server.url)
        assert during.value("unmute_active_sessions") == 1
        assert during.value("parley_calls_open", transport="webrtc", mode="cascade") == 1
        caller.microphone.say(speech(QUESTION) + bytes(32_000 * 8))
        await caller.until(lambda: len(turns_of(caller)) >= 2)
        spans_s = {name: ms / 1000 for name, ms in turns_of(caller)[-1]["spans"].items()}
    # The server notices that the peer is gone.
    after = await scrape_until(server.url, "unmute_active_sessions", 0)
    assert after.value("unmute_sessions_total") == 1
    assert after.value("unmute_session_duration_seconds_count") == 1
    assert after.value("parley_turns_total") == 1
    assert after.value("parley_voice_to_voice_seconds_count") == 1
    # The stages add up to the whole, within the resolution of the whole.
    for name, took_s in spans_s.items():
        assert after.value("parley_stage_seconds_sum", stage=name) == pytest.approx(took_s, abs=0.001)
    assert sum(spans_s.values()) == pytest.approx(after.value("parley_voice_to_voice_seconds_sum"), abs=0.002)
    assert after.value("unmute_stt_recv_words_total") >= 5
    assert after.value("parley_audio_heard_seconds_total", engine="moonshine_tiny") > 1
    assert after.value("parley_audio_spoken_seconds_total", engine="hibari") > 2
    assert after.value("parley_characters_total", engine="hibari") > 40
    assert after.value("unmute_vllm_reply_length_words_count") == 1
    assert after.value("parley_store_commit_seconds_count") > 3


@pytest.mark.asyncio(loop_scope="module")
async def test_metrics_are_for_the_operator(server: RunningServer):
    async with httpx.AsyncClient(base_url=server.url) as client:
        assert (await client.get("/metrics")).status_code == 403


def silent_scraper(url: str) -> socket.socket:
    """Return a connection that has requested the metrics many times and reads nothing."""
    address = urlsplit(url)
    request = f"GET /metrics HTTP/1.1\r\nHost: {address.netloc}\r\nAuthorization: Bearer {TOKEN}\r\n\r\n"
    scraper = socket.socket()
    scraper.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 2_048)
    scraper.connect((address.hostname, address.port))
    scraper.setblocking(False)
    with contextlib.suppress(BlockingIOError, ConnectionError):
        for _ in range(200):
            scraper.send(request.encode())
    return scraper


@pytest.mark.alone
@pytest.mark.asyncio(loop_scope="module")
async def test_scrapers_that_never_read_hold_up_no_call_and_no_other_scraper(server: RunningServer):
    with contextlib.ExitStack() as held:
        async with call(server.url) as caller:
            for _ in range(10):
                held.enter_context(silent_scraper(server.url))
            caller.microphone.say(speech(QUESTION) + bytes(32_000 * 8))
            await caller.until(lambda: len(turns_of(caller)) >= 2)
            async with asyncio.timeout(60):
                found = await scrape(server.url)
            assert "ten until two" in turns_of(caller)[-1]["bot_text"]
            assert sum(turns_of(caller)[-1]["spans"].values()) < 1_500
    assert found.value("unmute_active_sessions") == 1


@pytest.mark.asyncio(loop_scope="module")
async def test_prometheus_scrapes_a_server_with_the_committed_configuration(
    server: RunningServer, tmp_path: Path
):
    prometheus = program("prometheus")
    folder = tmp_path / "prometheus"
    shutil.copytree(ROOT / "deploy" / "prometheus", folder)
    (folder / "operator_token").write_text(TOKEN)
    config = folder / "prometheus.yml"
    text = config.read_text().replace("localhost:7860", urlsplit(server.url).netloc)
    config.write_text(text.replace("interval: 15s", "interval: 1s").replace("timeout: 5s", "timeout: 1s"))
    port = free_port()
    child = await asyncio.create_subprocess_exec(
        *(prometheus, f"--config.file={config}", f"--storage.tsdb.path={tmp_path / 'data'}"),
        f"--web.listen-address=127.0.0.1:{port}",
        stdout=asyncio.subprocess.DEVNULL,
        stderr=asyncio.subprocess.DEVNULL,
    )
    try:
        async with httpx.AsyncClient(base_url=f"http://127.0.0.1:{port}/api/v1") as client:
            async with asyncio.timeout(60):
                while not await queried(client, 'up{job="parley"} == 1'):
                    await asyncio.sleep(0.3)
            assert await queried(client, "parley_lines") == [32.0]
            rules = (await client.get("/rules")).json()["data"]["groups"]
            assert {rule["health"] for group in rules for rule in group["rules"]} <= {"ok", "unknown"}
    finally:
        child.terminate()
        await child.wait()


async def queried(client: httpx.AsyncClient, expression: str) -> list[float]:
    """Return the values of an expression; none while Prometheus starts."""
    with contextlib.suppress(httpx.TransportError):
        answer = await client.get("/query", params={"query": expression})
        if answer.status_code == 200:
            return [float(each["value"][1]) for each in answer.json()["data"]["result"]]
    return []


PRICED = """
prices:
  currency: EUR
  rows:
    - {engine: openai_compatible, model: m, prompt_per_million_tokens: 2, cached_per_million_tokens: 0.5,
       completion_per_million_tokens: 10}
    - {engine: moonshine_tiny, heard_per_minute: 0}
"""


async def test_a_turn_has_its_cost_in_the_session_and_a_voice_without_a_price_is_never_free(tmp_path: Path):
    log = tmp_path / "log"
    pieces = ["Ten", " until", " two."]
    async with (
        OpenAiServer([Turn(pieces, cached_tokens=1_000)]) as llm,
        serving(llm, tmp_path, PRICED, log=log) as running,
        httpx.AsyncClient(base_url=running.url, headers=OPERATOR) as operator,
    ):
        async with call(running.url) as caller:
            caller.microphone.say(speech(QUESTION) + bytes(32_000 * 8))
            await caller.until(lambda: len(turns_of(caller)) >= 2)
        metrics = await scrape_until(running.url, "unmute_active_sessions", 0)
        view = (await operator.get("/api/admin/usage")).json()
        sessions = (await operator.get("/api/sessions")).json()["sessions"]
        begins = view["calls"][0]["session_id"]
        [session] = [each["id"] for each in sessions if each["id"].startswith(begins)]
        timeline = await operator.get(f"/api/sessions/{session}/timeline", params={"kind": "usage"})
    payloads = [event["payload"] for event in timeline.json()["events"]]
    assert [each["scope"] for each in payloads][-1] == "call"
    [asked] = [used for used in payloads[-1]["used"] if used["stage"] == "llm"]
    requests = len(llm.requests)
    assert (asked["engine"], asked["model"]) == ("openai_compatible", "m")
    assert (asked["cached_tokens"], asked["prompt_tokens"]) == (1_000 * requests, 12 * requests)
    # 12 tokens at 2, 1,000 at 0.5 and 3 at 10 euros per million.
    assert float(asked["cost"]) == pytest.approx(0.000554 * requests)
    [voice] = [used for used in payloads[-1]["used"] if used["stage"] == "tts"]
    assert (voice["cost"], voice["unpriced"]) == (None, ["spoken_ms", "characters"])
    assert (payloads[-1]["cost"], payloads[-1]["currency"]) == (None, "EUR")
    assert float(payloads[-1]["known_cost"]) == pytest.approx(0.000554 * requests)
    euros = metrics.value("parley_cost_total", engine="openai_compatible", currency="EUR")
    assert euros == pytest.approx(0.000554 * requests)
    unpriced = {"engine": "hibari", "model": "", "kind": "characters"}
    assert metrics.value("parley_unpriced_usage_total", **unpriced) >= 1
    assert log.read_text().count("hibari has no price") == 1
    [shown] = view["calls"]
    assert (shown["cost"], shown["is_over"]) == (None, True)
    assert float(shown["known_cost"]) == pytest.approx(0.000554 * requests)


@pytest.mark.paired
async def test_a_model_that_fails_is_counted_and_so_is_the_fallback_that_answers(tmp_path: Path):
    async with OpenAiServer([Turn(status=500)]) as llm:
        settings = read_yaml(ROOT / "configs" / "embedded.yaml")
        own = {"name": "openai_compatible", "settings": {"base_url": f"{llm.url}/v1", "model": "m"}}
        settings |= {
            "bot": {"greeting": "Hello there."},
            "thinking": {"llm": own, "fallback": {"name": "documents"}},
        }
        (tmp_path / "failing.yaml").write_text(yaml.safe_dump(settings))
        async with running_server("--config", str(tmp_path / "failing.yaml")) as running:
            async with call(running.url) as caller:
                # Typed: a spoken question may be answered ahead, and its turn then counts two fallbacks.
                caller.type(QUESTION)
                await caller.until(lambda: len(turns_of(caller)) >= 2)
                assert "ten until two" in turns_of(caller)[-1]["bot_text"]
            metrics = await scrape_until(running.url, "unmute_active_sessions", 0)
    assert metrics.value("parley_engine_failovers_total", stage="llm") == 1
    assert metrics.value("parley_engine_failures_total", stage="llm") >= 1
    assert metrics.value("parley_engine_failures_total", stage="stt") == 0


def with_traces(folder: Path, endpoint: str) -> str:
    settings = read_yaml(ROOT / "configs" / "embedded.yaml")
    settings |= {"bot": {"greeting": "Hello there."}, "telemetry": {"traces": {"endpoint": endpoint}}}
    path = folder / "traced.yaml"
    path.write_text(yaml.safe_dump(settings))
    return str(path)


@pytest.mark.paired
async def test_a_call_leaves_a_trace_of_each_turn_at_the_collector(tmp_path: Path):
    with collecting() as collector:
        async with running_server("--config", with_traces(tmp_path, collector.endpoint)) as running:
            began_s = time.time()
            async with call(running.url) as caller:
                caller.microphone.say(speech(QUESTION) + bytes(32_000 * 8))
                await caller.until(lambda: len(turns_of(caller)) >= 2)
                spans_ms = turns_of(caller)[-1]["spans"]
            await scrape_until(running.url, "unmute_active_sessions", 0)
        # The server has ended, and sent what waited.
        roots = [span for span in collector.spans() if span.name == "turn"]
        answered = [event for span in roots for event in span.events if event.name == "answer audible"]
        assert [attributes_of(span)["parley.turn"] for span in roots] == [0, 1]
        assert began_s < roots[1].end_time_unix_nano / 1e9 < time.time()
        [audible] = map(attributes_of, answered)
        assert audible["voice_to_voice_ms"] == pytest.approx(sum(spans_ms.values()), abs=2)
        names = {span.name for span in collector.spans() if span.parent_span_id == roots[1].span_id}
        assert names == {"speech_to_text", "chat documents", "text_to_speech"}
        assert "hours" not in str(collector.spans())


@pytest.mark.paired
async def test_a_collector_that_never_answers_delays_no_answer_and_no_end(tmp_path: Path):
    log = tmp_path / "log"
    with hanging_collector() as endpoint:
        async with running_server("--config", with_traces(tmp_path, endpoint), log=log) as running:
            async with call(running.url) as caller:
                caller.microphone.say(speech(QUESTION) + bytes(32_000 * 8))
                await caller.until(lambda: len(turns_of(caller)) >= 2)
                assert "ten until two" in turns_of(caller)[-1]["bot_text"]
                # A turn that waited for the collector would take as long as a request may.
                assert sum(turns_of(caller)[-1]["spans"].values()) < REQUEST_S * 1_000
            await scrape_until(running.url, "unmute_active_sessions", 0)
            running.process.terminate()
            # The traces have three seconds, and the engines end meanwhile or before.
            async with asyncio.timeout(20):
                while running.process.is_running() and running.process.status() != psutil.STATUS_ZOMBIE:
                    await asyncio.sleep(0.1)
    assert "the collector does not answer" in log.read_text()


async def test_a_collector_that_never_answers_costs_its_traces_and_holds_no_one():
    lines: list[str] = []

    def trace(endpoint: str) -> None:
        export = TraceExport(TraceSettings(endpoint=endpoint))
        for _ in range(3 * QUEUE_SPANS):
            export.tracer.start_span("turn").end()
        export.close()

    sink = logger.add(lambda message: lines.append(message.record["message"]), level="WARNING")
    try:
        with hanging_collector() as endpoint:
            # One request for each full queue, and one at the end, would take longer than this.
            async with asyncio.timeout(3 * REQUEST_S):
                await asyncio.to_thread(trace, endpoint)
    finally:
        logger.remove(sink)
    assert "the newest traces are lost: the collector does not answer" in lines
    assert len(lines) <= 3


async def test_a_log_for_programs_is_json_and_holds_no_words(tmp_path: Path):
    settings = read_yaml(ROOT / "configs" / "embedded.yaml")
    settings |= {"bot": {"greeting": "Hello there."}, "telemetry": {"log_format": "json"}}
    (tmp_path / "json.yaml").write_text(yaml.safe_dump(settings))
    log = tmp_path / "log"
    async with running_server("--config", str(tmp_path / "json.yaml"), "-vv", log=log) as running:
        async with call(running.url) as caller:
            caller.microphone.say(speech(QUESTION) + bytes(32_000 * 8))
            await caller.until(lambda: len(turns_of(caller)) >= 2)
        await scrape_until(running.url, "unmute_active_sessions", 0)
    # Lines before the deployment is read are not JSON.
    written = list(dropwhile(lambda line: not line.startswith("{"), log.read_text().splitlines()))
    lines = [json.loads(line) for line in written]
    assert len(lines) > 3
    assert all({"at", "level", "module", "message"} <= line.keys() for line in lines)
    assert "Saturday" not in "".join(written) and "ten until two" not in "".join(written)
