"""Outbound calls over the telephone line: a message is left on a machine, and a human is greeted."""

from collections.abc import AsyncIterator

import pytest
import pytest_asyncio

from parley.evals.harness.phone_network import front_of
from parley.evals.harness.phone_speech import packets, quiet
from tests.peers.phone_caller import heard, likeness, place
from tests.peers.server import RunningServer
from tests.peers.test_phone import GREETING, NOT_SAID, SAID, line_of_a_module, timelines
from tests.voices import say, tone

pytestmark = pytest.mark.asyncio(loop_scope="module")

MESSAGE = "This is Parley. Please call us back."
VOICEMAIL = f", voicemail: {{message: '{MESSAGE}'}}"
MACHINE = "You have reached the voice mail of Dana. Please leave a message after the beep."


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def server(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[RunningServer]:
    async with line_of_a_module(tmp_path_factory, phone=VOICEMAIL) as running:
        yield running


async def test_a_machine_is_left_the_message_after_its_beep(server: RunningServer):
    async with front_of(server.url) as front:
        front.direction = "outbound-api"
        greeting = [*quiet(0.5), *packets(say(MACHINE, "awb")), *quiet(1), *packets(tone(400, 1_000.0, 0.2))]
        report = await place(front.url, [*greeting, *quiet(12)], max_drain_s=0.5)
        assert report.violations == [] and front.violations == []
        assert likeness(heard(report), MESSAGE) > SAID
        assert likeness(heard(report), GREETING) < NOT_SAID
        timeline, *_ = await timelines(server.url)
        assert [each["payload"].get("answered_by") for each in timeline if each["kind"] == "left"] == [
            "voicemail"
        ]
        [message] = [each["payload"] for each in timeline if each["kind"] == "bot_turn"]
        assert (message["text"], message["truncated"]) == (MESSAGE, False)


async def test_a_person_who_answers_is_greeted(server: RunningServer):
    async with front_of(server.url) as front:
        front.direction = "outbound-api"
        frames = [*quiet(1), *packets(say("Hello?", "awb")), *quiet(7)]
        report = await place(front.url, frames, max_drain_s=0.5)
        assert report.violations == [] and front.violations == []
        assert likeness(heard(report), GREETING) > SAID
        assert likeness(heard(report), MESSAGE) < NOT_SAID
        timeline, *_ = await timelines(server.url)
        assert [each["payload"]["text"] for each in timeline if each["kind"] == "bot_turn"] == [GREETING]
        assert timeline[-1]["payload"].get("answered_by") == "person"
