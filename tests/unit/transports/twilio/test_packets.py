"""Times at which packets leave, and the measurements by the marks between them."""

from hypothesis import given
from hypothesis import strategies as st

from parley.transports.twilio.marks import MOST_OUT, Back, Marks
from parley.transports.twilio.packets import Mark, Packet, PacketLine

PACKET_US = 20_000


Left = list[tuple[int, Packet | Mark]]


def left(line: PacketLine, until_us: int, *, from_us: int = 0) -> Left:
    """Return all packets that leave, with their time, polled each millisecond."""
    found: Left = []
    for now_us in range(from_us, until_us, 1_000):
        while (what := line.take(now_us)) is not None:
            found.append((now_us, what))
    return found


@given(st.lists(st.integers(1, 1_000), min_size=1, max_size=20), st.sampled_from((0, 20, 60)))
def test_every_byte_leaves_once_in_order_one_packet_each_20_ms(pieces: list[int], lead_ms: int) -> None:
    line = PacketLine(lead_ms=lead_ms)
    sent = bytes(number % 251 for number in range(sum(pieces)))
    place = 0
    for piece in pieces:
        line.push(sent[place : place + piece])
        place += piece
    line.end()
    found = left(line, 20_000 * (len(sent) // 160 + 4))
    packets = [what for _, what in found if isinstance(what, Packet)]
    heard = b"".join(packet.mu_law for packet in packets)
    assert heard[: len(sent)] == sent and set(heard[len(sent) :]) <= {0xFF}
    assert all(len(packet.mu_law) == 160 for packet in packets)
    assert [packet.plays_us for packet in packets] == [PACKET_US * number for number in range(len(packets))]
    # No packet is sent sooner than the lead, or later than it is played.
    assert all(what.plays_us - lead_ms * 1000 <= at_us <= what.plays_us for at_us, what in found)


def test_a_loop_that_is_late_by_less_than_the_lead_makes_no_hole() -> None:
    line = PacketLine(lead_ms=60)
    line.push(b"\x11" * 160 * 50)
    packets = [*left(line, 200_000), *left(line, 400_000, from_us=255_000)]
    assert [what.plays_us for _, what in packets] == [PACKET_US * number for number in range(len(packets))]
    # Packets that became due meanwhile leave at once, and no more than those.
    assert sum(at_us == 255_000 for at_us, _ in packets) == 3


def test_a_loop_that_is_later_goes_on_from_there() -> None:
    line = PacketLine(lead_ms=60)
    line.push(b"\x11" * 160 * 50)
    early, late = left(line, 200_000), left(line, 400_000, from_us=290_000)
    assert early[-1][1].plays_us == 240_000
    # The caller heard nothing for 30 ms, and the lead is filled again.
    assert [what.plays_us for at_us, what in late if at_us == 290_000] == [290_000, 310_000, 330_000, 350_000]


def test_a_mark_leaves_after_what_is_before_it_and_says_when_that_is_played() -> None:
    line = PacketLine(lead_ms=60)
    line.push(b"\x11" * 320)
    line.mark("m1")
    line.push(b"\x22" * 160)
    line.mark("m2")
    kinds = [what.name if isinstance(what, Mark) else what.mu_law[0] for _, what in left(line, 200_000)]
    assert kinds == [0x11, 0x11, "m1", 0x22, "m2"]


def test_what_is_cleared_never_leaves_and_what_comes_then_begins_at_once() -> None:
    line = PacketLine(lead_ms=60)
    line.push(b"\x11" * 1_600)
    line.mark("m1")
    assert len(left(line, 40_000)) == 5
    assert line.clear() == ["m1"] and line.held_us == 0 and line.next_due_us() is None
    line.push(b"\x22" * 160)
    [(at_us, packet)] = left(line, 100_000, from_us=50_000)
    assert at_us == 50_000 and packet.plays_us == 50_000


def test_comfort_noise_fills_the_line_and_speech_waits_for_no_more_than_a_packet_of_it() -> None:
    line = PacketLine(lead_ms=60, comfort=lambda: b"\x7e" * 160)
    quiet = left(line, 205_000)
    assert len(quiet) == 11 and not any(what.is_speech for _, what in quiet if isinstance(what, Packet))
    line.push(b"\x11" * 320)
    speech = [
        (at, what)
        for at, what in left(line, 260_000, from_us=205_000)
        if isinstance(what, Packet) and what.is_speech
    ]
    assert speech[0][0] == 205_000 and speech[0][1].plays_us <= 220_000


def test_marks_say_how_late_the_caller_hears() -> None:
    marks = Marks()
    for number, late_ms in enumerate((120, 140, 900, 130, 110)):
        name = marks.name()
        marks.sent(name, number * 1_000_000)
        assert marks.back(name, number * 1_000_000 + late_ms * 1000) is Back.PLAYED
    assert marks.delay_ms == 130 and marks.played == 5


def test_a_mark_after_a_clear_was_dropped_and_one_that_no_one_sent_belongs_to_nothing() -> None:
    marks = Marks()
    marks.sent("m1", 0)
    marks.sent("m2", 1_000_000)
    assert marks.back("m1", 100_000) is Back.PLAYED
    marks.cleared()
    assert marks.back("m2", 150_000) is Back.DROPPED
    assert marks.back("m2", 150_000) is Back.UNKNOWN and marks.back("x", 0) is Back.UNKNOWN
    # It is no measurement of the path.
    assert marks.delay_ms == 100


def test_marks_that_never_come_back_are_not_kept() -> None:
    marks = Marks()
    for number in range(3 * MOST_OUT):
        marks.sent(marks.name(), number)
    assert marks.out == MOST_OUT and marks.lost == 2 * MOST_OUT


def test_what_is_not_played_at_a_clear_is_the_delay_without_the_way_there_and_back() -> None:
    marks = Marks()
    assert marks.unplayed_ms == 0
    marks.sent("m1", 1_000_000)
    marks.back("m1", 1_400_000)
    # The path is not known: it may be all of that.
    assert marks.delay_ms == 400 and marks.unplayed_ms == 0
    marks.sent("p1", 2_000_000, is_alone=True)
    marks.back("p1", 2_300_000)
    assert (marks.delay_ms, marks.round_trip_ms, marks.unplayed_ms) == (400, 300, 100)
    # A mark that waited longer than audio ever took is no measurement.
    for name in ("p2", "p3"):
        marks.sent(name, 3_000_000, is_alone=True)
        marks.back(name, 9_000_000)
    assert marks.round_trip_ms == 400 and marks.unplayed_ms == 0


def test_a_mark_is_overdue_where_marks_come_back_and_lost_when_a_later_one_is_back() -> None:
    marks = Marks()
    marks.sent("m1", 0)
    assert not marks.overdue(60_000_000)
    marks.back("m1", 100_000)
    for name in ("m2", "m3"):
        marks.sent(name, 1_000_000)
    assert not marks.overdue(1_600_000) and marks.overdue(1_601_000)
    marks.back("m3", 1_700_000)
    assert marks.out == 0 and marks.lost == 1 and not marks.overdue(1_700_000)
    marks.sent("m4", 2_000_000)
    assert marks.overdue(12_000_000) and not marks.overdue(60_000_000) and marks.lost == 2
    assert marks.excess_ms == 600
