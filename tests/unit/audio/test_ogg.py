"""Ogg pages: written pages are read from pieces of any size, and a broken page loses only itself."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from parley.audio.ogg import LONGEST_PACKET, OggReader, OggWriter, checksum
from parley.core.errors import ShapeError

PACKETS = st.lists(st.binary(min_size=1, max_size=1_000), min_size=1, max_size=12)


def pages(packets: list[bytes], serial: int = 7) -> list[bytes]:
    writer = OggWriter(serial)
    return [writer.page(packet, 960 * number) for number, packet in enumerate(packets)]


def read(data: bytes, step: int) -> tuple[list[bytes], OggReader]:
    reader = OggReader()
    return [
        packet for start in range(0, len(data), step) for packet in reader.feed(data[start : start + step])
    ], reader


@given(PACKETS, st.integers(1, 700))
def test_packets_come_back_whatever_the_pieces(packets: list[bytes], step: int):
    found, reader = read(b"".join(pages(packets)), step)
    assert found == packets and reader.lost_bytes == 0


@given(PACKETS, st.data())
def test_a_page_that_is_broken_loses_its_packet_alone(packets: list[bytes], data: st.DataObject):
    written = pages(packets)
    wrong = data.draw(st.integers(0, len(written) - 1))
    # The error is in its packet: the header is found, and the checksum differs.
    at = len(written[wrong]) - 1 - data.draw(st.integers(0, len(packets[wrong]) - 1))
    page = bytearray(written[wrong])
    page[at] ^= 0x55
    written[wrong] = bytes(page)
    found, reader = read(b"".join(written), 64)
    kept = [packet for number, packet in enumerate(packets) if number != wrong]
    # A broken page may hold the pattern of another page by chance; no packet is invented.
    assert [packet for packet in found if packet in kept] == kept and reader.lost_bytes > 0


@given(st.binary(max_size=3_000), st.integers(1, 400))
def test_what_is_no_page_is_passed_over(noise: bytes, step: int):
    found, _ = read(noise.replace(b"OggS", b"oggs") + b"".join(pages([b"one", b"two"])), step)
    assert found == [b"one", b"two"]


def test_a_packet_over_several_pages_is_one():
    long = bytes(range(256)) * 3
    head = pages([b"head"])[0]
    # 255 + 255 in the first page, the rest in a second that continues it.
    first = bytearray(OggWriter(7).page(long[:510], 0))
    first[26] = 2
    first[5], first[18] = 0, 1
    del first[29]
    second = bytearray(OggWriter(7).page(long[510:], 0))
    second[5], second[18] = 1, 2
    for page in (first, second):
        page[22:26] = bytes(4)
        page[22:26] = checksum(bytes(page)).to_bytes(4, "little")
    found, _ = read(head + bytes(first) + bytes(second), 100)
    assert found == [b"head", long]


def test_a_packet_that_is_too_long_is_refused():
    try:
        OggWriter(1).page(bytes(LONGEST_PACKET), 0)
    except ValueError:
        return
    raise AssertionError("it was taken")


def test_the_checksum_is_that_of_the_standard():
    # A page written by libogg: an empty last page of stream 0, number 0.
    page = bytes.fromhex("4f67675300040000000000000000000000000000000000000000") + b"\x00"
    register = 0
    for byte in page:
        register ^= byte << 24
        for _ in range(8):
            register = (register << 1) ^ (0x04C11DB7 if register & 0x80000000 else 0)
            register &= 0xFFFFFFFF
    assert checksum(page) == register


def test_rubbish_in_the_shape_of_pages_costs_a_few_checksums_and_no_more():
    reader = OggReader()
    # Every pattern claims a page of 255 full segments.
    rubbish = (b"OggS" + bytes(22) + b"\xff") * 3_000
    with pytest.raises(ShapeError, match="damaged"):
        list(reader.feed(rubbish + b"\xff" * 66_000))
    # Pages after it are read.
    assert list(reader.feed(b"".join(pages([b"one"])))) == [b"one"]
