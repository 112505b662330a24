"""Playout at the caller, sample by sample: received frames placed on the client's time line.

A pure model of the simplest realistic loudspeaker. A frame starts to play when it is released to the player,
or when the frame before it has ended, whichever is later. Nothing to play is silence, at its true length.
While the bot speaks no sample is dropped or stretched: a late packet causes an audible gap and delays the
words after it. Silent frames that would play late are shortened instead. Otherwise the delay of one burst
would stay in the time line and falsify every later answer (an adaptive jitter buffer does the same in the
pauses of speech).
"""

from dataclasses import dataclass

import numpy as np

from parley.audio.audible import AUDIBLE, AudibleRule


@dataclass(frozen=True, slots=True)
class HeardFrame:
    """A decoded frame of the bot.

    Attributes:
        release_us: client time at which the player got it.
        pcm: int16, (samples,).
    """

    release_us: int
    pcm: np.ndarray


@dataclass(frozen=True, slots=True)
class Underrun:
    """Silence inside audible sound because the player had no frame.

    Attributes:
        position: sample of the time line at which the silence starts.
        samples: its length.
    """

    position: int
    samples: int


@dataclass(frozen=True, slots=True)
class Playout:
    """A time line.

    Attributes:
        pcm: int16, (samples,), sample 0 at the origin.
        underruns: silences between two audible frames, in order.
    """

    pcm: np.ndarray
    underruns: tuple[Underrun, ...]


def place(
    frames: list[HeardFrame], rate_hz: int, origin_us: int, end_us: int, rule: AudibleRule = AUDIBLE
) -> Playout:
    """Play ``frames`` and return the output from ``origin_us`` to ``end_us``.

    Args:
        frames: in playing order. Frames released before the origin are left out.
        rate_hz: of the frames.
        origin_us: client time of sample 0.
        end_us: client time of the end.
        rule: definition of audible.
    """
    timeline = np.zeros((end_us - origin_us) * rate_hz // 1_000_000, dtype=np.int16)
    underruns: list[Underrun] = []
    cursor = 0
    was_audible = False
    for frame in frames:
        position = (frame.release_us - origin_us) * rate_hz // 1_000_000
        if position < 0:
            continue
        pcm = frame.pcm
        audible = bool(np.abs(pcm.astype(np.int32)).max(initial=0) >= rule.amplitude * 32768)
        if not audible:
            pcm = pcm[min(max(cursor - position, 0), pcm.size) :]
        elif was_audible and position > cursor:
            underruns.append(Underrun(cursor, position - cursor))
        start = max(position, cursor)
        room = max(timeline.size - start, 0)
        timeline[start : start + min(pcm.size, room)] = pcm[:room]
        cursor = start + pcm.size
        was_audible = audible
    return Playout(timeline, tuple(underruns))


def lateness_us(arrivals_us: list[int], rtp_timestamps: list[int], clock_hz: int) -> list[int]:
    """Return the lateness of each packet, against the earliest one of its stream.

    A packet is due at its RTP timestamp. The smallest (arrival - due) of the stream is the zero, because
    nothing arrives before it was sent. Timestamps may wrap at 32 bits. A jump of more than a second between
    timestamps and arrivals (a sender that started over) begins a new stream with its own zero.
    """
    offsets: list[int] = []
    starts = [0]
    unwrapped = 0
    for index, (arrival, stamp) in enumerate(zip(arrivals_us, rtp_timestamps, strict=True)):
        if index:
            step = (stamp - rtp_timestamps[index - 1]) & 0xFFFFFFFF
            unwrapped += step - (1 << 32) if step >= 1 << 31 else step
        offsets.append(arrival - unwrapped * 1_000_000 // clock_hz)
        if index and abs(offsets[-1] - offsets[-2]) > 1_000_000:
            starts.append(index)
    late: list[int] = []
    for start, end in zip(starts, [*starts[1:], len(offsets)], strict=True):
        stream = offsets[start:end]
        late.extend(offset - min(stream) for offset in stream)
    return late
