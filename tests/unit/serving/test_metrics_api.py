"""The route of the metrics."""

import asyncio

import pytest
from prometheus_client.openmetrics.exposition import CONTENT_TYPE_LATEST
from prometheus_client.parser import text_string_to_metric_families

from parley.serving.gateway.app import create_app
from parley.serving.gateway.metrics_api import FRESH_S, MOST_DEVICES, MetricsPage, devices_of
from parley.serving.gateway.settings import ServerTuning
from parley.serving.scheduler.call_queue import CallQueueSettings
from parley.telemetry import definitions
from parley.telemetry.device_memory import DeviceMemory, DeviceMemoryReader
from parley.telemetry.metrics import ServerMetrics
from parley.transports.webrtc.signaling import Signaling
from tests import virtual_time
from tests.peers.operations_gateway import BEARER, TOKEN, asking, gateway
from tests.unit.telemetry.test_device_memory import USED, Devices


async def test_the_metrics_are_the_operators_alone():
    async with asking(gateway()) as client:
        assert (await client.get("/metrics")).status_code == 403
        answer = await client.get("/metrics", headers=BEARER)
        assert answer.status_code == 200
        assert "no-store" in answer.headers["cache-control"]
        assert "unmute_active_sessions 0.0" in answer.text


async def test_a_scraper_of_open_metrics_gets_them():
    async with asking(gateway()) as client:
        headers = {**BEARER, "accept": "application/openmetrics-text; version=1.0.0,text/plain;q=0.5"}
        answer = await client.get("/metrics", headers=headers)
        assert answer.headers["content-type"].startswith(CONTENT_TYPE_LATEST.split(";")[0])
        assert answer.text.endswith("# EOF\n")


async def test_the_waits_of_callers_who_left_the_queue_are_shown():
    metrics = ServerMetrics()
    app = create_app(
        ServerTuning(queue=CallQueueSettings()),
        run_call=lambda _arguments: asyncio.sleep(0),
        describe=dict,
        open_door=lambda on_call: Signaling(on_call, max_calls=1, hang_up_s=1),
        operator_token=TOKEN,
        metrics=metrics,
    )
    queue = app.state.calls.queue
    queue.join("first", transport="webrtc", uses_recogniser=True)
    queue.join("second", transport="webrtc", uses_recogniser=True)
    queue.leave("first")
    async with asking(app, headers=BEARER) as client:
        text = (await client.get("/metrics")).text
    assert "parley_queue_length 1.0" in text
    assert "parley_queue_wait_seconds_count 1.0" in text


def test_scrapes_of_one_moment_are_one_rendering():
    async def scenario() -> None:
        app = gateway()
        metrics = ServerMetrics()
        page = MetricsPage(metrics, app.state.calls, None, None)
        metrics.counter(definitions.SESSIONS).inc()
        first, _ = await page.text("")
        metrics.counter(definitions.SESSIONS).inc()
        assert all(text == first for text, _ in await asyncio.gather(*(page.text("") for _ in range(20))))
        await asyncio.sleep(FRESH_S)
        renewed, _ = await page.text("")
        assert b"unmute_sessions_total 2.0" in renewed

    virtual_time.run(scenario())


async def test_the_memory_of_devices_is_shown_where_one_is_in_use():
    calls = gateway().state.calls
    reader = DeviceMemoryReader(Devices)
    page, without = (
        MetricsPage(ServerMetrics(), calls, None, None, devices=devices) for devices in (reader, None)
    )
    try:
        text = (await page.text(""))[0].decode()
        found = {
            (sample.name, sample.labels["worker"], sample.labels["device"]): sample.value
            for family in text_string_to_metric_families(text)
            for sample in family.samples
            if sample.name.startswith("parley_device_memory")
        }
        assert found == {
            (f"parley_device_memory_{kind}_bytes", "", each.device): value
            for each in USED
            for kind, value in (("used", each.used_bytes), ("total", each.total_bytes))
        }
        assert "parley_device_memory" not in (await without.text(""))[0].decode()
    finally:
        page.close()
        without.close()


def test_a_report_of_a_worker_is_read_as_far_as_it_is_one():
    device = {"device": "cuda:0", "used_bytes": 5, "total_bytes": 8}
    assert devices_of({"devices": [device]}) == (DeviceMemory("cuda:0", 5, 8),)
    assert len(devices_of({"devices": [device] * 100})) == MOST_DEVICES
    wrong = ({"used_bytes": -1}, {"used_bytes": "5"}, {"device": "the words of a caller"}, {"device": 0})
    for each in ({}, {"devices": "cuda:0"}, *({"devices": [{**device, **faulty}]} for faulty in wrong)):
        assert devices_of(each) == ()


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE"])
async def test_nothing_can_be_written_there(method: str):
    async with asking(gateway(), headers=BEARER) as client:
        assert (await client.request(method, "/metrics")).status_code == 405
