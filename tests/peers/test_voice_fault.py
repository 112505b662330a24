"""A specialist of the voice that fails during a WebRTC call: the call loses its findings and nothing else."""

from pathlib import Path

import httpx
import pytest

from tests.peers.llm_script import Turn
from tests.peers.openai_server import OpenAiServer
from tests.peers.server import running_server
from tests.peers.test_annotations import last_question
from tests.peers.test_command import speech
from tests.peers.webrtc_caller import greeted

QUESTION = "What do I have to pay for this one?"


@pytest.mark.paired
async def test_a_voice_specialist_that_fails_costs_the_call_nothing_but_its_findings(tmp_path: Path):
    async with OpenAiServer([Turn(["It is twelve euros."])]) as llm:
        config, log = tmp_path / "own.yaml", tmp_path / "log.txt"
        settings = f'{{base_url: "{llm.url}/v1", model: m}}'
        strange = "{name: 'tests.fakes.specialists:StrangeSpecialist', settings: {fault: fail}}"
        config.write_text(
            f"thinking: {{llm: {{name: openai_compatible, settings: {settings}}}}}\n"
            f"hearing: {{specialists: [{{name: prosody}}, {strange}]}}\n"
        )
        async with (
            running_server("--config", str(config), log=log) as server,
            httpx.AsyncClient(base_url=server.url, timeout=60) as client,
            greeted(client) as caller,
        ):
            (session,) = [
                each["data"]["id"]
                for each in caller.of_type("server-message")
                if each["data"]["kind"] == "session"
            ]
            for turn in range(2):
                answered = len(caller.of_type("bot-stopped-speaking"))
                caller.microphone.say(speech(QUESTION))
                await caller.until(lambda n=answered: len(caller.of_type("bot-stopped-speaking")) > n)
                said = last_question(llm.requests[-1]["messages"])
                assert "this one" in said.lower() and "speaker" not in said, turn
            path = f"/api/sessions/{session}/timeline?kind=annotation&limit=1000"
            sources = {event["source"] for event in (await client.get(path)).json()["events"]}
            # The other specialist of the voice goes on.
            assert "prosody" in sources and "diar" not in sources
