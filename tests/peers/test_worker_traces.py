"""Traces of calls whose engines are in worker processes, as a collector receives them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from tests.fakes.collector import Collector, attributes_of, collecting
from tests.peers.server import running_server
from tests.peers.test_desk_voice import begin
from tests.peers.webrtc_caller import Caller
from tests.voices import say, silence

pytestmark = pytest.mark.paired

QUESTION = silence(400) + say("how much is a replacement card") + silence(8_000)


@pytest.fixture
def collector() -> Iterator[Collector]:
    with collecting() as running:
        yield running


def deployment(folder: Path, **traces: Any) -> Path:
    """Return a deployment whose recogniser and voice are in two worker processes."""
    path = folder / "workers.yaml"
    pool = {"name": "pool", "settings": {"request_timeout_s": 10, "open_timeout_s": 10}}
    settings = {
        "bot": {"greeting": "Hello there."},
        "hearing": {"stt": pool},
        "speaking": {"tts": pool},
        "workers": {
            "workers": [
                {"name": "ears", "engine": "pocketsphinx", "settings": {"cache_dir": "out/test-cache"}},
                {"name": "mouth", "engine": "flite"},
            ]
        },
        "telemetry": {"traces": traces} if traces else {},
    }
    path.write_text(yaml.safe_dump(settings))
    return path


async def converse(path: Path) -> None:
    """Hold a call of one question and its answer, and stop the server."""
    async with (
        running_server("--config", str(path)) as server,
        httpx.AsyncClient(base_url=server.url, timeout=60) as client,
    ):
        caller = Caller()
        try:
            answer = await begin(client, caller)
            assert answer.status_code == 200, answer.text
            await caller.until(lambda: caller.of_type("bot-stopped-speaking"))
            caller.microphone.say(QUESTION)
            await caller.until(lambda: len(caller.of_type("bot-stopped-speaking")) >= 2)
        finally:
            await caller.hang_up()


async def test_a_span_of_a_worker_is_below_the_span_of_its_engine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collector: Collector
):
    monkeypatch.setenv("PARLEY_STORE_URL", f"sqlite:///{tmp_path}/sessions.db")
    await converse(deployment(tmp_path, endpoint=collector.endpoint))
    spans = collector.spans()
    of_id = {span.span_id: span for span in spans}
    remote = [span for span in spans if "parley.worker" in attributes_of(span)]
    heard = [span for span in remote if span.name == "speech_to_text"]
    spoken = [span for span in remote if span.name == "text_to_speech"]
    assert heard and len(spoken) >= 2
    for span in remote:
        parent = of_id[span.parent_span_id]
        assert span.trace_id == parent.trace_id
        assert parent.name in (span.name, "turn")
    # The question, and not only the greeting, whose clauses are spoken at the beginning of the call.
    assert {attributes_of(span)["parley.worker"] for span in remote} == {"ears", "mouth"}
    assert [event.name for event in spoken[0].events] == ["first piece"]
    # A span for each utterance or clause, none for a piece of audio.
    assert len(remote) < 30


async def test_a_turn_that_is_not_sampled_has_no_span_in_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, collector: Collector
):
    monkeypatch.setenv("PARLEY_STORE_URL", f"sqlite:///{tmp_path}/sessions.db")
    await converse(deployment(tmp_path, endpoint=collector.endpoint, share=0.0))
    assert collector.spans() == []
