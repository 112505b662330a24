"""Bounds of the text of an SDP offer, checked before it is parsed.

Decides how much work an offer may cause. For each media section aiortc builds a transceiver, with a decoder,
a jitter buffer (512 packets for video), and sockets where sections are not bundled. An offer of 40 sections
took 170 ms of the event loop and 6 MB, one of 8 took 50 ms. A browser offers audio, camera, screen and data.
Pure; one pass over at most ``MAX_SDP_CHARS`` characters.
"""

from collections import Counter
from collections.abc import Mapping
from types import MappingProxyType

from parley.core.errors import PeerError

# Several times the offer of a browser with audio, camera, screen and data.
MAX_SDP_CHARS = 64_000
MAX_SECTIONS = 8
MAX_LINE_CHARS = 2_000
MAX_SECTION_LINES = 500
# Most lines in one section, or in the part before the sections. An offer may choose from 96 payload types.
MAX_ATTRIBUTES: Mapping[str, int] = MappingProxyType(
    {
        "candidate": 50,
        "rtpmap": 100,
        "fmtp": 100,
        "rtcp-fb": 400,
        "extmap": 40,
        "fingerprint": 8,
        "ssrc": 64,
        "ssrc-group": 16,
        "group": 8,
        "rid": 16,
        "simulcast": 1,
    }
)


def check_bounds(sdp: str) -> None:
    """Refuse an offer that is larger than a browser's.

    Raises:
        PeerError: the message names the bound that the offer exceeds.
    """
    if len(sdp) > MAX_SDP_CHARS:
        raise PeerError(f"the offer is over {MAX_SDP_CHARS} characters")
    sections = lines = 0
    attributes = Counter[str]()
    # Splits lines at the same characters as aiortc.
    for line in sdp.splitlines():
        if len(line) > MAX_LINE_CHARS:
            raise PeerError(f"the offer has a line of over {MAX_LINE_CHARS} characters")
        if line.startswith("m="):
            sections, lines = sections + 1, 0
            attributes.clear()
        lines += 1
        if sections > MAX_SECTIONS:
            raise PeerError(f"the offer has over {MAX_SECTIONS} media sections")
        if lines > MAX_SECTION_LINES:
            raise PeerError(f"the offer has a section of over {MAX_SECTION_LINES} lines")
        if line.startswith("a="):
            name = line[2:].partition(":")[0]
            attributes[name] += 1
            limit = MAX_ATTRIBUTES.get(name, MAX_SECTION_LINES)
            if attributes[name] > limit:
                raise PeerError(f"the offer has over {limit} lines a={name} in a section")
