"""Frames of a camera reach their listener, and the next stage where it takes pictures."""

import pytest
from pipecat.frames.frames import Frame, InputImageRawFrame, TextFrame
from pipecat.tests.utils import run_test

from parley.processors.perception.camera_tap import CameraTap


@pytest.mark.parametrize("passes_on", [True, False])
async def test_frames_reach_the_listener_and_go_on_where_they_are_taken(passes_on: bool):
    seen: list[InputImageRawFrame] = []
    picture = InputImageRawFrame(image=bytes(3), size=(1, 1), format="RGB")
    expected: list[type[Frame]] = [*([InputImageRawFrame] if passes_on else []), TextFrame]
    await run_test(
        CameraTap(seen.append, passes_on=passes_on),
        frames_to_send=[picture, TextFrame("hello")],
        expected_down_frames=expected,
    )
    assert [each.image for each in seen] == [bytes(3)]
