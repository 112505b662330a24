"""Bounds of the text of an offer."""

import pytest

from parley.core.errors import PeerError
from parley.transports.webrtc.offer_bounds import (
    MAX_ATTRIBUTES,
    MAX_SECTION_LINES,
    MAX_SECTIONS,
    check_bounds,
)
from tests.peers.webrtc_caller import Caller

HEAD = "v=0\r\no=- 1 1 IN IP4 0.0.0.0\r\ns=-\r\nt=0 0\r\n"
AUDIO = "m=audio 9 UDP/TLS/RTP/SAVPF 111\r\na=rtpmap:111 opus/48000/2\r\n"


async def test_the_offer_of_a_page_with_camera_screen_and_data_is_within_the_bounds():
    caller = Caller()
    caller.connection.addTransceiver("video")
    caller.connection.addTransceiver("video")
    check_bounds((await caller.offer())["sdp"])
    await caller.hang_up()


@pytest.mark.parametrize("end", ["\r\n", "\n", "\r", "\u2028"])
def test_sections_are_counted_however_lines_end(end: str):
    section = AUDIO.replace("\r\n", end)
    check_bounds(HEAD + section * MAX_SECTIONS)
    with pytest.raises(PeerError, match=f"over {MAX_SECTIONS} media sections"):
        check_bounds(HEAD + section * 190)


@pytest.mark.parametrize("name", sorted(MAX_ATTRIBUTES))
def test_lines_of_one_kind_are_bounded_in_each_section(name: str):
    most = f"a={name}:1 x\r\n" * MAX_ATTRIBUTES[name]
    check_bounds(HEAD + most + AUDIO.replace("a=rtpmap:111 opus/48000/2\r\n", "") + most)
    with pytest.raises(PeerError, match=f"over {MAX_ATTRIBUTES[name]} lines a={name} in a section"):
        check_bounds(HEAD + AUDIO + most + f"a={name}:1 x\r\n" * 2)


@pytest.mark.parametrize(
    ("sdp", "says"),
    [
        (HEAD + AUDIO + "a=x\r\n" * (MAX_SECTION_LINES + 1), "a section of over"),
        (HEAD + "b=x\r\n" * (MAX_SECTION_LINES + 1), "a section of over"),
        (HEAD + AUDIO + "a=fmtp:111 " + "x" * 2_000, "a line of over"),
        ("v" * 64_001, "over 64000 characters"),
    ],
)
def test_text_that_no_browser_sends_is_refused(sdp: str, says: str):
    with pytest.raises(PeerError, match=says):
        check_bounds(sdp)
