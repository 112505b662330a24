import numpy as np
import pytest

from parley.audio.framing import Framer

FRAME_SAMPLES = 160
PCM = np.random.default_rng(1).integers(-30_000, 30_000, 4_000).astype("<i2").tobytes()


def framed(sizes: list[int]) -> bytes:
    framer = Framer(FRAME_SAMPLES)
    out: list[bytes] = []
    at = 0
    while at < len(PCM):
        for size in sizes:
            out += framer.feed(PCM[at : at + size])
            at += size
    assert all(len(frame) == 2 * FRAME_SAMPLES for frame in out)
    return b"".join(out)


@pytest.mark.parametrize("sizes", [[320], [640], [1], [2, 3, 5, 999], [7_999], [321, 319, 0]])
def test_any_pieces_give_the_same_frames(sizes: list[int]) -> None:
    assert framed(sizes) == PCM[: len(PCM) // 320 * 320]


def test_what_does_not_fill_a_frame_waits() -> None:
    framer = Framer(FRAME_SAMPLES)
    assert list(framer.feed(PCM[:318])) == []
    assert framer.pending_samples == 159
    assert list(framer.feed(PCM[318:322])) == [PCM[:320]]
    assert framer.pending_samples == 1


def test_a_frame_has_a_length() -> None:
    with pytest.raises(ValueError, match="0 samples"):
        Framer(0)
