"""A thing that is held to the camera of a WebRTC call for a moment: the model sees it with its word."""

import asyncio
from pathlib import Path

import httpx
import numpy as np
import pytest

from tests.peers.test_command import speech
from tests.peers.test_pictures import seeing, shape
from tests.peers.webrtc_caller import Camera, greeted

QUESTION = "What is this thing that I bought in the market on Monday?"
RED, BLUE = (np.full((120, 160, 3), colour, np.uint8) for colour in ((200, 9, 9), (9, 9, 200)))


@pytest.mark.paired
async def test_the_model_sees_what_was_shown_with_the_word_and_lowered_before_the_turn_was_over(
    tmp_path: Path,
):
    async with (
        seeing("openai_compatible", tmp_path) as served,
        httpx.AsyncClient(base_url=served.parley.url, timeout=60) as client,
    ):
        camera = Camera(BLUE)
        async with greeted(client, camera=camera) as caller:
            answered = len(caller.of_type("bot-stopped-speaking"))
            pcm = speech(QUESTION)
            caller.microphone.say(pcm)
            camera.picture = RED
            # The thing is lowered in the second half of the sentence, after "this thing".
            await asyncio.sleep(0.6 * len(pcm) / 32_000)
            camera.picture = BLUE
            await caller.until(lambda: len(caller.of_type("bot-stopped-speaking")) > answered)
        shown, *_ = shape(served.model)[-1]
        assert shown == "<red>"
