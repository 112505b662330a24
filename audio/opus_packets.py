"""Length of Opus packets, which their first two bytes give (RFC 6716, 3.1 and 3.2)."""

from parley.core.errors import ShapeError

# Opus counts in these at any rate.
GRANULE_HZ = 48_000
# One packet is 120 ms at most.
LONGEST_PACKET_SAMPLES = 5_760
# Samples at 48 kHz of one frame, by the configuration of a packet: SILK, hybrid, CELT.
_FRAME_SAMPLES = (480, 960, 1_920, 2_880) * 3 + (480, 960) * 2 + (120, 240, 480, 960) * 4


def packet_samples(packet: bytes) -> int:
    """Return the length of a packet in samples at 48 kHz; 0 for the two header packets of a stream.

    Raises:
        ShapeError: it is not an Opus packet, or is longer than a packet may be.
    """
    if not packet or packet.startswith((b"OpusHead", b"OpusTags")):
        return 0
    frames = (1, 2, 2)[packet[0] & 3] if packet[0] & 3 < 3 else packet[1] & 0x3F if len(packet) > 1 else 0
    samples = frames * _FRAME_SAMPLES[packet[0] >> 3]
    if not 0 < samples <= LONGEST_PACKET_SAMPLES:
        raise ShapeError("the packet is not Opus")
    return samples
