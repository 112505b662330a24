"""Pictures reach those that look at them, and the next stage where it takes pictures."""

import pytest
from pipecat.frames.frames import Frame, InputImageRawFrame, TextFrame
from pipecat.tests.utils import run_test

from parley.core.pictures import CAMERA, SCREEN
from parley.processors.perception.camera_tap import CameraTap


def picture(source: str) -> InputImageRawFrame:
    made = InputImageRawFrame(image=source.encode(), size=(1, 1), format="RGB")
    made.transport_source = source
    return made


@pytest.mark.parametrize("passes_on", [True, False])
async def test_a_screen_reaches_all_but_the_specialist_of_the_camera(passes_on: bool):
    noted: list[InputImageRawFrame] = []
    judged: list[InputImageRawFrame] = []
    expected: list[type[Frame]] = [*([InputImageRawFrame] * 2 if passes_on else []), TextFrame]
    await run_test(
        CameraTap(noted.append, judged.append, passes_on=passes_on),
        frames_to_send=[picture(CAMERA), picture(SCREEN), TextFrame("hello")],
        expected_down_frames=expected,
    )
    assert [each.image for each in noted] == [b"camera", b"screen"]
    assert [each.image for each in judged] == [b"camera"]
