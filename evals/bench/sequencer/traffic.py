"""Load of the sequencer's benchmark: reports of five specialists, as fast as they can be made.

Event times are drawn evenly over the session, arrivals are one latency later. A share of the reports carries
its event time and is older than that (a straggler: it may be late). A share is repeated. The words are
partials that are revised. The same seed gives the same traffic.
"""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from heapq import merge
from typing import NamedTuple

# The latencies of the reference design: words 80 ms, vision 200 ms, typed text none.
LATENCY_US = {"text": 0, "stt": 80_000, "prosody": 120_000, "diar": 160_000, "vision": 200_000}
# Partials come about every 100 ms and an utterance lasts one to two seconds.
REVISIONS = 12


class Spoken(NamedTuple):
    """The arguments of one report."""

    stream: str
    arrival_us: int
    payload: int
    event_us: int | None
    identity: str | None
    revision: int
    final: bool


@dataclass(frozen=True, slots=True)
class Mix:
    """Parameters of the traffic.

    Attributes:
        events_per_s: of session time, all streams together.
        tick_us: between two advances.
        stragglers: share of reports that are older than their stream's latency.
        straggle_us: additional age of those, at most.
        repeated: share of the words that come twice.
    """

    events_per_s: int = 500
    tick_us: int = 10_000
    stragglers: float = 0.002
    straggle_us: int = 150_000
    repeated: float = 0.01


def ticks(events: int, mix: Mix, seed: int) -> Iterator[tuple[int, list[Spoken]]]:
    """Yield the time of each advance and the reports that arrive before it, ``events`` of them altogether."""
    made = 0
    now_us = 0
    streams = [_stream(name, mix, random.Random(f"{seed} {name}")) for name in LATENCY_US]
    batch: list[Spoken] = []
    for spoken in merge(*streams, key=lambda one: one.arrival_us):
        while spoken.arrival_us > now_us + mix.tick_us:
            now_us += mix.tick_us
            yield now_us, batch
            batch = []
        batch.append(spoken)
        made += 1
        if made == events:
            yield now_us + mix.tick_us, batch
            return


def _stream(name: str, mix: Mix, chance: random.Random) -> Iterator[Spoken]:
    mean_us = 1_000_000 * len(LATENCY_US) / mix.events_per_s
    latency_us = LATENCY_US[name]
    event_us = 0
    number = 0
    while True:
        event_us += round(chance.uniform(0, 2 * mean_us))
        arrival_us = event_us + latency_us
        known_us = None
        if chance.random() < mix.stragglers:
            known_us = event_us - chance.randrange(mix.straggle_us)
        if name == "stt":
            utterance, revision = divmod(number, REVISIONS)
            final = revision == REVISIONS - 1
            spoken = Spoken(name, arrival_us, number, known_us, f"u{utterance}", revision, final)
            yield spoken
            if chance.random() < mix.repeated:
                yield spoken
        else:
            yield Spoken(name, arrival_us, number, known_us, None, 0, True)
        number += 1
