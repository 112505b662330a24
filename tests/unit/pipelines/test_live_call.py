"""Parts of a call that exist before its pipeline."""

from parley.pipelines.call import LiveCall
from parley.runtime.loop_clock import LoopClock


async def test_who_follows_the_packets_learns_when_a_device_took_them_until_the_call_is_over():
    live, seen = LiveCall(LoopClock(), rate_hz=16_000), list[tuple[bytes, int | None]]()
    live.follow_packets(lambda pcm, at_us: seen.append((pcm, at_us)))
    live.on_packet(b"\1\0", 7)
    live.on_packet(b"\2\0")
    live.close()
    live.on_packet(b"\3\0", 9)
    assert seen == [(b"\1\0", 7), (b"\2\0", None)]
