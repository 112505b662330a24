"""Lost packets of the benchmark, and what a call makes of them."""

import random
from itertools import groupby

import numpy as np
import pytest

from parley.evals.bench.packet_loss import BROWSER_HZ, encoded, losses, received

PACKET_BYTES = 640


@pytest.mark.parametrize(("loss", "burst"), [(0.05, 1.0), (0.2, 2.0)])
def test_losses_have_the_share_and_the_length_that_were_asked_for(loss: float, burst: float):
    lost = losses(50_000, loss, burst, random.Random(1))
    gaps = [len(list(run)) for is_lost, run in groupby(lost) if is_lost]
    assert sum(lost) / len(lost) == pytest.approx(loss, rel=0.05)
    assert sum(gaps) / len(gaps) == pytest.approx(burst, rel=0.05)


async def test_a_receiver_that_sees_no_gap_shortens_the_sound():
    sound = 0.3 * np.sin(np.arange(BROWSER_HZ) * 0.03).astype(np.float32)
    packets = encoded(sound, has_copies=True)
    lost = [number in (10, 11, 30) for number in range(len(packets))]
    lengths = [len(await received(packets, lost, sees_gaps=sees)) for sees in (True, False)]
    assert lengths == [len(packets) * PACKET_BYTES, (len(packets) - 3) * PACKET_BYTES]


async def test_all_of_a_long_recording_is_received():
    packets = encoded(np.zeros(10 * BROWSER_HZ, np.float32), has_copies=True)
    assert len(await received(packets, [False] * len(packets), sees_gaps=True)) == 10 * 50 * PACKET_BYTES
