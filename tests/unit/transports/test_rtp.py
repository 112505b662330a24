"""Datagrams of a caller's line: audio is read where it arrives, and the rest goes aiortc's way."""

import pytest

from parley.transports.pipecat_internals import MOST_SOURCES, check_datagram_lengths
from parley.transports.webrtc.rtp import RtpAudio, RtpReader, parse
from tests.fakes.caller_line import CODECS, OPUS, OTHER_KEY, PCMU, SILENCE, CallerLine, rtp

# A record of DTLS, a report of RTCP, and pictures.
OTHERS = (b"\x17\xfe\xfd" + bytes(20), b"\x80\xc8" + bytes(30), rtp(1, b"picture", payload_type=96))


def reading(line: CallerLine) -> tuple[RtpReader, list[RtpAudio]]:
    heard: list[RtpAudio] = []
    return RtpReader(line.receiver, lambda packet, codec: heard.append(packet)), heard


async def test_audio_arrives_without_its_protection_and_in_the_order_of_arrival():
    line = CallerLine()
    _reader, heard = reading(line)
    for number in (5, 7, 6):
        line.send(rtp(number))
    line.send(rtp(8, b"\xff" * 160, payload_type=PCMU))
    assert [(packet.sequence_number, packet.payload_type) for packet in heard] == [
        (5, OPUS),
        (7, OPUS),
        (6, OPUS),
        (8, PCMU),
    ]
    assert heard[0] == RtpAudio(5, 5 * 960, 1, OPUS, SILENCE)
    assert line.passed_on == [] and line.counted == {1: 4}


async def test_what_is_no_audio_goes_on():
    line = CallerLine()
    _reader, heard = reading(line)
    for datagram in OTHERS:
        line.arrive(datagram)
    assert line.passed_on == list(OTHERS) and heard == []


async def test_a_stranger_s_packet_is_dropped_and_leaves_nothing():
    line = CallerLine()
    _reader, heard = reading(line)
    line.send(rtp(1, ssrc=99), key=OTHER_KEY)
    line.arrive(rtp(2, ssrc=98))
    line.arrive(rtp(3)[:13])
    assert (heard, line.counted, line.router.ssrc_table, line.passed_on) == ([], {}, {}, [])


async def test_a_packet_that_is_sent_again_is_dropped():
    line = CallerLine()
    _reader, heard = reading(line)
    sent: list[bytes] = []
    line.arrive, arrive = sent.append, line.arrive  # type: ignore[method-assign]
    line.send(rtp(1))
    for _ in range(2):
        arrive(sent[0])
    assert len(heard) == 1


async def test_of_many_sources_the_latest_are_counted_and_all_are_heard():
    line = CallerLine()
    _reader, heard = reading(line)
    sources = list(range(1, MOST_SOURCES + 4))
    for ssrc in sources:
        line.send(rtp(1, ssrc=ssrc))
    assert [packet.ssrc for packet in heard] == sources
    assert list(line.counted) == list(line.router.ssrc_table) == sources[3:]


async def test_a_reader_that_ends_leaves_a_later_one_alone():
    line = CallerLine()
    (first, early), (_second, late) = reading(line), reading(line)
    first.detach()
    line.send(rtp(1))
    assert (len(early), len(late)) == (0, 1)


async def test_reports_go_on_whatever_number_a_codec_has():
    line = CallerLine()
    vars(line.receiver)["_RTCRtpReceiver__codecs"][72] = CODECS[OPUS]
    _reader, heard = reading(line)
    line.arrive(OTHERS[1])
    assert heard == [] and line.passed_on == [OTHERS[1]]


async def test_packets_of_another_receiver_go_on():
    line, other = CallerLine(), CallerLine()
    line.router.register_receiver(other.receiver, ssrcs=[7], payload_types=[OPUS])
    _reader, heard = reading(line)
    line.router.ssrc_table[8] = line.receiver
    for ssrc in (7, 8, 9):
        line.send(rtp(1, ssrc=ssrc))
    # Of a source that neither has announced, the payload type does not show whose it is.
    assert [packet.ssrc for packet in heard] == [8] and len(line.passed_on) == 2


async def test_nothing_is_read_before_there_are_keys_and_after_the_end():
    line = CallerLine()
    reader, heard = reading(line)
    keys, line.receiver.transport._rx_srtp = line.receiver.transport._rx_srtp, None
    line.send(rtp(1))
    line.receiver.transport._rx_srtp = keys
    line.send(rtp(2))
    reader.detach()
    reader.detach()
    line.send(rtp(3))
    assert [packet.sequence_number for packet in heard] == [2]


@pytest.mark.parametrize("is_tapped", [True, False])
async def test_datagrams_of_a_length_that_aiortc_does_not_expect_are_dropped(is_tapped: bool):
    check_datagram_lengths()
    line = CallerLine()
    if is_tapped:
        reading(line)
    line.arrive(b"")
    line.arrive(b"\x80\x6f" + bytes(1_499))
    line.arrive(b"\x17" + bytes(1_499))
    assert [len(datagram) for datagram in line.passed_on] == [1_500]


@pytest.mark.parametrize(
    ("packet", "payload"),
    [
        (rtp(1, b"voice"), b"voice"),
        (rtp(1, bytes(8) + b"voice", first=0x82), b"voice"),
        (rtp(1, b"\xbe\xde\0\1" + bytes(4) + b"voice", first=0x90), b"voice"),
        (rtp(1, b"voice\0\0\3", first=0xA0), b"voice"),
        (rtp(1, b"\0\0\3", first=0xA0), b""),
    ],
    ids=["plain", "contributing sources", "extension", "padding", "padding alone"],
)
def test_the_parts_of_a_header_are_left_out(packet: bytes, payload: bytes):
    parsed = parse(packet)
    assert parsed is not None and parsed.payload == payload


@pytest.mark.parametrize(
    "packet",
    [
        rtp(1)[:11],
        rtp(1, first=0x40),
        rtp(1, b"", first=0x8F),
        rtp(1, b"\0\0", first=0x90),
        rtp(1, b"\xbe\xde\xff\xff", first=0x90),
        rtp(1, b"voice\x09", first=0xA0),
        rtp(1, b"voice\0", first=0xA0),
    ],
    ids=["short", "version", "sources", "extension", "long extension", "long padding", "no padding"],
)
def test_a_header_that_ends_early_is_no_packet(packet: bytes):
    assert parse(packet) is None
