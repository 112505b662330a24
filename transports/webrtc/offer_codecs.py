"""Codec of the bot's audio, chosen in the peer's offer.

aiortc sends the codec whose ``rtpmap`` comes first in the offer, and the bot's packets are Opus
(``audio_track``). A peer that offers G.711 before Opus, as telephones and some gateways do, would be sent
Opus under the number of another codec, which is noise. Pure.
"""

import re

from aiortc import RTCRtpCodecParameters

# RFC 7587, 7: the clock and the channels are the same for every stream; a mime subtype has no case.
_OPUS = re.compile(r"a=rtpmap:\d+ opus/48000/2\s*$", re.IGNORECASE)
_SECTION = re.compile(r"^(?=m=)", re.MULTILINE)


def is_opus(codec: RTCRtpCodecParameters) -> bool:
    """Return whether a codec of an offer is Opus."""
    return codec.name.lower() == "opus" and codec.clockRate == 48_000 and codec.channels == 2


def opus_first(sdp: str) -> str:
    """Return the offer with Opus before the other codecs of each audio section."""
    sections = _SECTION.split(sdp)
    return "".join(_reordered(each) if each.startswith("m=audio") else each for each in sections)


def _reordered(section: str) -> str:
    lines = section.splitlines(keepends=True)
    maps = [place for place, line in enumerate(lines) if line.startswith("a=rtpmap:")]
    # Stable: codecs of the same kind stay in the peer's order.
    ordered = sorted((lines[place] for place in maps), key=lambda line: not _OPUS.match(line))
    for place, line in zip(maps, ordered, strict=True):
        lines[place] = line
    return "".join(lines)
